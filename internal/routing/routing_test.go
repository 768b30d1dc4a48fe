package routing

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/testledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged collects a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// with returns a routing file with models; the cap of all is as given.
func with(maxCalls int, models ...string) string {
	text := "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels:\n"
	for _, m := range models {
		text += fmt.Sprintf("  %s: {provider: p, cap: %d}\n", m, maxCalls)
	}
	return text
}

// process is one process with a routing file of its own.
type process struct {
	*Routing

	t    *testing.T
	path string
	log  logged
}

// start starts a process, which follows its file until the test ends.
func start(t *testing.T, l *ledger.Ledger, text string) *process {
	t.Helper()
	p := &process{t: t, path: filepath.Join(t.TempDir(), "routing.yaml")}
	p.write(text)
	routing, err := Read(p.path, llm.Settings{}, slog.New(slog.NewTextHandler(&p.log, nil)))
	require.NoError(t, err)
	require.NoError(t, routing.Open(t.Context(), l))
	p.Routing = routing
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { routing.Run(ctx, func() {}) })
	t.Cleanup(func() { stop(); running.Wait() })
	return p
}

func (p *process) write(text string) {
	p.t.Helper()
	next := p.path + ".next"
	require.NoError(p.t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(p.t, os.Rename(next, p.path))
}

// capOf returns the number of slots of a model, 0 for one that the catalog does not have.
func capOf(c *llm.Catalog, model string) int {
	m, _ := c.Model(model)
	return m.Cap
}

// uses waits until the process uses a revision with this cap of its first model.
func (p *process) uses(revision int64, maxCalls int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		now := p.Current()
		return now.Revision == revision && capOf(now.Catalog, now.ModelNames()[0]) == maxCalls
	}, 10*time.Second, time.Millisecond, "now %d; %s", p.Current().Revision, &p.log)
}

func (p *process) logs(text ...string) {
	p.t.Helper()
	for _, one := range text {
		require.Eventually(p.t, func() bool { return bytes.Contains([]byte(p.log.String()), []byte(one)) }, 10*time.Second, time.Millisecond, "%s in %s", one, &p.log)
	}
}

// G10, G15: two processes with different files use the same revision, at every moment.
func TestRouting_TwoProcessesTwoFiles_NewestRevisionInBoth(t *testing.T) {
	t.Parallel()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	a := start(t, l, with(1, "m"))
	b := start(t, l, with(2, "m"))
	a.uses(2, 2)
	b.uses(2, 2)
	a.logs("level=WARN msg=\"routing file not used: a newer revision is\"", "revision=1 used=2", "berth routing apply "+a.path)

	a.write(with(3, "m"))
	a.uses(3, 3)
	b.uses(3, 3)
	b.logs("revision=2 used=3")

	again := start(t, l, with(1, "m")) // a process of long ago
	again.uses(3, 3)
	again.logs("revision=1 used=3")

	content, err := llm.ParseContent("f", with(1, "m"))
	require.NoError(t, err)
	_, err = l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: content.Hash, Content: content.Text, Source: ledger.RoutingAPI, CreatedBy: "olga"})
	require.NoError(t, err)
	for _, p := range []*process{a, b, again} {
		p.uses(4, 1)
	}
}

// A file that cannot be read changes nothing, and its mistake is logged once, with the line.
func TestRouting_FileBroken_LastRevisionRemains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		broken func(p *process)
		said   string
	}{
		"a mistake": {func(p *process) { p.write("providers: {}\nmodels:\n  m: {provider: p}\n") }, "models.m.provider (line 3): no provider"},
		"no YAML":   {func(p *process) { p.write("providers: [") }, "routing.yaml: "},
		"removed":   {func(p *process) { require.NoError(p.t, os.Remove(p.path)) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, testledger.Open(t, testledger.Migrated.SQLite(t)), with(1, "m"))
			c.broken(p)
			p.logs("level=ERROR msg=\"routing file not used; the revision in use remains\"", c.said)
			p.uses(1, 1)
			p.write(with(2, "m"))
			p.uses(2, 2)
			p.logs("mistakes in the routing file are gone")
			require.Equal(t, 1, bytes.Count([]byte(p.log.String()), []byte("level=ERROR")), &p.log)
		})
	}
}

// A file that means the same makes no revision; one that is edited back does.
func TestRouting_FileChanged_RevisionPerMeaning(t *testing.T) {
	t.Parallel()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	p := start(t, l, with(1, "a", "b"))
	p.write("models: {b: {cap: 1, provider: p}, a: {provider: p, cap: 1}} # another order\nproviders: {p: {baseURL: http://127.0.0.1:1/v1}}\n")
	p.write(with(2, "a", "b"))
	p.uses(2, 2)
	p.write("# a comment\n" + with(2, "a", "b"))
	p.write(with(1, "a", "b"))
	p.uses(3, 1)
	all, _, err := l.RoutingRevisions(t.Context(), "", 0)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Contains(t, all[0].Origin, p.path)
}

// G12: after an older backup of the database was restored, the revision in use gets a number above all that were used, which Redis would ignore
// otherwise.
func TestRouting_OlderDatabaseRestored_CurrentRevisionExceedsLostOnes(t *testing.T) {
	t.Parallel()
	t.Run("processes run", func(t *testing.T) {
		t.Parallel()
		l, backup := testledger.Open(t, testledger.Migrated.SQLite(t)), testledger.Open(t, testledger.Migrated.SQLite(t))
		old := start(t, backup, with(1, "m"))
		old.uses(1, 1)
		p := start(t, l, with(1, "m"))
		for i := range 3 {
			p.write(with(2+i, "m"))
			p.uses(int64(2+i), 2+i)
		}
		p.refreshing.Lock()
		p.ledger = backup
		p.refreshing.Unlock()
		p.uses(5, 4)
		old.uses(5, 4)
		p.logs("level=WARN msg=\"routing published again: the database has lost the revision that processes use", "lost=4 revision=5")
	})
	t.Run("processes are started", func(t *testing.T) {
		t.Parallel()
		l := testledger.Open(t, testledger.Migrated.SQLite(t))
		a, b := start(t, l, with(1, "m")), start(t, l, with(1, "m"))
		for _, p := range []*process{a, b, a} {
			require.NoError(t, p.Exceed(t.Context(), 7)) // which Redis knows
		}
		for _, p := range []*process{a, b} {
			p.uses(8, 1)
		}
		require.NoError(t, a.Exceed(t.Context(), 8))
		a.write(with(2, "m"))
		b.uses(9, 2)
		all, _, err := l.RoutingRevisions(t.Context(), "", 0)
		require.NoError(t, err)
		require.Len(t, all, 3)
	})
}

// A revision of a later release is left alone.
func TestRouting_RevisionUnreadable_LastReadableOneRemains(t *testing.T) {
	t.Parallel()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	p := start(t, l, with(1, "m"))
	_, err := l.PutRouting(t.Context(), ledger.RoutingRevision{Hash: "later", Content: "upstreams: {}", Source: ledger.RoutingAPI, CreatedBy: "olga"})
	require.NoError(t, err)
	p.logs("level=ERROR msg=\"revision of the routing not readable; it is of another release\"", "revision=2")
	p.uses(1, 1)
	started := start(t, l, with(1, "m"))
	started.uses(1, 1)
	p.write(with(3, "m"))
	p.uses(3, 3)
	started.uses(3, 3)
}

// G15: a removed model is that of the last revision that had it, for as long as tasks need it.
func TestRouting_ModelRemoved_LastRevisionThatHadItUntilTasksEnded(t *testing.T) {
	t.Parallel()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	p := start(t, l, with(1, "a", "gone", "unused"))
	accept := func(id, model string) {
		_, _, err := l.CreateTask(t.Context(), berth.Task{
			TaskPlan: berth.TaskPlan{
				TaskRequest: berth.TaskRequest{ID: id, ServiceID: "s", Template: "t", Locale: berth.LocaleEN, Tier: berth.TierPaid},
				UserID:      "u", Steps: []berth.Step{{Name: "one", Queue: "q", Model: model}}, RequestHash: "h",
			},
			Status: berth.TaskPending, CreatedAt: time.Now(), DeadlineAt: time.Now().Add(time.Hour),
		})
		require.NoError(t, err)
	}
	accept("t_1", "gone")
	accept("t_2", "never")
	p.write(with(2, "a"))
	p.uses(2, 2)
	require.Equal(t, []string{"a", "gone", "unused"}, p.Current().Names(), "another process may still accept tasks")
	require.Equal(t, 1, capOf(p.Of("gone"), "gone"))
	require.Equal(t, 2, capOf(p.Of("a"), "a"))
	require.False(t, p.Current().Has("gone"))

	started := start(t, l, with(2, "a")) // later
	require.Equal(t, []string{"a", "gone"}, started.Current().Names())
	require.EqualValues(t, 1, started.Current().Former()["gone"].Revision)
	require.Equal(t, 1, started.Current().Former()["gone"].Tasks)
	require.Equal(t, map[string]int{"never": 1}, started.Current().Unknown())
	started.logs("level=WARN msg=\"tasks wait for a model that no revision of the routing has\" model=never tasks=1")

	_, _, err := l.FinishTask(t.Context(), ledger.End{TaskRef: berth.TaskRef{UserID: "u", TaskID: "t_1"}, Status: berth.TaskCancelled})
	require.NoError(t, err)
	check := func(p *process) {
		p.refreshing.Lock()
		p.checked = time.Time{} // a minute later
		p.refreshing.Unlock()
		require.NoError(t, p.Refresh(t.Context()))
	}
	check(started)
	require.Contains(t, started.Current().Names(), "gone", "it was removed a moment ago")
	started.refreshing.Lock()
	now := *started.Current()
	now.former = map[string]FormerModel{}
	for name, f := range started.Current().former {
		f.removed = f.removed.Add(-removedWithin)
		now.former[name] = f
	}
	started.current.Store(&now)
	started.refreshing.Unlock()
	check(started)
	require.NotContains(t, started.Current().Names(), "gone")
	started.logs("removed model not needed any more")

	p.write(with(3, "a", "gone", "never"))
	started.uses(3, 3)
	require.Equal(t, []string{"a", "gone", "never"}, started.Current().Names())
	require.Empty(t, started.Current().Former())
	require.Empty(t, started.Current().Unknown())
}

// A process without a file follows the others, and publishes that of the program only where there is no other.
func TestRouting_NoFile_FollowsTheLedger(t *testing.T) {
	t.Parallel()
	l := testledger.Open(t, testledger.Migrated.SQLite(t))
	open := func() (*Routing, *logged) {
		log := &logged{}
		r, err := Read("", llm.Settings{}, slog.New(slog.NewTextHandler(log, nil)))
		require.NoError(t, err)
		require.NoError(t, r.Open(t.Context(), l))
		return r, log
	}
	r, _ := open()
	require.True(t, r.Current().Has("deepseek-chat"))
	start(t, l, with(7, "m")).uses(2, 7)
	r, log := open()
	require.Equal(t, []string{"m"}, r.Current().Names())
	require.NotContains(t, log.String(), "WARN")
}

func TestRead_FileBroken_SettingNamed(t *testing.T) {
	t.Parallel()
	_, err := Read(filepath.Join(t.TempDir(), "none.yaml"), llm.Settings{}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "BERTH_ROUTING_FILE")
}
