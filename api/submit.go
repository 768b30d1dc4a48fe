package api

import (
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
	"berth/internal/starter"
	"berth/lua"
)

// submitInput is a request for a task.
type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Submissions of one user with the same key and body are one task. With taskId given, that is the task's identity."`
	Body           submitBody
}

type submitBody struct {
	TaskID    string              `json:"taskId,omitempty" maxLength:"128" doc:"Your own id for the task; without it one is made"`
	ServiceID string              `json:"serviceId" maxLength:"128" doc:"The service the task is for"`
	Template  berth.Template      `json:"template"`
	Locale    berth.Locale        `json:"locale,omitempty" enum:"en,zh" default:"en" doc:"Language of prompts and answer"`
	Variables map[string]Variable `json:"variables" maxProperties:"8" doc:"See GET /v1/templates for what a template takes"`
}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     submitAnswer
}

// submitAnswer answers a submission: 202 for a new task, 200 with replay for one that was accepted before (T7).
type submitAnswer struct {
	TaskID      string           `json:"taskId"`
	Status      berth.TaskStatus `json:"status"`
	Queue       berth.Queue      `json:"queue,omitempty"`
	Model       string           `json:"model,omitempty"`
	Tier        berth.Tier       `json:"tier,omitempty"`
	Position    int              `json:"position" doc:"Place in the queue, 0 when not known"`
	EtaSeconds  int              `json:"etaSeconds" doc:"Estimate until the first step starts, 0 when not known"`
	PollAfterMs int              `json:"pollAfterMs,omitempty" doc:"Ask for the status again after this many milliseconds"`
	EventsURL   string           `json:"eventsUrl"`
	Replay      bool             `json:"replay,omitempty" doc:"The task was accepted before; nothing was started"`
	IdemKey     string           `json:"idemKey,omitempty" doc:"What made this a replay"`
}

func (s *server) submitRoute() {
	op := huma.Operation{
		OperationID: "submit-task", Method: http.MethodPost, Path: "/v1/tasks", Tags: []string{"tasks"},
		Summary:       "Submit a task",
		Description:   "Answers at once; the work goes on with nobody connected (T8).",
		DefaultStatus: http.StatusAccepted,
	}
	op.Responses = map[string]*huma.Response{
		"200": {
			Description: "Accepted before: a replay",
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
	user, b := cl.user.UserID, in.Body
	if b.TaskID != "" {
		if err := berth.ValidID("taskId", b.TaskID); err != nil {
			return nil, err
		}
	}
	if err := berth.ValidID("serviceId", b.ServiceID); err != nil {
		return nil, err
	}
	if b.ServiceID == lua.SessionService || b.ServiceID == lua.ConferenceService { // their streams are other things'
		return nil, berth.Invalid("serviceId", "must not be %q", b.ServiceID)
	}
	vals, err := s.checkValues(ctx, user, b.Template, b.Variables)
	if err != nil {
		return nil, err
	}
	// without Redis nothing can be streamed or leased: refuse before anything is written (L11)
	if err := s.Redis.Ping(ctx); err != nil {
		return nil, unavailable("Redis", err)
	}
	assets, err := s.store(ctx, user, vals)
	if err != nil {
		return nil, err
	}
	sub := starter.Submission{
		UserID: user, ServiceID: b.ServiceID, Template: b.Template, Locale: b.Locale, Tier: s.Config.Tier,
		Variables: assets, IdemKey: in.IdempotencyKey, RequestID: cl.requestID, TraceID: cl.traceID,
	}
	if sub.RequestHash, err = requestHash(sub); err != nil {
		return nil, err
	}
	sub.Steps = s.Catalog.Plan(b.Template, sub.Tier, llm.HasImage(vals.kinds))

	known, found, err := s.identify(ctx, &sub, b.TaskID)
	if err != nil {
		return nil, err
	}
	if found {
		return replay(sub, known.ID, known.Status, pollAfter(known))
	}
	acc, err := s.Starter.SubmitTask(ctx, sub)
	if err != nil {
		return nil, fmt.Errorf("submit task %s: %w", sub.TaskID, err)
	}
	return answer(sub, acc)
}

// identify finds the task's id: the client's, one derived from its key, or a new one. A task of this user that
// holds the id already is returned for a replay; one that failed or was cancelled never is (T7).
func (s *server) identify(ctx context.Context, sub *starter.Submission, clientID string) (berth.Task, bool, error) {
	if clientID == "" && sub.IdemKey == "" {
		sub.TaskID = berth.NewID("t_")
		return berth.Task{}, false, nil
	}
	// each failed task of a key passes the key on to the next id; the bound is against a broken client
	for n := range maxRetriesOfKey {
		sub.TaskID = clientID
		if clientID == "" {
			sub.TaskID = berth.DerivedID("t_", sub.UserID, sub.IdemKey, strconv.Itoa(n))
		}
		t, err := s.Ledger.GetUserTask(ctx, sub.UserID, sub.TaskID)
		switch {
		case berth.CodeOf(err) == berth.CodeNotFound:
			return berth.Task{}, false, nil
		case err != nil:
			return berth.Task{}, false, err
		case t.RequestHash != sub.RequestHash:
			return berth.Task{}, false, mismatch(*sub)
		case t.Status != berth.TaskFailed && t.Status != berth.TaskCancelled:
			return t, true, nil
		case clientID != "":
			return berth.Task{}, false, &berth.Error{
				Code: berth.CodeConflict, Field: "taskId",
				Message: "the task of this id has ended as " + string(t.Status) + "; submit under another id",
			}
		}
	}
	return berth.Task{}, false, &berth.Error{
		Code: berth.CodeConflict, Field: "Idempotency-Key", Message: "every task of this key failed; use another key",
	}
}

const maxRetriesOfKey = 16

// answer compares what holds the id with what was asked for.
func answer(sub starter.Submission, acc starter.Acceptance) (*submitOutput, error) {
	if acc.UserID != sub.UserID {
		return nil, &berth.Error{Code: berth.CodeConflict, Field: "taskId", Message: "this id is taken"}
	}
	if acc.RequestHash != sub.RequestHash {
		return nil, mismatch(sub)
	}
	poll := pollAfter(berth.Task{Status: acc.Status, Steps: sub.Steps})
	if acc.Replay {
		return replay(sub, acc.TaskID, acc.Status, poll)
	}
	out := &submitOutput{Status: http.StatusAccepted, Location: taskPath(acc.TaskID)}
	out.Body = submitAnswer{
		TaskID: acc.TaskID, Status: acc.Status, Queue: acc.Queue, Model: acc.Model, Tier: acc.Tier,
		Position: acc.Position, EtaSeconds: acc.EtaSeconds, PollAfterMs: milliseconds(poll),
		EventsURL: taskPath(acc.TaskID) + "/events",
	}
	return out, nil
}

func replay(sub starter.Submission, id string, status berth.TaskStatus, poll time.Duration) (*submitOutput, error) {
	key := sub.IdemKey
	if key == "" {
		key = sub.RequestHash
	}
	out := &submitOutput{Status: http.StatusOK, Location: taskPath(id)}
	out.Body = submitAnswer{
		TaskID: id, Status: status, PollAfterMs: milliseconds(poll), EventsURL: taskPath(id) + "/events",
		Replay: true, IdemKey: key,
	}
	return out, nil
}

func mismatch(sub starter.Submission) error {
	field := "taskId"
	if sub.IdemKey != "" {
		field = "Idempotency-Key"
	}
	return &berth.Error{
		Code: berth.CodeIdempotencyMismatch, Field: field, Message: "was used for another request",
	}
}

// requestHash tells submissions apart by what they ask for. Texts count by content: their assets' ids do.
func requestHash(sub starter.Submission) (string, error) {
	b, err := json.Marshal([]any{"v1", sub.UserID, sub.ServiceID, sub.Template, sub.Locale, sub.Variables})
	if err != nil {
		return "", fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func taskPath(id string) string { return "/v1/tasks/" + id }

func milliseconds(d time.Duration) int { return int(d.Milliseconds()) }
