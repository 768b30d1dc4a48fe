package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// minAssignPause and maxAssignPause bound the pause between two attempts to get a node while Redis is unavailable.
	minAssignPause = 200 * time.Millisecond
	maxAssignPause = 5 * time.Second
	// leaveFor is how long it is tried to remove work from its room that no longer waits. It would be removed at its deadline, and a
	// node that is reserved for it after seconds.
	leaveFor = time.Minute
	// leaveRefusedFor is the same for work that was not accepted: a retry of its submission begins when the run has ended.
	leaveRefusedFor = 2 * time.Second
)

// NodeWait is how work waits for a node, in the room of its pool.
type NodeWait struct {
	PoolID string `json:"poolId"`
	UserID string `json:"userId"` // users of a pool are served equally
	// WorkflowID is signalled when a node is reserved, with LeaseID, under which it is.
	WorkflowID string `json:"workflowId"`
	LeaseID    string `json:"leaseId"`
	// Since orders the work of a user. Work that is tried Again goes ahead of work that has just entered. Left is how long it waits at most.
	Since time.Time     `json:"since"`
	Again bool          `json:"again,omitempty"`
	Left  time.Duration `json:"left"`
}

// nodeWait is the wait of a piece of work: a signal announces that a node is reserved for it.
type nodeWait struct {
	NodeWait
	entered bool // the room, or perhaps
	woken   bool // by a signal, since the last attempt to get a node
}

// begin begins an attempt to get a node.
func (w *nodeWait) begin(in NodeWait) { w.NodeWait, w.woken = in, false }

// ended notes the outcome of the attempt, and reports whether the work waits. Only work that was accepted waits without an eligible
// node. Where Redis was unavailable, or the reply was lost, it may have entered the room.
func (w *nodeWait) ended(err error, accepted bool) bool {
	code := refusalCode(err)
	waits := code == berth.CodeNodeFull || code == berth.CodeNoNode && accepted
	w.entered = waits || code == berth.CodeUnavailable || code == berth.CodeInternal || err != nil && w.entered
	return waits
}

// wait returns when a node may be reserved, at the latest after d. Its only error is the cancellation of ctx.
func (w *nodeWait) wait(ctx workflow.Context, d time.Duration) error {
	return waitAtMost(ctx, d, "capacity of "+w.PoolID, func() bool { return w.woken })
}

// leave removes the work from its room, also when it is cancelled. It is tried for so long at most.
func (w *nodeWait) leave(ctx workflow.Context, within time.Duration) {
	if !w.entered {
		return
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	w.entered = false
	if _, err := untilTime[noResult](ctx, workflow.Now(ctx).Add(within), attemptTimeout, LeaveWaitingActivity, w.NodeWait); err != nil {
		workflow.GetLogger(ctx).Warn("waiting work not removed; it expires", "lease", w.LeaseID, "error", err)
	}
}
