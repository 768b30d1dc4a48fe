package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// FF8: a client retries a segment on a full fleet. The run ends before its history is too long, the next one continues the turn
// with its node, jobs and events, and the turn ends as usual.
func TestTurn_ManyRefusals_ContinuesAsNewAndEnds(t *testing.T) { // A6, A8
	t.Parallel()
	u := newTurnTest(t)
	full, decide := false, u.decide
	u.decide = func(in workflows.DispatchInput) (berth.Assignment, error) {
		if full && in.JobID != "t1-0" {
			return berth.Assignment{}, refusedWith(berth.CodeNodeFull)
		}
		return decide(in)
	}
	first := u.submit(0, 0)
	u.submit(sec, 2) // waits for segment 1, which is refused
	u.takes(2, 20*time.Second)
	u.env.RegisterDelayedCallback(func() { full = true }, 2*sec)
	const refusals = 250 // while segment 2 runs, which delays the next run
	var refused []*jobResult
	var retry func()
	retry = func() { // the client has received the refusal; a retry before that would share its outcome
		if len(refused) < refusals {
			refused = append(refused, u.submit(10*time.Millisecond, 1))
			refused[len(refused)-1].then = retry
		}
	}
	u.env.RegisterDelayedCallback(retry, 3*sec)
	r := u.run()
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, r.err, &next)
	require.Equal(t, "turn, 0:text 0 by n1", r.stream())
	codes := map[berth.Code]int{}
	for _, a := range refused {
		codes[a.code()]++
	}
	require.Equal(t, map[berth.Code]int{berth.CodeNodeFull: 200, berth.CodeUnavailable: 50}, codes)
	require.NoError(t, refused[refusals-1].err, "rejected, so that the history does not grow")
	require.Error(t, refused[refusals-1].rejected)

	later := newTurnTest(t)
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &later.in))
	require.NotNil(t, later.in.Resumed)
	again, missing := later.submit(0, 0), later.submit(sec, 1)
	last := later.submit(2*sec, 3, cut(berth.FinalizeManual))
	r = later.run()
	require.NoError(t, r.err)
	require.Equal(t, first.job(t), again.job(t), "a repeated request has the outcome of the previous run")
	require.Equal(t, berth.AffinityHit, missing.job(t).Affinity, "the turn keeps its node")
	require.Equal(t, "n1", last.job(t).NodeID)
	require.Equal(t, "1:text 1 by n1, 2:text 2 by n1, 3:text 3 by n1, done(manual 0/4)", r.stream())
	require.Len(t, r.finalized, 1, "the turn's key is removed")
	for i, j := range r.turn.Jobs {
		require.Equal(t, fmt.Sprintf("text %d by n1", i), j.Text)
	}
}
