package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"berth"
	"berth/client"
	"berth/lua"
	"berth/workflows"
)

type executeInput struct{ Body executeBody }

type executionInput struct {
	ID     string `path:"id" maxLength:"128"`
	UserID string `query:"userId" maxLength:"255" doc:"Owner of the execution, for operators. Needed only if several users have an execution with this id."`
}

type executeOutput struct {
	Location string `header:"Location"`
	Body     executeView
}

type executionView struct {
	berth.Execution
	Position *int                 `json:"position,omitempty" doc:"While the execution waits: an estimate of how many others of its pool get a node before it." example:"3"`
	Links    client.WorkflowLinks `json:"links"`
}

func (s *server) executionRoutes() {
	registerOutput(s, "POST /v1/executions", forUser, s.submitExecution, withStatus(http.StatusAccepted, op("submit-execution", "executions",
		"Run an executor durably on a node",
		"Runs the executor on another node when one fails or dies, as often as the fleet's configuration allows. While "+
			"every node is full the execution waits. 503 `no_node`: no node is capable now, `missing` states why; 400: no node has ever "+
			"offered what `field` names. 429 `queue_full`: too many of your executions are unfinished.")))
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
	ref := berth.ExecutionRef{UserID: ex.UserID, ExecutionID: ex.ExecutionID}
	_, known, err := berth.Found(s.Ledger.FindExecution(ctx, ref))
	if err != nil {
		return nil, err
	}
	key := workflows.ExecutionKey(ref)
	if !known {
		if err := s.admitExecution(ctx, ref); err != nil {
			return nil, err
		}
	}
	reply, replay, err := s.Starter.SubmitExecution(ctx, key, ex)
	if err != nil {
		if err = s.unknownCapability(ctx, err, in.Body.field); !known {
			s.releaseExecution(ctx, ref, err)
		}
		return nil, fmt.Errorf("submit execution %s: %w", key, err)
	}
	if replay {
		if reply, err = s.executionNow(ctx, ref, reply); err != nil {
			return nil, err
		}
	}
	return &executeOutput{
		Location: location(executionPath(ex.ExecutionID)),
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
	return s.hiddenCapability(ctx, s.usePool(ctx, where.PoolID, where.Capabilities...), b.field)
}

// field returns the field of the request that names a capability, or the pool.
func (b executeBody) field(capability string) string {
	i := slices.Index(b.RequiredCapabilities, capability)
	switch {
	case b.PoolID != "":
		return "poolId"
	case capability == b.Executor || i < 0:
		return "executor"
	default:
		return fmt.Sprintf("requiredCapabilities[%d]", i)
	}
}

// executionNow updates the reply of an execution that was accepted before with its current status.
func (s *server) executionNow(
	ctx context.Context, ref berth.ExecutionRef, accepted workflows.ExecuteReply,
) (workflows.ExecuteReply, error) {
	now, ok, err := berth.Found(s.findExecution(ctx, ref))
	if err != nil {
		return accepted, fmt.Errorf("get execution %s: %w", ref, err)
	}
	if ok { // else Temporal and the database have just deleted it
		accepted.Status, accepted.NodeID = now.Status, now.NodeID
	}
	return accepted, nil
}

// newExecution returns the requested execution; errors name the field.
func newExecution(userID string, b executeBody) (workflows.ExecutionInput, error) {
	if err := checkExecution(&b); err != nil {
		return workflows.ExecutionInput{}, err
	}
	ex := workflows.ExecutionInput{
		ExecutionID: b.ExecutionID, UserID: userID, Executor: b.Executor, Input: b.Input,
		Timeout: fromMs(b.TimeoutMs), Deadline: fromMs(b.DeadlineMs),
		Where: berth.Requirements{
			PoolID: b.PoolID, Strategy: b.Strategy, Own: b.InstanceID, OwnHost: b.Host, OwnZone: b.Zone,
		},
	}
	if b.PoolID == "" {
		pool := berth.CapabilityPool(append([]string{b.Executor}, b.RequiredCapabilities...)...)
		if err := pool.Normalize(); err != nil {
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

// checkExecution validates the body, and brings its names and capabilities into their stored forms.
func checkExecution(b *executeBody) (err error) {
	if b.Executor, err = berth.ParseCapability("executor", b.Executor); err != nil {
		return err
	}
	b.RequiredCapabilities = slices.Clone(b.RequiredCapabilities)
	for i, c := range b.RequiredCapabilities {
		if b.RequiredCapabilities[i], err = berth.ParseCapability(fmt.Sprintf("requiredCapabilities[%d]", i), c); err != nil {
			return err
		}
	}
	if b.PoolID != "" {
		if len(b.RequiredCapabilities) > 0 {
			return berth.Invalid("poolId", "give poolId or requiredCapabilities, not both")
		}
		if err := berth.ValidPoolID("poolId", b.PoolID); err != nil {
			return err
		}
	}
	if len(b.Input) > berth.MaxExecutionBytes {
		return exceeds("input", berth.MaxExecutionBytes)
	}
	return cmp.Or(
		optionalID("executionId", b.ExecutionID), optionalID("instanceId", b.InstanceID),
		normalize("host", &b.Host, berth.MaxLabel), normalize("zone", &b.Zone, berth.MaxLabel),
	)
}

func (s *server) getExecution(ctx context.Context, in *executionInput) (*executionView, error) {
	ex, err := s.ownExecution(ctx, in)
	if err != nil {
		return nil, err
	}
	view := s.viewExecution(ex)
	if ex.Status == berth.ExecutionWaiting {
		waiter := lua.NodeWaiter{
			UserID: ex.UserID, WorkflowID: workflows.ExecutionWorkflowID(ex.Key), LeaseID: workflows.ExecutionLease(ex.Key, len(ex.Attempts)+1),
		}
		position, err := s.Scripts.ReadWaiting(ctx, ex.PoolID, waiter)
		if err == nil && position >= 0 { // Redis may be unavailable
			view.Position = &position
		}
	}
	return view, nil
}

func (s *server) cancelExecution(ctx context.Context, in *executionInput) (*executionView, error) {
	ex, err := s.ownExecution(ctx, in)
	if err != nil {
		return nil, err
	}
	if ex.Status.Final() {
		return nil, berth.Errorf(berth.CodeConflict, "the execution has already ended (status %s)", ex.Status)
	}
	if err := s.Starter.CancelExecution(ctx, ex.Key); err != nil {
		return nil, fmt.Errorf("cancel execution %s: %w", ex.Key, err)
	}
	return s.viewExecution(ex), nil
}

// ownExecution returns the caller's execution with the id, or for an operator the execution of any user. It does not reveal whether
// other users have an execution with the id.
func (s *server) ownExecution(ctx context.Context, in *executionInput) (berth.ExecutionRow, error) {
	p := callOf(ctx).user
	if err := cmp.Or(berth.ValidID("id", in.ID), checkUser(p, in.UserID)); err != nil {
		return berth.ExecutionRow{}, err
	}
	ex, err := s.findExecution(ctx, berth.ExecutionRef{UserID: cmp.Or(in.UserID, p.UserID), ExecutionID: in.ID})
	if in.UserID == "" && p.Operator() && berth.CodeOf(err) == berth.CodeNotFound {
		ex, err = s.anyExecution(ctx, in.ID)
	}
	if err != nil {
		return ex, fmt.Errorf("get execution %s: %w", in.ID, err)
	}
	return ex, nil
}

// anyExecution returns the only execution of any user that has the id.
func (s *server) anyExecution(ctx context.Context, id string) (berth.ExecutionRow, error) {
	found, err := s.Ledger.ExecutionsByID(ctx, id, 2)
	switch {
	case err != nil:
		return berth.ExecutionRow{}, err
	case len(found) == 0:
		return berth.ExecutionRow{}, berth.Errorf(berth.CodeNotFound, "execution not found")
	case len(found) > 1:
		return berth.ExecutionRow{}, errorIn("userId", berth.CodeConflict, "several users have an execution with this id; add userId")
	default:
		return s.findExecution(ctx, found[0].Ref())
	}
}

// findExecution returns the state of an execution's run, or the row of one whose run was lost, is not kept any more, or cannot be
// read: one that the reconciliation ended may have no worker of its version.
func (s *server) findExecution(ctx context.Context, ref berth.ExecutionRef) (berth.ExecutionRow, error) {
	run, err := s.readExecution(ctx, workflows.ExecutionKey(ref))
	if err == nil && run.Code != berth.CodeLost {
		return run, nil
	}
	row, ok, rowErr := berth.Found(s.Ledger.FindExecution(ctx, ref))
	missing := berth.CodeOf(err) == berth.CodeNotFound
	switch {
	case ok && (missing || row.Status.Final()):
		return row, nil
	case rowErr != nil && (err == nil || missing):
		return row, rowErr
	default:
		return run, err
	}
}

// readExecution returns the state of the run of an execution.
func (s *server) readExecution(ctx context.Context, key string) (berth.ExecutionRow, error) {
	ex, err := s.Starter.GetExecution(ctx, key)
	return berth.ExecutionRow{Key: key, Execution: ex}, err
}

func (s *server) viewExecution(ex berth.ExecutionRow) *executionView {
	if ex.Attempts == nil {
		ex.Attempts = []berth.ExecutionAttempt{}
	}
	return &executionView{Execution: ex.Execution, Links: s.links(workflows.ExecutionWorkflowID(ex.Key))}
}

func executionPath(id string) string { return "/v1/executions/" + id }
