package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

func TestExecution_NodesFailOrAreFull_RetriedOrQueued(t *testing.T) { // S4, S6, S8
	t.Parallel()
	s := newStack(t)
	c := s.temporal()
	mute, n1, n2 := s.engine("mute", 1, true), s.engine("n1", 1, false), s.engine("n2", 1, false)
	s.afterGrace(n1.scripts)

	own := func(id string) func(*workflows.ExecutionInput) {
		return func(in *workflows.ExecutionInput) { in.Where.Strategy, in.Where.Own = berth.StrategyAffinity, id }
	}
	reply, err := submit(t, c, "done", "echo", own("n1"))
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteReply{SubmissionID: "done", Status: berth.ExecutionRunning, NodeID: "n1"}, reply)
	_, err = submit(t, c, "over", "echo", own("mute"))
	require.NoError(t, err)
	over := ended(t, c, "over")
	require.Equal(t, berth.ExecutionCompleted, over.Status)
	require.Equal(t, `"over"`, string(over.Output))
	require.Len(t, over.Attempts, 2)
	require.Equal(t, "the node did not accept the work in time", over.Attempts[0].Error)
	require.NotEqual(t, "mute", over.NodeID)

	_, err = mute.scripts.WithdrawNode(t.Context(), "mute", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	done := ended(t, c, "done")
	require.Equal(t, berth.ExecutionCompleted, done.Status)

	_, err = submit(t, c, "wrong", "refuse")
	require.NoError(t, err)
	wrong := ended(t, c, "wrong")
	require.Equal(t, berth.ExecutionFailed, wrong.Status)
	require.Equal(t, berth.CodeInvalid, wrong.Code)
	require.Len(t, wrong.Attempts, 1)

	_, err = submit(t, c, "unsupported", "paint")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(berth.CodeNoNode), app.Type())
	var why berth.Refusal
	require.NoError(t, app.Details(&why))
	require.Equal(t, []string{"paint"}, why.Missing)

	// Two executions hold all slots. The third waits, and gets the slot of the one that is cancelled.
	for _, n := range []*engine{n1, n2} {
		_, err = submit(t, c, "hold-"+n.spec.ID, "wait", own(n.spec.ID))
		require.NoError(t, err)
	}
	reply, err = submit(t, c, "waits", "echo")
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionWaiting, reply.Status)
	require.NoError(t, c.CancelWorkflow(t.Context(), executionRun("hold-n1"), ""))
	require.Equal(t, berth.ExecutionCancelled, ended(t, c, "hold-n1").Status)
	waits := ended(t, c, "waits")
	require.Equal(t, berth.ExecutionCompleted, waits.Status)
	require.Equal(t, "n1", waits.NodeID)
	n2.finish <- struct{}{}
	require.Equal(t, berth.ExecutionCompleted, ended(t, c, "hold-n2").Status)

	// It fails on every node: the number of retries is the operator's setting.
	config := berth.DefaultFleetConfig()
	config.MaxRetries = 1
	require.NoError(t, n1.scripts.PutFleetConfig(t.Context(), config))
	s.eventually("the worker to know", func() bool {
		id := fmt.Sprintf("broken-%d", time.Now().UnixNano())
		_, err := submit(t, c, id, "break", func(in *workflows.ExecutionInput) { in.Deadline = 40 * time.Second })
		require.NoError(t, err)
		broken := ended(t, c, id)
		require.Equal(t, berth.CodeNodeFailed, broken.Code)
		if len(broken.Attempts) != 2 {
			return false
		}
		require.NotEqual(t, broken.Attempts[0].NodeID, broken.Attempts[1].NodeID)
		s.saveHistory("execution-broken", executionRun(id))
		return true
	})
	s.eventually("no slot to be held", func() bool { return n1.slots() == 0 && n2.slots() == 0 })
	for _, id := range []string{"done", "over", "wrong", "unsupported", "hold-n1", "waits"} {
		s.saveHistory("execution-"+strings.Replace(id, "hold-n1", "cancelled", 1), executionRun(id))
	}
}

// L12, P5: the node sends heartbeats so rarely that it registers again only after the grace. Its running execution keeps
// its slot.
func TestExecution_NodeRegistersLate_SlotIsRestored(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.temporal()
	n1 := s.engine("n1", 1, false)
	s.afterGrace(n1.scripts)
	_, err := submit(t, c, "long", "wait")
	require.NoError(t, err)
	<-n1.started

	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	s.afterGrace(n1.scripts)
	_, err = submit(t, c, "too-early", "echo")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(berth.CodeNoNode), app.Type())
	n1.register()
	n1.poll()
	reply, err := submit(t, c, "second", "echo")
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionWaiting, reply.Status, "no new job until its slot is restored")
	s.eventually("the slot to be restored", func() bool { return n1.slots() == 1 })
	held, err := s.redis().ZRange(t.Context(), n1.scripts.Keys().NodeSlots("n1"), 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []string{"execution:alice:long:1"}, held)
	s.eventually("the node to be sure", func() bool {
		until, err := s.redis().HGet(t.Context(), n1.scripts.Keys().Node("n1"), "unsure_until").Int64()
		require.NoError(t, err)
		now, err := s.redis().Time(t.Context()).Result()
		return err == nil && now.UnixMilli() > until
	})
	require.Equal(t, berth.ExecutionWaiting, executionStatus(t, c, "second").Status, "the node is still full")
	n1.finish <- struct{}{}
	require.Len(t, ended(t, c, "long").Attempts, 1)
	require.Equal(t, berth.ExecutionCompleted, ended(t, c, "second").Status)
	s.eventually("no slot to be held", func() bool { return n1.slots() == 0 })
	s.saveHistory("execution-late-node", executionRun("long"))
}

// L12, P2: Redis loses its data during an execution, and later the worker is killed. One restoration restores the slot, and
// the execution ends once.
func TestExecution_RedisAndNodesLost_Completes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.temporal()
	n1 := s.engine("n1", 1, false)
	s.afterGrace(n1.scripts)
	_, err := submit(t, c, "long", "wait")
	require.NoError(t, err)
	<-n1.started

	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	n1.register() // as at its next heartbeat
	n1.poll()
	s.eventually("the slot to be restored", func() bool { return n1.slots() == 1 })
	s.afterGrace(n1.scripts)
	reply, err := submit(t, c, "second", "echo")
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionWaiting, reply.Status, "the node is still full")

	s.worker.kill()
	s.worker = s.startWorker()
	s.startWorker() // a second worker handles the same graces
	n1.finish <- struct{}{}
	long := ended(t, c, "long")
	require.Equal(t, berth.ExecutionCompleted, long.Status)
	require.Len(t, long.Attempts, 1)
	require.Equal(t, long, executionStatus(t, c, "long"))
	require.Equal(t, berth.ExecutionCompleted, ended(t, c, "second").Status, "in the released slot")
	s.eventually("no slot to be held", func() bool { return n1.slots() == 0 })

	var graces []string
	s.eventually("one restoration of each grace", func() bool {
		runs, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: `WorkflowType = "Reconcile" AND WorkflowId STARTS_WITH "restore:"`})
		require.NoError(t, err)
		seen := map[string]bool{}
		graces = nil
		for _, e := range runs.GetExecutions() {
			id := e.GetExecution().GetWorkflowId()
			require.False(t, seen[id], "%s ran twice", id)
			seen[id] = true
			if e.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
				graces = append(graces, id)
			}
		}
		return len(graces) > 0 && len(graces) == len(seen)
	})
	s.saveHistory("execution-restored", executionRun("long"))
	s.saveHistory("reconcile-restore", graces[0])
}
