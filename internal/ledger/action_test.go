package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestActions_EachFilter_MatchesNewestFirst(t *testing.T) { // B8
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		var ids []int64
		for i, a := range []berth.Action{
			{UserID: "op1", Name: "put-pool", Target: "/v1/pools/gpu", RequestID: "r0"},
			{UserID: "auth0|2", Name: "put-pool", Target: "/v1/pools/ocr\x00", RequestID: "r1"},
			{UserID: "op1", Name: "drain-node", Target: "/v1/nodes/n1/drain", RequestID: "r2"},
			{UserID: "op1", Name: "put-pool", Target: "/v1/pools/gpu", RequestID: "r3", Status: 200},
		} {
			id, err := l.BeginAction(ctx, a)
			require.NoError(t, err)
			ids = append(ids, id)
			if i != 3 {
				require.NoError(t, l.EndAction(ctx, id, 200+i))
			}
		}
		all, next, err := l.Actions(ctx, ActionQuery{}, "", 10)
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, all, 4)
		require.WithinDuration(t, time.Now(), all[3].At, time.Minute)
		all[3].At = time.Time{}
		require.Equal(t, berth.Action{ID: ids[0], UserID: "op1", Name: "put-pool", Target: "/v1/pools/gpu", RequestID: "r0", Status: 200}, all[3])
		require.Equal(t, "/v1/pools/ocr", all[2].Target)
		require.Equal(t, 202, all[1].Status)
		require.Zero(t, all[0].Status, "an action has no result before its end")

		later := time.Now().Add(time.Hour)
		for name, c := range map[string]struct {
			q    ActionQuery
			want []int
		}{
			"all":            {ActionQuery{}, []int{3, 2, 1, 0}},
			"one user's":     {ActionQuery{UserID: "auth0|2"}, []int{1}},
			"of a name":      {ActionQuery{Name: "put-pool"}, []int{3, 1, 0}},
			"all together":   {ActionQuery{UserID: "op1", Name: "put-pool", From: later.Add(-2 * time.Hour), To: later}, []int{3, 0}},
			"before a time":  {ActionQuery{To: later.Add(-2 * time.Hour)}, nil},
			"since a time":   {ActionQuery{From: later}, nil},
			"until now":      {ActionQuery{To: later}, []int{3, 2, 1, 0}},
			"another user's": {ActionQuery{UserID: "auth0|1"}, nil},
		} {
			var got []berth.Action
			for cursor := ""; ; {
				page, next, err := l.Actions(ctx, c.q, cursor, 2)
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
		_, _, err = l.Actions(ctx, ActionQuery{}, "x", 2)
		requireCode(t, berth.CodeInvalid, err)
	})
}
