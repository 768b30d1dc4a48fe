package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
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
