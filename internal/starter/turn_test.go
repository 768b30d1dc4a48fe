package starter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/starter"
	"berth/workflows"
)

// server simulates Temporal and one turn's workflow: its runs and the outcome of each update.
type server struct {
	client.Client
	away  error
	runs  []*run
	full  int // how many decisions are refused before one succeeds
	calls int
}

type run struct {
	in       workflows.TurnInput
	closed   bool
	failed   bool
	outcomes map[string]outcome
	jobs     map[string]workflows.DispatchReply // by request
}

type outcome struct {
	reply workflows.DispatchReply
	err   error
}

func (o outcome) WorkflowID() string { return "" }
func (o outcome) RunID() string      { return "" }
func (o outcome) UpdateID() string   { return "" }
func (o outcome) Get(_ context.Context, v any) error {
	if out, ok := v.(*workflows.DispatchReply); ok {
		*out = o.reply
	}
	return o.err
}

func (s *server) last() *run {
	if len(s.runs) == 0 {
		return nil
	}
	return s.runs[len(s.runs)-1]
}

type start struct {
	client.WithStartWorkflowOperation
	in     workflows.TurnInput
	policy enums.WorkflowIdReusePolicy
}

func (s *server) NewWithStartWorkflowOperation(o client.StartWorkflowOptions, _ any, args ...any) client.WithStartWorkflowOperation {
	return start{in: args[0].(workflows.TurnInput), policy: o.WorkflowIDReusePolicy}
}

func (s *server) UpdateWithStartWorkflow(
	_ context.Context, o client.UpdateWithStartWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	if s.away != nil {
		return nil, s.away
	}
	r := s.last()
	if r != nil {
		if out, ok := r.outcomes[o.UpdateOptions.UpdateID]; ok { // also of a closed run
			return out, nil
		}
	}
	op := o.StartWorkflowOperation.(start)
	if r != nil && r.closed && !r.failed {
		return nil, fmt.Errorf("failed workflow start: %w", &serviceerror.WorkflowExecutionAlreadyStarted{})
	}
	if r == nil || r.closed {
		r = &run{in: op.in, outcomes: map[string]outcome{}, jobs: map[string]workflows.DispatchReply{}}
		s.runs = append(s.runs, r)
	}
	return s.update(r, o.UpdateOptions), nil
}

func (s *server) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	r := s.last()
	switch {
	case s.away != nil:
		return nil, s.away
	case r == nil || r.closed:
		return nil, serviceerror.NewNotFound("workflow execution already completed")
	}
	if out, ok := r.outcomes[o.UpdateID]; ok {
		return out, nil
	}
	return s.update(r, o), nil
}

// update is the workflow's handler of dispatch.
func (s *server) update(r *run, o client.UpdateWorkflowOptions) outcome {
	s.calls++
	req := o.Args[0].(workflows.DispatchRequest)
	if req.UserID != r.in.UserID {
		return outcome{err: temporal.NewNonRetryableApplicationError("no such turn", "not_found", nil)} // rejected: not kept
	}
	out := outcome{reply: workflows.DispatchReply{
		SubmissionID: req.SubmissionID, RequestHash: req.RequestHash, TurnID: r.in.TurnID,
		Assignment: berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1"}},
	}}
	if first, ok := r.jobs[req.RequestID]; ok {
		out.reply = first
	} else if s.full > 0 {
		s.full--
		out = outcome{err: temporal.NewNonRetryableApplicationError("full", "node_full", nil, berth.Refusal{
			SubmissionID: req.SubmissionID, Reasons: map[berth.ExcludeReason]int{"full": 1},
		})}
		if len(r.jobs) == 0 {
			r.closed, r.failed = true, true
		}
	} else {
		r.jobs[req.RequestID] = out.reply
	}
	r.outcomes[o.UpdateID] = out
	return out
}

func (s *server) GetWorkflowUpdateHandle(o client.GetWorkflowUpdateHandleOptions) client.WorkflowUpdateHandle {
	if s.away != nil {
		return outcome{err: s.away}
	}
	if r := s.last(); r != nil {
		if out, ok := r.outcomes[o.UpdateID]; ok {
			return out
		}
	}
	return outcome{err: serviceerror.NewNotFound("update not found")}
}

// QueryWorkflowWithOptions simulates that no worker has the version to which an ended run was pinned.
func (s *server) QueryWorkflowWithOptions(
	_ context.Context, req *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	r := s.last()
	switch {
	case s.away != nil || r == nil:
		return nil, errors.Join(s.away, serviceerror.NewNotFound("workflow not found"))
	case r.closed && req.QueryRejectCondition == enums.QUERY_REJECT_CONDITION_NONE:
		return nil, serviceerror.NewFailedPrecondition("the version is drained and has no pollers")
	case r.failed:
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &query.QueryRejected{Status: enums.WORKFLOW_EXECUTION_STATUS_FAILED}}, nil
	case r.closed:
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &query.QueryRejected{Status: enums.WORKFLOW_EXECUTION_STATUS_COMPLETED}}, nil
	}
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: value{turn: r.turn()}}, nil
}

func (r *run) turn() berth.Turn {
	return berth.Turn{ID: r.in.TurnID, UserID: r.in.UserID, Jobs: make([]berth.TurnJob, len(r.jobs)), Reason: berth.FinalizeTimeout}
}

func (s *server) GetWorkflow(context.Context, string, string) client.WorkflowRun {
	return ended{turn: s.last().turn()}
}

// ended is a run that has completed.
type ended struct {
	client.WorkflowRun
	turn berth.Turn
}

func (e ended) Get(_ context.Context, to any) error { *to.(*berth.Turn) = e.turn; return nil }

type value struct {
	converter.EncodedValue
	turn berth.Turn
}

func (v value) Get(to any) error { *to.(*berth.Turn) = v.turn; return nil }

func refused(err error) []string {
	var r *berth.Refusal
	_ = errors.As(err, &r)
	return []string{string(r.Code)}
}
func (s *server) finish()                { s.last().closed = true }
func through(s *server) *starter.Starter { return &starter.Starter{Client: s} }

func call(request string, change ...func(*starter.JobCall)) starter.JobCall {
	c := starter.JobCall{
		Turn: workflows.TurnInput{TurnID: "t", SessionID: "s1", UserID: "alice"},
		Request: workflows.DispatchRequest{
			JobRequest: berth.JobRequest{Job: berth.Job{SessionID: "s1"}, UserID: "alice", RequestID: request}, RequestHash: "hash of " + request,
		},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func running(c *starter.JobCall) { c.Running = true }

func TestDispatch_RefusedBefore_TriesAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := &server{full: 3}
	for range 3 { // the turn's first job: each refusal fails a run
		_, _, err := through(s).Dispatch(ctx, call("r1"))
		require.Equal(t, []string{"node_full"}, refused(err))
	}
	require.Len(t, s.runs, 3)
	first, replay, err := through(s).Dispatch(ctx, call("r1"))
	require.NoError(t, err)
	require.False(t, replay)
	require.Len(t, s.runs, 4)

	s.full = 2
	for range 2 {
		_, _, err = through(s).Dispatch(ctx, call("r2", running))
		require.Equal(t, []string{"node_full"}, refused(err))
	}
	second, replay, err := through(s).Dispatch(ctx, call("r2", running))
	require.NoError(t, err)
	require.False(t, replay)
	require.Len(t, s.runs, 4)

	for _, over := range []bool{false, true} {
		if over {
			s.finish()
		}
		decided := s.calls
		for _, c := range []struct {
			call starter.JobCall
			want workflows.DispatchReply
		}{{call("r1"), first}, {call("r1", running), first}, {call("r2", running), second}} {
			got, replay, err := through(s).Dispatch(ctx, c.call)
			require.NoError(t, err)
			require.True(t, replay)
			require.Equal(t, c.want, got)
		}
		require.LessOrEqual(t, s.calls, decided+1, "at most one is asked under an id that the run has not seen")
		other := func(c *starter.JobCall) { c.Request.RequestHash = "another" }
		_, _, err = through(s).Dispatch(ctx, call("r1", other))
		require.Equal(t, berth.CodeIdempotencyMismatch, berth.CodeOf(err))
		foreign := func(c *starter.JobCall) {
			c.Turn.UserID, c.Request.UserID, c.Request.RequestHash = "bob", "bob", "bob's"
		}
		for _, request := range []string{"r1", "r2", "r3"} {
			_, _, err = through(s).Dispatch(ctx, call(request, running, foreign))
			require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "another user's turn is not revealed")
		}
	}
	_, _, err = through(s).Dispatch(ctx, call("r3", running))
	require.Equal(t, berth.CodeTurnFinalized, berth.CodeOf(err))
	require.Len(t, s.runs, 4, "an ended turn does not start again")
}

func TestTurnCalls_NoTurn_ReturnNotFound(t *testing.T) { // A1
	t.Parallel()
	s := &server{}
	_, _, err := through(s).Dispatch(t.Context(), call("r1", running))
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	_, err = through(s).GetTurn(t.Context(), "t")
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	_, err = through(s).FinalizeTurn(t.Context(), "t", workflows.FinalizeRequest{UserID: "alice"})
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))

	s.full = 1
	_, _, err = through(s).Dispatch(t.Context(), call("r1"))
	require.Equal(t, []string{"node_full"}, refused(err))
	_, _, err = through(s).Dispatch(t.Context(), call("r2", running))
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "a turn whose first job was refused never was")
	_, err = through(s).GetTurn(t.Context(), "t")
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
	_, err = through(s).FinalizeTurn(t.Context(), "t", workflows.FinalizeRequest{UserID: "alice"})
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
}

func TestFinalizeTurn_TurnEnded_StatesReason(t *testing.T) {
	t.Parallel()
	s := &server{}
	_, _, err := through(s).Dispatch(t.Context(), call("r1"))
	require.NoError(t, err)
	s.finish()
	_, err = through(s).FinalizeTurn(t.Context(), "t", workflows.FinalizeRequest{UserID: "alice"})
	require.Equal(t, berth.CodeTurnFinalized, berth.CodeOf(err))
	require.ErrorContains(t, err, "finalized (timeout)", "states how it ended")
	_, err = through(s).FinalizeTurn(t.Context(), "t", workflows.FinalizeRequest{UserID: "bob"})
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err))
}

func TestTurnCalls_TemporalUnavailable_ReturnUnavailable(t *testing.T) { // L11
	t.Parallel()
	s := &server{away: errors.New("connection refused")}
	_, _, err := through(s).Dispatch(t.Context(), call("r1"))
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	var shown *berth.Error
	require.ErrorAs(t, err, &shown)
	require.NotContains(t, shown.Message, "connection refused")
	_, err = through(s).FinalizeTurn(t.Context(), "t", workflows.FinalizeRequest{UserID: "alice"})
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	s.away = nil
	reply, replay, err := through(s).Dispatch(t.Context(), call("r1"))
	require.NoError(t, err)
	require.False(t, replay)
	require.Equal(t, "n1", reply.NodeID)
}
