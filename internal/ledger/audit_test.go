package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestAuditLog_EachFilter_MatchesNewestFirst(t *testing.T) { // B8, T19
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		var ids []int64
		for i, a := range []AuditEntry{
			{UserID: "op1", Event: "put-pool", Target: "/v1/pools/gpu", RequestID: "r0"},
			{UserID: "auth0|2", Event: "put-pool", Target: "/v1/pools/ocr\x00", RequestID: "r1"},
			{UserID: "op1", Event: "drain-node", Target: "/v1/nodes/n1/drain", RequestID: "r2"},
			{UserID: "op1", Event: "put-pool", Target: "/v1/pools/gpu", RequestID: "r3", Status: 200},
		} {
			id, err := l.BeginAction(ctx, a)
			require.NoError(t, err)
			ids = append(ids, id)
			if i != 3 {
				require.NoError(t, l.EndAction(ctx, id, 200+i))
			}
		}
		of := chain()
		of.Team = "search"
		task := create(t, l, of)
		all, next, err := l.AuditLog(ctx, AuditQuery{}, "", 10)
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, all, 5)
		require.Equal(t, AuditEnqueue, all[0].Event)
		require.Equal(t, task.ID, all[0].TaskID)
		ids = append(ids, all[0].ID)
		require.WithinDuration(t, time.Now(), all[4].At, time.Minute)
		all[4].At = time.Time{}
		require.Equal(t, AuditEntry{
			ID: ids[0], UserID: "op1", Event: "put-pool", Target: "/v1/pools/gpu", RequestID: "r0", Status: 200, Detail: json.RawMessage("{}"), Count: 1,
		}, all[4])
		require.Equal(t, "/v1/pools/ocr", all[3].Target)
		require.Equal(t, 202, all[2].Status)
		require.Equal(t, 200, all[1].Status)

		later := time.Now().Add(time.Hour)
		for name, c := range map[string]struct {
			q    AuditQuery
			want []int
		}{
			"all":            {AuditQuery{}, []int{4, 3, 2, 1, 0}},
			"one user's":     {AuditQuery{UserID: "auth0|2"}, []int{1}},
			"of an event":    {AuditQuery{Event: "put-pool"}, []int{3, 1, 0}},
			"of a task":      {AuditQuery{TaskID: task.ID}, []int{4}},
			"of a team":      {AuditQuery{TeamID: "search"}, []int{4}},
			"of another":     {AuditQuery{TeamID: "ads"}, nil},
			"all together":   {AuditQuery{UserID: "op1", Event: "put-pool", From: later.Add(-2 * time.Hour), To: later}, []int{3, 0}},
			"before a time":  {AuditQuery{To: later.Add(-2 * time.Hour)}, nil},
			"since a time":   {AuditQuery{From: later}, nil},
			"until now":      {AuditQuery{To: later}, []int{4, 3, 2, 1, 0}},
			"another user's": {AuditQuery{UserID: "auth0|1"}, nil},
		} {
			var got []AuditEntry
			for cursor := ""; ; {
				page, next, err := l.AuditLog(ctx, c.q, cursor, 2)
				require.NoError(t, err, name)
				require.LessOrEqual(t, len(page), 2, name)
				got = append(got, page...)
				if cursor = next; cursor == "" {
					break
				}
			}
			require.Len(t, got, len(c.want), name)
			for i, n := range c.want {
				require.Equal(t, ids[n], got[i].ID, name)
			}
		}
		_, _, err = l.AuditLog(ctx, AuditQuery{}, "x", 2)
		requireCode(t, berth.CodeInvalid, err)
	})
}

func TestUsageLog_EachFilter_MatchesNewestFirst(t *testing.T) { // T19
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		var ids []string
		for i, user := range []string{"alice", "alice", "bob", "carol"} {
			task := chain()
			task.UserID = user
			task = create(t, l, task)
			ids = append(ids, task.ID)
			a := begin(t, l, task, 0)
			switch r := result(task, 0, a.Fence, "text"); i {
			case 0:
				_, err := l.FinishStep(ctx, r)
				require.NoError(t, err)
			case 1:
				r.Code, r.Model = berth.CodeProviderUnavailable, "another"
				require.NoError(t, l.FailedCall(ctx, r.ModelCall))
			case 3:
				startCall(t, l, task, 0, a.Fence)
			}
		}
		later := time.Now().Add(time.Hour)
		for name, c := range map[string]struct {
			q    UsageQuery
			want []string
		}{
			"all":           {UsageQuery{}, []string{ids[3], ids[2], ids[1], ids[0]}},
			"one user's":    {UsageQuery{UserID: "bob"}, []string{ids[2]}},
			"of a task":     {UsageQuery{TaskID: ids[0]}, []string{ids[0]}},
			"of a model":    {UsageQuery{Model: "another"}, []string{ids[1]}},
			"successful":    {UsageQuery{Outcome: OutcomeSuccess}, []string{ids[0]}},
			"waiting":       {UsageQuery{Outcome: OutcomeWaiting}, []string{ids[2]}},
			"running":       {UsageQuery{Outcome: OutcomeRunning}, []string{ids[3]}},
			"failed":        {UsageQuery{Outcome: string(berth.CodeProviderUnavailable)}, []string{ids[1]}},
			"all together":  {UsageQuery{UserID: "alice", Model: "another", From: later.Add(-2 * time.Hour), To: later}, []string{ids[1]}},
			"before a time": {UsageQuery{To: later.Add(-2 * time.Hour)}, nil},
			"since a time":  {UsageQuery{From: later}, nil},
		} {
			var got []string
			for cursor := ""; ; {
				page, next, err := l.UsageLog(ctx, c.q, cursor, 1)
				require.NoError(t, err, name)
				for _, call := range page {
					got = append(got, call.TaskID)
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			require.ElementsMatch(t, c.want, got, name) // calls of one millisecond are ordered by user and task
		}
		_, _, err := l.UsageLog(ctx, UsageQuery{}, "x", 2)
		requireCode(t, berth.CodeInvalid, err)
	})
}

// A client in a loop does not fill the audit log, which stays exact.
func TestAudit_EqualEvents_OneRowWithTheirCount(t *testing.T) { // FA9, B8
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		refuse := func(user, task, reason string, event AuditEvent) {
			require.NoError(t, l.Audit(ctx, AuditEntry{
				Event: event, TaskID: task, ServiceID: "jobs", Queue: "q_free_batch", UserID: user,
			}, reason))
		}
		const repeats = 50
		for i := range repeats {
			refuse("alice", fmt.Sprintf("t_%d", i), "queue", AuditQueueFull)
		}
		refuse("alice", "t_1", "service", AuditQueueFull)
		refuse("alice", "t_1", "queue", AuditRateLimited)
		refuse("bob", "t_1", "queue", AuditQueueFull)
		_, err := l.BeginAction(ctx, AuditEntry{UserID: "op", Event: "put-pool", Target: "/v1/pools/gpu"})
		require.NoError(t, err)

		rows, _, err := l.AuditLog(ctx, AuditQuery{}, "", 100)
		require.NoError(t, err)
		total, byKind := int64(0), map[string]int64{}
		for _, r := range rows {
			total += r.Count
			byKind[r.UserID+" "+string(r.Event)] += r.Count
			if r.Count > 1 {
				require.False(t, r.LastAt.Before(r.At))
				require.Less(t, r.LastAt.Sub(r.At), auditInterval)
			} else {
				require.Zero(t, r.LastAt)
			}
			require.JSONEq(t, "{}", string(r.Detail))
		}
		require.Equal(t, int64(repeats+4), total)
		require.Equal(t, map[string]int64{"alice queue_full": repeats + 1, "alice rate_limited": 1, "bob queue_full": 1, "op put-pool": 1}, byKind)
		require.LessOrEqual(t, len(rows), 6, "one more where a minute ends meanwhile")
		first, _, err := l.AuditLog(ctx, AuditQuery{TaskID: "t_0"}, "", 100)
		require.NoError(t, err)
		require.Len(t, first, 1, "the row is of the first")
		require.Equal(t, berth.Queue("q_free_batch"), first[0].Queue)
	})
}
