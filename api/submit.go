package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/llm"
	"berth/lua"
)

// submitInput is a request for a task.
type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Requests of one user with the same key and body create one task. When taskId is set, it identifies the task instead."`
	Body           submitBody
}

type submitBody struct {
	TaskID    string              `json:"taskId,omitempty" maxLength:"128" doc:"Client-chosen id; generated when omitted"`
	ServiceID string              `json:"serviceId" maxLength:"128" doc:"Service that the task belongs to"`
	Template  berth.Template      `json:"template"`
	Locale    berth.Locale        `json:"locale,omitempty" enum:"en,zh" default:"en" doc:"Language of the prompts and the answer"`
	Variables map[string]Variable `json:"variables" maxProperties:"8" doc:"Inputs of the template, see GET /v1/templates"`
}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     submitAnswer
}

// submitAnswer is the response to a submission: 202 for a new task, 200 with replay for one that was accepted before.
type submitAnswer struct {
	TaskID      string           `json:"taskId"`
	Status      berth.TaskStatus `json:"status"`
	Queue       berth.Queue      `json:"queue,omitempty"`
	Model       string           `json:"model,omitempty"`
	Tier        berth.Tier       `json:"tier,omitempty"`
	Position    int              `json:"position" doc:"Position in the queue, 0 when unknown"`
	EtaSeconds  int              `json:"etaSeconds" doc:"Estimated time until the first step starts, 0 when unknown"`
	PollAfterMs int              `json:"pollAfterMs,omitempty" doc:"Recommended time until the next poll, in milliseconds"`
	EventsURL   string           `json:"eventsUrl"`
	Replay      bool             `json:"replay,omitempty" doc:"The task had already been accepted; nothing was started"`
	IdemKey     string           `json:"idemKey,omitempty" doc:"Key that identified the replay"`
}

func (s *server) submitRoute() {
	op := huma.Operation{
		OperationID: "submit-task", Method: http.MethodPost, Path: "/v1/tasks", Tags: []string{"tasks"},
		Summary:       "Submit a task",
		Description:   "Returns immediately. The task runs whether or not a client is connected.",
		DefaultStatus: http.StatusAccepted,
	}
	op.Responses = map[string]*huma.Response{
		"200": {
			Description: "The task had already been accepted",
			Content: map[string]*huma.MediaType{
				"application/json": {Schema: s.schemaOf(submitAnswer{})},
			},
		},
		"default": s.problemResponse(),
	}
	register(s, op, forUser, s.submit)
}

func (s *server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	cl := callOf(ctx)
	b := in.Body
	if b.TaskID != "" {
		if err := berth.ValidID("taskId", b.TaskID); err != nil {
			return nil, err
		}
	}
	if err := berth.ValidID("serviceId", b.ServiceID); err != nil {
		return nil, err
	}
	if b.ServiceID == lua.SessionService || b.ServiceID == lua.ConferenceService { // streams of sessions and conferences
		return nil, berth.Invalid("serviceId", "must not be %q", b.ServiceID)
	}
	vals, err := s.checkValues(ctx, cl.user.UserID, b.Template, b.Variables)
	if err != nil {
		return nil, err
	}
	// Without Redis nothing can be streamed or leased: reject before anything is written.
	if err := s.Redis.Ping(ctx); err != nil {
		return nil, unavailable("Redis", err)
	}
	assets, err := s.store(ctx, cl.user.UserID, vals)
	if err != nil {
		return nil, err
	}
	plan := berth.TaskPlan{
		TaskRequest: berth.TaskRequest{
			ServiceID: b.ServiceID, Template: b.Template, Locale: b.Locale, Tier: s.Config.Tier, Variables: assets,
			RequestID: cl.requestID, TraceID: cl.traceID,
		},
		UserID: cl.user.UserID,
		Steps:  s.Catalog.Plan(b.Template, s.Config.Tier, llm.HasImage(vals.kinds)),
	}
	if plan.RequestHash, err = requestHash(plan); err != nil {
		return nil, err
	}
	return s.accept(ctx, plan, b.TaskID, in.IdempotencyKey)
}

// accept starts the task, or finds the one that the same request started before.
func (s *server) accept(ctx context.Context, plan berth.TaskPlan, clientID, key string) (*submitOutput, error) {
	id, known, err := s.identify(ctx, plan, clientID, key)
	if err != nil {
		return nil, err
	}
	plan.ID = id
	task, replayed := known, known.ID != ""
	if !replayed {
		if task, replayed, err = s.Starter.SubmitTask(ctx, plan); err != nil {
			return nil, fmt.Errorf("submit task %s: %w", id, err)
		}
	}
	switch {
	case task.UserID != plan.UserID:
		return nil, &berth.Error{Code: berth.CodeConflict, Field: "taskId", Message: "task id is already in use"}
	case task.RequestHash != plan.RequestHash:
		return nil, mismatch(key)
	case replayed:
		return replay(task, cmp.Or(key, plan.RequestHash)), nil
	default:
		return accepted(task), nil
	}
}

// identify returns the task's id: the client's, one derived from its key, or a new one. When a task of this user with
// the same request already has the id, it is returned too; a task that failed or was cancelled never is.
func (s *server) identify(ctx context.Context, plan berth.TaskPlan, clientID, key string) (id string, known berth.Task, err error) {
	if clientID == "" && key == "" {
		return berth.NewID("t_"), berth.Task{}, nil
	}
	// Each failed task of a key passes the key on to the next id. The bound stops a client that always fails.
	for n := range maxRetriesOfKey {
		id := clientID
		if id == "" {
			id = berth.DerivedID("t_", plan.UserID, key, strconv.Itoa(n))
		}
		t, err := s.Ledger.GetUserTask(ctx, plan.UserID, id)
		switch {
		case berth.CodeOf(err) == berth.CodeNotFound:
			return id, berth.Task{}, nil
		case err != nil:
			return "", berth.Task{}, err
		case t.RequestHash != plan.RequestHash:
			return "", berth.Task{}, mismatch(key)
		case t.Status != berth.TaskFailed && t.Status != berth.TaskCancelled:
			return id, t, nil
		case clientID != "":
			return "", berth.Task{}, &berth.Error{
				Code: berth.CodeConflict, Field: "taskId",
				Message: fmt.Sprintf("task already finished (status %s); submit with another id", t.Status),
			}
		}
	}
	return "", berth.Task{}, &berth.Error{
		Code: berth.CodeConflict, Field: "Idempotency-Key", Message: "all tasks of this key failed; use another key",
	}
}

const maxRetriesOfKey = 16

func accepted(t berth.Task) *submitOutput {
	step := t.Steps[t.StepIndex]
	return &submitOutput{
		Status: http.StatusAccepted, Location: taskPath(t.ID),
		Body: submitAnswer{
			TaskID: t.ID, Status: t.Status, Queue: step.Queue, Model: step.Model, Tier: t.Tier,
			PollAfterMs: milliseconds(pollAfter(t)), EventsURL: taskPath(t.ID) + "/events",
		},
	}
}

func replay(t berth.Task, key string) *submitOutput {
	return &submitOutput{
		Status: http.StatusOK, Location: taskPath(t.ID),
		Body: submitAnswer{
			TaskID: t.ID, Status: t.Status, PollAfterMs: milliseconds(pollAfter(t)), EventsURL: taskPath(t.ID) + "/events",
			Replay: true, IdemKey: key,
		},
	}
}

func mismatch(key string) error {
	field := "taskId"
	if key != "" {
		field = "Idempotency-Key"
	}
	return &berth.Error{
		Code: berth.CodeIdempotencyMismatch, Field: field, Message: "already used for a different request",
	}
}

// requestHash identifies what a request asks for. Texts are compared by content, which their asset ids represent.
func requestHash(plan berth.TaskPlan) (string, error) {
	b, err := json.Marshal([]any{"v1", plan.UserID, plan.ServiceID, plan.Template, plan.Locale, plan.Variables})
	if err != nil {
		return "", fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func taskPath(id string) string { return "/v1/tasks/" + id }

func milliseconds(d time.Duration) int { return int(d.Milliseconds()) }
