package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/ledger"
)

// LogPage selects rows of the usage or audit log.
type LogPage struct {
	Accept string    `header:"Accept" doc:"With application/x-ndjson the response has all rows, one JSON object per line, instead of a page"`
	UserID string    `query:"userId" maxLength:"255" doc:"Only rows of this user, for operators. Other callers read their own rows."`
	TaskID string    `query:"taskId" maxLength:"128" doc:"Only rows of this task"`
	From   time.Time `query:"from" doc:"Only rows at or after this time"`
	To     time.Time `query:"to" doc:"Only rows before this time"`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Rows of a page"`
	CursorParam
}

// user returns the user whose rows the caller reads, empty for an operator who reads those of all users.
func (p LogPage) user(ctx context.Context) (string, error) {
	caller := callOf(ctx).user
	if err := checkUser(caller, p.UserID); err != nil || caller.Operator() {
		return p.UserID, err
	}
	return caller.UserID, nil
}

// readLog returns a page of a log, or an export of all its pages.
func readLog[T any](
	ctx context.Context, s *server, p LogPage,
	read func(ctx context.Context, cursor string, limit int) (rows []T, next string, err error), body func(rows []T, next string) any,
) (*exportOutput, error) {
	if err := checkPeriod(p.From, p.To); err != nil {
		return nil, err
	}
	exports, limit := acceptedType(p.Accept, ndjson) == ndjson, p.Limit
	if exports {
		limit = 0 // the longest pages
	}
	page := func(cursor string) ([]T, string, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return read(ctx, cursor, limit)
	}
	rows, next, err := page(p.Cursor)
	switch {
	case err != nil:
		return nil, err
	case exports:
		return export(ctx, s, ndjson, rows, next, page, writeNDJSON), nil
	default:
		return s.object(ctx, body(rows, next)), nil
	}
}

// logDescription adds the two forms of the response to the description of a log.
func (s *server) logDescription(body, row any, op huma.Operation) huma.Operation {
	ok := response("A page, or with `Accept: application/x-ndjson` all rows", echo.MIMEApplicationJSON, s.schemaOf(body))
	ok.Content[ndjson] = &huma.MediaType{Schema: s.schemaOf(row)}
	return withResponses(map[string]*huma.Response{"200": ok, "default": s.problemResponse()}, op)
}

type usageInput struct {
	LogPage

	TeamID   string      `query:"teamId" maxLength:"255" doc:"Only calls that count for this team"`
	AppID    string      `query:"appId" maxLength:"255" doc:"Only calls that count for this application"`
	Model    string      `query:"model" maxLength:"128" doc:"Only calls of this model"`
	Upstream string      `query:"upstream" maxLength:"128" doc:"Only calls of upstreams with this name"`
	Outcome  callOutcome `query:"outcome" doc:"Only calls with this outcome: success, waiting, running, or the code of a failure"`
}

// callOutcome is the outcome of a model call: of ledger, or the code of a failure.
type callOutcome string

func callOutcomes() []callOutcome {
	outcomes := []callOutcome{ledger.OutcomeSuccess, ledger.OutcomeWaiting, ledger.OutcomeRunning}
	for _, code := range codeNames() {
		outcomes = append(outcomes, callOutcome(code))
	}
	return outcomes
}

// usageView is a model call.
type usageView struct {
	At        time.Time      `json:"at" doc:"When the attempt began"`
	EndedAt   time.Time      `json:"endedAt,omitzero" doc:"When the outcome was recorded"`
	UserID    string         `json:"userId"`
	TaskID    string         `json:"taskId" doc:"Of a direct call, which has no task, call: and its id"`
	ServiceID string         `json:"serviceId"`
	TeamID    string         `json:"teamId,omitempty" doc:"Team that the task counts for"`
	AppID     string         `json:"appId,omitempty" doc:"Application that the task counts for"`
	QueueID   berth.Queue    `json:"queueId"`
	Step      berth.StepName `json:"step"`
	Attempt   int64          `json:"attempt" doc:"Counts the attempts at the steps of the task"`
	Call      int            `json:"call" doc:"Counts the calls of an attempt from 0: a repair is call 1"`
	Model     string         `json:"model"`
	Provider  string         `json:"provider,omitempty"`
	Upstream  string         `json:"upstream,omitempty" doc:"Upstream of the model that was called, see the routing file"`
	Outcome   string         `json:"outcome" doc:"success; waiting until a provider is called, and of a direct call until its end; running until the outcome is recorded; else the code of the failure: cancelled if the task ended during the call, interrupted if the process that made it was killed"`
	Cause     string         `json:"cause,omitempty" doc:"Why the provider, or its answer, failed, such as rate_limit: see the table of causes in docs/providers.md"`
	berth.Usage

	LatencyMs    int64         `json:"latencyMs"`
	FirstTokenMs int64         `json:"firstTokenMs,omitempty"`
	CostMicros   int64         `json:"costMicros" doc:"Price of the provider in millionths of a US dollar"`
	Credits      berth.Credits `json:"credits,omitempty" doc:"What the user was charged: for a call of a metered task or a direct call, or the price of the task with its last call"`

	PromptTruncated bool `json:"promptTruncated,omitempty" doc:"The provider read only a part of the prompt, by its own count of tokens"`
}

func viewCall(c ledger.ModelCall) usageView {
	return usageView{
		At: c.At, EndedAt: c.FinishedAt, UserID: c.UserID, TaskID: c.TaskID, ServiceID: c.ServiceID, TeamID: c.TeamID, AppID: c.AppID, QueueID: c.Queue,
		Step: c.Name, Attempt: c.Fence, Call: c.Call, Model: c.Model, Provider: c.Provider, Upstream: c.Upstream, Outcome: c.Outcome(), Cause: c.Cause,
		Usage: c.Usage, LatencyMs: c.LatencyMs, FirstTokenMs: c.FirstTokenMs, CostMicros: c.CostMicros, Credits: c.Credits,
		PromptTruncated: c.PromptTruncated,
	}
}

type usageOutputBody struct {
	Calls      []usageView `json:"calls"`
	NextCursor string      `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) usageRoute() {
	registerOutput(s, "GET /v1/usage", forExports, s.listUsage, s.logDescription(usageOutputBody{}, usageView{}, op("list-usage", "account",
		"List model calls with their tokens, durations and costs, newest first",
		"Users read the calls of their tasks, operators those of all users. A call is listed from the beginning of its attempt.")))
	register(s, "GET /v1/usage/sums", forUsers, s.sumUsage, op("sum-usage", "account",
		"Sum the model calls with their tokens and costs, the highest costs first",
		"Users read the sums of their calls, operators those of all users. Calls that run are not counted. Without `from` the sums are those "+
			"of the last 30 days."))
}

func (s *server) listUsage(ctx context.Context, in *usageInput) (*exportOutput, error) {
	userID, err := in.user(ctx)
	if err != nil {
		return nil, err
	}
	q := ledger.UsageQuery{UserID: userID, TaskID: in.TaskID, TeamID: in.TeamID, AppID: in.AppID, Model: in.Model, Upstream: in.Upstream, Outcome: string(in.Outcome), From: in.From, To: in.To}
	return readLog(ctx, s, in.LogPage, func(ctx context.Context, cursor string, limit int) ([]usageView, string, error) {
		found, next, err := s.Ledger.UsageLog(ctx, q, cursor, limit)
		return convert(found, viewCall), next, err
	}, func(rows []usageView, next string) any { return usageOutputBody{Calls: rows, NextCursor: next} })
}
