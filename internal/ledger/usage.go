package ledger

import (
	"context"
	"database/sql"
	"math"
	"time"

	"berth"
)

// ModelCall is one row of the usage log, of a task or of a DirectCall, which user, task, step, fence and call identify. It is written when the
// attempt begins, gets its provider when that is called, and is completed once.
type ModelCall struct {
	UserID string
	TaskID string
	Step   int
	Name   berth.StepName
	Fence  int64
	// Call numbers the model calls of one attempt from 0: a repair is call 1.
	Call  int
	Queue berth.Queue
	Model string
	// Provider was called as Upstream of the model.
	Provider, Upstream string
	Usage              berth.Usage
	// LatencyMs is the time from the request to the end of the answer, FirstTokenMs to its first token, 0 without one.
	LatencyMs    int64
	FirstTokenMs int64
	// CostMicros is the price in millionths of a US dollar.
	CostMicros int64
	// Credits is what the user was charged for the call: a call of a metered task whose answer was used, the last one of a direct call, or the
	// price of a task with its last call.
	Credits berth.Credits
	// FinishReason is why the model stopped, empty for a call without a complete answer.
	FinishReason string
	// PromptTruncated: by the provider's count, it read only a part of the prompt.
	PromptTruncated bool
	// Simulated: the local simulator answered. Only a finished step records it, for its task.
	Simulated bool
	Success   bool
	Code      berth.Code // the error of a failed call
	// Cause is why the provider, or its answer, failed; empty for other failures.
	Cause string
	// At is when the attempt began, or a later call of it ended. FinishedAt is when the outcome was recorded, zero before.
	At, FinishedAt time.Time
	// ServiceID, TeamID and AppID are those of the task.
	ServiceID, TeamID, AppID string
}

// Ref returns the task of the call.
func (c ModelCall) Ref() berth.TaskRef { return berth.TaskRef{UserID: c.UserID, TaskID: c.TaskID} }

var usageColumns = columns[ModelCall]{
	{"task_id", func(c *ModelCall) any { return &c.TaskID }},
	{"step", func(c *ModelCall) any { return &c.Step }},
	{"fence", func(c *ModelCall) any { return &c.Fence }},
	{"call_no", func(c *ModelCall) any { return &c.Call }},
	{"name", func(c *ModelCall) any { return &c.Name }},
	{"user_id", func(c *ModelCall) any { return &c.UserID }},
	{"service_id", func(c *ModelCall) any { return &c.ServiceID }},
	{"team_id", func(c *ModelCall) any { return &c.TeamID }},
	{"app_id", func(c *ModelCall) any { return &c.AppID }},
	{"queue_id", func(c *ModelCall) any { return &c.Queue }},
	{"model", func(c *ModelCall) any { return &c.Model }},
	{"provider", func(c *ModelCall) any { return &c.Provider }},
	{"upstream", func(c *ModelCall) any { return &c.Upstream }},
	{"input_tokens", func(c *ModelCall) any { return &c.Usage.InputTokens }},
	{"output_tokens", func(c *ModelCall) any { return &c.Usage.OutputTokens }},
	{"cached_tokens", func(c *ModelCall) any { return &c.Usage.CachedTokens }},
	{"reasoning_tokens", func(c *ModelCall) any { return &c.Usage.ReasoningTokens }},
	{"latency_ms", func(c *ModelCall) any { return &c.LatencyMs }},
	{"first_token_ms", func(c *ModelCall) any { return &c.FirstTokenMs }},
	{"cost_micros", func(c *ModelCall) any { return &c.CostMicros }},
	{"credits", func(c *ModelCall) any { return &c.Credits }},
	{"finish_reason", func(c *ModelCall) any { return &c.FinishReason }},
	{"prompt_truncated", func(c *ModelCall) any { return &c.PromptTruncated }},
	{"success", func(c *ModelCall) any { return &c.Success }},
	{"error_code", func(c *ModelCall) any { return &c.Code }},
	{"cause", func(c *ModelCall) any { return &c.Cause }},
	{"created_at", func(c *ModelCall) any { return storedTime{&c.At} }},
	{"finished_at", func(c *ModelCall) any { return storedTime{&c.FinishedAt} }},
}

var (
	reserveUsage = usageColumns.insert("usage_log") + ` ON CONFLICT (user_id, task_id, step, fence, call_no) DO UPDATE SET
		provider = excluded.provider, upstream = excluded.upstream WHERE usage_log.provider = '' AND usage_log.finished_at = 0`
	// The outcome of a call is recorded once; it replaces the assumption that the call was interrupted or not made.
	recordUsage = usageColumns.insert("usage_log") + ` ON CONFLICT (user_id, task_id, step, fence, call_no) DO UPDATE SET
		name = excluded.name, queue_id = excluded.queue_id, model = excluded.model, provider = excluded.provider, upstream = excluded.upstream,
		input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
		reasoning_tokens = excluded.reasoning_tokens, latency_ms = excluded.latency_ms, first_token_ms = excluded.first_token_ms,
		cost_micros = excluded.cost_micros, credits = usage_log.credits + excluded.credits, success = excluded.success, finish_reason = excluded.finish_reason, error_code = excluded.error_code, cause = excluded.cause,
		prompt_truncated = excluded.prompt_truncated,
		finished_at = excluded.finished_at
		WHERE usage_log.finished_at = 0 OR usage_log.error_code IN ('` + string(berth.CodeInterrupted) + `', '` + string(berth.CodeNotStarted) + `')`
	// A row without a provider was reserved by an attempt that had not called one.
	interruptUsage = `UPDATE usage_log SET finished_at = $3,
		error_code = CASE provider WHEN '' THEN '` + string(berth.CodeNotStarted) + `' ELSE '` + string(berth.CodeInterrupted) + `' END
		WHERE user_id = $1 AND task_id = $2 AND finished_at = 0`
	releaseUsage = `DELETE FROM usage_log WHERE user_id = $1 AND task_id = $2 AND step = $3 AND fence = $4 AND call_no = 0
		AND (finished_at = 0 OR error_code = '` + string(berth.CodeNotStarted) + `')`
	// Each has cost something, or may have: the outcome of an interrupted call is not known.
	countBought = `SELECT COUNT(*) FROM usage_log WHERE user_id = $1 AND task_id = $2 AND step = $3
		AND (success OR input_tokens + output_tokens > 0 OR error_code = '` + string(berth.CodeInterrupted) + `')`
	selectUsage = `SELECT ` + usageColumns.names("") + ` FROM usage_log WHERE user_id = $1 AND task_id = $2 ORDER BY step, fence, call_no`
)

// FailedCall logs a model call without a usable answer. Unlike FinishStep it is accepted from any attempt, also after the task
// has ended, because the call was paid for; it is added to the sums of the task. It is idempotent.
func (l *Ledger) FailedCall(ctx context.Context, c ModelCall) error {
	c.Success = false
	return l.inTx(ctx, "log failed call", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, c.Ref())
		if err != nil {
			return err
		}
		fresh, err := writeUsage(ctx, tx, t, c)
		if err != nil || !fresh {
			return err
		}
		if _, err = tx.ExecContext(ctx, `UPDATE tasks SET input_tokens = input_tokens + $2,
			output_tokens = output_tokens + $3, updated_at = $4 WHERE id = $1 AND user_id = $5`,
			t.ID, c.Usage.InputTokens, c.Usage.OutputTokens, time.Now().UnixMilli(), t.UserID); err != nil || !t.Unsettled || !t.Status.Final() || c.Fence != t.Fence {
			return err
		}
		_, err = settle(ctx, tx, &t) // the end has waited for the outcome of this call
		return err
	})
}

// reserve writes the row of a call, so that it is accounted for if its worker is killed: that of an attempt's first call when the
// attempt begins, without a provider.
func reserve(ctx context.Context, tx *sql.Tx, t berth.Task, call CallStart) error {
	s := t.Steps[call.Step]
	c := ModelCall{
		UserID: t.UserID, TaskID: t.ID, ServiceID: t.ServiceID, TeamID: t.Team, AppID: t.App, Step: call.Step, Name: s.Name, Fence: call.Fence, Call: call.Call,
		Queue: s.Queue, Model: s.Model, Provider: call.Provider, Upstream: call.Upstream, At: time.Now(),
	}
	_, err := tx.ExecContext(ctx, reserveUsage, usageColumns.values(&c)...)
	return err
}

// ReleaseAttempt removes the row that an attempt reserved, because it ended without a call. The row of a call remains. It is
// idempotent.
func (l *Ledger) ReleaseAttempt(ctx context.Context, task berth.TaskRef, step int, fence int64) error {
	_, err := l.exec(ctx, "release attempt", releaseUsage, task.UserID, task.TaskID, step, fence)
	return err
}

// interrupt marks the calls of a task whose outcome is not recorded, because a later attempt begins or the task ends: they were
// interrupted, or not made. It reports whether there were any; their workers may still record the outcome.
func interrupt(ctx context.Context, tx *sql.Tx, t berth.Task) (bool, error) {
	res, err := tx.ExecContext(ctx, interruptUsage, t.UserID, t.ID, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// writeUsage reports whether the outcome is new.
func writeUsage(ctx context.Context, tx *sql.Tx, t berth.Task, c ModelCall) (bool, error) {
	c.FinishReason = plain(c.FinishReason)
	c.TaskID, c.UserID, c.ServiceID, c.TeamID, c.AppID, c.At = t.ID, t.UserID, t.ServiceID, t.Team, t.App, time.Now()
	c.FinishedAt = c.At
	var err error
	if c.Credits, err = creditsOf(ctx, tx, t, c); err != nil {
		return false, err
	}
	res, err := tx.ExecContext(ctx, recordUsage, usageColumns.values(&c)...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// ModelCalls returns the usage log of a task in the order of its calls.
func (l *Ledger) ModelCalls(ctx context.Context, task berth.TaskRef) ([]ModelCall, error) {
	return list(ctx, l, "read usage", usageColumns.fields, selectUsage, task.UserID, task.TaskID)
}

// The outcomes of a UsageQuery besides the codes of failures.
const (
	OutcomeSuccess = "success"
	OutcomeWaiting = "waiting" // no provider is called yet; of a direct call, it has not ended
	OutcomeRunning = "running" // the outcome is not recorded
)

// Outcome returns the outcome of a call: OutcomeSuccess, OutcomeWaiting, OutcomeRunning or the code of its failure.
func (c ModelCall) Outcome() string {
	switch {
	case c.Success:
		return OutcomeSuccess
	case c.FinishedAt.IsZero():
		if c.Provider == "" {
			return OutcomeWaiting
		}
		return OutcomeRunning
	default:
		return string(c.Code)
	}
}

// UsageQuery selects model calls. An empty field matches all. From is inclusive, To exclusive.
type UsageQuery struct {
	UserID, TaskID  string
	Model, Upstream string
	TeamID, AppID   string
	Outcome         string
	From, To        time.Time
}

var selectCalls = `SELECT ` + usageColumns.names("") + ` FROM usage_log WHERE `

const pageOfCalls = `(created_at, user_id, task_id, step, fence, call_no) < ($1, $2, $3, $4, $5, $6)
	ORDER BY created_at DESC, user_id DESC, task_id DESC, step DESC, fence DESC, call_no DESC LIMIT $7`

// UsageLog returns a page of the usage log, the newest calls first, and the cursor of the next page, empty after the last. limit
// is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) UsageLog(ctx context.Context, q UsageQuery, cursor string, limit int) (calls []ModelCall, next string, err error) {
	last := ModelCall{}
	at := int64(math.MaxInt64)
	p := pageBehind(cursor, limit, &at, &last.UserID, &last.TaskID, &last.Step, &last.Fence, &last.Call)
	p.text("user_id", q.UserID)
	p.text("task_id", q.TaskID)
	p.text("model", q.Model)
	p.text("upstream", q.Upstream)
	p.text("team_id", q.TeamID)
	p.text("app_id", q.AppID)
	switch q.Outcome {
	case "":
	case OutcomeSuccess:
		p.add("success =", true)
	case OutcomeWaiting:
		p.add("finished_at =", 0)
		p.add("provider =", "")
	case OutcomeRunning:
		p.add("finished_at =", 0)
		p.add("provider <>", "")
	default:
		p.text("error_code", q.Outcome)
	}
	p.between(q.From, q.To)
	return listPage(ctx, l, p, "read usage", usageColumns.fields, selectCalls, pageOfCalls, func(c ModelCall) []any {
		return []any{millis(c.At), c.UserID, c.TaskID, c.Step, c.Fence, c.Call}
	})
}
