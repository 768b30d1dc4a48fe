package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/identity"
	"berth/internal/ledger"
)

// action reports whether the calls of a route by operators, and by administrators of teams, are actions: it accepts operators, and its method
// changes something.
func (r rule) action(method string) bool {
	changes := method != http.MethodGet && method != http.MethodHead && !r.reads
	return changes && slices.Contains(r.scopes, identity.ScopeOperator)
}

// audit records actions.
func (s *server) audit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.isAction(c) {
			return s.recordAction(c, next)
		}
		return next(c)
	}
}

func (s *server) isAction(c echo.Context) bool {
	req := c.Request()
	cl := callOf(req.Context())
	return s.rules[routeKey(req.Method, c.Path())].action(req.Method) && (cl.user.Operator() || cl.managed != "")
}

// recordAction writes the row of an action before the action, which is refused when that fails, so that none is missing; then it
// adds the result, which distinguishes a change from a refused one.
func (s *server) recordAction(c echo.Context, next echo.HandlerFunc) error {
	req := c.Request()
	key, cl := routeKey(req.Method, c.Path()), callOf(req.Context())
	detail, err := s.sent(req, key)
	if err != nil {
		return err
	}
	id, err := s.Ledger.BeginAction(req.Context(), ledger.AuditEntry{
		UserID: cl.user.UserID, TeamID: cl.managed, Event: ledger.AuditEvent(s.rules[key].operation), Target: req.URL.Path, RequestID: cl.requestID,
		Detail: detail,
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

const (
	// omittedFields is the field of a detail with the names of the fields whose values are not recorded.
	omittedFields = "omitted"
	// maxRecorded bounds the bytes of a value, and maxOmitted the number of names in omittedFields.
	maxRecorded = 16 << 10
	maxOmitted  = 100
)

// described is what the description of a route states about its JSON body.
type described struct {
	fields []string // without those that are read-only
	named  bool     // the caller names its fields, whose values have one type
}

func describedBodies(doc *huma.OpenAPI) map[string]described {
	bodies := map[string]described{}
	eachOperation(doc, func(_, key string, op *huma.Operation) {
		if op.RequestBody == nil || op.RequestBody.Content[echo.MIMEApplicationJSON] == nil {
			return
		}
		body := op.RequestBody.Content[echo.MIMEApplicationJSON].Schema
		if body.Ref != "" {
			body = doc.Components.Schemas.SchemaFromRef(body.Ref)
		}
		_, named := body.AdditionalProperties.(*huma.Schema)
		d := described{named: named}
		for name, field := range body.Properties {
			if !field.ReadOnly {
				d.fields = append(d.fields, name)
			}
		}
		bodies[key] = d
	})
	return bodies
}

// sent returns what an operator's request asks for: the parameters of its query, and the fields of its body that the route describes.
// Unknown fields are refused where the body is validated. Of values that are private or too large only the names are recorded. A body that
// the handler reads itself is not recorded.
func (s *server) sent(req *http.Request, key string) (json.RawMessage, error) {
	var body map[string]json.RawMessage
	sent := callOf(req.Context()).body
	if json.Unmarshal(sent, &body) != nil {
		body = nil // it is refused
	}
	detail, omitted := map[string]any{}, []string{}
	for name, values := range req.URL.Query() {
		detail[name] = values[0]
	}
	known := s.bodies[key]
	for name, value := range body {
		switch {
		case !known.named && !slices.Contains(known.fields, name):
		case len(value) > maxRecorded, known.named && len(sent) > maxRecorded, slices.Contains(s.rules[key].private, name):
			omitted = append(omitted, name)
		default:
			detail[name] = value
		}
	}
	if len(omitted) > 0 {
		slices.Sort(omitted)
		detail[omittedFields] = omitted[:min(len(omitted), maxOmitted)]
	}
	return json.Marshal(detail)
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

	TeamID string            `query:"teamId" maxLength:"255" doc:"Only events of tasks that count for this team, and actions of its administrators"`
	Action ledger.AuditEvent `query:"action" doc:"Only rows of this event of tasks, or of this operation of operators and administrators of teams"`
}

type auditView struct {
	ID     int64             `json:"entryId"`
	At     time.Time         `json:"at"`
	Count  int64             `json:"count,omitempty" doc:"How many equal events the row represents, from at to lastAt: refused and repeated submissions have one row a minute for each user and reason, with the task of the first. Absent for one"`
	LastAt time.Time         `json:"lastAt,omitzero" doc:"Time of the last of them"`
	UserID string            `json:"userId" doc:"Owner of the task, or who requested the action"`
	Action ledger.AuditEvent `json:"action" doc:"An event of a task or account, or for an action of an operator or of a team's administrator the id of the operation"`
	TaskID string            `json:"taskId,omitempty"`
	// The fields of an event of a task; an action of a team's administrator has the team.
	ServiceID string      `json:"serviceId,omitempty"`
	TeamID    string      `json:"teamId,omitempty" doc:"Team that the task counts for, or whose administrator requested the action"`
	QueueID   berth.Queue `json:"queueId,omitempty"`

	Detail json.RawMessage `json:"detail,omitempty" doc:"What the event changed: steps, model, status, usage, refunded credits. Of an action: the values in the query and the body of the request; omitted has the names of those that are not recorded"`
	// The fields of an action.
	Target    string `json:"target,omitempty" doc:"Path of the request of an action"`
	RequestID string `json:"requestId,omitempty"`
	Status    *int   `json:"status,omitempty" doc:"HTTP status of the response to an action: 4xx if it was refused, 0 when no result was recorded"`
}

func viewAudit(e ledger.AuditEntry) auditView {
	v := auditView{
		ID: e.ID, At: e.At, UserID: e.UserID, Action: e.Event, TaskID: e.TaskID, ServiceID: e.ServiceID, TeamID: e.TeamID, QueueID: e.Queue, Detail: e.Detail,
	}
	if e.Count > 1 {
		v.Count, v.LastAt = e.Count, e.LastAt
	}
	if e.Target != "" {
		v.Target, v.RequestID, v.Status = e.Target, e.RequestID, &e.Status
	}
	return v
}

type auditOutputBody struct {
	Entries    []auditView `json:"entries"`
	NextCursor string      `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) auditRoute() {
	registerOutput(s, "GET /v1/audit", forExports, s.listAudit, s.logDescription(auditOutputBody{}, auditView{}, op("list-audit", "account",
		"List what happened to tasks, and what operators and administrators of teams did, newest first",
		"Users read the events of their tasks, operators those of all tasks and all actions. Each call of an operator, or of an administrator of "+
			"a team, that changes something is an action: `action` is the id of its operation, `target` its path, `detail` what was sent, "+
			"`status` the HTTP status of its response: an action with a status of 4xx was refused and changed nothing.")))
}

// describeActions lists the values of the filter of the audit log, which are known once all routes are registered.
func (s *server) describeActions() {
	var actions []string
	for key, r := range s.rules {
		if method, _, _ := strings.Cut(key, " "); r.action(method) {
			actions = append(actions, r.operation)
		}
	}
	slices.Sort(actions)
	for _, p := range s.doc.OpenAPI().Paths["/v1/audit"].Get.Parameters {
		if p.Name != "action" {
			continue
		}
		for _, event := range ledger.AuditEvents() {
			p.Schema.Enum = append(p.Schema.Enum, string(event))
		}
		for _, action := range actions {
			p.Schema.Enum = append(p.Schema.Enum, action)
		}
		p.Schema.PrecomputeMessages()
	}
}

func (s *server) listAudit(ctx context.Context, in *auditInput) (*exportOutput, error) {
	userID, err := in.user(ctx)
	if err != nil {
		return nil, err
	}
	q := ledger.AuditQuery{UserID: userID, TaskID: in.TaskID, TeamID: in.TeamID, Event: in.Action, From: in.From, To: in.To}
	return readLog(ctx, s, in.LogPage, func(ctx context.Context, cursor string, limit int) ([]auditView, string, error) {
		found, next, err := s.Ledger.AuditLog(ctx, q, cursor, limit)
		return convert(found, viewAudit), next, err
	}, func(rows []auditView, next string) any { return auditOutputBody{Entries: rows, NextCursor: next} })
}
