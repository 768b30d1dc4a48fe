package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func execution(id string, at time.Time) berth.ExecutionRow {
	at = at.Truncate(time.Millisecond).UTC()
	return berth.ExecutionRow{Key: "alice:" + id, Execution: berth.Execution{
		ID: id, UserID: "alice", Executor: "render", PoolID: "render", Status: berth.ExecutionWaiting,
		Attempts: []berth.ExecutionAttempt{}, StartedAt: at, DeadlineAt: at.Add(time.Minute),
	}}
}

func TestSaveExecution_EachOrder_FirstEndOfLastRunKept(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		now := time.Now()
		save := func(e berth.ExecutionRow) bool {
			saved, err := l.SaveExecution(t.Context(), e)
			require.NoError(t, err)
			return saved
		}
		ended := func(e berth.ExecutionRow, status berth.ExecutionStatus) berth.ExecutionRow {
			e.Status, e.EndedAt = status, e.StartedAt.Add(time.Second)
			return e
		}
		first := execution("x1", now)
		require.True(t, save(first))
		require.True(t, save(first), "a lost reply")
		lost := ended(first, berth.ExecutionFailed)
		lost.Code = berth.CodeLost
		require.True(t, save(lost))
		require.False(t, save(ended(first, berth.ExecutionCompleted)), "it has ended")
		require.False(t, save(first), "a late acceptance")
		got, err := l.GetExecution(t.Context(), "alice:x1")
		require.NoError(t, err)
		require.Equal(t, lost, got)

		second := execution("x1", now.Add(time.Second))
		require.True(t, save(second), "the id is used again after a refusal")
		require.False(t, save(ended(first, berth.ExecutionFailed)), "the end of an earlier run")
		done := ended(second, berth.ExecutionCompleted)
		done.Output = json.RawMessage(`"secret"`)
		require.True(t, save(done))
		done.Output = nil
		got, err = l.GetExecution(t.Context(), "alice:x1")
		require.NoError(t, err)
		require.Equal(t, done, got, "the output stays in its run")
		_, err = l.GetExecution(t.Context(), "alice:x2")
		requireCode(t, berth.CodeNotFound, err)

		for _, bad := range []berth.ExecutionRow{{}, {Key: "x"}, ended(execution("x", now), berth.ExecutionRunning), func() berth.ExecutionRow {
			e := execution("x", now)
			e.Status = berth.ExecutionFailed
			return e
		}()} {
			_, err := l.SaveExecution(t.Context(), bad)
			require.Error(t, err, "%+v", bad)
		}
	})
}

// FA7: the ids of executions belong to their users.
func TestExecutions_SameIDOfUsers_EachHasItsOwn(t *testing.T) { // S8, B8
	each(t, func(t *testing.T, l *Ledger) {
		now := time.Now()
		of := func(user, key string, age time.Duration) berth.ExecutionRow {
			e := execution("x1", now.Add(-age))
			e.UserID, e.Key = user, key
			return e
		}
		save := func(e berth.ExecutionRow) bool {
			saved, err := l.SaveExecution(t.Context(), e)
			require.NoError(t, err)
			return saved
		}
		alice, bob := of("alice", "alice:x1", time.Hour), of("bob", "bob:x1", 0)
		for _, e := range []berth.ExecutionRow{alice, bob} {
			require.True(t, save(e))
		}
		for _, want := range []berth.ExecutionRow{alice, bob} {
			got, err := l.FindExecution(t.Context(), want.Ref())
			require.NoError(t, err)
			require.Equal(t, want, got)
			got, err = l.GetExecution(t.Context(), want.Key)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := l.FindExecution(t.Context(), berth.ExecutionRef{UserID: "mallory", ExecutionID: "x1"})
		requireCode(t, berth.CodeNotFound, err)
		all, err := l.ExecutionsByID(t.Context(), "x1", 5)
		require.NoError(t, err)
		require.ElementsMatch(t, []berth.ExecutionRow{alice, bob}, all)

		listed, _, err := l.ListExecutions(t.Context(), "", "", "", 10)
		require.NoError(t, err)
		require.Equal(t, []berth.ExecutionRow{bob, alice}, listed)
	})
}

func TestExecutions_Pages_OpenAndOverdueOnce(t *testing.T) { // B4, B11
	each(t, func(t *testing.T, l *Ledger) {
		now := time.Now()
		for i := range 5 {
			e := execution(fmt.Sprintf("x%d", i), now.Add(time.Duration(-i)*time.Minute))
			if i == 3 {
				e.Status, e.EndedAt = berth.ExecutionCancelled, now
			}
			_, err := l.SaveExecution(t.Context(), e)
			require.NoError(t, err)
		}
		var open, overdue []string
		for after := ""; ; {
			page, err := l.OpenExecutions(t.Context(), after, 2)
			require.NoError(t, err)
			if open = append(open, page...); len(page) < 2 {
				break
			}
			after = page[1]
		}
		require.Equal(t, []string{"alice:x0", "alice:x1", "alice:x2", "alice:x4"}, open)
		for after := (berth.ExecutionRow{}); ; {
			page, err := l.OverdueExecutions(t.Context(), now.Add(-30*time.Second), after, 1)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			after = page[0]
			overdue = append(overdue, after.ID)
		}
		require.Equal(t, []string{"x4", "x2"}, overdue)
		remove := func(before time.Time) (removed int64) {
			for _, e := range l.Expiries() {
				if e.Name == "executions" {
					require.False(t, e.Text)
					n, _, err := e.Remove(t.Context(), before, 10)
					require.NoError(t, err)
					removed += n
				}
			}
			return removed
		}
		require.Zero(t, remove(now.Add(-time.Second)))
		require.EqualValues(t, 1, remove(now.Add(time.Second)), "open ones stay")
	})
}

func TestOwnerGenerations_OldAndNewGenerations_EachOnce(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		for i, generation := range []int64{7, 7, 8, 0} {
			c := berth.Conference{ID: fmt.Sprint(i), Status: berth.ConferenceOpen, Revision: 1, CreatedAt: time.Now()}
			c.E164 = fmt.Sprintf("869000000%d", i)
			if generation > 0 {
				c.Owner = berth.ConferenceOwner{NodeID: "u1", Generation: generation}
			}
			require.NoError(t, l.SaveConference(t.Context(), c))
		}
		owners, err := l.OwnerGenerations(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []berth.ConferenceOwner{{NodeID: "u1", Generation: 7}, {NodeID: "u1", Generation: 8}}, owners)
		moved := berth.Conference{ID: "2", Status: berth.ConferenceOpen, Revision: 2, CreatedAt: time.Now()}
		moved.E164, moved.Owner = "8690000002", berth.ConferenceOwner{NodeID: "u2", Generation: 9}
		require.NoError(t, l.SaveConference(t.Context(), moved))
		owners, err = l.OwnerGenerations(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []berth.ConferenceOwner{{NodeID: "u1", Generation: 7}, {NodeID: "u2", Generation: 9}}, owners)
	})
}
