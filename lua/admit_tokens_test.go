package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// submit submits a task of so many tokens.
func (g gate) submit(id string, tokens int64) lua.AdmitReply {
	r, err := g.s.AdmitTask(g.ctx, g.submission(id, tokens))
	require.NoError(g.t, err)
	return r
}

func (g gate) submission(id string, tokens int64) lua.Submission {
	return lua.Submission{
		Task: berth.TaskRef{UserID: g.user, TaskID: id}, ServiceID: "jobs", Queue: firstStep.Queue, Group: berth.Group{Team: "t", App: "a"},
		Limits: g.limits, Tokens: tokens,
	}
}

func TestAdmitTask_TokensExceeded_RetryTimeIsExact(t *testing.T) { // O5
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Tokens: 6000}) // 100 in a second
		r := g.submit("1", 2000)
		require.Equal(t, lua.TaskAdmitted, r.Code)
		require.InDelta(t, 4000, r.Tokens.Left, 200)
		within(t, 20*time.Second, r.Tokens.Reset)
		require.InDelta(t, 4000, g.submit("1", 2000).Tokens.Left, 500, "a repeated submission is not counted")
		require.Equal(t, lua.TaskAdmitted, g.submit("2", 3000).Code)
		r = g.submit("3", 2000)
		require.Equal(t, lua.TaskTokensLimited, r.Code)
		within(t, 10*time.Second, r.Retry)
		require.Equal(t, lua.TaskAdmitted, g.submit("4", 900).Code, "a refused task uses nothing")

		large := g
		large.user = "bob"
		require.Equal(t, lua.TaskAdmitted, large.submit("1", 9000).Code, "a task larger than the limit is admitted after a minute without others")
		within(t, 90*time.Second, large.submit("2", 1).Retry+59990*time.Millisecond)
	})
}

// complaint: a request that is refused for one limit uses nothing of the others.
func TestAdmitTask_RefusedForOneLimit_OthersNotUsed(t *testing.T) { // O5
	t.Parallel()
	for refused, limits := range map[string]lua.AdmissionLimits{
		lua.TaskServiceFull:   {Rate: 2, Tokens: 100, Service: 1},
		lua.TaskQueueFull:     {Rate: 2, Tokens: 100, Queue: 1},
		lua.TaskTeamFull:      {Rate: 2, Tokens: 100, Team: 1},
		lua.TaskAppFull:       {Rate: 2, Tokens: 100, App: 1},
		lua.TaskTokensLimited: {Rate: 2, Tokens: 10},
	} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				g := newGate(t, s, limits)
				require.Equal(t, lua.TaskAdmitted, g.submit("a", 10).Code)
				for i := range 5 {
					require.Equal(t, refused, g.submit(fmt.Sprint("b", i), 10).Code)
				}
				require.NoError(t, s.RemoveAdmissions(g.ctx, lua.Admissions{
					Task: berth.TaskRef{UserID: g.user, TaskID: "a"}, ServiceID: "jobs", Group: berth.Group{Team: "t", App: "a"}, Queues: []berth.Queue{firstStep.Queue},
				}))
				if refused == lua.TaskTokensLimited {
					require.NoError(t, s.Redis().Del(g.ctx, s.Keys().SubmittedTokens(g.user)).Err())
				}
				require.Equal(t, lua.TaskAdmitted, g.submit("c", 10).Code)
			})
		})
	}
}

func TestWithdrawSubmission_AfterAdmission_NothingUsed(t *testing.T) { // O5
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Rate: 1, Tokens: 100, Service: 1, Queue: 1, Team: 1, App: 1})
		for i := range 20 {
			id := fmt.Sprint(i)
			require.Equal(t, lua.TaskAdmitted, g.submit(id, 90).Code)
			require.NoError(t, s.WithdrawSubmission(g.ctx, g.submission(id, 90)))
			require.NoError(t, s.WithdrawSubmission(g.ctx, g.submission(id, 90)))
		}
		require.Equal(t, [3]int64{}, g.taken())
	})
}
