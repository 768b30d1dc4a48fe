package lua

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
)

// Codes of admit_task and update_admission.
const (
	TaskAdmitted      = "ADMITTED"
	TaskRateLimited   = "RATE_LIMITED"
	TaskTokensLimited = "TOKENS_LIMITED" // the user's tasks have too many tokens
	TaskQueueFull     = "QUEUE_FULL"
	TaskServiceFull   = "SERVICE_FULL" // the user and service have as many tasks as they may
	TaskTeamFull      = "TEAM_FULL"    // the team has as many tasks as it may
	TaskAppFull       = "APP_FULL"     // the application has as many tasks as it may
	TaskKept          = "KEPT"
)

const (
	// RateWindow is the time to which AdmissionLimits.Rate applies.
	RateWindow = time.Minute
	// AdmissionHold is how long the admissions of an admitted task last until its workflow keeps them with KeepAdmissions.
	AdmissionHold = 30 * time.Second
)

// AdmissionLimits bound what is admitted. 0 is no limit.
type AdmissionLimits struct {
	Queue   int // unfinished tasks in a queue
	Service int // unfinished tasks of a user and service
	Rate    int // submissions of a user in RateWindow
	Tokens  int // tokens of a user's submissions in RateWindow
	Team    int // unfinished tasks of the team
	App     int // unfinished tasks of the application
}

// Submission is what asks to be admitted.
type Submission struct {
	Task      berth.TaskRef
	ServiceID string
	Group     Group
	Queue     berth.Queue // of the first step
	Limits    AdmissionLimits
	Tokens    int64 // an estimate, for Limits.Tokens
}

// RateState is what is left of a user's rate.
type RateState struct {
	Left  int           // submissions that may still be made; -1 without a limit
	Reset time.Duration // until the next submission leaves the window, 0 when none is in it
}

// AdmitReply is the decision about a submission.
type AdmitReply struct {
	Code string // TaskAdmitted, or the code of the refusal
	Rate RateState
	// Tokens is what is left of the user's tokens, with the time until all of them are free.
	Tokens RateState
	Ahead  int // other tasks that are admitted where the task was refused, otherwise in the queue
	// Retry is the time until a refused submission may succeed: exact for the rate, an estimate for an admission of the user and
	// service, team or application, negative when it is not known. PlanRetry returns that for a queue.
	Retry time.Duration
}

// AdmitTask reserves the admissions of a task and counts its submission, or refuses it without an effect. Idempotent by task.
func (s *Scripts) AdmitTask(ctx context.Context, a Submission) (AdmitReply, error) {
	args := []any{
		a.Task.String(), a.Limits.Queue, a.Limits.Service, a.Limits.Rate, millis(RateWindow), millis(AdmissionHold),
		berth.EscapeID(a.Task.UserID), a.Limits.Tokens, a.Tokens,
	}
	if a.Group.Team != "" {
		args = append(args, a.Limits.Team)
	}
	if a.Group.App != "" {
		args = append(args, a.Limits.App)
	}
	r := s.call(ctx, "admit_task", s.submissionKeys(a), args...)
	reply := AdmitReply{
		Code: r.code(TaskAdmitted, TaskRateLimited, TaskTokensLimited, TaskQueueFull, TaskServiceFull, TaskTeamFull, TaskAppFull),
		Rate: rateState(r), Ahead: int(r.number()), Retry: r.duration(),
	}
	reply.Tokens = rateState(r)
	return reply, r.done()
}

func (s *Scripts) submissionKeys(a Submission) []string {
	return append([]string{
		s.keys.QueueAdmissions(a.Queue), s.keys.UserAdmissions(a.Task.UserID, a.ServiceID), s.keys.Submissions(a.Task.UserID),
		s.keys.SubmittedTokens(a.Task.UserID),
	}, s.keys.groupAdmissions(a.Group)...)
}

// WithdrawSubmission undoes AdmitTask for a task that is refused afterwards. It is idempotent.
func (s *Scripts) WithdrawSubmission(ctx context.Context, a Submission) error {
	r := s.call(ctx, "withdraw_submission", s.submissionKeys(a), a.Task.String(), berth.EscapeID(a.Task.UserID), millis(RateWindow),
		a.Limits.Tokens, a.Tokens)
	r.code(GuardOK)
	return r.done()
}

// PlanRetry plans the retry of a user whom a full queue refused, and returns the time until then: an admission that is free then is kept for the
// user for a few seconds. Negative when it is not known. It is idempotent until the retry has begun.
func (s *Scripts) PlanRetry(ctx context.Context, queue berth.Queue, userID string) (wait time.Duration, err error) {
	r := s.call(ctx, "plan_retry", []string{s.keys.QueueAdmissions(queue)}, berth.EscapeID(userID))
	r.code(GuardOK)
	wait = r.duration()
	return wait, r.done()
}

// ReadRate reads what is left of a user's rate.
func (s *Scripts) ReadRate(ctx context.Context, userID string, limit int) (RateState, error) {
	r := s.call(ctx, "read_rate", []string{s.keys.Submissions(userID)}, limit, millis(RateWindow))
	r.code(GuardOK)
	return rateState(r), r.done()
}

func rateState(r *reply) RateState { return RateState{Left: int(r.number()), Reset: r.duration()} }

// Admissions are the admissions of an accepted task.
type Admissions struct {
	Task      berth.TaskRef
	ServiceID string
	Group     Group
	Queues    []berth.Queue // at least one: of all steps that the task has, or might have had in another tier
}

// KeepAdmissions keeps the admissions of an accepted task for ttl, in one queue. It restores those that have expired.
func (s *Scripts) KeepAdmissions(ctx context.Context, p Admissions, queue berth.Queue, ttl time.Duration) error {
	return s.updateAdmission(ctx, "keep", p, queue, ttl)
}

// KeepAllAdmissions keeps those of several tasks as KeepAdmissions does, each in its first queue, with one request to Redis.
func (s *Scripts) KeepAllAdmissions(ctx context.Context, all []Admissions, ttl time.Duration) error {
	script := s.byID["update_admission"]
	keep := func() error {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, a := range all {
				keys, args := s.admissionUpdate("keep", a, a.Queues[0], ttl)
				script.EvalSha(ctx, p, keys, args...)
			}
			return nil
		})
		return err
	}
	ctx, end := script.begin(ctx)
	err := keep()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err = s.KeepAdmissions(ctx, all[0], all[0].Queues[0], ttl); err == nil { // which loads the script
			err = keep()
		}
	}
	end(err)
	if err != nil {
		return fmt.Errorf("keep %d admissions: %w", len(all), err)
	}
	return nil
}

// MoveAdmissions moves a task to the queue of its next step. A task without an admission, such as one that has ended, gets none.
func (s *Scripts) MoveAdmissions(ctx context.Context, p Admissions, queue berth.Queue, ttl time.Duration) error {
	return s.updateAdmission(ctx, "move", p, queue, ttl)
}

// RemoveAdmissions removes the admissions of a task that has ended, or was not accepted.
func (s *Scripts) RemoveAdmissions(ctx context.Context, p Admissions) error {
	return s.updateAdmission(ctx, "remove", p, p.Queues[0], 0)
}

func (s *Scripts) updateAdmission(ctx context.Context, act string, p Admissions, queue berth.Queue, ttl time.Duration) error {
	keys, args := s.admissionUpdate(act, p, queue, ttl)
	r := s.call(ctx, "update_admission", keys, args...)
	r.code(TaskKept, StreamAbsent)
	return r.done()
}

func (s *Scripts) admissionUpdate(act string, p Admissions, queue berth.Queue, ttl time.Duration) (keys []string, args []any) {
	levels := s.keys.groupAdmissions(p.Group)
	keys = append([]string{s.keys.UserAdmissions(p.Task.UserID, p.ServiceID), s.keys.QueueAdmissions(queue)}, levels...)
	for _, q := range p.Queues {
		if q != queue {
			keys = append(keys, s.keys.QueueAdmissions(q))
		}
	}
	return keys, []any{act, p.Task.String(), max(0, ttl.Milliseconds()), berth.EscapeID(p.Task.UserID), len(levels)}
}

// Wait is an estimate of how long a call waits for a slot of a model.
type Wait struct {
	Position int           // calls that are served before it; negative when it does not wait
	Time     time.Duration // until it gets a slot; negative when that is not known
	Paused   bool          // no upstream that may make the call works
	// Upstreams are the names of those that may make the call, with commas; empty where all of the model may.
	Upstreams string
}

// EstimateWait estimates how long the call of a task's step waits for a slot of its model, also before it does. limits apply if no process
// has used the model.
func (s *Scripts) EstimateWait(ctx context.Context, w ModelWaiter, limits ModelLimits) (Wait, error) {
	r := s.call(ctx, "estimate_wait", []string{s.keys.Guard()}, s.keys.prefix(), w.Model, w.ID(), limits.arg())
	r.code(GuardOK)
	wait := Wait{Position: int(r.number()), Time: r.duration(), Paused: r.number() == 1, Upstreams: r.text()}
	return wait, r.done()
}

// executionAdmissions is in the keys of the admissions of executions where those of tasks have a queue or a service. No task has it.
const executionAdmissions = "+executions"

func admissionsOf(ref berth.ExecutionRef) Admissions {
	return Admissions{
		Task: berth.TaskRef{UserID: ref.UserID, TaskID: ref.ExecutionID}, ServiceID: executionAdmissions,
		Queues: []berth.Queue{executionAdmissions},
	}
}

// AdmitExecution is AdmitTask for an execution: it is refused with TaskServiceFull where its user has limit unfinished ones.
func (s *Scripts) AdmitExecution(ctx context.Context, ref berth.ExecutionRef, limit int) (AdmitReply, error) {
	p := admissionsOf(ref)
	return s.AdmitTask(ctx, Submission{
		Task: p.Task, ServiceID: p.ServiceID, Queue: p.Queues[0], Limits: AdmissionLimits{Service: limit},
	})
}

// KeepExecution keeps the admission of an accepted execution for ttl.
func (s *Scripts) KeepExecution(ctx context.Context, ref berth.ExecutionRef, ttl time.Duration) error {
	p := admissionsOf(ref)
	return s.KeepAdmissions(ctx, p, p.Queues[0], ttl)
}

// RemoveExecution removes the admission of an execution that has ended, or was not accepted.
func (s *Scripts) RemoveExecution(ctx context.Context, ref berth.ExecutionRef) error {
	return s.RemoveAdmissions(ctx, admissionsOf(ref))
}
