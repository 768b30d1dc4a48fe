package tests

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// P2: workers die one after the other in the same workflow task, each after it has written. The history shows nothing of it, and does
// not grow from the second attempt on. What the next one writes is later all the same: it may have decided otherwise.
func TestConference_WorkersDieInSameTask_NextOneWritesLater(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.temporal()
	const queue, deaths = "repeated", 2
	writes := make(chan workflows.PlaceInput, 10*deaths)
	var attempts, placements atomic.Int32
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.ConferenceInput) (berth.Conference, error) {
		attempt := attempts.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			if workflow.Await(ctx, func() bool { return placements.Load() >= attempt }) == nil && attempt <= deaths {
				panic("this attempt ends") // Temporal repeats the task as after a death
			}
		})
		return workflows.Conference(ctx, in)
	}, workflow.RegisterOptions{Name: workflows.ConferenceWorkflow})
	w.RegisterActivityWithOptions(func(_ context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
		writes <- in
		placements.Add(1)
		return workflows.PlaceReply{Code: berth.CodeNoNode, Message: "no media unit"}, nil
	}, activity.RegisterOptions{Name: workflows.PlaceConferenceActivity})
	w.RegisterActivityWithOptions(func(context.Context, workflows.SaveInput) (workflows.SaveReply, error) {
		return workflows.SaveReply{}, nil
	}, activity.RegisterOptions{Name: workflows.SaveConferenceActivity})
	require.NoError(t, w.Start())
	defer w.Stop()

	run, err := c.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{
		ID: "conference:8684000031", TaskQueue: queue, WorkflowTaskTimeout: 2 * time.Second,
	}, workflows.ConferenceWorkflow, workflows.ConferenceInput{
		ConferenceID: "c1", UserID: "alice", RequestHash: "h1",
		Spec:  berth.ConferenceSpec{E164: "8684000031", EndAt: time.Now().Add(time.Hour)},
		Rules: workflows.ConferenceRules{Retry: time.Minute, GiveUp: time.Minute, Command: time.Second},
	})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	close(writes)
	before := workflows.PlaceInput{}
	for n := 0; ; n++ {
		in, more := <-writes
		if !more {
			require.Greater(t, n, deaths)
			break
		}
		require.Greater(t, in.Conference.Revision, before.Conference.Revision, "attempt %d", n+1)
		require.Greater(t, in.FirstEvent, before.FirstEvent, "attempt %d", n+1)
		before = in
	}
}
