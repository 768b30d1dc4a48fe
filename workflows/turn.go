package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// outageDetection is how long a call takes at least to fail when Redis is unavailable.
const outageDetection = time.Second

// Turn runs one utterance: it accepts jobs until the turn is finalised, has each of them run by a node, publishes the
// results in the segments' order, and ends when all of them are published. A turn whose very first job is refused fails
// its run, so that its id can be used again. Every other turn, also a cancelled one, is the result of its run.
func Turn(ctx workflow.Context, in TurnInput) (berth.Turn, error) {
	detached, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	t := &turn{in: in, running: ctx, detached: detached}
	if err := t.setup(ctx); err != nil {
		return berth.Turn{}, err
	}
	return t.run(ctx, detached)
}

// turn is the state of one run. The workflow is the source of truth for what the turn has; other processes decide by Redis.
type turn struct {
	in TurnInput
	// Jobs run in coroutines of running, which is cancelled with the run. Everything else happens in detached.
	running, detached workflow.Context

	status      berth.TurnStatus
	reason      berth.Finalize
	affinity    string // node id
	startedAt   time.Time
	lastSegment time.Time
	finalizedAt time.Time

	jobs         []*job // by index, including those whose node is being chosen
	deciding     int    // jobs whose node is being chosen
	textSize     int    // of all segments, in bytes
	refusal      error  // of the last dispatch, while there is no job
	refused      int    // segments refused in this run, each of which its history keeps
	undecided    bool   // a decision whose reply was lost may have bound the turn
	unresponsive []berth.NodeRef

	slots  heldSlots
	stream turnStream
	size   taskSize
}

func (t *turn) setup(ctx workflow.Context) error {
	if t.in.TurnID == "" || t.in.SessionID == "" || t.in.UserID == "" || t.in.Timeout <= 0 || t.in.JobTimeout <= 0 {
		return refuse(berth.CodeInternal, "turn input lacks an id or a timeout")
	}
	t.status, t.startedAt = berth.TurnOpen, workflow.Now(ctx)
	t.lastSegment = t.startedAt
	if t.in.Resumed != nil {
		t.resume(*t.in.Resumed)
	}
	t.slots.ctx = t.detached
	workflow.Go(t.detached, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalRestore).Receive(ctx, nil) {
			t.slots.restore()
			for _, j := range t.jobs {
				j.waiting.woken = true // Redis may have lost that it waits
			}
		}
	})
	workflow.Go(t.detached, func(ctx workflow.Context) {
		for {
			var lease string
			workflow.GetSignalChannel(ctx, SignalPromoted).Receive(ctx, &lease)
			for _, j := range t.jobs {
				j.waiting.woken = j.waiting.woken || j.waiting.LeaseID == lease
			}
		}
	})
	return errors.Join(
		workflow.SetQueryHandler(ctx, QueryTurn, func() (berth.Turn, error) { return t.snapshot(), nil }),
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateFinalize, t.finalizeNow, workflow.UpdateHandlerOptions{Validator: t.validateFinalize}),
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateDispatch, t.dispatch, workflow.UpdateHandlerOptions{Validator: t.validateDispatch}),
	)
}

// run accepts jobs, deletes the affinity once no more can come, and publishes what is left.
func (t *turn) run(ctx, detached workflow.Context) (berth.Turn, error) {
	if err := t.acceptJobs(ctx, detached); err != nil {
		return berth.Turn{}, err
	}
	if err := workflow.Await(detached, t.decided); err != nil {
		return berth.Turn{}, err
	}
	recordDecisions(detached) // no segment may follow what is published now
	t.stream.closed = true
	t.publishResults()
	if err := t.deleteAffinity(detached, false); err != nil {
		return berth.Turn{}, err
	}
	t.stream.unbound = true
	t.publishResults()
	if err := workflow.Await(detached, func() bool {
		return t.stream.done && !t.stream.publishing && t.slots.idle() && workflow.AllHandlersFinished(detached)
	}); err != nil {
		return berth.Turn{}, err
	}
	return t.snapshot(), nil
}

// acceptJobs waits until the turn is finalised. Each segment postpones the timeout, but the timer is set again only when
// it fires.
func (t *turn) acceptJobs(ctx, detached workflow.Context) error {
	checked := false
	for t.status == berth.TurnOpen {
		left := t.lastSegment.Add(t.in.Timeout).Sub(workflow.Now(ctx))
		switch {
		case len(t.jobs) == 0 && (t.refusal != nil || left <= 0 || ctx.Err() != nil):
			if ended, err := t.endWithoutJobs(ctx, detached); ended {
				return err
			}
		case t.deciding > 0 && (left <= 0 || ctx.Err() != nil):
			if err := workflow.Await(detached, t.decided); err != nil {
				return err
			}
		case ctx.Err() != nil:
			t.finalize(detached, berth.FinalizeManual)
		case left <= 0 && !checked:
			checked = true
			t.extendForOutage(detached)
		case left <= 0:
			t.finalize(detached, berth.FinalizeTimeout)
		default:
			checked = false
			if t.canContinueAsNew(ctx) {
				return t.continueAsNew(ctx)
			}
			// An error is the cancellation, which the next iteration handles.
			_ = waitAtMost(ctx, left, "no further segment", func() bool {
				return t.status != berth.TurnOpen || len(t.jobs) == 0 && t.refusal != nil || t.canContinueAsNew(ctx)
			})
		}
	}
	return nil
}

// extendForOutage restarts the turn's timeout at the end of an outage during which no segment could be submitted: Redis
// was unavailable or may have lost data, or no API or worker process was running.
func (t *turn) extendForOutage(ctx workflow.Context) {
	asked := workflow.Now(ctx)
	available, err := untilDone[Availability](ctx, CheckAvailabilityActivity)
	if err != nil {
		return // unreachable: retried until it succeeds
	}
	since := workflow.Now(ctx)
	if since.Sub(asked) < outageDetection {
		since = since.Add(-available.For)
	}
	if since.After(t.lastSegment) {
		t.lastSegment = since
	}
}

// decided reports whether no job's node is being chosen.
func (t *turn) decided() bool { return t.deciding == 0 }

// endWithoutJobs ends a run that has no job, and returns true with the reason, unless a job arrives meanwhile.
func (t *turn) endWithoutJobs(ctx, detached workflow.Context) (bool, error) {
	if t.undecided {
		t.undecided = false
		if err := t.deleteAffinity(detached, true); err != nil {
			return true, err
		}
	}
	if err := workflow.Await(detached, func() bool { return workflow.AllHandlersFinished(detached) }); err != nil {
		return true, err
	}
	switch {
	case len(t.jobs) > 0 || t.undecided:
		return false, nil
	case t.refusal != nil:
		return true, t.refusal
	case ctx.Err() != nil:
		return true, ctx.Err()
	default:
		return true, refuse(berth.CodeDeadlineExceeded, "no job was submitted")
	}
}

// single runs f in a coroutine, unless running states that one runs it.
func (t *turn) single(running *bool, f func(workflow.Context)) {
	if *running {
		return
	}
	*running = true
	workflow.Go(t.detached, func(ctx workflow.Context) {
		defer func() { *running = false }()
		f(ctx)
	})
}

// deleteAffinity makes Redis forget the turn's node.
func (t *turn) deleteAffinity(ctx workflow.Context, withdraw bool) error {
	ref := TurnRef{UserID: t.in.UserID, SessionID: t.in.SessionID, TurnID: t.in.TurnID, Withdraw: withdraw}
	_, err := untilDone[noResult](ctx, FinalizeTurnActivity, ref)
	return err
}

func (t *turn) validateFinalize(_ workflow.Context, req FinalizeRequest) error {
	switch {
	case req.UserID != t.in.UserID || !t.begun():
		return refuse(berth.CodeNotFound, TurnNotFound)
	case !req.Reason.Ends():
		return refuse(berth.CodeInvalid, "the reason must be manual or timeout")
	case t.status != berth.TurnOpen:
		return t.finalizedError()
	}
	return nil
}

// finalizedError rejects a request after the turn's end. The reason shows a client that lost the reply to its finalize
// request that the request succeeded.
func (t *turn) finalizedError() error {
	return refuse(berth.CodeTurnFinalized, fmt.Sprintf("the turn is finalized (%s) and takes no more jobs", t.reason))
}

func (t *turn) finalizeNow(ctx workflow.Context, req FinalizeRequest) (FinalizeReply, error) {
	t.finalize(ctx, req.Reason)
	return FinalizeReply{Status: t.status, Reason: t.reason, Jobs: len(t.jobs)}, nil
}

func (t *turn) finalize(ctx workflow.Context, reason berth.Finalize) {
	if t.status.CanBecome(berth.TurnFinalized) {
		t.status, t.reason, t.finalizedAt, t.affinity = berth.TurnFinalized, reason, workflow.Now(ctx), ""
	}
}

// TurnNotFound is the text for another user's turn. It equals the API's text for a turn that never existed, so that the
// reply does not reveal which turns exist.
const TurnNotFound = "turn not found"
