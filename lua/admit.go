package lua

import (
	"context"
	"time"

	"berth"
)

// Codes of admit_task and place_task.
const (
	TaskAdmitted    = "ADMITTED"
	TaskRateLimited = "RATE_LIMITED"
	TaskQueueFull   = "QUEUE_FULL"
	TaskServiceFull = "SERVICE_FULL" // the places of the user and service are taken
	TaskPlaced      = "PLACED"
)

const (
	// RateWindow is the time to which AdmissionLimits.Rate applies.
	RateWindow = time.Minute
	// PlaceHold is how long the places of an admitted task last until its workflow keeps them with PlaceTask.
	PlaceHold = 30 * time.Second
)

// AdmissionLimits bound what is admitted. 0 is no limit.
type AdmissionLimits struct {
	Queue   int // unfinished tasks in a queue
	Service int // unfinished tasks of a user and service
	Rate    int // submissions of a user in RateWindow
}

// Admission is a submission to be admitted.
type Admission struct {
	Task      berth.TaskRef
	ServiceID string
	Queue     berth.Queue // of the first step
	Limits    AdmissionLimits
}

// RateState is what is left of a user's rate.
type RateState struct {
	Left  int           // submissions that may still be made; -1 without a limit
	Reset time.Duration // until the next submission leaves the window, 0 when none is in it
}

// AdmitReply is the decision about a submission.
type AdmitReply struct {
	Code  string // TaskAdmitted, TaskRateLimited, TaskQueueFull or TaskServiceFull
	Rate  RateState
	Ahead int // other tasks that have a place where the task was refused, otherwise in the queue
	// Retry is the time until a refused submission may succeed: exact for the rate, an estimate for a place of the user and
	// service, negative when it is not known. TakeTurn returns that for a place in a queue.
	Retry time.Duration
}

// AdmitTask reserves the places of a task and counts its submission, or refuses it without an effect. Idempotent by task.
func (s *Scripts) AdmitTask(ctx context.Context, a Admission) (AdmitReply, error) {
	keys := []string{
		s.keys.QueuePlaces(a.Queue), s.keys.UserPlaces(a.Task.UserID, a.ServiceID), s.keys.Submissions(a.Task.UserID),
	}
	r := s.call(ctx, "admit_task", keys,
		a.Task.String(), a.Limits.Queue, a.Limits.Service, a.Limits.Rate, millis(RateWindow), millis(PlaceHold),
		berth.EscapeID(a.Task.UserID))
	reply := AdmitReply{
		Code: r.code(TaskAdmitted, TaskRateLimited, TaskQueueFull, TaskServiceFull),
		Rate: rateState(r), Ahead: int(r.number()), Retry: r.duration(),
	}
	return reply, r.done()
}

// TakeTurn gives a user whom a full queue refused a turn, and returns the time until then: a place that is free then is kept for the
// user for a few seconds. Negative when it is not known. It is idempotent until the turn has begun.
func (s *Scripts) TakeTurn(ctx context.Context, queue berth.Queue, userID string) (wait time.Duration, err error) {
	r := s.call(ctx, "take_turn", []string{s.keys.QueuePlaces(queue)}, berth.EscapeID(userID))
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

// Places are the places of an accepted task.
type Places struct {
	Task      berth.TaskRef
	ServiceID string
	Queues    []berth.Queue // at least one: of all steps that the task has, or might have had in another tier
}

// KeepPlaces keeps the places of an accepted task for ttl, in one queue. It restores those that have expired.
func (s *Scripts) KeepPlaces(ctx context.Context, p Places, queue berth.Queue, ttl time.Duration) error {
	return s.placeTask(ctx, "keep", p, queue, ttl)
}

// MovePlaces moves a task to the queue of its next step. A task without a place, such as one that has ended, gets none.
func (s *Scripts) MovePlaces(ctx context.Context, p Places, queue berth.Queue, ttl time.Duration) error {
	return s.placeTask(ctx, "move", p, queue, ttl)
}

// RemovePlaces removes the places of a task that has ended, or was not accepted.
func (s *Scripts) RemovePlaces(ctx context.Context, p Places) error {
	return s.placeTask(ctx, "remove", p, p.Queues[0], 0)
}

func (s *Scripts) placeTask(ctx context.Context, act string, p Places, queue berth.Queue, ttl time.Duration) error {
	keys := []string{s.keys.UserPlaces(p.Task.UserID, p.ServiceID), s.keys.QueuePlaces(queue)}
	for _, q := range p.Queues {
		if q != queue {
			keys = append(keys, s.keys.QueuePlaces(q))
		}
	}
	r := s.call(ctx, "place_task", keys, act, p.Task.String(), max(0, ttl.Milliseconds()),
		berth.EscapeID(p.Task.UserID))
	r.code(TaskPlaced, StreamAbsent)
	return r.done()
}

// Wait is an estimate of how long a call waits for a slot of a model.
type Wait struct {
	Position int           // calls that are served before it; negative when it does not wait
	Time     time.Duration // until it gets a slot; negative when that is not known
	Paused   bool          // no slot is granted until the model is resumed
}

// EstimateWait estimates how long the call of a task's step waits for a slot of its model, also before it does. limits apply if no process
// has used the model.
func (s *Scripts) EstimateWait(ctx context.Context, e Entry, limits ModelLimits) (Wait, error) {
	r := s.call(ctx, "estimate_wait", []string{s.keys.Guard()}, s.keys.prefix(), e.Model, e.ID(), limits.arg())
	r.code(GuardOK)
	w := Wait{Position: int(r.number()), Time: r.duration(), Paused: r.number() == 1}
	return w, r.done()
}

// executionPlaces is in the keys of the places of executions where those of tasks have a queue or a service. No task has it.
const executionPlaces = "+executions"

func placesOf(ref berth.ExecutionRef) Places {
	return Places{
		Task: berth.TaskRef{UserID: ref.UserID, TaskID: ref.ExecutionID}, ServiceID: executionPlaces,
		Queues: []berth.Queue{executionPlaces},
	}
}

// AdmitExecution is AdmitTask for an execution: it is refused with TaskServiceFull where its user has limit unfinished ones.
func (s *Scripts) AdmitExecution(ctx context.Context, ref berth.ExecutionRef, limit int) (AdmitReply, error) {
	p := placesOf(ref)
	return s.AdmitTask(ctx, Admission{
		Task: p.Task, ServiceID: p.ServiceID, Queue: p.Queues[0], Limits: AdmissionLimits{Service: limit},
	})
}

// KeepExecution keeps the place of an accepted execution for ttl.
func (s *Scripts) KeepExecution(ctx context.Context, ref berth.ExecutionRef, ttl time.Duration) error {
	p := placesOf(ref)
	return s.KeepPlaces(ctx, p, p.Queues[0], ttl)
}

// RemoveExecution removes the place of an execution that has ended, or was not accepted.
func (s *Scripts) RemoveExecution(ctx context.Context, ref berth.ExecutionRef) error {
	return s.RemovePlaces(ctx, placesOf(ref))
}
