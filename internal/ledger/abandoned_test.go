package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettleAbandoned_ProcessOrTimeEnded_ThoseCallsOnly(t *testing.T) { // O4, P8
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		reserve := func(process string, timeout, age time.Duration) DirectCall {
			d := direct("k", 0)
			d.Process, d.Timeout, d.Account = process, timeout, false
			require.NoError(t, l.ReserveCall(ctx, d))
			_, err := l.exec(ctx, "age", `UPDATE calls SET created_at = created_at - $2, deadline_at = deadline_at - $2 WHERE id = $1`, d.ID, age.Milliseconds())
			require.NoError(t, err)
			return d
		}
		vanish(t, l, "gone")
		require.NoError(t, l.MarkProcess(ctx, "lives"))
		require.NoError(t, l.MarkProcess(ctx, "stopped"))
		require.NoError(t, l.ForgetProcess(ctx, "stopped"))
		var open, lost []string
		for _, c := range []struct {
			process      string
			timeout, age time.Duration
			lost         bool
		}{
			{"lives", time.Hour, 30 * time.Minute, false},
			{"lives", time.Hour, time.Hour + unseen/2, false},
			{"lives", time.Hour, time.Hour + 2*unseen, true},
			{"gone", time.Hour, 0, true},
			{"gone", time.Hour, 0, true},
			{"never-marked", time.Hour, 0, false},
			{"never-marked", time.Hour, 2 * unseen, true},
			{"stopped", time.Hour, 2 * unseen, true},
		} {
			d := reserve(c.process, c.timeout, c.age)
			if open = append(open, d.ID); c.lost {
				open, lost = open[:len(open)-1], append(lost, d.ID)
			}
		}
		first, err := l.AbandonedProcesses(ctx, unseen, "", 2)
		require.NoError(t, err)
		require.Equal(t, []string{"gone", "lives"}, first)
		rest, err := l.AbandonedProcesses(ctx, unseen, "lives", 5)
		require.NoError(t, err)
		require.Equal(t, []string{"never-marked", "stopped"}, rest)
		of, err := l.AbandonedCalls(ctx, "gone", unseen, 5)
		require.NoError(t, err)
		require.ElementsMatch(t, lost[1:3], of)
		of, err = l.AbandonedCalls(ctx, "gone", unseen, 1)
		require.NoError(t, err)
		require.Len(t, of, 1)

		require.NoError(t, l.MarkProcess(ctx, "gone"))
		require.NoError(t, l.SettleAbandoned(ctx, lost[1], unseen))
		of, err = l.AbandonedCalls(ctx, "gone", -unseen, 5)
		require.NoError(t, err)
		require.Len(t, of, 2, "it was seen again")
		vanish(t, l, "gone")
		for _, id := range append(open, lost...) {
			require.NoError(t, l.SettleAbandoned(ctx, id, unseen))
		}
		left, err := list(ctx, l, "read calls", value[string], `SELECT id FROM calls`)
		require.NoError(t, err)
		require.ElementsMatch(t, open, left)
	})
}

func TestMarkProcess_OldRows_RemovedWithoutCalls(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for _, p := range []string{"idle", "with a call", "recent"} {
			require.NoError(t, l.MarkProcess(ctx, p))
		}
		_, err := l.exec(ctx, "age", `UPDATE call_processes SET seen_at = seen_at - $1 WHERE id <> 'recent'`, (keepProcess + time.Minute).Milliseconds())
		require.NoError(t, err)
		_, err = l.exec(ctx, "add call", `INSERT INTO calls (id, process, reserved, body, created_at, deadline_at) VALUES ('c', 'with a call', 0, '{}', 1, 1)`)
		require.NoError(t, err)
		require.NoError(t, l.MarkProcess(ctx, "now"))
		left, err := list(ctx, l, "read processes", value[string], `SELECT id FROM call_processes ORDER BY id`)
		require.NoError(t, err)
		require.Equal(t, []string{"now", "recent", "with a call"}, left)
	})
}
