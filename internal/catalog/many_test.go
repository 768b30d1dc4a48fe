package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver of SQLite

	"berth"
	"berth/internal/ledger"
	"berth/internal/template"
	"berth/internal/testledger"
)

const (
	manyTemplates = 1000
	manyVersions  = 10
)

// many returns a ledger with many templates, each with many versions, of which the last is active.
func many(tb testing.TB) (*ledger.Ledger, []*template.Template) {
	tb.Helper()
	dsn := testledger.Migrated.SQLite(tb)
	db, err := sql.Open("sqlite", strings.TrimPrefix(dsn, "sqlite:"))
	require.NoError(tb, err)
	tx, err := db.Begin()
	require.NoError(tb, err)
	var active []*template.Template
	for i := range manyTemplates {
		one := load(tb, berth.Template(fmt.Sprintf("t%d", i)), "words")
		active = append(active, one)
		files, err := json.Marshal(one.Files())
		require.NoError(tb, err)
		for v := range manyVersions {
			version := fmt.Sprint(v)
			if v == manyVersions-1 {
				version = one.Version
			}
			_, err = tx.Exec(`INSERT INTO template_versions (template, version, source, created_at, created_by, used_at, files) VALUES ($1, $2, 'api', $3, 'olga', 0, $4)`,
				one.Name, version, v, string(files))
			require.NoError(tb, err)
		}
		_, err = tx.Exec(`INSERT INTO templates (template, version, deleted, changed_at, changed_by, changes) VALUES ($1, $2, FALSE, 1, 'olga', $3)`,
			one.Name, one.Version, manyVersions)
		require.NoError(tb, err)
	}
	require.NoError(tb, tx.Commit())
	require.NoError(tb, db.Close())
	return testledger.Open(tb, dsn), active
}

// counted counts what a catalog asks a ledger for.
type counted struct {
	*ledger.Ledger

	changes, lists, rows, versions, bytes, offered atomic.Int64
}

func (c *counted) OfferTemplates(ctx context.Context, versions []ledger.TemplateVersion, changed bool) ([]ledger.OfferedTemplate, error) {
	c.offered.Add(int64(len(versions)))
	return c.Ledger.OfferTemplates(ctx, versions, changed)
}

func (c *counted) TemplateChanges(ctx context.Context) (int64, error) {
	c.changes.Add(1)
	return c.Ledger.TemplateChanges(ctx)
}

func (c *counted) Templates(ctx context.Context) ([]ledger.TemplateState, error) {
	all, err := c.Ledger.Templates(ctx)
	c.lists.Add(1)
	c.rows.Add(int64(len(all)))
	return all, err
}

func (c *counted) TemplateVersion(ctx context.Context, name berth.Template, version string) (ledger.TemplateVersion, error) {
	v, err := c.Ledger.TemplateVersion(ctx, name, version)
	c.versions.Add(1)
	for _, text := range v.Files {
		c.bytes.Add(int64(len(text)))
	}
	return v, err
}

// took returns the counts since the last call.
func (c *counted) took() map[string]int64 {
	return map[string]int64{
		"changes": c.changes.Swap(0), "lists": c.lists.Swap(0), "rows": c.rows.Swap(0), "versions": c.versions.Swap(0), "bytes": c.bytes.Swap(0), "offered": c.offered.Swap(0),
	}
}

func counting(l *ledger.Ledger) (*Catalog, *counted) {
	c, count := New(l, slog.New(slog.DiscardHandler)), &counted{Ledger: l}
	c.ledger = count
	return c, count
}

// G2: with many templates, a start reads each active version once, a look without a change is one query, and a change reads one version.
func TestCatalog_ThousandTemplatesWithTenVersions_EachReadOnce(t *testing.T) {
	t.Parallel()
	l, active := many(t)
	c, count := counting(l)
	size := int64(0)
	for _, one := range active {
		for _, text := range one.Files() {
			size += int64(len(text))
		}
	}
	require.NoError(t, c.Refresh(t.Context()))
	require.Len(t, c.List(), manyTemplates)
	require.Equal(t, map[string]int64{"changes": 1, "lists": 1, "rows": manyTemplates, "versions": manyTemplates, "bytes": size, "offered": 0}, count.took(), "the start")

	for range 10 {
		require.NoError(t, c.Refresh(t.Context()))
		for _, one := range active {
			got, err := c.Version(t.Context(), one.Name, one.Version)
			require.NoError(t, err)
			require.Equal(t, one.Version, got.Version)
		}
		used, err := c.Used(t.Context())
		require.NoError(t, err)
		require.Len(t, used, manyTemplates)
	}
	require.Equal(t, map[string]int64{"changes": 10, "lists": 0, "rows": 0, "versions": 0, "bytes": 0, "offered": 0}, count.took(), "no change")

	next := load(t, "t7", "a new version")
	_, err := l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: "t7", Version: next.Version, Files: next.Files(), Source: ledger.TemplateAPI}, true)
	require.NoError(t, err)
	require.NoError(t, c.Refresh(t.Context()))
	requireVersion(t, c, next)
	took := count.took()
	require.Equal(t, []int64{1, 1, manyTemplates, 1}, []int64{took["changes"], took["lists"], took["rows"], took["versions"]}, "one change")

	// A process that has all of them in its directory reads none.
	other, count := counting(l)
	require.NoError(t, other.Offer(t.Context(), ledger.TemplateDirectory, append(active[:7:7], active[8:]...), false))
	require.NoError(t, other.Refresh(t.Context()))
	took = count.took()
	require.Equal(t, []int64{1, 1, manyTemplates - 1}, []int64{took["versions"], took["lists"], took["offered"]}, "of a directory")
}

// Versions of tasks are kept up to a bound, and those that were offered together are not dropped by each other.
func TestCatalog_MoreVersionsThanKept_BoundedAndStillRead(t *testing.T) {
	t.Parallel()
	c, _ := counting(nil)
	versions := make([]*template.Template, maxKept)
	for i := range versions {
		versions[i] = &template.Template{Name: "a", Version: fmt.Sprint(i)}
	}
	c.keep(versions...)
	for _, v := range versions {
		require.Same(t, v, (*c.kept.Load())[key{v.Name, v.Version}])
	}
	for i := range 3 {
		c.keep(&template.Template{Name: "b", Version: fmt.Sprint(i)})
		require.LessOrEqual(t, len(*c.kept.Load()), maxKept)
	}
}

// What many templates cost: the start of a process that reads them, and of one that has them in a directory.
func BenchmarkCatalog_ThousandTemplatesWithTenVersions(b *testing.B) {
	l, active := many(b)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		before := heap()
		var c *Catalog
		var count *counted
		for b.Loop() {
			c, count = counting(l)
			require.NoError(b, c.Refresh(b.Context()))
		}
		b.ReportMetric(float64(heap()-before)/1024/manyTemplates, "KiB/template")
		took := count.took()
		b.ReportMetric(float64(took["changes"]+took["lists"]+took["versions"]), "queries/op")
		b.ReportMetric(float64(took["bytes"])/1024, "KiB-read/op")
		require.Len(b, c.List(), manyTemplates)
	})
	b.Run("offer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, _ := counting(l)
			require.NoError(b, c.Offer(b.Context(), ledger.TemplateDirectory, active, false))
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		c, _ := counting(l)
		require.NoError(b, c.Refresh(b.Context()))
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, c.Refresh(b.Context()))
		}
	})
}
