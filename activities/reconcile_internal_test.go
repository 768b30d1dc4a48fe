package activities

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
	"berth/internal/testledger"
	"berth/internal/testredis"
	"berth/lua"
)

func TestReconciler_FullDue_AfterGapsTimeAndUnfinishedRepairs(t *testing.T) { // B4
	t.Parallel()
	r := &Reconciler{Options: ReconcileOptions{FullEvery: time.Hour}}
	now := time.Now()
	pass := func(id string, ago time.Duration, repaired int) berth.ReconcilePass {
		p := berth.ReconcilePass{ID: id, StartedAt: now.Add(-ago), EndedAt: now.Add(-ago)}
		if repaired > 0 {
			p.Counts = []berth.ReconcileCount{{Rule: berth.RuleBalance, Found: repaired, Held: repaired, Repaired: repaired}}
		}
		return p
	}
	full, recent := pass("full", 20*time.Minute, 0), pass("quick", time.Minute, 0)
	for name, c := range map[string]struct {
		history ledger.PassHistory
		due     bool
	}{
		"no pass yet":                    {ledger.PassHistory{}, true},
		"passes follow each other":       {ledger.PassHistory{Full: full, Completed: recent}, false},
		"an hour since the last":         {ledger.PassHistory{Full: pass("full", time.Hour, 0), Completed: recent}, true},
		"no pass for ten minutes":        {ledger.PassHistory{Full: full, Completed: pass("quick", 11*time.Minute, 0)}, true},
		"none has completed":             {ledger.PassHistory{Full: full}, true},
		"more to repair":                 {ledger.PassHistory{Full: pass("full", time.Second, 0), Completed: recent, Unfinished: pass("quick", 0, 200)}, true},
		"nothing could be repaired":      {ledger.PassHistory{Full: pass("full", 5*time.Minute, 0), Completed: recent, Unfinished: pass("full", 5*time.Minute, 0)}, true},
		"nothing could be repaired now":  {ledger.PassHistory{Full: pass("full", time.Minute, 0), Completed: recent, Unfinished: pass("full", time.Minute, 0)}, false},
		"stopped a moment ago, none yet": {ledger.PassHistory{Full: pass("full", time.Minute, 0)}, false},
	} {
		require.Equal(t, c.due, r.fullDue(c.history, now), name)
	}
}

// Each unit lists its conferences once in the time between two full passes, however often passes are made.
func TestListDue_PassesOfAnHour_EachUnitOnce(t *testing.T) { // B4, C4
	t.Parallel()
	start := time.UnixMilli(1_700_000_000_000)
	for _, every := range []time.Duration{30 * time.Second, 7 * time.Minute, time.Hour} {
		slots := map[time.Time]int{}
		for i := range 200 {
			id := fmt.Sprint("unit-", i)
			lists := 0
			for at := start.Add(every); !at.After(start.Add(time.Hour + every - 1)); at = at.Add(every) {
				if listDue(id, time.Hour, at.Add(-every), at) {
					lists++
					slots[at]++
				}
			}
			require.InDelta(t, 1, lists, 1, id)
			require.False(t, listDue(id, time.Hour, time.Time{}, start), "before the first pass nothing is known to be late")
		}
		if every == 30*time.Second {
			for at, n := range slots {
				require.Less(t, n, 12, "at a slow pace: %s", at)
			}
		}
	}
}

// FP4: operators get an event of a pass that changes something for them. Passes that found nothing follow each other every 30 s, for days.
func TestReconciler_PassEnds_EventOfChangesOnly(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	t.Cleanup(func() { _ = rdb.Close() })
	r := &Reconciler{
		Ledger: testledger.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "berth.db")), Scripts: lua.New(rdb, lua.Keys{}), Logger: slog.New(slog.DiscardHandler),
	}
	_, err := r.Scripts.MarkNew(t.Context())
	require.NoError(t, err)
	found := []berth.ReconcileFinding{{Rule: berth.RuleBalance, Subject: "alice", Outcome: berth.FindingRepaired}}
	begun := time.Now().Add(-time.Hour)
	for i, c := range []struct {
		name  string
		pass  berth.ReconcilePass
		found []berth.ReconcileFinding
		event bool
	}{
		{"the first", berth.ReconcilePass{Status: berth.ReconcileCompleted}, nil, false},
		{"nothing found", berth.ReconcilePass{Status: berth.ReconcileCompleted}, nil, false},
		{"nothing found by a full pass", berth.ReconcilePass{Kind: berth.ReconcileFull, Status: berth.ReconcileCompleted}, nil, false},
		{"something found", berth.ReconcilePass{Status: berth.ReconcileCompleted}, found, true},
		{"nothing found again", berth.ReconcilePass{Status: berth.ReconcileCompleted}, nil, false},
		{"requested", berth.ReconcilePass{Status: berth.ReconcileCompleted, Requested: true}, nil, true},
		{"a dry run", berth.ReconcilePass{Status: berth.ReconcileCompleted, Requested: true, DryRun: true}, nil, true},
		{"Redis became unavailable", berth.ReconcilePass{Status: berth.ReconcileSkipped, Reason: "Redis"}, nil, true},
		{"Redis is still unavailable", berth.ReconcilePass{Status: berth.ReconcileSkipped, Reason: "Redis"}, nil, false},
		{"a dry run meanwhile", berth.ReconcilePass{Status: berth.ReconcileCompleted, Requested: true, DryRun: true}, nil, true},
		{"Redis is unavailable for long", berth.ReconcilePass{Status: berth.ReconcileSkipped, Reason: "Redis"}, nil, false},
		{"Redis is available again", berth.ReconcilePass{Status: berth.ReconcileCompleted}, nil, true},
		{"nothing found since", berth.ReconcilePass{Status: berth.ReconcileCompleted}, nil, false},
	} {
		if c.pass.ID, c.pass.StartedAt = fmt.Sprint("pass-", i), begun.Add(time.Duration(i)*30*time.Second); c.pass.Kind == "" {
			c.pass.Kind = berth.ReconcileQuick
		}
		for range 2 { // the activity may be repeated
			r.end(t.Context(), c.pass, c.found)
		}
		events, err := rdb.XRange(t.Context(), lua.Keys{}.Stream("", lua.OperatorService, "events"), "-", "+").Result()
		require.NoError(t, err)
		at := 0
		for _, e := range events {
			var ev berth.OperatorEvent
			require.NoError(t, json.Unmarshal([]byte(e.Values["e"].(string)), &ev)) //nolint:errcheck,forcetypeassert // a text, like all values in Redis
			if ev.PassID == c.pass.ID {
				at++
			}
		}
		require.Equal(t, c.event, at > 0, c.name)
	}
}
