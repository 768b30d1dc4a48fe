package api

import (
	"context"
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
		id, err := s.Ledger.BeginAction(req.Context(), berth.Action{
			UserID: cl.user.UserID, Name: r.operation, Target: req.URL.Path, RequestID: cl.requestID,
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
	UserID string    `query:"userId" maxLength:"255" doc:"Only actions of this user"`
	Action string    `query:"action" maxLength:"128" doc:"Only actions of this name: the id of an operation"`
	From   time.Time `query:"from" doc:"Only actions at or after this time"`
	To     time.Time `query:"to" doc:"Only actions before this time"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string    `query:"cursor" maxLength:"512" doc:"nextCursor of the previous page"`
}

type auditOutputBody struct {
	Actions    []berth.Action `json:"actions"`
	NextCursor string         `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) auditRoute() {
	register(s, "GET /v1/audit", forOperator, s.listActions, op("list-actions", "operations", "List the actions of operators, newest first",
		"Each call of an operator that changes something is an action: `action` is the id of its operation, `target` its path, "+
			"`status` the HTTP status of its response, and 0 when no result was recorded."))
}

func (s *server) listActions(ctx context.Context, in *auditInput) (*auditOutputBody, error) {
	q := ledger.ActionQuery{UserID: in.UserID, Name: in.Action, From: in.From, To: in.To}
	found, next, err := s.Ledger.Actions(ctx, q, in.Cursor, in.Limit)
	return &auditOutputBody{Actions: append([]berth.Action{}, found...), NextCursor: next}, err
}
