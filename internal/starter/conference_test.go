package starter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/starter"
	"berth/workflows"
)

const number = "8613800138000"

// exchange simulates Temporal and one number's workflow: its runs and the outcome of each update.
type exchange struct {
	client.Client
	away     error
	runs     []*meetingRun
	refuse   error // what the next run is refused with
	answer   error // to a release that was accepted
	lost     int   // updates that Temporal loses
	creates  int
	news     []workflows.UnitNotice
	reported []workflows.ReportInput
}

type meetingRun struct {
	in       workflows.ConferenceInput
	status   berth.ConferenceStatus
	closed   bool
	outcomes map[string]created
}

// created is what an update came to.
type created struct {
	client.WorkflowUpdateHandle
	reply workflows.CreateReply
	err   error
}

func (c created) Get(_ context.Context, v any) error {
	if out, ok := v.(*workflows.CreateReply); ok {
		*out = c.reply
	}
	return c.err
}

type meetingStart struct {
	client.WithStartWorkflowOperation
	options client.StartWorkflowOptions
	in      workflows.ConferenceInput
}

func (x *exchange) NewWithStartWorkflowOperation(o client.StartWorkflowOptions, _ any, args ...any) client.WithStartWorkflowOperation {
	return meetingStart{options: o, in: args[0].(workflows.ConferenceInput)}
}

func (x *exchange) last() *meetingRun {
	if len(x.runs) == 0 {
		return &meetingRun{closed: true, outcomes: map[string]created{}}
	}
	return x.runs[len(x.runs)-1]
}

func (x *exchange) UpdateWithStartWorkflow(
	_ context.Context, o client.UpdateWithStartWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	if x.away != nil {
		return nil, x.away
	}
	x.creates++
	id, req := o.UpdateOptions.UpdateID, o.UpdateOptions.Args[0].(workflows.CreateRequest)
	if out, ok := x.last().outcomes[id]; ok { // also of a closed run
		return out, nil
	}
	if x.last().closed {
		in := o.StartWorkflowOperation.(meetingStart).in
		x.runs = append(x.runs, &meetingRun{in: in, status: berth.ConferenceOpen, outcomes: map[string]created{}})
	}
	r := x.last()
	if req.RequestHash != r.in.RequestHash {
		return created{err: temporal.NewNonRetryableApplicationError("in use", "idempotency_mismatch", nil)}, nil // rejected: not kept
	}
	out := created{reply: workflows.CreateReply{SubmissionID: req.SubmissionID, Conference: r.conference()}}
	if x.refuse != nil {
		var app *temporal.ApplicationError
		errors.As(x.refuse, &app)
		out = created{err: temporal.NewNonRetryableApplicationError(app.Message(), app.Type(), nil, berth.Refusal{SubmissionID: req.SubmissionID})}
		r.status, r.closed = berth.ConferenceDeleted, true
	}
	r.outcomes[id] = out
	return out, nil
}

func (r *meetingRun) conference() berth.Conference {
	return berth.Conference{ConferenceSpec: r.in.Spec, ID: r.in.ConferenceID, UserID: r.in.UserID, Status: r.status}
}

func (x *exchange) UpdateWorkflow(_ context.Context, o client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	if x.away != nil {
		return nil, x.away
	}
	if x.lost > 0 {
		x.lost--
		return nil, serviceerror.NewUnavailable("unexpected workflow task failure")
	}
	if x.last().closed {
		return nil, serviceerror.NewNotFound("workflow execution already completed")
	}
	x.end()
	return created{err: x.answer}, nil
}

func (x *exchange) end() { x.last().status, x.last().closed = berth.ConferenceEnded, true }

func (x *exchange) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if x.away != nil {
		return nil, x.away
	}
	status := enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	if x.last().closed {
		status = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: status, Execution: &common.WorkflowExecution{RunId: fmt.Sprint("run", len(x.runs))},
	}}, nil
}

type state struct {
	converter.EncodedValue
	c berth.Conference
}

func (s state) Get(to any) error { *to.(*berth.Conference) = s.c; return nil }

func (x *exchange) QueryWorkflowWithOptions(
	context.Context, *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: state{c: x.last().conference()}}, x.away
}

func (x *exchange) SignalWorkflow(_ context.Context, _, _, _ string, arg any) error {
	if x.away != nil || x.last().closed {
		return errors.Join(x.away, serviceerror.NewNotFound("no such workflow"))
	}
	x.news = append(x.news, arg.(workflows.UnitNotice))
	return nil
}

func (x *exchange) ExecuteWorkflow(_ context.Context, _ client.StartWorkflowOptions, _ any, args ...any) (client.WorkflowRun, error) {
	x.reported = append(x.reported, args[0].(workflows.ReportInput))
	return nil, x.away
}

// ask asks for a conference; every call is another one's.
func (x *exchange) ask(t *testing.T, request string) (berth.Conference, bool, error) {
	t.Helper()
	return (&starter.Starter{Client: x}).CreateConference(t.Context(), workflows.ConferenceInput{
		ConferenceID: fmt.Sprint("c-", x.creates), UserID: "alice", RequestHash: request, Spec: berth.ConferenceSpec{E164: number},
	})
}

func TestCreateConference_NumberInUse_SameRequestReplaysOthersConflict(t *testing.T) { // C16
	t.Parallel()
	x := &exchange{}
	first, replay, err := x.ask(t, "r1")
	require.NoError(t, err)
	require.False(t, replay)
	again, replay, err := x.ask(t, "r1")
	require.NoError(t, err)
	require.True(t, replay)
	require.Equal(t, first, again)
	_, _, err = x.ask(t, "r2")
	require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
	require.Len(t, x.runs, 1)

	for n := range 3 { // the same request reuses the number
		x.end()
		next, replay, err := x.ask(t, "r1")
		require.NoError(t, err)
		require.False(t, replay, "the outcome of the last conference does not decide this one")
		require.NotEqual(t, first.ID, next.ID)
		require.Len(t, x.runs, n+2)
		again, replay, err := x.ask(t, "r1")
		require.NoError(t, err)
		require.True(t, replay)
		require.Equal(t, next, again)
		first = next
	}
}

func TestCreateConference_RefusedBefore_TriesAgain(t *testing.T) { // C16
	t.Parallel()
	x := &exchange{refuse: temporal.NewNonRetryableApplicationError("every unit is full", "node_full", nil)}
	for n := range 3 {
		_, _, err := x.ask(t, "r1")
		var refusal *berth.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, berth.CodeNodeFull, refusal.Code)
		require.Len(t, x.runs, n+1, "each request is decided again")
	}
	x.refuse = temporal.NewNonRetryableApplicationError("no licence", berth.ErrorRefused, nil)
	_, _, err := x.ask(t, "r1")
	require.Equal(t, berth.CodeUnitRefused, berth.CodeOf(err))
	require.Contains(t, err.Error(), "no licence")
	x.refuse = nil
	_, replay, err := x.ask(t, "r1")
	require.NoError(t, err)
	require.False(t, replay)
}

func TestConferenceCalls_TemporalUnavailable_ReturnUnavailable(t *testing.T) { // L11
	t.Parallel()
	x := &exchange{away: errors.New("connection refused")}
	s := &starter.Starter{Client: x}
	_, _, err := x.ask(t, "r1")
	_, rerr := s.ReleaseConference(t.Context(), number, workflows.ReleaseRequest{By: "alice"})
	for _, err := range []error{
		err, rerr,
		s.ReportUnits(t.Context(), []berth.NodeRef{{NodeID: "u1"}}),
	} {
		require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	}
	x.away = nil
	_, _, err = x.ask(t, "r1")
	require.NoError(t, err)
}

func TestReleaseConference_LostUpdate_IsSentAgain(t *testing.T) { // C10
	t.Parallel()
	x := &exchange{}
	s := &starter.Starter{Client: x}
	release := func() (bool, error) {
		return s.ReleaseConference(t.Context(), number, workflows.ReleaseRequest{By: "alice"})
	}
	_, err := release()
	require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
	_, _, err = x.ask(t, "r1")
	require.NoError(t, err)
	running, err := s.SignalConference(t.Context(), number, workflows.SignalUnit, workflows.UnitNotice{NodeID: "u1", Missing: true})
	require.NoError(t, err)
	require.True(t, running)
	require.Len(t, x.news, 1)
	x.lost = 2
	done, err := release()
	require.NoError(t, err, "it is asked for again")
	require.True(t, done)
	_, err = release()
	require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
	running, err = s.SignalConference(t.Context(), number, workflows.SignalUnit, workflows.UnitNotice{NodeID: "u1", Missing: true})
	require.NoError(t, err)
	require.False(t, running)
	require.Len(t, x.news, 1)
}

// The server may give up waiting a moment before the caller's time is over: what was accepted is done all the same.
func TestReleaseConference_ServerStopsWaiting_IsAccepted(t *testing.T) { // C17
	t.Parallel()
	x := &exchange{answer: client.NewWorkflowUpdateServiceTimeoutOrCanceledError(errors.New("stream terminated by RST_STREAM"))}
	_, _, err := x.ask(t, "r1")
	require.NoError(t, err)
	done, err := (&starter.Starter{Client: x}).ReleaseConference(t.Context(), number, workflows.ReleaseRequest{By: "alice"})
	require.NoError(t, err)
	require.False(t, done)
}
