package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/ledger"
	"berth/internal/metrics"
	"berth/lua"
	"berth/workflows"
)

// Admission bounds the tasks and executions that are accepted. 0 is no limit.
type Admission struct {
	Queue              int // unfinished tasks in a queue
	Service            int // unfinished tasks of a user and service
	Executions         int // unfinished executions of a user
	PaidRate, FreeRate int // submissions of a user in lua.RateWindow, by tier
}

func (a Admission) rate(tier berth.Tier) int {
	if tier == berth.TierPaid {
		return a.PaidRate
	}
	return a.FreeRate
}

const (
	// minRetry and maxRetry bound the estimate of when the next one is admitted, and unknownRetry replaces one that is not known.
	minRetry     = time.Second
	unknownRetry = 5 * time.Second
	maxRetry     = time.Minute

	// The fields of draft-ietf-httpapi-ratelimit-headers-10, and the name of the policy in them.
	headerRate       = "RateLimit"
	headerRatePolicy = "RateLimit-Policy"
	ratePolicy       = "submissions"

	submitPath = "/v1/tasks"
	// rateTimeout bounds the reading of the rate for a response that is ready.
	rateTimeout = time.Second
)

// admitTask takes a task's admissions to its queue, among the tasks of its user and service, and to its team and application, and counts the submission, or
// returns the refusal. A task that is submitted again keeps its admissions and is not counted again.
func (s *server) admitTask(ctx context.Context, p berth.TaskPlan, levels levelLimits) error {
	limits := s.Config.Admission
	limits.Queue = cmp.Or(s.catalog().MaxTasks(p.Steps[0].Queue), limits.Queue)
	reply, err := s.Scripts.AdmitTask(ctx, lua.Submission{
		Task: p.Ref(), ServiceID: p.ServiceID, Group: p.Group, Queue: p.Steps[0].Queue,
		Limits: lua.AdmissionLimits{
			Queue: limits.Queue, Service: limits.Service, Rate: limits.rate(p.Tier), Team: levels.team, App: levels.app,
		},
	})
	if err != nil {
		return unavailable("Redis", err)
	}
	callOf(ctx).rate = &reply.Rate
	if reply.Code == lua.TaskAdmitted {
		return nil
	}
	refusal := refuseSubmission(p, reply, limits)
	if reply.Code == lua.TaskQueueFull {
		if err := s.retryFull(ctx, p, &refusal); err != nil {
			return unavailable("Redis", err)
		}
	}
	event := ledger.AuditQueueFull
	if refusal.RateLimited {
		event = ledger.AuditRateLimited
	}
	return s.auditRefusal(ctx, refusal, ledger.AuditEntry{
		Event: event, UserID: p.UserID, TaskID: p.ID, ServiceID: p.ServiceID, Queue: p.Steps[0].Queue,
	}, map[string]any{"bound": reply.Code, "retryAfter": refusal.RetryAfter})
}

// auditRefusal records a refusal and returns its error.
func (s *server) auditRefusal(ctx context.Context, refusal Problem, entry ledger.AuditEntry, detail map[string]any) (err error) {
	if entry.Detail, err = json.Marshal(detail); err != nil {
		return fmt.Errorf("encode audit detail: %w", err)
	}
	if err := s.auditRepeated(ctx, entry, fmt.Sprint(detail["bound"])); err != nil {
		return err
	}
	return &refusedSubmission{refusal}
}

// maxRepeated is how many events that clients can repeat are recorded at the same time: a client in a loop gets no more connections
// of the database.
const maxRepeated = 2

// auditRepeated records an event that a client can repeat without a limit.
func (s *server) auditRepeated(ctx context.Context, e ledger.AuditEntry, reason string) error {
	if err := s.repeated.Acquire(ctx, 1); err != nil {
		return unavailable("the database", err)
	}
	defer s.repeated.Release(1)
	return s.Ledger.Audit(ctx, e, reason)
}

// admitExecution takes an admission among the unfinished executions of the user, or returns the refusal. An execution that is submitted
// again keeps its admission.
func (s *server) admitExecution(ctx context.Context, ref berth.ExecutionRef) error {
	limit := s.Config.Admission.Executions
	if limit == 0 {
		return nil
	}
	reply, err := s.Scripts.AdmitExecution(ctx, ref, limit)
	if err != nil {
		return unavailable("Redis", err)
	}
	if reply.Code == lua.TaskAdmitted {
		return nil
	}
	refusal := Problem{
		Status: http.StatusTooManyRequests, Code: berth.CodeQueueFull, QueueFull: true, Position: reply.Ahead, RetryAfter: seconds(retryIn(reply.Retry)),
		Detail: fmt.Sprintf("%d of your executions %s unfinished, and the limit is %d; retry when one has finished", reply.Ahead, isOrAre(reply.Ahead), limit),
	}
	metrics.Refusals.Add(ctx, 1, metrics.With(metrics.Code.String(string(refusal.Code)), metrics.Queue.String(string(workflows.TaskQueueExecutions))))
	return s.auditRefusal(ctx, refusal, ledger.AuditEntry{Event: ledger.AuditQueueFull, UserID: ref.UserID},
		map[string]any{"executionId": ref.ExecutionID, "bound": limit, "retryAfter": refusal.RetryAfter})
}

// releaseExecution removes the admission of an execution that was refused. One whose outcome is unknown keeps it for a short time.
func (s *server) releaseExecution(ctx context.Context, ref berth.ExecutionRef, refused error) {
	if code := berth.CodeOf(refused); s.Config.Admission.Executions == 0 || code == berth.CodeUnavailable || code == berth.CodeInternal {
		return
	}
	if err := s.Scripts.RemoveExecution(ctx, ref); err != nil { // it expires
		s.log.DebugContext(ctx, "admission of a refused execution not removed", "requestId", callOf(ctx).requestID, "error", err)
	}
}

// retryFull sets the time after which a user whom a full queue refused may retry: until the user's turn. While the model is paused, tasks
// leave the queue at no pace from which that would follow.
func (s *server) retryFull(ctx context.Context, p berth.TaskPlan, refusal *Problem) error {
	wait, err := s.estimate(ctx, p, 0)
	if err != nil {
		return err
	}
	if wait.Paused {
		refusal.Detail += fmt.Sprintf("; model %s is paused", p.Steps[0].Model)
		refusal.RetryAfter = seconds(maxRetry)
		return nil
	}
	retry, err := s.Scripts.PlanRetry(ctx, p.Steps[0].Queue, p.UserID)
	refusal.RetryAfter = seconds(retryIn(retry))
	return err
}

// retryIn bounds an estimate of when the next one is admitted.
func retryIn(d time.Duration) time.Duration {
	if d < 0 {
		return unknownRetry
	}
	return min(max(d, minRetry), maxRetry)
}

// refusedSubmission is the error of a submission that is not admitted. It does not implement huma.StatusError, so it becomes a
// response where all errors do.
type refusedSubmission struct{ problem Problem }

func (r *refusedSubmission) Error() string { return r.problem.Detail }

// counted returns a number with what there is of it: 1 task, 2 tasks.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// isOrAre returns the verb for a number of things.
func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// levelFull returns why nothing more of a team or an application is admitted. what is the number n of its work, in words.
func levelFull(what, level, name string, n int) string {
	return fmt.Sprintf("%s of %s %s %s unfinished, which is its limit; retry when one has finished", what, level, name, isOrAre(n))
}

// refuseSubmission returns the response to a submission that is not admitted.
func refuseSubmission(p berth.TaskPlan, reply lua.AdmitReply, limits Admission) Problem {
	r := Problem{Status: http.StatusTooManyRequests, Code: berth.CodeQueueFull, QueueFull: true, Position: reply.Ahead}
	retry := retryIn(reply.Retry)
	switch reply.Code {
	case lua.TaskRateLimited:
		r.Code, r.RateLimited, r.QueueFull, r.Position, retry = berth.CodeRateLimited, true, false, 0, reply.Retry
		r.Detail = fmt.Sprintf("more than %s submitted in a minute; retry later", counted(limits.rate(p.Tier), "task", "tasks"))
	case lua.TaskServiceFull:
		r.Detail = fmt.Sprintf("%d of your tasks of service %s %s unfinished, which is the limit; retry when one has finished", reply.Ahead, p.ServiceID, isOrAre(reply.Ahead))
	case lua.TaskTeamFull:
		r.Detail = levelFull(counted(reply.Ahead, "task", "tasks"), "team", p.Team, reply.Ahead)
	case lua.TaskAppFull:
		r.Detail = levelFull(counted(reply.Ahead, "task", "tasks"), "application", p.App, reply.Ahead)
	default:
		r.Detail = fmt.Sprintf("queue %s is full with %s; retry later", p.Steps[0].Queue, counted(reply.Ahead, "task", "tasks"))
		if reply.Ahead < limits.Queue {
			r.Detail = fmt.Sprintf("queue %s has %d of at most %d tasks; the last are kept for users who have no unfinished task in it, "+
				"and for those whose turn it is; retry later", p.Steps[0].Queue, reply.Ahead, limits.Queue)
		}
	}
	r.RetryAfter = seconds(retry)
	return r
}

// seconds rounds a duration up: a client that waits for it does not retry too early.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// rateFields adds the fields about the user's rate to each response of the route that submits tasks, also to errors.
func (s *server) rateFields(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method == http.MethodPost && c.Path() == submitPath {
			c.Response().Before(func() { s.writeRate(c) })
		}
		return next(c)
	}
}

func (s *server) writeRate(c echo.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), rateTimeout)
	defer cancel()
	cl := callOf(ctx)
	if cl.user.UserID == "" {
		return
	}
	limit := s.Config.Admission.rate(s.tierOf(ctx, cl))
	if limit == 0 {
		return
	}
	h := c.Response().Header()
	h.Set(headerRatePolicy, fmt.Sprintf("%q;q=%d;w=%d", ratePolicy, limit, seconds(lua.RateWindow)))
	if cl.rate == nil { // refused before it was counted, or a replay
		rate, err := s.Scripts.ReadRate(ctx, cl.user.UserID, limit)
		if err != nil {
			s.log.DebugContext(ctx, "rate not read", "requestId", cl.requestID, "error", err)
			return
		}
		cl.rate = &rate
	}
	state, reset := fmt.Sprintf("%q;r=%d", ratePolicy, cl.rate.Left), seconds(cl.rate.Reset)
	// Retry-After takes precedence, so a response that has it states no later time.
	if after, err := strconv.Atoi(h.Get(echo.HeaderRetryAfter)); err != nil || after >= reset {
		state += fmt.Sprintf(";t=%d", reset)
	}
	h.Set(headerRate, state)
}

// tierOf returns the tier of a submission, for one that was refused before it had one by the user's balance.
func (s *server) tierOf(ctx context.Context, cl *call) berth.Tier {
	if cl.tier != "" || s.Config.Admission.PaidRate == s.Config.Admission.FreeRate {
		return cl.tier
	}
	credits, err := s.Ledger.Credits(ctx, cl.user.UserID)
	if err != nil || credits <= 0 {
		return berth.TierFree
	}
	return berth.TierPaid
}
