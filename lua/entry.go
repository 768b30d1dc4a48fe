package lua

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Codes of the scripts of entries.
const (
	EntryPromoted = "PROMOTED"
	EntryLeft     = "LEFT"
	EntryRecorded = "RECORDED"
	EntriesSwept  = "SWEPT"
)

// entryProcess takes the place of a process in the ids of entries.
const entryProcess = "entry"

// Entry is a task whose workflow waits until the call of a step may wait for a slot of its model.
type Entry struct {
	Task  berth.TaskRef
	Step  int
	Queue berth.Queue
	Model string
}

// EntryOf returns the entry of a task's step.
func EntryOf(task berth.TaskRef, index int, step berth.Step) Entry {
	return Entry{Task: task, Step: index, Queue: step.Queue, Model: step.Model}
}

// ID returns the id of the entry, which is unique within its model.
func (e Entry) ID() string {
	return Lease{
		Process: entryProcess, Queue: e.Queue, UserID: e.Task.UserID, Rest: e.Task.TaskID + ":" + strconv.Itoa(e.Step),
	}.ID()
}

// EntryKey names an entry. Those who read it repeatedly keep it.
type EntryKey struct{ Model, ID string }

// Key returns the key of the entry.
func (e Entry) Key() EntryKey { return EntryKey{Model: e.Model, ID: e.ID()} }

// CallID is the last part of the id of the lease with which the call of the entry waits and holds its slot. fence distinguishes the
// attempts.
func (e Entry) CallID(fence int64) string { return fmt.Sprintf("%s:%d:%d", e.Task, e.Step, fence) }

// ParseEntry parses the id of an entry of a model.
func ParseEntry(model, id string) (Entry, error) {
	f := strings.SplitN(id, "/", 5)
	if len(f) != 5 || f[0] != entryProcess {
		return Entry{}, fmt.Errorf("entry %q does not have five parts", id)
	}
	user, err := url.PathUnescape(f[2])
	if err != nil {
		return Entry{}, fmt.Errorf("user of entry %q: %w", id, err)
	}
	at := strings.LastIndexByte(f[4], ':')
	if at < 0 {
		return Entry{}, fmt.Errorf("entry %q names no step", id)
	}
	step, err := strconv.Atoi(f[4][at+1:])
	if err != nil {
		return Entry{}, fmt.Errorf("step of entry %q: %w", id, err)
	}
	return Entry{Task: berth.TaskRef{UserID: user, TaskID: f[4][:at]}, Step: step, Queue: berth.Queue(f[1]), Model: model}, nil
}

// Promotion is an entry that may leave: its workflow has to be signalled, which ConfirmPromotions records.
type Promotion struct {
	Model string
	Entry string // see ParseEntry
}

// OnPromotion sets the function that gets the promotions of all replies to this process. It must not block. Promotions that no
// process confirms are returned by SweepEntries.
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
		promotions = append(promotions, Promotion{Model: list[i], Entry: list[i+1]})
	}
	(*f)(promotions)
}

// promotion runs a script that only promotes entries.
func (s *Scripts) promotion(ctx context.Context, script, code string, args ...any) error {
	r := s.call(ctx, script, []string{s.keys.Guard()}, args...)
	r.code(code)
	s.promoted(r)
	return r.done()
}

// EntryCall is an entry with what decides when it may leave.
type EntryCall struct {
	Entry
	Limits ModelLimits
	Times  SlotTimes
}

func (s *Scripts) entryArgs(c EntryCall, more ...any) []any {
	return append(s.slotArgs(c.Times, c.Model, c.Limits.arg(), c.ID()), more...)
}

// EnterTask enters a task, whose deadline is after left, and reports whether the call may be made immediately. order numbers the
// entries of a user in a queue, 0 for a new one: those that are entered again after a loss of data have that of their creation, in
// microseconds. Idempotent.
func (s *Scripts) EnterTask(ctx context.Context, c EntryCall, left time.Duration, order int64) (promoted bool, err error) {
	at := ""
	if order > 0 {
		at = strconv.FormatInt(order, 10)
	}
	r := s.call(ctx, "enter_task", []string{s.keys.Guard()}, s.entryArgs(c, max(1, left.Milliseconds()), at)...)
	promoted = r.code(EntryPromoted, SlotWaiting) == EntryPromoted
	s.promoted(r)
	return promoted, r.done()
}

// LeaveTask removes an entry. Idempotent.
func (s *Scripts) LeaveTask(ctx context.Context, c EntryCall) error {
	return s.promotion(ctx, "leave_task", EntryLeft, s.entryArgs(c)...)
}

// ConfirmPromotions records that the workflows of signalled entries have been signalled, and removes entries without a workflow.
func (s *Scripts) ConfirmPromotions(ctx context.Context, model string, limits ModelLimits, t SlotTimes, signalled, gone []string) error {
	args := with(s.slotArgs(t, model, limits.arg(), len(signalled)), signalled...)
	return s.promotion(ctx, "confirm_promotions", EntryRecorded, with(args, gone...)...)
}

// SweepEntries grants slots and promotes entries where nothing else has, such as after the expiry of slots and of calls that did not come
// or a change of limits, and promotes again what no process has confirmed.
func (s *Scripts) SweepEntries(ctx context.Context, models []string, limits func(model string) ModelLimits, t SlotTimes) error {
	args := s.slotArgs(t)
	for _, m := range models {
		args = append(args, m, limits(m).arg())
	}
	return s.promotion(ctx, "sweep_entries", EntriesSwept, args...)
}

// ReadPositions estimates for each entry how long its call waits: in its workflow or for a slot.
func (s *Scripts) ReadPositions(ctx context.Context, entries []EntryKey) ([]Wait, error) {
	args := make([]any, 0, 1+2*len(entries))
	args = append(args, s.keys.prefix())
	for _, e := range entries {
		args = append(args, e.Model, e.ID)
	}
	r := s.call(ctx, "read_positions", []string{s.keys.Guard()}, args...)
	r.code(GuardOK)
	positions, times, paused := r.numbers(), r.numbers(), r.numbers()
	if len(positions) != len(entries) || len(times) != len(entries) || len(paused) != len(entries) {
		r.fail()
		return nil, r.done()
	}
	waits := make([]Wait, len(entries))
	for i := range waits {
		waits[i] = Wait{Position: int(positions[i]), Time: time.Duration(times[i]) * time.Millisecond, Paused: paused[i] == 1}
	}
	return waits, r.done()
}
