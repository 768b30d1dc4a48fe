package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// setup validates the input and registers the query, update and signal handlers. Handlers only record what they receive;
// run acts on it.
func (c *conference) setup(ctx, detached workflow.Context) error {
	if err := c.in.validate(); err != nil {
		return err
	}
	c.record = berth.Conference{
		ConferenceSpec: c.in.Spec, ID: c.in.ConferenceID, UserID: c.in.UserID,
		Segments: []berth.ConferenceSegment{}, Orders: []berth.ConferenceOrder{}, CreatedAt: workflow.Now(ctx),
	}
	if c.in.Resumed != nil {
		c.resume(*c.in.Resumed)
	} else {
		c.changeStatus(ctx, berth.ConferenceCreating)
	}
	c.setEndTimer(detached)
	if err := workflow.SetQueryHandler(ctx, QueryConference, func() (berth.Conference, error) { return c.record, nil }); err != nil {
		return err
	}
	c.receiveSignals(ctx, detached)
	return errors.Join(
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateCreate, c.create, workflow.UpdateHandlerOptions{Validator: c.validateCreate}),
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateRelease, c.release, workflow.UpdateHandlerOptions{Validator: c.validateRelease}),
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateExtend, c.requestExtension, workflow.UpdateHandlerOptions{Validator: c.validateExtend}),
		workflow.SetUpdateHandlerWithOptions(ctx, UpdateMove, c.requestMove, workflow.UpdateHandlerOptions{Validator: c.validateMove}),
	)
}

func (in ConferenceInput) validate() error {
	identified := in.ConferenceID != "" && in.Spec.E164 != "" && in.UserID != ""
	if !identified || in.Rules.Retry <= 0 || in.Rules.GiveUp <= 0 || in.Rules.Command <= 0 {
		return refuse(berth.CodeInternal, "conference input lacks an id, number, user or rule")
	}
	return nil
}

// resume restores the state of the previous run.
func (c *conference) resume(from ConferenceProgress) {
	c.record, c.slots.owner, c.slots.releasable = from.Conference, from.Slot, from.Release
	c.outbox = outbox{events: from.Outbox, published: from.Events, confirmed: from.Confirmed}
	c.submission = submission{id: from.SubmissionID, settled: true}
	c.copies = copies{fenced: from.Fenced, stale: from.Stale}
	c.placement = placement{
		retryAt: from.RetryAt, unresponsive: from.Unresponsive, skippedUnits: from.SkippedUnits,
		notStarted: from.NotStarted, refusals: from.Refusals,
	}
	if from.Drain != nil {
		c.move = &move{drain: true, retryAt: from.Drain.RetryAt}
	}
	c.connection.checkAt, c.ending.copyEndAt = from.CheckAt, from.CopyEndAt
}

// receiveSignals stores signals in the inbox. A cancellation of the run is handled as a release.
func (c *conference) receiveSignals(ctx, detached workflow.Context) {
	workflow.Go(detached, func(ctx workflow.Context) {
		for {
			var n UnitNotice
			workflow.GetSignalChannel(ctx, SignalUnit).Receive(ctx, &n)
			c.inbox.notices = append(c.inbox.notices, n)
		}
	})
	workflow.Go(detached, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalCapacity).Receive(ctx, nil) {
			c.inbox.capacity = true
		}
	})
	workflow.Go(detached, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalRestore).Receive(ctx, nil) {
			c.inbox.restore = true
		}
	})
	workflow.Go(detached, func(ctx workflow.Context) {
		for received := true; received; { // the signal wakes run, which checks the version
			received = workflow.GetSignalChannel(ctx, SignalUpgrade).Receive(ctx, nil)
		}
	})
	c.ending.cancelled = func() bool { return ctx.Err() != nil }
	workflow.Go(detached, func(detached workflow.Context) {
		ctx.Done().Receive(detached, nil)
		c.requestEnd(berth.EndReleased)
	})
}

// allSignalsReceived reports whether every signal is in the inbox.
func (c *conference) allSignalsReceived(ctx workflow.Context) bool {
	for _, name := range []string{SignalUnit, SignalCapacity, SignalRestore, SignalUpgrade} {
		if workflow.GetSignalChannel(ctx, name).Len() > 0 {
			return false
		}
	}
	return true
}

// validateCreate rejects a request for the same number that is not the one that created the conference.
func (c *conference) validateCreate(_ workflow.Context, req CreateRequest) error {
	if req.RequestHash != c.in.RequestHash {
		return refuse(berth.CodeConflict, "the number is in use")
	}
	return nil
}

// create returns once the conference is open, refused or waiting for recovery.
func (c *conference) create(ctx workflow.Context, req CreateRequest) (CreateReply, error) {
	if err := c.submission.wait(ctx, req.SubmissionID); err != nil {
		return CreateReply{}, err
	}
	return CreateReply{SubmissionID: c.submission.id, Conference: c.record}, nil
}

// validateRelease rejects a request for an earlier conference of the number.
func (c *conference) validateRelease(_ workflow.Context, req ReleaseRequest) error {
	if req.ConferenceID != "" && req.ConferenceID != c.in.ConferenceID {
		return refuse(berth.CodeConflict, "the conference has ended")
	}
	return nil
}

// release ends the conference in any status, and returns once the end is written everywhere.
func (c *conference) release(ctx workflow.Context, req ReleaseRequest) error {
	if c.ending.reason == "" {
		c.record.EndedBy = req.By
	}
	c.requestEnd(berth.EndReleased)
	return workflow.Await(ctx, func() bool { return c.ending.saved })
}

// connectDefault is ConferenceRules.Connect where that is 0. It exceeds a grace period and a unit's heartbeat interval.
const connectDefault = 10 * time.Second
