package lua

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Codes of the scripts of waiters.
const (
	ModelWaiterPromoted = "PROMOTED"
	ModelWaiterLeft     = "LEFT"
	ModelWaiterRecorded = "RECORDED"
	ModelsSwept         = "SWEPT"
)

// waiterProcess takes the place of a process in the ids of waiters.
const waiterProcess = "waiter"

// ModelWaiter is a task whose workflow waits until the call of a step may wait for a slot of its model.
type ModelWaiter struct {
	Task  berth.TaskRef
	Step  int
	Queue berth.Queue
	Model string
	Group Group // to which the user belongs
}

// path returns where the waiter and its call wait.
func (w ModelWaiter) path() Path { return Path{Queue: w.Queue, UserID: w.Task.UserID, Group: w.Group} }

// ModelWaiterOf returns the waiter of a task's step.
func ModelWaiterOf(task berth.TaskRef, group Group, index int, step berth.Step) ModelWaiter {
	return ModelWaiter{Task: task, Step: index, Queue: step.Queue, Model: step.Model, Group: group}
}

// ID returns the id of the waiter, which is unique within its model.
func (w ModelWaiter) ID() string {
	return Lease{
		Process: waiterProcess, Path: w.path(), Rest: w.Task.TaskID + ":" + strconv.Itoa(w.Step),
	}.ID()
}

// ModelWaiterKey names a waiter. Those who read it repeatedly keep it.
type ModelWaiterKey struct{ Model, ID string }

// Key returns the key of the waiter.
func (w ModelWaiter) Key() ModelWaiterKey { return ModelWaiterKey{Model: w.Model, ID: w.ID()} }

// CallID is the last part of the id of the lease with which the call of the waiter waits and holds its slot. fence distinguishes the
// attempts.
func (w ModelWaiter) CallID(fence int64) string {
	return fmt.Sprintf("%s:%d:%d", w.Task, w.Step, fence)
}

// ParseModelWaiter parses the id of a waiter of a model.
func ParseModelWaiter(model, id string) (ModelWaiter, error) {
	f := strings.SplitN(id, "/", 5)
	if len(f) != 5 || f[0] != waiterProcess {
		return ModelWaiter{}, fmt.Errorf("waiter %q does not have five parts", id)
	}
	path, err := parsePath(f[1])
	if err != nil {
		return ModelWaiter{}, fmt.Errorf("waiter %q: %w", id, err)
	}
	at := strings.LastIndexByte(f[4], ':')
	if at < 0 {
		return ModelWaiter{}, fmt.Errorf("waiter %q names no step", id)
	}
	step, err := strconv.Atoi(f[4][at+1:])
	if err != nil {
		return ModelWaiter{}, fmt.Errorf("step of waiter %q: %w", id, err)
	}
	return ModelWaiter{Task: berth.TaskRef{UserID: path.UserID, TaskID: f[4][:at]}, Step: step, Queue: path.Queue, Model: model, Group: path.Group}, nil
}

// Promotion is a waiter that may leave: its workflow has to be signalled, which ConfirmPromotions records.
type Promotion struct {
	Model  string
	Waiter string // see ParseModelWaiter
}

// OnPromotion sets the function that gets the promotions of all replies to this process. It must not block. Promotions that no
// process confirms are returned by SweepModels.
func (s *Scripts) OnPromotion(f func([]Promotion)) { s.onPromotion.Store(&f) }

// promoted reads the promotions of a reply and passes them on.
func (s *Scripts) promoted(r *reply) {
	list := r.texts()
	f := s.onPromotion.Load()
	if r.err != nil || len(list) == 0 || f == nil {
		return
	}
	promotions := make([]Promotion, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		promotions = append(promotions, Promotion{Model: list[i], Waiter: list[i+1]})
	}
	(*f)(promotions)
}

// promotion runs a script that only promotes waiters.
func (s *Scripts) promotion(ctx context.Context, script, code string, args ...any) error {
	r := s.call(ctx, script, []string{s.keys.Guard()}, args...)
	r.code(code)
	s.promoted(r)
	return r.done()
}

// ModelWaiterCall is a waiter with what decides when it may leave.
type ModelWaiterCall struct {
	ModelWaiter
	Limits ModelLimits
	Times  SlotTimes
}

func (s *Scripts) waiterArgs(c ModelWaiterCall, more ...any) []any {
	return append(s.slotArgs(c.Times, c.Model, c.Limits.arg(), c.ID()), more...)
}

// EnterTask enters a task, whose deadline is after left, and reports whether the call may be made immediately. order numbers the
// waiters of a user in a queue, 0 for a new one: those that are entered again after a loss of data have that of their creation, in
// microseconds. Idempotent.
func (s *Scripts) EnterTask(ctx context.Context, c ModelWaiterCall, left time.Duration, order int64) (promoted bool, err error) {
	at := ""
	if order > 0 {
		at = strconv.FormatInt(order, 10)
	}
	r := s.call(ctx, "enter_task", []string{s.keys.Guard()}, s.waiterArgs(c, max(1, left.Milliseconds()), at)...)
	promoted = r.code(ModelWaiterPromoted, SlotWaiting) == ModelWaiterPromoted
	s.promoted(r)
	return promoted, r.done()
}

// LeaveTask removes a waiter. Idempotent.
func (s *Scripts) LeaveTask(ctx context.Context, c ModelWaiterCall) error {
	return s.promotion(ctx, "leave_task", ModelWaiterLeft, s.waiterArgs(c)...)
}

// ConfirmPromotions records that the workflows of signalled waiters have been signalled, and removes waiters without a workflow.
func (s *Scripts) ConfirmPromotions(ctx context.Context, model string, limits ModelLimits, t SlotTimes, signalled, gone []string) error {
	args := with(s.slotArgs(t, model, limits.arg(), len(signalled)), signalled...)
	return s.promotion(ctx, "confirm_promotions", ModelWaiterRecorded, with(args, gone...)...)
}

// SweepModels grants slots and promotes waiters where nothing else has, such as after the expiry of slots and of calls that did not come
// or a change of limits, and promotes again what no process has confirmed.
func (s *Scripts) SweepModels(ctx context.Context, models []string, limits func(model string) ModelLimits, t SlotTimes) error {
	args := s.slotArgs(t)
	for _, m := range models {
		args = append(args, m, limits(m).arg())
	}
	return s.promotion(ctx, "sweep_models", ModelsSwept, args...)
}

// ReadPositions estimates for each waiter how long its call waits: in its workflow or for a slot.
func (s *Scripts) ReadPositions(ctx context.Context, waiters []ModelWaiterKey) ([]Wait, error) {
	args := make([]any, 0, 1+2*len(waiters))
	args = append(args, s.keys.prefix())
	for _, e := range waiters {
		args = append(args, e.Model, e.ID)
	}
	r := s.call(ctx, "read_positions", []string{s.keys.Guard()}, args...)
	r.code(GuardOK)
	positions, times, paused, upstreams := r.numbers(), r.numbers(), r.numbers(), r.texts()
	if len(positions) != len(waiters) || len(times) != len(waiters) || len(paused) != len(waiters) || len(upstreams) != len(waiters) {
		r.fail()
		return nil, r.done()
	}
	waits := make([]Wait, len(waiters))
	for i := range waits {
		waits[i] = Wait{Position: int(positions[i]), Time: time.Duration(times[i]) * time.Millisecond, Paused: paused[i] == 1, Upstreams: upstreams[i]}
	}
	return waits, r.done()
}
