package lua

import (
	"context"
	"fmt"
	"net/url"
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

// NodeWaiter is work that waits for a node in its workflow, whatever it is.
type NodeWaiter struct {
	UserID     string
	WorkflowID string // is signalled when a node is reserved
	LeaseID    string // under which it is reserved
}

// ID returns the id of the waiter, which the include handover explains.
func (w NodeWaiter) ID() string {
	return "node/x|user:" + berth.EscapeID(w.UserID) + "/1/" + url.PathEscape(w.WorkflowID) + "/" + w.LeaseID
}

// ParseNodeWaiter parses the id of a waiter.
func ParseNodeWaiter(id string) (NodeWaiter, error) {
	f := strings.SplitN(id, "/", 5)
	if len(f) != 5 || f[0] != "node" || f[3] == "" || f[4] == "" {
		return NodeWaiter{}, fmt.Errorf("waiter %q does not have five parts", id)
	}
	path, err := parsePath(f[1])
	if err != nil {
		return NodeWaiter{}, fmt.Errorf("waiter %q: %w", id, err)
	}
	workflow, err := url.PathUnescape(f[3])
	if err != nil {
		return NodeWaiter{}, fmt.Errorf("workflow of waiter %q: %w", id, err)
	}
	return NodeWaiter{UserID: path.UserID, WorkflowID: workflow, LeaseID: f[4]}, nil
}

// Wait modes of the script assign.
const (
	waitTry  = "TRY"
	waitJoin = "JOIN"
)

// Waiting has what decides when a waiter gets a node.
type Waiting struct {
	NodeWaiter
	// Left is how long it waits at most.
	Left time.Duration
	// Since orders the waiters of a user. Work that is tried Again goes ahead of work that has just entered.
	Since time.Time
	Again bool
	// Listed indicates that the pool has no indexes: its nodes are those with the required capabilities.
	Listed bool
}

// TryAssign is Assign for work that can wait. It returns AssignWaiting if others of the pool wait already.
func (s *Scripts) TryAssign(ctx context.Context, c Choice, w Waiting) (Decision, error) {
	return s.assign(ctx, w.LeaseID, c, waitTry, w)
}

// JoinWaiting lets work wait for a node of the pool, or returns AssignOK if it gets one immediately. Otherwise OnHandover announces
// when a node is reserved for it, which Assign then returns. Idempotent.
func (s *Scripts) JoinWaiting(ctx context.Context, c Choice, w Waiting) (Decision, error) {
	c.Listed = nil
	return s.assign(ctx, w.LeaseID, c, waitJoin, w)
}

func (s *Scripts) waitArgs(c Choice, mode string, w Waiting) []any {
	if mode == "" {
		return nil
	}
	listed := ""
	if w.Listed {
		listed = strings.Join(unique(c.Required), "\n")
	}
	return []any{mode, w.ID(), max(1, w.Left.Milliseconds()), max(1, w.Since.UnixMicro()), flag(w.Again), listed}
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
