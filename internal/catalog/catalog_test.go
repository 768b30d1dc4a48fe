package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/internal/template"
	"berth/internal/testledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load returns a template of one prompt.
func load(t testing.TB, name berth.Template, words string) *template.Template {
	t.Helper()
	loaded, err := template.Load(name, map[string]string{string(name) + ".prompt": "---\ntitle: T\nmodels: m\nvariables: [{name: x}]\n---\n" + words + " {{x}}\n"})
	require.NoError(t, err)
	return loaded
}

func each(t *testing.T, f func(t *testing.T, l *ledger.Ledger)) {
	t.Helper()
	t.Parallel()
	testledger.Migrated.Each(t, func(t *testing.T, dsn string) { f(t, testledger.Open(t, dsn)) })
}

func open(t *testing.T, l *ledger.Ledger, source ledger.TemplateSource, templates ...*template.Template) *Catalog {
	t.Helper()
	c := New(l, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Offer(t.Context(), source, templates, false))
	require.NoError(t, c.Refresh(t.Context()))
	return c
}

func requireVersion(t *testing.T, c *Catalog, want *template.Template) {
	t.Helper()
	got, err := c.Template(want.Name)
	require.NoError(t, err)
	require.Equal(t, want.Version, got.Version)
}

// G2: a change in one process is used by every other within a second.
func TestCatalog_VersionActivated_OtherProcessesUseIt(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		one, two := load(t, "a", "one"), load(t, "a", "two")
		first, second := open(t, l, ledger.TemplateBuiltIn, one), open(t, l, ledger.TemplateBuiltIn, one)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); second.Run(ctx, func() {}) }()
		defer func() { cancel(); <-ended }()

		_, err := l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: "a", Version: two.Version, Files: two.Files(), Source: ledger.TemplateAPI}, true)
		require.NoError(t, err)
		require.NoError(t, first.Refresh(t.Context()))
		requireVersion(t, first, two)
		require.Eventually(t, func() bool {
			got, err := second.Template("a")
			return err == nil && got.Version == two.Version
		}, 10*time.Second, 10*time.Millisecond)

		require.NoError(t, l.DeleteTemplate(t.Context(), "a", "olga"))
		require.NoError(t, first.Refresh(t.Context()))
		_, err = first.Template("a")
		require.ErrorContains(t, err, "deleted")
		require.Empty(t, first.List())
		got, err := first.Version(t.Context(), "a", one.Version)
		require.NoError(t, err, "of accepted tasks")
		require.Equal(t, one.Version, got.Version)
	})
}

func TestCatalog_UnknownNameOrVersion_IsSaid(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		c := open(t, l, ledger.TemplateBuiltIn, load(t, "a", "one"))
		_, err := c.Template("b")
		require.Equal(t, berth.CodeInvalid, berth.CodeOf(err))
		for _, k := range []key{{"a", "x"}, {"b", "x"}} {
			_, err = c.Version(t.Context(), k.name, k.version)
			require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
		}
		_, err = c.State("b")
		require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	})
}

// A version that a newer release has stored makes only its own template unavailable.
func TestCatalog_VersionNotReadable_OthersRemain(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		c := open(t, l, ledger.TemplateBuiltIn, load(t, "a", "one"), load(t, "b", "one"))
		_, err := l.PutTemplate(t.Context(), ledger.TemplateVersion{
			Template: "a", Version: "newer", Source: ledger.TemplateAPI, Files: map[string]string{"template.yaml": "title: T\nnewField: 1\n"},
		}, true)
		require.NoError(t, err)
		require.NoError(t, c.Refresh(t.Context()))
		_, err = c.Template("a")
		require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
		requireVersion(t, c, load(t, "b", "one"))
		require.NoError(t, l.ActivateTemplate(t.Context(), "a", load(t, "a", "one").Version, "olga"))
		require.NoError(t, c.Refresh(t.Context()))
		requireVersion(t, c, load(t, "a", "one"))
	})
}

// G3: versions are read from the database by any process, and kept.
func TestCatalog_ManyReadersOfAVersion_EachGetsIt(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		var versions []*template.Template
		for i := range 20 {
			versions = append(versions, load(t, "a", fmt.Sprint("words", i)))
			_, err := l.PutTemplate(t.Context(), ledger.TemplateVersion{Template: "a", Version: versions[i].Version, Files: versions[i].Files(), Source: ledger.TemplateAPI}, true)
			require.NoError(t, err)
		}
		c := open(t, l, ledger.TemplateBuiltIn)
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				for _, v := range versions {
					got, err := c.Version(t.Context(), "a", v.Version)
					if err != nil {
						return err
					}
					if got.Version != v.Version {
						return fmt.Errorf("version %s in place of %s", got.Version, v.Version)
					}
				}
				return c.Refresh(t.Context())
			})
		}
		require.NoError(t, g.Wait())
		for _, v := range versions {
			again, err := c.Version(t.Context(), "a", v.Version)
			require.NoError(t, err)
			same, err := c.Version(t.Context(), "a", v.Version)
			require.NoError(t, err)
			require.Same(t, again, same)
		}
	})
}
