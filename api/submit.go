package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

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

func (s *server) submitRoute() {
	replay := s.alternative("200", "The task had already been accepted", submitAnswer{})
	registerOutput(s, "POST /v1/tasks", forUser, s.submit, withStatus(http.StatusAccepted, withResponses(replay, op(
		"submit-task", "tasks", "Submit a task", "Returns immediately. The task runs whether or not a client is connected."))))
}

func (s *server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	cl := callOf(ctx)
	b := in.Body
	if err := cmp.Or(optionalID("taskId", b.TaskID), berth.ValidID("serviceId", b.ServiceID)); err != nil {
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
	// Texts are compared by content, which their asset ids represent.
	plan.RequestHash, err = hashRequest(plan.UserID, plan.ServiceID, plan.Template, plan.Locale, plan.Variables)
	if err != nil {
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
		return nil, errorIn("taskId", berth.CodeConflict, "task id is already in use")
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
			return "", berth.Task{}, errorIn("taskId", berth.CodeConflict,
				"task already finished (status %s); submit with another id", t.Status)
		}
	}
	return "", berth.Task{}, errorIn("Idempotency-Key", berth.CodeConflict, "all tasks of this key failed; use another key")
}

const maxRetriesOfKey = 16

func accepted(t berth.Task) *submitOutput {
	out, step := answer(http.StatusAccepted, t), t.Steps[t.StepIndex]
	out.Body.Queue, out.Body.Model, out.Body.Tier = step.Queue, step.Model, t.Tier
	return out
}

func replay(t berth.Task, key string) *submitOutput {
	out := answer(http.StatusOK, t)
	out.Body.Replay, out.Body.IdemKey = true, key
	return out
}

func answer(status int, t berth.Task) *submitOutput {
	return &submitOutput{Status: status, Location: taskPath(t.ID), Body: submitAnswer{
		TaskID: t.ID, Status: t.Status, PollAfterMs: milliseconds(pollAfter(t)), EventsURL: taskPath(t.ID) + "/events",
	}}
}

func mismatch(key string) error {
	field := "taskId"
	if key != "" {
		field = "Idempotency-Key"
	}
	return errorIn(field, berth.CodeIdempotencyMismatch, "already used for a different request")
}

func taskPath(id string) string { return "/v1/tasks/" + id }

func milliseconds(d time.Duration) int { return int(d.Milliseconds()) }
