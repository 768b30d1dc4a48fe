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

// Codes of the scripts of work that waits for a node.
const (
	AssignWaiting   = "WAITING"
	WaitersSwept    = "SWEPT"
	WaiterLeft      = "LEFT"
	WaitersRecorded = "RECORDED"
)

// waiterPrefix begins the ids of waiters.
const waiterPrefix = "execution/x/"

// NodeWaiter is an attempt of an execution that waits for a node in its workflow.
type NodeWaiter struct {
	UserID      string
	ExecutionID string // its key: see berth.ExecutionRow
	Attempt     int    // from 1
}

// ID returns the id of the waiter, which the include handover explains.
func (w NodeWaiter) ID() string {
	return waiterPrefix + berth.EscapeID(w.UserID) + "/1/" + w.ExecutionID + ":" + strconv.Itoa(w.Attempt)
}

// LeaseID returns the lease under which a node is reserved for the waiter.
func (w NodeWaiter) LeaseID() string {
	return "execution:" + w.ExecutionID + ":" + strconv.Itoa(w.Attempt)
}

// ParseNodeWaiter parses the id of a waiter.
func ParseNodeWaiter(id string) (NodeWaiter, error) {
	f := strings.Split(id, "/")
	if len(f) != 5 || !strings.HasPrefix(id, waiterPrefix) {
		return NodeWaiter{}, fmt.Errorf("waiter %q does not have five parts", id)
	}
	user, err := url.PathUnescape(f[2])
	if err != nil {
		return NodeWaiter{}, fmt.Errorf("user of waiter %q: %w", id, err)
	}
	colon := max(strings.LastIndexByte(f[4], ':'), 0)
	execution, attempt := f[4][:colon], strings.TrimPrefix(f[4][colon:], ":")
	n, err := strconv.Atoi(attempt)
	if err != nil {
		return NodeWaiter{}, fmt.Errorf("attempt of waiter %q: %w", id, err)
	}
	return NodeWaiter{UserID: user, ExecutionID: execution, Attempt: n}, nil
}

// Wait modes of the script assign.
const (
	waitTry  = "TRY"
	waitJoin = "JOIN"
)

// Queued has what decides when a waiter gets a node.
type Queued struct {
	NodeWaiter
	// Left is how long it waits at most.
	Left time.Duration
	// Since orders the waiters of a user. Attempts after the first one go ahead of those that have just entered.
	Since time.Time
	// Listed indicates that the pool has no indexes: its nodes are those with the required capabilities.
	Listed bool
}

// TryAssign is Assign for work that can wait. It returns AssignWaiting if others of the pool wait already.
func (s *Scripts) TryAssign(ctx context.Context, c Choice, q Queued) (Decision, error) {
	return s.assign(ctx, q.LeaseID(), c, waitTry, q)
}

// JoinWaiting lets work wait for a node of the pool, or returns AssignOK if it gets one immediately. Otherwise OnHandover announces
// when a node is reserved for it, which Assign then returns. Idempotent.
func (s *Scripts) JoinWaiting(ctx context.Context, c Choice, q Queued) (Decision, error) {
	c.Listed = nil
	return s.assign(ctx, q.LeaseID(), c, waitJoin, q)
}

func (s *Scripts) waitArgs(c Choice, mode string, q Queued) []any {
	if mode == "" {
		return nil
	}
	listed := ""
	if q.Listed {
		listed = strings.Join(unique(c.Required), "\n")
	}
	return []any{mode, q.ID(), max(1, q.Left.Milliseconds()), max(1, q.Since.UnixMicro()), flag(q.Attempt > 1), listed}
}

// OnHandover sets the function that gets the waiters for which a reply to this process has reserved a node. Their workflows have to be
// signalled, which ConfirmHandovers records. It must not block. Those that no process confirms are returned by SweepWaiting.
func (s *Scripts) OnHandover(f func(waiters []string)) { s.onHandover.Store(&f) }

// handedOver reads the waiters of a reply and passes them on.
func (s *Scripts) handedOver(r *reply) {
	waiters := r.texts()
	if f := s.onHandover.Load(); r.err == nil && len(waiters) > 0 && f != nil {
		(*f)(waiters)
	}
}

// handover runs a script that reserves nodes for waiters.
func (s *Scripts) handover(ctx context.Context, script, code string, args ...any) error {
	r := s.call(ctx, script, []string{s.keys.Guard()}, append([]any{s.keys.stem(), millis(NodeGrace), s.epoch.Load()}, args...)...)
	r.code(code)
	s.handedOver(r)
	return r.done()
}

// LeaveWaiting removes work that no longer waits, and releases the node that was reserved for it. Idempotent.
func (s *Scripts) LeaveWaiting(ctx context.Context, poolID string, w NodeWaiter) error {
	return s.handover(ctx, "leave_waiting", WaiterLeft, poolID, w.ID())
}

// SweepWaiting reserves nodes that no other script has handed over, and announces again what no process has confirmed.
func (s *Scripts) SweepWaiting(ctx context.Context) error {
	return s.handover(ctx, "sweep_waiting", WaitersSwept)
}

// ConfirmHandovers records which waiters' workflows have been signalled, and releases the nodes of those without one.
func (s *Scripts) ConfirmHandovers(ctx context.Context, signalled, gone []string) error {
	return s.handover(ctx, "confirm_handovers", WaitersRecorded, with(with([]any{len(signalled)}, signalled...), gone...)...)
}

// ReadWaiting estimates how much other work of the pool gets a node before the waiter; -1 for one that does not wait.
func (s *Scripts) ReadWaiting(ctx context.Context, poolID string, w NodeWaiter) (position int, err error) {
	r := s.call(ctx, "read_waiting", []string{s.keys.Guard()}, s.keys.stem(), millis(NodeGrace), s.epoch.Load(), poolID, w.ID())
	r.code(GuardOK)
	position = int(r.number())
	return position, r.done()
}
