package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// ExtendRequest is the argument of the extend update.
type ExtendRequest struct {
	// ConferenceID, if set, must be the conference's; the validator rejects others as conflict.
	ConferenceID string    `json:"conferenceId,omitempty"`
	EndAt        time.Time `json:"endAt"` // later than the current end time, or the same
}

// ExtendReply is the result of the extend update.
type ExtendReply struct {
	Conference berth.Conference `json:"conference"`
}

// validateExtend rejects an end time that is not later, and a conference that has ended.
func (c *conference) validateExtend(_ workflow.Context, req ExtendRequest) error {
	switch {
	case req.ConferenceID != "" && req.ConferenceID != c.in.ConferenceID || c.ending.reason != "" || c.record.Status.Final():
		return refuse(berth.CodeConflict, "the conference has ended")
	case req.EndAt.Before(c.record.EndAt):
		return refuse(berth.CodeConflict, "the conference ends at "+c.record.EndAt.Format(time.RFC3339)+"; its end time can only be extended")
	}
	return nil
}

// requestExtension is the handler of the extend update. It returns once the new end time is written.
func (c *conference) requestExtension(ctx workflow.Context, req ExtendRequest) (ExtendReply, error) {
	if req.EndAt.Equal(c.record.EndAt) {
		return ExtendReply{Conference: c.record}, nil
	}
	if c.ending.extendTo.Before(req.EndAt) { // else a later end time was requested before
		c.ending.extendTo = req.EndAt
	}
	err := workflow.Await(ctx, func() bool { return c.ending.extendTo.IsZero() || c.ending.saved })
	if err == nil && c.record.EndAt.Before(req.EndAt) {
		err = refuse(berth.CodeConflict, "the conference has ended")
	}
	return ExtendReply{Conference: c.record}, err
}

// extend sets the requested end time, writes it and sends it to the owner.
func (c *conference) extend(ctx workflow.Context) {
	to := c.ending.extendTo
	c.record.EndAt = to
	c.setEndTimer(ctx)
	c.queueEvent(ctx)
	c.save(ctx)
	if c.ending.extendTo.After(to) {
		return // a later end time was requested meanwhile
	}
	c.ending.extendTo = time.Time{}
	if c.record.Status == berth.ConferenceOpen {
		c.sendEndTime(ctx)
	}
}

// setEndTimer replaces the timer of the end time.
func (c *conference) setEndTimer(ctx workflow.Context) {
	if c.ending.stopTimer != nil {
		c.ending.stopTimer()
	}
	ctx, c.ending.stopTimer = workflow.WithCancel(ctx)
	left := max(c.record.EndAt.Sub(workflow.Now(ctx)), 0)
	c.ending.timer = workflow.NewTimerWithOptions(ctx, left, workflow.TimerOptions{Summary: "end time"})
	if !c.timer.at.IsZero() && c.timer.fires == nil {
		c.timer = timer{} // what is due next was due after the former end time
	}
}

// sendEndTime sends the owner the end time, by an adoption of the copy under the same epoch. The conference does not wait for
// it: the unit would end the copy only after the former end time. A unit keeps the latest end time that it was sent.
func (c *conference) sendEndTime(ctx workflow.Context) {
	owner, endAt := c.record.Owner, c.record.EndAt
	sent := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              berth.NodeTaskQueue(owner.NodeID, owner.Generation),
		ScheduleToCloseTimeout: max(c.record.EndAt.Sub(workflow.Now(ctx)), c.in.Rules.Command),
		StartToCloseTimeout:    c.in.Rules.Command,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: maxCommandPause, NonRetryableErrorTypes: []string{berth.ErrorRefused}},
	}), berth.ActivityAdoptConference, c.unitConference(owner.Epoch, c.record.CopyStartedAt))
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := sent.Get(ctx, nil); err == nil && c.record.Owner.Epoch == owner.Epoch && c.ending.copyEndAt.Before(endAt) {
			c.ending.copyEndAt = endAt
		}
	})
}

// unitConference returns the argument of a command to run the conference.
func (c *conference) unitConference(epoch int64, startedAt time.Time) berth.UnitConference {
	return berth.UnitConference{
		ConferenceSpec: c.record.ConferenceSpec, ConferenceID: c.record.ID, Epoch: epoch, StartedAt: startedAt,
		EmptyAfterMs: c.in.Rules.Empty.Milliseconds(),
	}
}
