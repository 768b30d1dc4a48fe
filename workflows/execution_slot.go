package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// firstPause and mostPause are the pauses between two tries to find a node with room.
	firstPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
	// grudge is how long a node that failed the execution is passed over when no other one can take it: it may be the
	// only one there is.
	grudge = 10 * time.Second
	// reassertWithin is how long, after Redis lost data, an execution's slot is tried to be put back: longer than the
	// heartbeats of engines are apart, for the node registers again with its next one. putBackEach is the pause between
	// two tries: a node that is back gets no new work for longer than that.
	reassertWithin = 40 * time.Second
	putBackEach    = time.Second
)

// nodeSlot is the slot that an execution holds. Confirming and giving back exclude each other: in a grace, a confirmation
// puts the slot back.
type nodeSlot struct {
	change workflow.Mutex
	held   bool
	silent bool // the node fell silent on the work
	berth.Assignment
	until time.Time
}

// place takes a slot, waiting for one until the deadline. The first answer of all settles whether the execution is
// accepted: it is when a node has room, or could have.
func (e *execution) place(ctx workflow.Context) (AssignReply, error) {
	since, pause := workflow.Now(ctx), firstPause
	for {
		reply, err := e.assign(ctx)
		if !e.settled {
			e.settle(reply, err)
		}
		if err == nil || e.refusal != nil {
			return reply, err
		}
		if temporal.IsCanceledError(err) || ctx.Err() != nil {
			return reply, temporal.NewCanceledError()
		}
		if refusalCode(err) == berth.CodeNoNode && workflow.Now(ctx).Sub(since) >= grudge {
			e.failed = nil
		}
		left := e.left(ctx)
		if left <= 0 {
			return reply, executionError(berth.CodeDeadlineExceeded, fmt.Sprintf("the execution found no node before its deadline: %v", refusalMessage(err)))
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return reply, e.goOn(ctx)
		}
		if err := workflow.Sleep(ctx, min(pause, left)); err != nil {
			return reply, err
		}
		pause = min(2*pause, mostPause)
	}
}

// settle accepts or refuses the execution. One that is refused never was: its state stays as it began.
func (e *execution) settle(reply AssignReply, err error) {
	switch code := refusalCode(err); {
	case code == "":
		e.is.Status, e.is.NodeID = berth.ExecutionRunning, reply.NodeID
	case temporal.IsCanceledError(err):
		e.refusal = executionError(berth.CodeCancelled, "the execution was cancelled")
	case code != berth.CodeNodeFull:
		e.refusal = err
	}
	e.settled = true
}

// turnedAway is the refusal as its submission hears it.
func (e *execution) turnedAway() error {
	var app *temporal.ApplicationError
	var detail berth.Refusal
	if errors.As(e.refusal, &app) && app.HasDetails() {
		_ = app.Details(&detail) // without the reasons the refusal is as good
	}
	detail.SubmissionID = e.firstID
	return temporal.NewNonRetryableApplicationError(refusalMessage(e.refusal), string(refusalCode(e.refusal)), nil, detail)
}

// assign makes one try to take a slot, and holds it for as long as its work may take.
func (e *execution) assign(ctx workflow.Context) (AssignReply, error) {
	lease := fmt.Sprintf("execution:%s:%d", e.in.ExecutionID, len(e.is.Attempts)+1)
	var reply AssignReply
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	}), AssignNodeActivity, AssignInput{LeaseID: lease, Where: e.in.Where, Failed: e.failed}).Get(ctx, &reply)
	var app *temporal.ApplicationError
	switch {
	case err == nil:
	case errors.As(err, &app) || temporal.IsCanceledError(err):
		return AssignReply{}, err
	default: // an answer that was lost: the slot lapses unless the next try finds it
		return AssignReply{}, executionError(berth.CodeUnavailable, "the fleet's state cannot be reached; try again in a few seconds")
	}
	e.slot.held, e.slot.silent, e.slot.Assignment = true, false, reply.Assignment
	e.slot.until = workflow.Now(ctx).Add(e.timeout(ctx) + slotSlack)
	if err := e.confirm(ctx, 2*time.Second); err != nil {
		e.release(ctx)
		return AssignReply{}, err
	}
	return reply, nil
}

// confirm holds the slot until its time; within is for how long that is tried.
func (e *execution) confirm(ctx workflow.Context, within time.Duration) error {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: within,
		StartToCloseTimeout:    time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: time.Second},
	}), ConfirmNodeActivity, HeldSlot{Assignment: e.slot.Assignment, Left: e.slot.until.Sub(workflow.Now(ctx))}).Get(ctx, nil)
}

// reassert puts the slot back into a Redis that lost it (L12). The node may have to register again first.
func (e *execution) reassert(ctx workflow.Context) {
	lease, until := e.slot.LeaseID, workflow.Now(ctx).Add(reassertWithin)
	for {
		err := e.putBack(ctx, lease)
		if err == nil {
			return
		}
		var app *temporal.ApplicationError
		gone := errors.As(err, &app) && app.NonRetryable()
		if gone || ctx.Err() != nil || workflow.Now(ctx).After(until) {
			workflow.GetLogger(ctx).Warn("the slot could not be put back", "lease", lease, "node", e.slot.NodeID, "error", err)
			return
		}
		if err := workflow.Sleep(ctx, putBackEach); err != nil {
			return // cancelled: the slot is given back
		}
	}
}

// putBack is one try, short enough that an end that comes meanwhile can give the slot back soon.
func (e *execution) putBack(ctx workflow.Context, lease string) error {
	if err := e.slot.change.Lock(ctx); err != nil {
		return err
	}
	defer e.slot.change.Unlock()
	if !e.slot.held || e.slot.LeaseID != lease {
		return nil
	}
	return e.confirm(ctx, 2*time.Second)
}

// release gives the slot back if there is one, and tells on the way that its node fell silent, even when the execution is cancelled. It lapses by itself, so there is no use in trying
// for longer than that.
func (e *execution) release(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if err := e.slot.change.Lock(ctx); err != nil {
		return
	}
	defer e.slot.change.Unlock()
	if !e.slot.held {
		return
	}
	e.slot.held = false
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: max(e.slot.until.Sub(workflow.Now(ctx)), time.Second),
		StartToCloseTimeout:    5 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second},
	}), ReleaseNodeActivity, HeldSlot{Assignment: e.slot.Assignment, Unresponsive: e.slot.silent}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Warn("the slot was left to lapse", "lease", e.slot.LeaseID, "node", e.slot.NodeID, "error", err)
	}
}

// goOn starts a new history for an execution that waits.
func (e *execution) goOn(ctx workflow.Context) error {
	in := e.in
	in.Resumed = &ExecutionProgress{
		SubmissionID: e.firstID, StartedAt: e.is.StartedAt, NodeID: e.is.NodeID, Strategy: e.is.Strategy,
		Attempts: e.is.Attempts, Failed: e.failed,
	}
	return workflow.NewContinueAsNewError(ctx, ExecutionWorkflow, in)
}

// refusalCode is what an activity refused with; CodeInternal when it failed otherwise, empty for nil.
func refusalCode(err error) berth.Code {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &app):
		return berth.Code(app.Type())
	default:
		return berth.CodeInternal
	}
}

func refusalMessage(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return "the fleet's state cannot be reached"
}

// plain is a text of others as one printable line.
func plain(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}), " ")
}

// clipText keeps a text of others short: histories hold small facts only (T26).
func clipText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.TrimSpace(text[:most]) + "…"
}
