package lua

import (
	"context"
	"fmt"
	"time"

	"berth"
)

// ClientEvent is what the client of a call does, see attend_call.
type ClientEvent string

// The events.
const (
	ClientJoins   ClientEvent = "joins"
	ClientFollows ClientEvent = "follows"
	ClientWaits   ClientEvent = "waits"
	ClientLeaves  ClientEvent = "leaves"
	ClientEnds    ClientEvent = "ends"
)

// Codes of attend_call.
const (
	CallAttended  = "ATTENDED"
	CallConnected = "CONNECTED" // the call that the client follows has a client that is connected
	CallTaken     = "TAKEN"     // likewise, and it has made as many attempts
)

// processTTL is how long a process is presumed to run after MarkRunning.
const processTTL = 3 * time.Second

// MarkRunning states that a process runs. It is repeated more often than once a second.
func (s *Scripts) MarkRunning(ctx context.Context, process string) error {
	r := s.call(ctx, "mark_pollers", []string{s.keys.RunningProcesses()}, millis(processTTL), process)
	r.code(PollersMarked)
	return r.done()
}

// CallClient is the client of a call, of which there is one for each request.
type CallClient struct {
	Call     berth.TaskRef
	Process  string // that has its connection, see MarkRunning
	ID       string
	Attempts int // that it has made before this one
	// Grace is after which time without a client the call is abandoned, and Keep how long the client is remembered.
	Grace, Keep time.Duration
}

// AttendCall notes what the client of a call does, and returns a code.
func (s *Scripts) AttendCall(ctx context.Context, c CallClient, event ClientEvent) (code string, err error) {
	r := s.call(ctx, "attend_call", []string{s.keys.AttendedCalls(), s.keys.CallClient(c.Call), s.keys.RunningProcesses()},
		c.Call.String(), c.Process+"/"+c.ID, string(event), c.Attempts, c.Grace.Milliseconds(), c.Keep.Milliseconds())
	code = r.code(CallAttended, CallConnected, CallTaken)
	return code, r.done()
}

// KeepSubmission keeps the id of a call of which it is not known whether it was accepted, for a retry of its client.
func (s *Scripts) KeepSubmission(ctx context.Context, call berth.TaskRef, requestHash string, ttl time.Duration) error {
	if err := s.rdb.Set(ctx, s.keys.Submission(call.UserID, requestHash), call.TaskID, ttl).Err(); err != nil {
		return fmt.Errorf("keep a submission: %w", err)
	}
	return nil
}

// TakeSubmission returns the id that KeepSubmission kept, once; ok is false without one.
func (s *Scripts) TakeSubmission(ctx context.Context, userID, requestHash string) (id string, ok bool, err error) {
	return found(s.rdb.GetDel(ctx, s.keys.Submission(userID, requestHash)), "kept submission")
}

// TakeAbandonedCalls forgets the calls that were cancelled, and returns calls for which no client waits, at most limit. For the time reserved no other
// caller gets the same ones.
func (s *Scripts) TakeAbandonedCalls(ctx context.Context, limit int, reserved time.Duration, cancelled ...berth.TaskRef) (calls []berth.TaskRef, err error) {
	args := []any{limit, reserved.Milliseconds()}
	for _, c := range cancelled {
		args = append(args, c.String())
	}
	r := s.call(ctx, "take_outbox", []string{s.keys.AttendedCalls()}, args...)
	r.code(OutboxTaken)
	r.list(func() {
		name := r.text()
		ref, ok := berth.ParseTaskRef(name)
		if !ok && r.err == nil {
			r.err = fmt.Errorf("call %q is not a valid task", name)
		}
		calls = append(calls, ref)
	})
	r.number()
	return calls, r.done()
}
