package tests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/workflows"
)

// FF7, B1: executions wait for a node without polling, and start in the order of their acceptance; a newcomer waits behind them. A
// cancelled one is skipped. Redis loses its data in the meantime.
func TestExecution_ManyWait_StartInOrder(t *testing.T) {
	t.Parallel()
	manyExecutionsWait(t, 30, 30, true)
}

// manyExecutionsWait lets n executions wait, and the first `served` of them start.
func manyExecutionsWait(t *testing.T, n, served int, loseRedis bool) {
	t.Helper()
	s := newStack(t)
	c := s.temporal()
	n1 := s.engine("n1", 1, false)
	s.afterGrace(n1.scripts)
	longer := func(in *workflows.ExecutionInput) { in.Timeout, in.Deadline = time.Hour, time.Hour }
	reply, err := submit(t, c, "first", "wait", longer)
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionRunning, reply.Status)
	require.Equal(t, "first", (<-n1.started).ExecutionID)
	var g errgroup.Group
	g.SetLimit(16)
	began := time.Now()
	for i := range n {
		g.Go(func() error {
			reply, err := submit(t, c, fmt.Sprint("w", i), "wait", longer)
			if err == nil && reply.Status != berth.ExecutionWaiting {
				err = fmt.Errorf("w%d is %s", i, reply.Status)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	t.Logf("%d executions accepted in %s", n, time.Since(began).Round(time.Millisecond))
	_, err = submit(t, c, "cancelled", "wait", longer)
	require.NoError(t, err)
	require.NoError(t, c.CancelWorkflow(t.Context(), executionRun("cancelled"), ""))
	require.Equal(t, berth.ExecutionCancelled, ended(t, c, "cancelled").Status)
	status, body := s.send(http.MethodGet, "/v1/executions/w0", s.token("alice"), nil)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "position")

	if loseRedis {
		require.NoError(t, s.redis().FlushAll(t.Context()).Err())
		s.afterGrace(n1.scripts)
		n1.register()
		n1.poll()
		s.eventually("all to wait again", func() bool {
			waiting, err := s.redis().ZCard(t.Context(), n1.scripts.Keys().PoolWaiting("wait")).Result()
			return err == nil && waiting == int64(n) && n1.slots() == 1
		})
	}
	// Each is a run without events while it waits.
	sample := min(n, 50)
	events := func() (sum int64) {
		for i := range sample {
			sum += historyLength(t, c, fmt.Sprint("w", i))
		}
		return sum
	}
	before := events()
	began = time.Now()
	s.eventually("some heartbeats of the worker", func() bool { return time.Since(began) > 6*time.Second })
	require.Equal(t, before, events(), "an execution that waits polls")
	t.Logf("no workflow task of %d waiting executions in %s", sample, time.Since(began).Round(time.Millisecond))

	last, handOver := time.Time{}, time.Duration(0)
	for i := range served {
		at := time.Now()
		n1.finish <- struct{}{}
		id := (<-n1.started).ExecutionID
		handOver += time.Since(at)
		next := executionStatus(t, c, id).StartedAt
		require.False(t, next.Before(last), "execution %d: %s", i, id)
		last = next
		if i == 0 && served == n {
			reply, err := submit(t, c, "newcomer", "wait", longer)
			require.NoError(t, err)
			require.Equal(t, berth.ExecutionWaiting, reply.Status)
		}
	}
	t.Logf("%d started in the order of their acceptance, %s from the end of one to the start of the next",
		served, (handOver / time.Duration(served)).Round(100*time.Microsecond))
	if served < n {
		return
	}
	n1.finish <- struct{}{}
	require.Equal(t, "newcomer", (<-n1.started).ExecutionID)
	n1.finish <- struct{}{}
	require.Equal(t, berth.ExecutionCompleted, ended(t, c, "newcomer").Status)
	s.eventually("no slot to be held", func() bool { return n1.slots() == 0 })
}

func historyLength(t *testing.T, c temporalclient.Client, execution string) int64 {
	t.Helper()
	d, err := c.DescribeWorkflowExecution(t.Context(), executionRun(execution), "")
	require.NoError(t, err)
	return d.GetWorkflowExecutionInfo().GetHistoryLength()
}
