package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"berth"
	"berth/lua"
	"berth/workflows"
)

type executeInput struct{ Body executeBody }

type executeOutput struct {
	Location string `header:"Location"`
	Body     executeView
}

type executionView struct {
	berth.Execution
	Position *int          `json:"position,omitempty" doc:"While the execution waits: an estimate of how many others of its pool get a node before it." example:"3"`
	Links    workflowLinks `json:"links"`
}

func (s *server) executionRoutes() {
	registerOutput(s, "POST /v1/executions", forUser, s.submitExecution, withStatus(http.StatusAccepted, op("submit-execution", "executions",
		"Run an executor durably on a node",
		"Runs the executor on another node when one fails or dies, as often as the fleet's configuration allows. While "+
			"every node is full the execution waits; 503 `no_node`: no node is capable, `missing` states why.")))
	register(s, "GET /v1/executions/{id}", forUsers, s.getExecution, op("get-execution", "executions",
		"Get an execution, its attempts and its output"))
	register(s, "DELETE /v1/executions/{id}", forUsers, s.cancelExecution, withStatus(http.StatusAccepted, op("cancel-execution", "executions",
		"Cancel an execution",
		"Returns the status before the cancellation; the node is asked to stop. 409 when the execution has ended.")))
}

func (s *server) submitExecution(ctx context.Context, in *executeInput) (*executeOutput, error) {
	ex, err := newExecution(callOf(ctx).user.UserID, in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	if err := s.checkExecutionPool(ctx, in.Body, ex.Where); err != nil {
		return nil, err
	}
	reply, replay, err := s.Starter.SubmitExecution(ctx, ex)
	if err != nil {
		return nil, fmt.Errorf("submit execution %s: %w", ex.ExecutionID, err)
	}
	if replay {
		if reply, err = s.executionNow(ctx, ex.ExecutionID, reply); err != nil {
			return nil, err
		}
	}
	return &executeOutput{
		Location: executionPath(ex.ExecutionID),
		Body:     executeView{ExecutionID: ex.ExecutionID, Status: reply.Status, NodeID: reply.NodeID, Replay: replay},
	}, nil
}

// checkExecutionPool returns an error unless the caller may run executions in the pool.
func (s *server) checkExecutionPool(ctx context.Context, b executeBody, where berth.Requirements) error {
	if s.reserved(where.PoolID) {
		field := "poolId"
		if b.PoolID == "" {
			field = "executor"
			if b.Executor != berth.CapabilityConference {
				field = "requiredCapabilities"
			}
		}
		return berth.Invalid(field, "must not select media units, which run conferences only")
	}
	return s.usePool(ctx, where.PoolID, where.Capabilities...)
}

// executionNow updates the reply of an execution that was accepted before with its current status.
func (s *server) executionNow(
	ctx context.Context, id string, accepted workflows.ExecuteReply,
) (workflows.ExecuteReply, error) {
	now, ok, err := berth.Found(s.findExecution(ctx, id))
	if err != nil {
		return accepted, fmt.Errorf("get execution %s: %w", id, err)
	}
	if ok { // else Temporal and the database have just deleted it
		accepted.Status, accepted.NodeID = now.Status, now.NodeID
	}
	return accepted, nil
}

// newExecution returns the requested execution; errors name the field.
func newExecution(userID string, b executeBody) (workflows.ExecutionInput, error) {
	ex := workflows.ExecutionInput{
		ExecutionID: b.ExecutionID, UserID: userID, Executor: b.Executor, Input: b.Input,
		Timeout: fromMs(b.TimeoutMs), Deadline: fromMs(b.DeadlineMs),
		Where: berth.Requirements{
			PoolID: b.PoolID, Strategy: b.Strategy, Own: b.InstanceID, OwnHost: b.Host, OwnZone: b.Zone,
		},
	}
	if err := checkExecution(b); err != nil {
		return ex, err
	}
	if b.PoolID == "" {
		pool := berth.CapabilityPool(append([]string{b.Executor}, b.RequiredCapabilities...)...)
		if err := pool.Validate(); err != nil {
			return ex, berth.Invalid("requiredCapabilities", "exceed the length limit of a pool id together").With(err)
		}
		ex.Where.PoolID, ex.Where.Capabilities = pool.ID, pool.Capabilities
	}
	if ex.ExecutionID == "" {
		ex.ExecutionID = berth.NewID("e-")
	}
	var err error
	ex.RequestHash, err = hashRequest(ex.UserID, ex.Executor, ex.Input, ex.Where, ex.Timeout, ex.Deadline)
	return ex, err
}

func checkExecution(b executeBody) error {
	if err := cmp.Or(optionalID("executionId", b.ExecutionID), berth.ValidCapability("executor", b.Executor)); err != nil {
		return err
	}
	for i, c := range b.RequiredCapabilities {
		if err := berth.ValidCapability(fmt.Sprintf("requiredCapabilities[%d]", i), c); err != nil {
			return err
		}
	}
	if b.PoolID != "" {
		if len(b.RequiredCapabilities) > 0 {
			return berth.Invalid("poolId", "give poolId or requiredCapabilities, not both")
		}
		if err := (berth.Pool{ID: b.PoolID}).Validate(); err != nil {
			return err
		}
	}
	if err := optionalID("instanceId", b.InstanceID); err != nil {
		return err
	}
	switch {
	case len(b.Input) > berth.MaxExecutionBytes:
		return exceeds("input", berth.MaxExecutionBytes)
	case !printable(b.Host):
		return berth.Invalid("host", "must be printable")
	case !printable(b.Zone):
		return berth.Invalid("zone", "must be printable")
	}
	return nil
}

func (s *server) getExecution(ctx context.Context, in *idInput) (*executionView, error) {
	ex, err := s.ownExecution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	view := s.viewExecution(ex)
	if ex.Status == berth.ExecutionWaiting {
		waiter := lua.NodeWaiter{UserID: ex.UserID, ExecutionID: ex.ID, Attempt: len(ex.Attempts) + 1}
		position, err := s.Scripts.ReadWaiting(ctx, ex.PoolID, waiter)
		if err == nil && position >= 0 { // Redis may be unavailable
			view.Position = &position
		}
	}
	return view, nil
}

func (s *server) cancelExecution(ctx context.Context, in *idInput) (*executionView, error) {
	ex, err := s.ownExecution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if ex.Status.Final() {
		return nil, berth.Errorf(berth.CodeConflict, "the execution has already ended (status %s)", ex.Status)
	}
	if err := s.Starter.CancelExecution(ctx, in.ID); err != nil {
		return nil, fmt.Errorf("cancel execution %s: %w", in.ID, err)
	}
	return s.viewExecution(ex), nil
}

// ownExecution returns an execution that the caller may see. A missing one and another user's have the same error.
func (s *server) ownExecution(ctx context.Context, id string) (berth.Execution, error) {
	if err := berth.ValidID("id", id); err != nil {
		return berth.Execution{}, err
	}
	ex, err := s.findExecution(ctx, id)
	if err != nil {
		return ex, fmt.Errorf("get execution %s: %w", id, err)
	}
	if user := callOf(ctx).user; ex.UserID != user.UserID && !user.Operator() {
		return berth.Execution{}, berth.Errorf(berth.CodeNotFound, "execution not found")
	}
	return ex, nil
}

// findExecution returns the state of an execution's run, or the row of one whose run was lost, is not kept any more, or cannot be
// read: one that the reconciliation ended may have no worker of its version.
func (s *server) findExecution(ctx context.Context, id string) (berth.Execution, error) {
	ex, err := s.Starter.GetExecution(ctx, id)
	if err == nil && ex.Code != berth.CodeLost {
		return ex, nil
	}
	row, ok, rowErr := berth.Found(s.Ledger.GetExecution(ctx, id))
	missing := berth.CodeOf(err) == berth.CodeNotFound
	switch {
	case ok && (missing || row.Status.Final()):
		return row, nil
	case rowErr != nil && (err == nil || missing):
		return row, rowErr
	default:
		return ex, err
	}
}

func (s *server) viewExecution(ex berth.Execution) *executionView {
	if ex.Attempts == nil {
		ex.Attempts = []berth.ExecutionAttempt{}
	}
	return &executionView{Execution: ex, Links: s.links(workflows.ExecutionWorkflowID(ex.ID))}
}

func executionPath(id string) string { return "/v1/executions/" + id }
