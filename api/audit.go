package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/identity"
	"berth/internal/ledger"
)

// recorded reports whether a call is an operator's action: of a route that accepts operators, by one, with a method that
// changes something.
func (r rule) recorded(method string, p identity.Principal) bool {
	changes := method != http.MethodGet && method != http.MethodHead && !r.reads
	return changes && slices.Contains(r.scopes, identity.ScopeOperator) && p.Operator()
}

// audit records operators' actions. The row is written before the action, which is refused when that fails, so that none is
// missing; then the result is added.
func (s *server) audit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		req := c.Request()
		cl, r := callOf(req.Context()), s.rules[routeKey(req.Method, c.Path())]
		if !r.recorded(req.Method, cl.user) {
			return next(c)
		}
		id, err := s.Ledger.BeginAction(req.Context(), ledger.AuditEntry{
			UserID: cl.user.UserID, Event: ledger.AuditEvent(r.operation), Target: req.URL.Path, RequestID: cl.requestID,
		})
		if err != nil {
			return err
		}
		status := http.StatusInternalServerError // of a panic
		defer func() { s.endAction(req.Context(), id, status) }()
		if err = next(c); err != nil && !c.Response().Committed {
			status = problemOf(err, "").Status
			return err
		}
		status = c.Response().Status
		return err
	}
}

// auditTimeout limits how long a response waits for the result of its action to be recorded.
const auditTimeout = 2 * time.Second

func (s *server) endAction(ctx context.Context, id int64, status int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := s.Ledger.EndAction(ctx, id, status); err != nil {
		s.log.WarnContext(ctx, "result of an action not recorded", "action", id, "status", status, "error", err)
	}
}

type auditInput struct {
	LogPage

	Action ledger.AuditEvent `query:"action" maxLength:"128" doc:"Only rows of this event of tasks, or of this operation of operators"`
}

type auditView struct {
	ID     int64             `json:"entryId"`
	At     time.Time         `json:"at"`
	UserID string            `json:"userId" doc:"Owner of the task, or the operator"`
	Action ledger.AuditEvent `json:"action" doc:"Of a task: enqueue, rate_limited, idempotent_replay, start, done, error. Of an operator: the id of the operation"`
	TaskID string            `json:"taskId,omitempty"`
	// The fields of an event of a task.
	ServiceID string          `json:"serviceId,omitempty"`
	QueueID   berth.Queue     `json:"queueId,omitempty"`
	Detail    json.RawMessage `json:"detail,omitempty" doc:"What the event changed: steps, model, status, usage, refunded credits"`
	// The fields of an operator's action.
	Target    string `json:"target,omitempty" doc:"Path of an operator's request"`
	RequestID string `json:"requestId,omitempty"`
	Status    *int   `json:"status,omitempty" doc:"HTTP status of the response to an operator's request, 0 when no result was recorded"`
}

func viewAudit(e ledger.AuditEntry) auditView {
	v := auditView{ID: e.ID, At: e.At, UserID: e.UserID, Action: e.Event, TaskID: e.TaskID, ServiceID: e.ServiceID, QueueID: e.Queue}
	if e.Target == "" {
		v.Detail = e.Detail
		return v
	}
	v.Target, v.RequestID, v.Status = e.Target, e.RequestID, &e.Status
	return v
}

type auditOutputBody struct {
	Entries    []auditView `json:"entries"`
	NextCursor string      `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) auditRoute() {
	registerOutput(s, "GET /v1/audit", forLogs, s.listAudit, s.logDescription(auditOutputBody{}, auditView{}, op("list-audit", "account",
		"List what happened to tasks, and what operators did, newest first",
		"Users read the events of their tasks, operators those of all tasks and the actions of operators. Each call of an operator "+
			"that changes something is an action: `action` is the id of its operation, `target` its path, "+
			"`status` the HTTP status of its response.")))
}

func (s *server) listAudit(ctx context.Context, in *auditInput) (*logOutput, error) {
	userID, err := in.user(ctx)
	if err != nil {
		return nil, err
	}
	q := ledger.AuditQuery{UserID: userID, TaskID: in.TaskID, Event: in.Action, From: in.From, To: in.To}
	return readLog(ctx, s, in.LogPage, func(ctx context.Context, cursor string, limit int) ([]auditView, string, error) {
		found, next, err := s.Ledger.AuditLog(ctx, q, cursor, limit)
		return convert(found, viewAudit), next, err
	}, func(rows []auditView, next string) any { return auditOutputBody{Entries: rows, NextCursor: next} })
}
