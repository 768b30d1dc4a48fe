package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/workflows"
)

type executeInput struct{ Body executeBody }

type executeBody struct {
	ExecutionID          string          `json:"executionId,omitempty" doc:"Your own id for the execution: asking again with it is safe. Without it one is made"`
	Executor             string          `json:"executor" doc:"What is to run: a capability of the node"`
	Input                json.RawMessage `json:"input,omitempty" doc:"What the executor gets, any JSON, at most 256 KiB"`
	PoolID               string          `json:"poolId,omitempty" doc:"Where; by default the nodes that have the executor and the required capabilities. The pool is taken at its word: see to it that its nodes have the executor"`
	RequiredCapabilities []string        `json:"requiredCapabilities,omitempty" maxItems:"64" doc:"What the node needs to have besides the executor (S4)"`
	Strategy             berth.Strategy  `json:"strategy,omitempty" doc:"By default the pool's"`
	TimeoutMs            int64           `json:"timeoutMs,omitempty" minimum:"1" maximum:"86400000" default:"300000" doc:"How long one node may take"`
	DeadlineMs           int64           `json:"deadlineMs,omitempty" minimum:"1" maximum:"86400000" default:"900000" doc:"How long all of it may take, waiting for a node included"`
	InstanceID           string          `json:"instanceId,omitempty" doc:"Your own node, for affinity and locality (S3, S5)"`
	Host                 string          `json:"host,omitempty" maxLength:"128" doc:"Where you are, for locality"`
	Zone                 string          `json:"zone,omitempty" maxLength:"128" doc:"Where you are, for locality"`
}

type executeOutput struct {
	Location string `header:"Location"`
	Body     executeView
}

type executeView struct {
	ExecutionID string                `json:"executionId"`
	Status      berth.ExecutionStatus `json:"status" enum:"waiting,running,completed,failed,cancelled" doc:"How it stood when it was accepted; in a replay how it stands now"`
	NodeID      string                `json:"nodeId,omitempty" doc:"Where it runs; absent while it waits for a node with room"`
	Replay      bool                  `json:"replay" doc:"It was accepted before; nothing was started"`
}

type executionInput struct {
	ID string `path:"id" maxLength:"128"`
}

type executionOutput struct{ Body executionView }

type executionView struct {
	berth.Execution
	Links workflowLinks `json:"links"`
}

func (s *server) executionRoutes() {
	register(s, huma.Operation{
		OperationID: "submit-execution", Method: http.MethodPost, Path: "/v1/executions", Tags: []string{"executions"},
		Summary: "Run a named executor durably on a node",
		Description: "A node that fails or dies is followed by another one, as often as the fleet's configuration says (S8). While " +
			"every node is full it waits; 503 `no_node` says that no node is capable, and names what is missing.",
		DefaultStatus: http.StatusAccepted,
	}, forUser, s.submitExecution)
	register(s, huma.Operation{
		OperationID: "get-execution", Method: http.MethodGet, Path: "/v1/executions/{id}", Tags: []string{"executions"},
		Summary: "An execution, its attempts and its output",
	}, forUsers, s.getExecution)
	register(s, huma.Operation{
		OperationID: "cancel-execution", Method: http.MethodDelete, Path: "/v1/executions/{id}", Tags: []string{"executions"},
		Summary:       "Cancel an execution",
		Description:   "Answers with how it stood; its node is told to stop. 409 when it has ended.",
		DefaultStatus: http.StatusAccepted,
	}, forUsers, s.cancelExecution)
}

func (s *server) submitExecution(ctx context.Context, in *executeInput) (*executeOutput, error) {
	ex, err := newExecution(callOf(ctx).user.UserID, in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil { // refused at once (L11)
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

// executionNow is how an execution that was accepted before stands now: the first answer is an old one.
func (s *server) executionNow(
	ctx context.Context, id string, accepted workflows.ExecuteReply,
) (workflows.ExecuteReply, error) {
	now, err := s.Starter.GetExecution(ctx, id)
	switch {
	case berth.CodeOf(err) == berth.CodeNotFound: // Temporal has just forgotten it
		return accepted, nil
	case err != nil:
		return accepted, fmt.Errorf("get execution %s: %w", id, err)
	}
	accepted.Status, accepted.NodeID = now.Status, now.NodeID
	return accepted, nil
}

// newExecution is what the request asks for; errors name the field (X6).
func newExecution(userID string, b executeBody) (workflows.ExecutionInput, error) {
	ex := workflows.ExecutionInput{
		ExecutionID: b.ExecutionID, UserID: userID, Executor: b.Executor, Input: b.Input,
		Timeout: time.Duration(b.TimeoutMs) * time.Millisecond, Deadline: time.Duration(b.DeadlineMs) * time.Millisecond,
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
			return ex, berth.Invalid("requiredCapabilities", "are too long together").With(err)
		}
		ex.Where.PoolID, ex.Where.Capabilities = pool.ID, pool.Capabilities
	}
	body, err := json.Marshal([]any{"v1", ex.UserID, ex.Executor, ex.Input, ex.Where, ex.Timeout, ex.Deadline})
	if err != nil {
		return ex, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(body)
	ex.RequestHash = hex.EncodeToString(sum[:])
	if ex.ExecutionID == "" {
		ex.ExecutionID = berth.NewID("e-")
	}
	return ex, nil
}

func checkExecution(b executeBody) error {
	if b.ExecutionID != "" {
		if err := berth.ValidID("executionId", b.ExecutionID); err != nil {
			return err
		}
	}
	if err := berth.ValidCapability("executor", b.Executor); err != nil {
		return err
	}
	for i, c := range b.RequiredCapabilities {
		if err := berth.ValidCapability(fmt.Sprintf("requiredCapabilities[%d]", i), c); err != nil {
			return err
		}
	}
	if b.PoolID != "" {
		if len(b.RequiredCapabilities) > 0 {
			return berth.Invalid("poolId", "give the pool or the required capabilities, not both")
		}
		if err := (berth.Pool{ID: b.PoolID}).Validate(); err != nil {
			return err
		}
	}
	if b.InstanceID != "" {
		if err := berth.ValidID("instanceId", b.InstanceID); err != nil {
			return err
		}
	}
	switch {
	case len(b.Input) > berth.MaxExecutionBytes:
		return &berth.Error{
			Code: berth.CodeTooLarge, Field: "input", Message: fmt.Sprintf("may have at most %d bytes", berth.MaxExecutionBytes),
		}
	case !printable(b.Host):
		return berth.Invalid("host", "must be printable")
	case !printable(b.Zone):
		return berth.Invalid("zone", "must be printable")
	}
	return nil
}

func (s *server) getExecution(ctx context.Context, in *executionInput) (*executionOutput, error) {
	ex, err := s.ownExecution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return s.viewExecution(ex), nil
}

func (s *server) cancelExecution(ctx context.Context, in *executionInput) (*executionOutput, error) {
	ex, err := s.ownExecution(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if ex.Status.Final() {
		return nil, berth.Errorf(berth.CodeConflict, "the execution has already ended as %s", ex.Status)
	}
	if err := s.Starter.CancelExecution(ctx, in.ID); err != nil {
		return nil, fmt.Errorf("cancel execution %s: %w", in.ID, err)
	}
	return s.viewExecution(ex), nil
}

// ownExecution is an execution that the caller may see; missing and foreign ones are alike.
func (s *server) ownExecution(ctx context.Context, id string) (berth.Execution, error) {
	if err := berth.ValidID("id", id); err != nil {
		return berth.Execution{}, err
	}
	ex, err := s.Starter.GetExecution(ctx, id)
	if err != nil {
		return ex, fmt.Errorf("get execution %s: %w", id, err)
	}
	if user := callOf(ctx).user; ex.UserID != user.UserID && !user.Operator() {
		return berth.Execution{}, berth.Errorf(berth.CodeNotFound, "execution not found")
	}
	return ex, nil
}

func (s *server) viewExecution(ex berth.Execution) *executionOutput {
	if ex.Attempts == nil {
		ex.Attempts = []berth.ExecutionAttempt{}
	}
	return &executionOutput{Body: executionView{
		Execution: ex, Links: workflowLinks{Temporal: s.workflowLink(workflows.ExecutionWorkflowID(ex.ID), "")},
	}}
}

func executionPath(id string) string { return "/v1/executions/" + id }
