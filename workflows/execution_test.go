package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// run is one run of the Execution workflow against recorded activities.
type run struct {
	t            *testing.T
	env          *testsuite.TestWorkflowEnvironment
	assigns      []workflows.AssignInput
	confirms     []workflows.HeldSlot
	released     []string // lease ids
	saved        []berth.ExecutionRow
	save         func(n int) error
	unresponsive []bool // of released, whether the node was unresponsive
	left         []workflows.NodeWait
	executed     []berth.ExecuteInput
	reached      time.Duration // for how long the worker has reached Temporal
	checks       int
	assign       func(n int, in workflows.AssignInput) (workflows.AssignReply, error)
	confirm      func(n int) (held bool, err error)
	execute      func(ctx context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error)
	submitted    updateResult[workflows.ExecuteReply]
}

func newRun(t *testing.T) *run {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	r := &run{t: t, env: suite.NewTestWorkflowEnvironment()}
	r.env.SetTestTimeout(20 * time.Second)
	r.env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: workflows.ExecutionWorkflowID("alice:x1"), TaskQueue: workflows.TaskQueueExecutions})
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		return workflows.AssignReply{
			Assignment: berth.Assignment{
				LeaseID: leaseOf(in), NodeRef: berth.NodeRef{NodeID: fmt.Sprintf("n%d", n), Generation: int64(n)}, PoolID: in.Where.PoolID, Strategy: berth.StrategyPowerOfTwo,
			},
			MaxRetries: 3, EnableFailover: true,
		}, nil
	}
	r.confirm = func(int) (bool, error) { return true, nil }
	r.save, r.reached = func(int) error { return nil }, time.Hour
	r.execute = func(_ context.Context, _ int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
		return berth.ExecuteOutput{Output: in.Input}, nil
	}
	register := func(name string, fn any) {
		r.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(workflows.AssignNodeActivity, func(_ context.Context, in workflows.AssignInput) (workflows.AssignReply, error) {
		r.assigns = append(r.assigns, in)
		return r.assign(len(r.assigns), in)
	})
	register(workflows.ConfirmSlotsActivity, func(_ context.Context, in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
		require.Len(t, in.Slots, 1)
		r.confirms = append(r.confirms, in.Slots[0])
		held, err := r.confirm(len(r.confirms))
		return workflows.ConfirmedSlots{Slots: []workflows.ConfirmedSlot{{Held: held, Generation: in.Slots[0].Generation}}}, err
	})
	register(workflows.ReleaseSlotsActivity, func(_ context.Context, in workflows.HeldSlots) error {
		for _, a := range in.Slots {
			r.released = append(r.released, a.LeaseID)
			r.unresponsive = append(r.unresponsive, a.Unresponsive)
		}
		return nil
	})
	register(workflows.SaveExecutionActivity, func(_ context.Context, e berth.ExecutionRow) error {
		r.saved = append(r.saved, e)
		return r.save(len(r.saved))
	})
	register(workflows.CheckTemporalActivity, func(context.Context) (workflows.Availability, error) {
		r.checks++
		return workflows.Availability{For: r.reached}, nil
	})
	register(workflows.LeaveWaitingActivity, func(_ context.Context, in workflows.NodeWait) error {
		r.left = append(r.left, in)
		return nil
	})
	register(berth.ActivityExecute, func(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
		r.executed = append(r.executed, in)
		return r.execute(ctx, len(r.executed), in)
	})
	r.env.RegisterWorkflowWithOptions(workflows.Execution, workflow.RegisterOptions{Name: workflows.ExecutionWorkflow})
	r.env.RegisterDelayedCallback(func() { r.submit("h1", "r1", &r.submitted) }, 0)
	return r
}

func leaseOf(in workflows.AssignInput) string {
	return in.Wait.LeaseID
}

func (r *run) submit(hash, id string, a *updateResult[workflows.ExecuteReply]) {
	r.env.UpdateWorkflow(workflows.UpdateExecute, "u-"+id, a, workflows.ExecuteRequest{SubmissionID: id, RequestHash: hash})
}

// updateResult collects the outcome of an update.
type updateResult[T any] struct {
	rejected error
	reply    T
	err      error
	returned bool
}

func (a *updateResult[T]) Accept()          {}
func (a *updateResult[T]) Reject(err error) { a.rejected = err }
func (a *updateResult[T]) Complete(v any, err error) {
	a.returned, a.err = true, err
	if r, ok := v.(T); ok {
		a.reply = r
	}
}

func executionInput() workflows.ExecutionInput {
	return workflows.ExecutionInput{
		ExecutionID: "x1", UserID: "alice", Executor: "resize", Input: json.RawMessage(`{"w":1}`), RequestHash: "h1",
		Where:   berth.Requirements{PoolID: "resize", Capabilities: []string{"resize"}, Own: "n7", OwnHost: "h", OwnZone: "z"},
		Timeout: time.Minute, Deadline: 10 * time.Minute,
	}
}

// start runs the execution to its end and returns the result of the query, which must equal the outcome of the run.
func (r *run) start(in workflows.ExecutionInput) (berth.Execution, error) {
	r.t.Helper()
	r.env.ExecuteWorkflow(workflows.ExecutionWorkflow, in)
	require.True(r.t, r.env.IsWorkflowCompleted())
	err := r.env.GetWorkflowError()
	var is, detail berth.Execution
	value, qerr := r.env.QueryWorkflow(workflows.QueryExecution)
	require.NoError(r.t, qerr)
	require.NoError(r.t, value.Get(&is))
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case err == nil:
		require.NoError(r.t, r.env.GetWorkflowResult(&detail))
	case errors.As(err, &app) && app.HasDetails():
		require.NoError(r.t, app.Details(&detail))
	case errors.As(err, &canceled) && canceled.HasDetails():
		require.NoError(r.t, canceled.Details(&detail))
	default:
		return is, err
	}
	if detail.ID != "" { // refused: the detail gives the reason
		require.Equal(r.t, is, detail, "the run's end carries the execution")
	}
	return is, err
}

func refuse(code berth.Code, r berth.Refusal) error {
	return temporal.NewApplicationErrorWithOptions("refused", string(code), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{r}})
}

func TestExecution_NodeHasCapacity_RunsOnIt(t *testing.T) { // S8
	t.Parallel()
	r := newRun(t)
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteReply{SubmissionID: "r1", Status: berth.ExecutionRunning, NodeID: "n1"}, r.submitted.reply)
	require.Equal(t, berth.ExecutionCompleted, is.Status)
	require.JSONEq(t, `{"w":1}`, string(is.Output))
	require.Equal(t, []berth.ExecutionAttempt{{NodeRef: berth.NodeRef{NodeID: "n1", Generation: 1}}}, is.Attempts)
	require.Equal(t, berth.StrategyPowerOfTwo, is.Strategy)
	require.False(t, is.EndedAt.IsZero())
	require.Equal(t, []workflows.AssignInput{{
		Where: executionInput().Where, Wait: workflows.NodeWait{
			PoolID: "resize", UserID: "alice", WorkflowID: "execution:alice:x1", LeaseID: "execution:alice:x1:1", Since: is.StartedAt, Left: 10 * time.Minute,
		},
	}}, r.assigns)
	require.Len(t, r.confirms, 1)
	require.Equal(t, time.Minute+10*time.Second, r.confirms[0].Left, "for its timeout and what it takes to begin and end")
	require.Equal(t, []string{"execution:alice:x1:1"}, r.released)
	require.Len(t, r.saved, 2, "at its acceptance and at its end")
	require.Equal(t, 10*time.Minute, r.saved[0].DeadlineAt.Sub(r.saved[0].StartedAt))
	want := berth.ExecutionRow{Key: "alice:x1", Execution: is}
	want.Output = nil
	require.Equal(t, want, r.saved[1], "the output stays in the run")
	require.Equal(t, []berth.ExecuteInput{{UserID: "alice", ExecutionID: "x1", Executor: "resize", Attempt: 1, Input: json.RawMessage(`{"w":1}`)}}, r.executed)
}

func TestExecution_NoEligibleNode_IsRefused(t *testing.T) { // S4, X6
	t.Parallel()
	for name, c := range map[string]struct {
		assign error
		code   berth.Code
	}{
		"no capable node": {refuse(berth.CodeNoNode, berth.Refusal{Missing: []string{"resize"}}), berth.CodeNoNode},
		"grace":           {refuse(berth.CodeUnavailable, berth.Refusal{}), berth.CodeUnavailable},
		"a lost answer":   {temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil), berth.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
				return workflows.AssignReply{}, c.assign
			}
			is, err := r.start(executionInput())
			require.Equal(t, berth.ExecutionWaiting, is.Status, "it never was")
			var failure, reply *temporal.ApplicationError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, string(c.code), failure.Type(), "the run fails, so that the id can be used again")
			require.ErrorAs(t, r.submitted.err, &reply)
			require.Equal(t, string(c.code), reply.Type())
			var why berth.Refusal
			require.NoError(t, reply.Details(&why))
			require.Equal(t, "r1", why.SubmissionID)
			if c.code == berth.CodeNoNode {
				require.Equal(t, []string{"resize"}, why.Missing)
			}
			require.Len(t, r.assigns, 1)
			require.Equal(t, c.code == berth.CodeUnavailable, len(r.left) == 1, "it leaves the room that it may have entered")
			require.Empty(t, r.released)
			require.Empty(t, r.executed)
			require.Empty(t, r.saved, "a refused execution has no row")
		})
	}
}

// The work begins while the row cannot be written; the caller gets its reply when there is a row.
func TestExecution_DatabaseUnavailable_AcceptedWhenItReturns(t *testing.T) { // B4, B5
	t.Parallel()
	r := newRun(t)
	r.save = func(n int) error {
		if n < 4 {
			require.False(t, r.submitted.returned, "no reply without a row")
			return temporal.NewApplicationError("no database", string(berth.CodeUnavailable))
		}
		return nil
	}
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteReply{SubmissionID: "r1", Status: berth.ExecutionRunning, NodeID: "n1"}, r.submitted.reply)
	require.Equal(t, berth.ExecutionCompleted, is.Status)
	require.Len(t, r.executed, 1)
	require.Len(t, r.released, 1)
	require.Len(t, r.saved, 5)
	require.Equal(t, berth.ExecutionCompleted, r.saved[4].Status)
}

func TestExecution_NodesFull_WaitsForCapacity(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	var at []time.Time
	give := r.assign
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		at = append(at, r.env.Now())
		require.Equal(t, "execution:alice:x1:1", leaseOf(in))
		require.Equal(t, n > 1, in.Accepted)
		if n < 5 {
			return workflows.AssignReply{}, refuse([]berth.Code{berth.CodeNodeFull, berth.CodeUnavailable, berth.CodeUnavailable, berth.CodeNoNode}[n-1], berth.Refusal{})
		}
		return give(n, in)
	}
	var second, other updateResult[workflows.ExecuteReply]
	r.env.RegisterDelayedCallback(func() {
		r.submit("h1", "r2", &second)
		r.submit("h2", "r3", &other)
	}, time.Second)
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalRestore, nil) }, time.Minute)
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, 2*time.Minute)
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Equal(t, workflows.ExecuteReply{SubmissionID: "r1", Status: berth.ExecutionWaiting}, r.submitted.reply, "full is accepted")
	require.Equal(t, "r1", second.reply.SubmissionID, "a replay returns the first submission")
	require.ErrorContains(t, other.rejected, "another request has this id")
	require.Equal(t, berth.ExecutionCompleted, is.Status)
	var pauses []time.Duration
	for i := range at[1:] {
		pauses = append(pauses, at[i+1].Sub(at[i]).Round(100*time.Millisecond))
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{time.Minute, 200 * ms, 400 * ms, time.Minute - 600*ms}, pauses, "it polls only while Redis is unavailable")
	require.Empty(t, r.left)
}

func TestExecution_NodeFails_RunsOnAnother(t *testing.T) { // S6, S8
	t.Parallel()
	silent := func() error { return temporal.NewHeartbeatTimeoutError() }
	broken := func() error { return temporal.NewApplicationError("out of memory", "oom") }
	wrong := func() error {
		return temporal.NewNonRetryableApplicationError("no width", string(berth.CodeInvalid), nil)
	}
	for name, c := range map[string]struct {
		failures []func() error
		config   func(*workflows.AssignReply)
		code     berth.Code
		message  string
		errors   []string
	}{
		"until one succeeds": {failures: []func() error{silent, broken, broken}, errors: []string{"the node missed heartbeats", "out of memory", "out of memory", ""}},
		"at most maxRetries times": {
			failures: []func() error{broken, broken, broken, silent}, code: berth.CodeNodeFailed, message: "attempt 4 failed, on n4: the node missed heartbeats",
			errors: []string{"out of memory", "out of memory", "out of memory", "the node missed heartbeats"},
		},
		"not at all without failover": {
			failures: []func() error{broken}, config: func(r *workflows.AssignReply) { r.EnableFailover = false },
			code: berth.CodeNodeFailed, message: "attempt 1 failed, on n1: out of memory", errors: []string{"out of memory"},
		},
		"not for what would be as wrong elsewhere": {
			failures: []func() error{wrong}, code: berth.CodeInvalid, message: "no width", errors: []string{"no width"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			give := r.assign
			r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
				reply, err := give(n, in)
				if c.config != nil {
					c.config(&reply)
				}
				return reply, err
			}
			fine := r.execute
			r.execute = func(ctx context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
				require.Equal(t, n, in.Attempt)
				require.Len(t, r.released, n-1, "the slot of the previous node was released")
				if n <= len(c.failures) {
					return berth.ExecuteOutput{}, c.failures[n-1]()
				}
				return fine(ctx, n, in)
			}
			is, err := r.start(executionInput())
			require.Equal(t, c.code, is.Code)
			require.Equal(t, c.message, is.Message)
			if c.code == "" {
				require.NoError(t, err)
				require.Equal(t, berth.ExecutionCompleted, is.Status)
			} else {
				require.Error(t, err)
				require.Equal(t, berth.ExecutionFailed, is.Status)
			}
			require.Len(t, is.Attempts, len(c.errors))
			for i, a := range is.Attempts {
				require.Equal(t, c.errors[i], a.Error)
				require.Equal(t, fmt.Sprintf("execution:alice:x1:%d", i+1), leaseOf(r.assigns[i]))
				require.Len(t, r.assigns[i].Failed, i, "nodes that failed it are excluded")
				require.Equal(t, leaseOf(r.assigns[i]), r.released[i])
				require.Equal(t, a.Error == "the node missed heartbeats", r.unresponsive[i])
			}
			require.Len(t, r.released, len(c.errors))
		})
	}
}

// FA10: an attempt that is lost because Temporal was unavailable, and not the node, is not counted and excludes no node, and the user
// reads that.
func TestExecution_TemporalUnavailable_AttemptNotCounted(t *testing.T) { // S6, S8, B5
	t.Parallel()
	silent := func() error { return temporal.NewHeartbeatTimeoutError() }
	idle := func() error { return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil) }
	given := func() error { return temporal.NewApplicationError("the agent stops", string(berth.CodeInterrupted)) }
	slow := func() error { return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil) }
	broken := func() error { return temporal.NewApplicationError("out of memory", "oom") }
	second := time.Second
	for name, c := range map[string]struct {
		failure func() error
		reached time.Duration
		times   int
		lost    int
		code    berth.Code
	}{
		"heartbeats missed in an outage":       {silent, 3 * second, 6, 6, ""},
		"not accepted in an outage":            {idle, 0, 6, 6, ""},
		"noticed late":                         {silent, 19 * second, 6, 6, ""},
		"reported by the node":                 {given, time.Hour, 6, 6, ""},
		"an outage long before":                {silent, 25 * second, 3, 0, ""},
		"no outage":                            {silent, time.Hour, 4, 0, berth.CodeNodeFailed},
		"the node was too slow":                {slow, 0, 4, 0, berth.CodeNodeFailed},
		"the node has failed it":               {broken, 0, 4, 0, berth.CodeNodeFailed},
		"more outages than are to be believed": {given, 0, 14, 10, berth.CodeNodeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			r.reached = c.reached
			fine := r.execute
			r.execute = func(ctx context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
				require.Equal(t, n, in.Attempt, "each has its own number")
				if n <= c.times {
					return berth.ExecuteOutput{}, c.failure()
				}
				return fine(ctx, n, in)
			}
			is, err := r.start(executionInput())
			require.Equal(t, c.code, is.Code, "%v", err)
			lost := 0
			for i, a := range is.Attempts {
				if a.Lost {
					lost++
					require.Equal(t, "Temporal was unavailable, so that the outcome on the node is unknown", a.Error)
				}
				require.Len(t, r.assigns[i].Failed, max(i-c.lost, 0), "only nodes that failed it are excluded")
			}
			require.Equal(t, c.lost, lost)
			if c.code == "" {
				require.Len(t, is.Attempts, c.times+1)
			} else {
				require.Len(t, is.Attempts, c.lost+4)
				require.Contains(t, is.Message, "attempt 4 failed")
			}
			require.Len(t, r.released, len(is.Attempts))
		})
	}
}

// FA6: after its time a node that failed the execution is eligible again, whatever the place of the execution in its room. It is tried
// regularly, because the other nodes may be lost.
func TestExecution_WaitsAfterFailure_ReadmitsRegularly(t *testing.T) { // S8
	t.Parallel()
	r := newRun(t)
	give := r.assign
	var failed time.Time
	var at []time.Duration
	var readmits []bool
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		if n == 1 {
			return give(n, in)
		}
		at, readmits = append(at, r.env.Now().Sub(failed).Round(100*time.Millisecond)), append(readmits, in.Readmit)
		require.Len(t, in.Failed, 1)
		if len(at) < 5 {
			return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
		}
		return give(1, in)
	}
	fine := r.execute
	r.execute = func(ctx context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
		if n == 1 {
			failed = r.env.Now()
			r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, 4*time.Second)
			return berth.ExecuteOutput{}, errors.New("stumbled")
		}
		return fine(ctx, n, in)
	}
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Equal(t, berth.ExecutionCompleted, is.Status)
	s := time.Second
	require.Equal(t, []time.Duration{0, 4 * s, 10 * s, 20 * s, 30 * s}, at)
	require.Equal(t, []bool{false, false, true, true, true}, readmits)
}

// The only eligible node is tried again after a pause.
func TestExecution_OnlyNodeFailed_IsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	give := r.assign
	var again time.Time
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		if len(in.Failed) > 0 {
			return workflows.AssignReply{}, refuse(berth.CodeNoNode, berth.Refusal{Reasons: map[berth.ExcludeReason]int{berth.ExcludeByCaller: 1}})
		}
		again = r.env.Now()
		return give(1, in)
	}
	var failed time.Time
	r.execute = func(_ context.Context, n int, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
		if n == 1 {
			failed = r.env.Now()
			return berth.ExecuteOutput{}, errors.New("stumbled")
		}
		return berth.ExecuteOutput{Output: in.Input}, nil
	}
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Len(t, is.Attempts, 2)
	require.GreaterOrEqual(t, again.Sub(failed), 10*time.Second)
}

func TestExecution_Deadline_EndsOnce(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(*run){
		"waiting for room": func(r *run) {
			r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
				return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
			}
		},
		"on a node": func(r *run) {
			r.env.OnActivity(berth.ActivityExecute, mock.Anything, mock.Anything).After(10*time.Minute).
				Return(berth.ExecuteOutput{}, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_START_TO_CLOSE, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			arrange(r)
			is, err := r.start(executionInput())
			require.Error(t, err)
			require.Equal(t, berth.ExecutionFailed, is.Status)
			require.Equal(t, berth.CodeDeadlineExceeded, is.Code)
			require.Equal(t, 10*time.Minute, is.EndedAt.Sub(is.StartedAt).Round(time.Second))
			require.Len(t, r.left, 1-len(is.Attempts), "a waiting one leaves the room")
			require.Len(t, r.released, len(is.Attempts))
		})
	}
}

func TestExecution_Cancelled_StopsTheNodeAndEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange  func(*run)
		executed int
		took     time.Duration
		rows     int // how often its row is written
	}{
		"while it waits": {func(r *run) {
			r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
				return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
			}
			r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 3*time.Second)
		}, 0, 3 * time.Second, 2},
		"while it is unknown whether it waits": {func(r *run) {
			r.assign = func(n int, _ workflows.AssignInput) (workflows.AssignReply, error) {
				if n == 1 {
					return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
				}
				return workflows.AssignReply{}, refuse(berth.CodeUnavailable, berth.Refusal{})
			}
			r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, time.Second)
			r.env.RegisterDelayedCallback(r.env.CancelWorkflow, 3*time.Second)
		}, 0, 3 * time.Second, 2},
		"before it is accepted": {func(r *run) {
			r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
				r.env.CancelWorkflow()
				return workflows.AssignReply{}, temporal.NewCanceledError()
			}
		}, 0, 0, 0},
		"on a node that stops": {func(r *run) {
			r.execute = func(context.Context, int, berth.ExecuteInput) (berth.ExecuteOutput, error) {
				r.env.CancelWorkflow()
				return berth.ExecuteOutput{}, temporal.NewCanceledError()
			}
		}, 1, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			c.arrange(r)
			is, err := r.start(executionInput())
			require.True(t, temporal.IsCanceledError(errors.Unwrap(err)), "%v", err)
			require.Equal(t, berth.ExecutionCancelled, is.Status)
			require.Equal(t, berth.CodeCancelled, is.Code)
			require.Len(t, r.executed, c.executed)
			require.Len(t, r.saved, c.rows)
			require.Len(t, r.released, c.executed)
			require.Len(t, r.left, 1-c.executed, "it leaves the room of its pool, also if it may have entered it only")
			require.Equal(t, c.took, is.EndedAt.Sub(is.StartedAt).Round(time.Second))
		})
	}
}

// L7: no work is sent to a node whose slot could not be confirmed.
func TestExecution_SlotNotConfirmed_AssignsAgain(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	give := r.assign
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		if n == 1 {
			return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
		}
		return give(n, in)
	}
	r.confirm = func(n int) (bool, error) { return n > 1, nil }
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, time.Second)
	is, err := r.start(executionInput())
	require.NoError(t, err)
	require.Equal(t, []berth.ExecutionAttempt{{NodeRef: berth.NodeRef{NodeID: "n3", Generation: 3}}}, is.Attempts)
	require.Equal(t, []string{"execution:alice:x1:1", "execution:alice:x1:1"}, r.released)
}

func TestExecution_OutputTooLarge_Fails(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.execute = func(context.Context, int, berth.ExecuteInput) (berth.ExecuteOutput, error) {
		return berth.ExecuteOutput{Output: json.RawMessage(`"` + strings.Repeat("x", berth.MaxExecutionBytes) + `"`)}, nil
	}
	is, err := r.start(executionInput())
	require.Error(t, err)
	require.Equal(t, berth.ExecutionFailed, is.Status)
	require.Equal(t, berth.CodeTooLarge, is.Code)
	require.Empty(t, is.Output)
	require.Len(t, r.released, 1)
}

// L12: on a signal the slot is restored, unless none is held or it was released.
func TestExecution_RedisLosesSlot_IsRestored(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	give := r.assign
	r.assign = func(n int, in workflows.AssignInput) (workflows.AssignReply, error) {
		if n < 3 {
			return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
		}
		return give(n, in)
	}
	r.env.OnActivity(berth.ActivityExecute, mock.Anything, mock.Anything).After(30*time.Second).Return(berth.ExecuteOutput{}, nil)
	signal := func() { r.env.SignalWorkflow(workflows.SignalRestore, nil) }
	r.env.RegisterDelayedCallback(signal, 300*time.Millisecond)
	r.env.RegisterDelayedCallback(func() { require.Empty(t, r.confirms); require.Len(t, r.assigns, 2) }, time.Second)
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, 2*time.Second)
	r.env.RegisterDelayedCallback(signal, 11*time.Second)
	r.env.RegisterDelayedCallback(func() { require.Len(t, r.confirms, 2); require.Empty(t, r.released) }, 12*time.Second)
	_, err := r.start(executionInput())
	require.NoError(t, err)
	require.Len(t, r.confirms, 2)
	require.Less(t, r.confirms[1].Left, r.confirms[0].Left-5*time.Second, "what is left of it")
	require.Equal(t, []string{"execution:alice:x1:1"}, r.released)
}

// L12: engines register again with their next heartbeat, up to half a minute later; an end in the meantime does not wait for
// it.
func TestExecution_NodeNotRegisteredYet_SlotIsRestoredLater(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]time.Duration{"runs on": time.Minute, "ends meanwhile": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t)
			r.env.OnActivity(berth.ActivityExecute, mock.Anything, mock.Anything).After(work).Return(berth.ExecuteOutput{}, nil)
			began := r.env.Now()
			back := false
			r.confirm = func(n int) (bool, error) {
				back = r.env.Now().Sub(began) > 30*time.Second
				return n == 1 || back, nil
			}
			r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalRestore, nil) }, time.Second)
			_, err := r.start(executionInput())
			require.NoError(t, err)
			require.Equal(t, work > 30*time.Second, back)
			require.Len(t, r.released, 1)
		})
	}
}

// L12: a slot that is being restored is released afterwards, not before: otherwise it would stay held.
func TestExecution_EndsWhileRestoring_SlotIsReleased(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.env.OnActivity(berth.ActivityExecute, mock.Anything, mock.Anything).After(10*time.Second).Return(berth.ExecuteOutput{}, nil)
	r.confirm = func(n int) (bool, error) {
		require.Empty(t, r.released)
		if n == 2 || n == 3 {
			return false, temporal.NewApplicationError("Redis is unavailable", string(berth.CodeUnavailable))
		}
		return true, nil
	}
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalRestore, nil) }, 10*time.Second-50*time.Millisecond)
	_, err := r.start(executionInput())
	require.NoError(t, err)
	require.Len(t, r.confirms, 4)
	require.Len(t, r.released, 1)
}

// A long wait continues as new, as the same execution.
func TestExecution_LongWait_ContinuesAsNew(t *testing.T) {
	t.Parallel()
	r := newRun(t)
	r.assign = func(int, workflows.AssignInput) (workflows.AssignReply, error) {
		r.env.SetContinueAsNewSuggested(len(r.assigns) > 3)
		return workflows.AssignReply{}, refuse(berth.CodeNodeFull, berth.Refusal{})
	}
	began := r.env.Now()
	for i := range 5 {
		r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(workflows.SignalPromoted, nil) }, time.Duration(i+1)*time.Second)
	}
	r.env.ExecuteWorkflow(workflows.ExecutionWorkflow, executionInput())
	require.Empty(t, r.left, "the next run waits in the same place")
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, r.env.GetWorkflowError(), &next)
	require.Len(t, r.assigns, 4)
	require.Len(t, r.saved, 1)

	again := newRun(t)
	in := executionInput()
	in.Resumed = &workflows.ExecutionProgress{
		SubmissionID: "r0", StartedAt: again.env.Now().Add(-9 * time.Minute),
		Attempts: []berth.ExecutionAttempt{{NodeRef: berth.NodeRef{NodeID: "n0"}, Error: "fell"}}, Failed: []berth.NodeRef{{NodeID: "n0", Generation: 1}},
	}
	again.env.RegisterDelayedCallback(func() {}, 0)
	is, err := again.start(in)
	require.NoError(t, err)
	require.Equal(t, "r0", again.submitted.reply.SubmissionID)
	require.Len(t, again.saved, 1, "it was accepted by an earlier run")
	require.Equal(t, in.Resumed.StartedAt.Add(in.Deadline), again.saved[0].DeadlineAt.In(in.Resumed.StartedAt.Location()))
	require.Len(t, is.Attempts, 2)
	require.Equal(t, "execution:alice:x1:2", leaseOf(again.assigns[0]))
	require.Equal(t, in.Resumed.Failed, again.assigns[0].Failed)
	require.Equal(t, time.Minute+10*time.Second, again.confirms[0].Left.Round(time.Second), "as much as the deadline leaves")
	require.WithinDuration(t, began, r.env.Now(), 10*time.Second)
}

func TestExecution_InvalidInput_Fails(t *testing.T) {
	t.Parallel()
	for _, breaks := range []func(*workflows.ExecutionInput){
		func(in *workflows.ExecutionInput) { in.ExecutionID = "" },
		func(in *workflows.ExecutionInput) { in.Executor = "" },
		func(in *workflows.ExecutionInput) { in.Where.PoolID = "" },
		func(in *workflows.ExecutionInput) { in.Timeout = 0 },
		func(in *workflows.ExecutionInput) { in.Deadline = 0 },
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.RegisterWorkflow(workflows.Execution)
		in := executionInput()
		breaks(&in)
		env.ExecuteWorkflow(workflows.Execution, in)
		require.ErrorContains(t, env.GetWorkflowError(), "execution input lacks")
	}
}

func TestReconcile_RedisLostData_RestoresState(t *testing.T) { // L12
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	var asked []workflows.PassInput
	env.RegisterActivityWithOptions(func(_ context.Context, in workflows.PassInput) error {
		asked = append(asked, in)
		if len(asked) < 3 {
			return errors.New("Temporal is busy")
		}
		return nil
	}, activity.RegisterOptions{Name: workflows.RestoreStateActivity})
	env.RegisterWorkflow(workflows.Reconcile)
	env.ExecuteWorkflow(workflows.Reconcile, workflows.PassInput{GraceUntil: 7})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []workflows.PassInput{{GraceUntil: 7}, {GraceUntil: 7}, {GraceUntil: 7}}, asked)
}
