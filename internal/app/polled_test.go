package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
)

// routed returns the base of a process with a routing file, a database and a Redis.
func routed(t *testing.T, file string) *base {
	t.Helper()
	path := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	b := &base{ledger: testledger.Open(t, testledger.Migrated.SQLite(t)), scripts: lua.New(testredis.Start(t).Client(), lua.Keys{Cell: testredis.Cell(t)})}
	_, err := b.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	b.routing, err = routing.Read(path, llm.Settings{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, b.routing.Open(t.Context(), b.ledger))
	b.templates, err = openTemplates(t.Context(), b.ledger, "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return b
}

// publish replaces the routing file as an operator does.
func (b *base) publish(t *testing.T, file string) {
	t.Helper()
	content, err := llm.ParseContent("routing.yaml", file)
	require.NoError(t, err)
	_, err = b.ledger.PutRouting(t.Context(), ledger.RoutingRevision{
		Hash: content.Hash, Source: ledger.RoutingAPI, CreatedBy: "olga", Content: content.Text, Models: content.Models(),
	})
	require.NoError(t, err)
	require.NoError(t, b.routing.Refresh(t.Context()))
}

// O9: API keys may call all models of the routing, so workers poll those that they can call, whether or not a template uses them.
func TestPolled_ModelsOfTheRouting_PolledWithKey(t *testing.T) {
	t.Parallel()
	b := routed(t, "providers: {p: {baseURL: http://127.0.0.1:1/v1}, k: {baseURL: http://127.0.0.1:1/v1, keySetting: SOME_KEY}}\n"+
		"models: {m: {provider: p}, unused: {provider: p}, unkeyed: {provider: k}}\n")
	var log bytes.Buffer
	require.Equal(t, []string{"m", "unused"}, newPolled(b, slog.New(slog.NewTextHandler(&log, nil))).models(t.Context()))
	require.Empty(t, log.String(), "no template needs the other one")
}

// Workers state which upstreams they have the keys of: only those are counted among the slots of a model.
func TestPolled_UpstreamsOfModels_ThoseWithKey(t *testing.T) { // G12
	t.Parallel()
	b := routed(t, "providers: {p: {baseURL: http://127.0.0.1:1/v1}, k: {baseURL: http://127.0.0.1:1/v1, keySetting: SOME_KEY}}\n"+
		"models: {m: {upstreams: [{provider: p}, {provider: k}]}, unkeyed: {provider: k}}\n")
	require.Equal(t, []string{lua.PolledUpstream("m", "p")},
		newPolled(b, slog.New(slog.DiscardHandler)).upstreams([]string{berth.ModelTaskQueue("m"), berth.ModelTaskQueue("unkeyed"), berth.ModelTaskQueue("removed")}))
}

// G15: a model that accepted tasks need and no worker polls is logged once, until one does.
func TestPolled_TasksNeedModelThatNoWorkerPolls_LoggedOnce(t *testing.T) {
	t.Parallel()
	b := routed(t, "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels: {m: {provider: p}, unused: {provider: p}}\n")
	_, _, err := b.ledger.CreateTask(t.Context(), berth.Task{
		TaskPlan: berth.TaskPlan{
			TaskRequest: berth.TaskRequest{ID: "t_1", ServiceID: "s", Template: "t", Locale: berth.LocaleEN, Tier: berth.TierPaid},
			UserID:      "u", Steps: []berth.Step{{Name: "one", Queue: "q", Model: "m"}}, RequestHash: "h",
		},
		Status: berth.TaskPending, CreatedAt: time.Now(), DeadlineAt: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	b.publish(t, "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels: {m: {provider: p, cap: 2}, unused: {provider: p}}\n")
	require.Equal(t, []string{"m"}, b.routing.Current().Open())
	var log bytes.Buffer
	p, known := newPolled(b, slog.New(slog.NewTextHandler(&log, nil))), map[string]bool{}
	warned := func() int {
		log.Reset()
		p.warnUnpolled(t.Context(), known)
		require.NotContains(t, log.String(), "unused")
		return strings.Count(log.String(), "level=WARN msg=\"accepted tasks need a model that no worker polls; they wait until their deadline\" model=m ")
	}
	require.NoError(t, b.scripts.MarkPollers(t.Context(), []string{berth.ModelTaskQueue("other")}))
	require.Equal(t, 1, warned())
	require.Zero(t, warned(), "it is known")
	require.NoError(t, b.scripts.MarkPollers(t.Context(), []string{berth.ModelTaskQueue("m")}))
	require.Zero(t, warned())
	require.False(t, known["m"])
}

// G12: a process that starts on an older backup of the database publishes its routing above the revision that Redis knows.
func TestRoutingCheck_RedisKnowsHigherRevision_RoutingExceedsIt(t *testing.T) {
	t.Parallel()
	b := routed(t, "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels: {m: {provider: p, cap: 2}}\n")
	slots := func() int {
		room, err := b.scripts.ReadRoom(t.Context(), "m", b.routing.Current().LimitsOf("m", 0), 0)
		require.NoError(t, err)
		return room.Upstreams[0].Cap
	}
	lost := lua.OneUpstream(9)
	lost.Revision = 7
	_, _, err := b.scripts.ReleaseSlot(t.Context(), "m", lost, lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant},
		lua.Lease{Process: "p", Path: lua.Path{Queue: "q", UserID: "u"}}.ID())
	require.NoError(t, err)
	require.Equal(t, 9, slots(), "limits of revision 1 have no effect")
	newRoutingCheck(b, slog.New(slog.DiscardHandler)).settings(t.Context())
	require.EqualValues(t, 8, b.routing.Current().Revision)
	require.Equal(t, 2, slots())
}

// G12: what operators have set for an upstream that was renamed is logged by name, once.
func TestRoutingCheck_UpstreamRenamed_SettingsWithoutEffectLogged(t *testing.T) {
	t.Parallel()
	file := func(name string) string {
		return "providers: {p: {baseURL: http://127.0.0.1:1/v1}}\nmodels: {m: {provider: p, upstreams: [{name: " + name + "}, {name: other}]}}\n"
	}
	b := routed(t, file("old"))
	var log bytes.Buffer
	c := newRoutingCheck(b, slog.New(slog.NewTextHandler(&log, nil)))
	times := lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant}
	for _, upstream := range []string{"old", "other"} {
		_, err := b.scripts.SetModelLimits(t.Context(), "m", upstream, times, lua.OperatorLimits{Paused: true})
		require.NoError(t, err)
	}
	c.settings(t.Context())
	require.Empty(t, log.String())
	b.publish(t, file("new"))
	for range 2 {
		c.settings(t.Context())
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "level=WARN msg=\"operator settings of an upstream have no effect: the routing does not have it\" model=m upstream=old ")
}
