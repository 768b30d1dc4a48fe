package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// createStart is how long a unit may take to receive a first creation, because a caller waits for it. A recovery may
	// take as long as any command: many are sent concurrently, and a unit runs few at a time, and its death is reported.
	createStart = 3 * time.Second
	// lateAfter is how long a unit may take to acknowledge a release before the end is announced, or a creation before its copy may
	// have ended in a way that the unit did not report: its link was lost meanwhile, and its list compared too early.
	lateAfter = time.Second
	// unitCheckInterval is the first interval at which the registration of a unit is checked that does not acknowledge.
	unitCheckInterval = 15 * time.Second
	// maxCommandPause is the longest pause between two attempts of a command that is retried until it is acknowledged.
	maxCommandPause = 30 * time.Second
)

// Outcomes of commands, in the record.
const (
	outcomeAcknowledged = "acknowledged"
	outcomeLost         = "lost: the unit is not registered any more"
	outcomeEnded        = "abandoned: the conference has ended"
)

// unitCommand is a creation, recovery or adoption that a unit has not acknowledged yet.
type unitCommand struct {
	name        string
	owner       berth.ConferenceOwner // the unit, once it acknowledges
	startedAt   time.Time             // of the copy
	endAt       time.Time             // end time of the conference, as sent
	slot        berth.Assignment
	sentAt      time.Time
	formerEpoch int64 // of an adopted copy
	reply       workflow.Future
	cancel      workflow.CancelFunc
}

func (u *unitCommand) copyRef() Copy {
	return Copy{NodeRef: u.owner.Unit(), Epoch: u.owner.Epoch}
}

func (u *unitCommand) replied() bool { return u != nil && u.reply.IsReady() }

// command sends a unit the command to create, recover or adopt this conference. It is tried once: another attempt would
// go to the same unit, which may be dead.
func (c *conference) command(
	ctx workflow.Context, name string, owner berth.ConferenceOwner, slot berth.Assignment, startedAt time.Time,
) *unitCommand {
	start := c.in.Rules.Command
	if name == berth.ActivityCreateConference {
		start = createStart
	}
	c.addOrder(ctx, name, owner.Unit(), owner.Epoch)
	ctx, cancel := workflow.WithCancel(ctx)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              berth.NodeTaskQueue(owner.NodeID, owner.Generation),
		ScheduleToStartTimeout: start,
		StartToCloseTimeout:    c.in.Rules.Command,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	return &unitCommand{
		name: name, owner: owner, startedAt: startedAt, endAt: c.record.EndAt, slot: slot, sentAt: workflow.Now(ctx), cancel: cancel,
		reply: workflow.ExecuteActivity(ctx, name, c.unitConference(owner.Epoch, startedAt)),
	}
}

// abandonCreation cancels the creation in flight, if there is one, and records its outcome.
func (c *conference) abandonCreation(outcome string) {
	creation := c.inFlight.creation
	if creation == nil {
		return
	}
	creation.cancel()
	c.setOutcome(creation.name, creation.owner.Epoch, outcome)
	c.inFlight.creation = nil
}

// abandonAdoption cancels the adoption in flight. A conference that awaits recovery is then recovered immediately.
func (c *conference) abandonAdoption(ctx workflow.Context, outcome string) {
	adoption := c.inFlight.adoption
	adoption.cancel()
	c.setOutcome(adoption.name, adoption.owner.Epoch, outcome)
	c.slots.release(adoption.slot)
	c.inFlight.adoption, c.placement.retryAt = nil, workflow.Now(ctx)
}

// withdraw makes the link of a copy's unit release the copy: the link retries until the unit has acknowledged or is lost.
// It also answers an acknowledgement that arrives late.
func (c *conference) withdraw(ctx workflow.Context, listed Copy) {
	c.copies.fence(listed.Epoch)
	c.addOrder(ctx, berth.ActivityReleaseConference, listed.NodeRef, listed.Epoch)
	c.setOutcome(berth.ActivityReleaseConference, listed.Epoch, "sent through the unit's link")
	_, err := untilDone[noResult](ctx, NotifyLinkActivity, LinkRequest{
		Unit: listed.NodeRef, Withdraw: &berth.UnitRelease{E164: c.record.E164, Epoch: listed.Epoch},
	})
	if err != nil {
		workflow.GetLogger(ctx).Error("copy not withdrawn", "error", err) // unreachable: retried until it succeeds
	}
}

// requestReport makes the owner report full information to the data proxy, which dropped what it reported before it was
// the owner, even that the copy has ended. The conference does not wait for it.
func (c *conference) requestReport(ctx workflow.Context) {
	workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              berth.NodeTaskQueue(c.record.Owner.NodeID, c.record.Owner.Generation),
		ScheduleToCloseTimeout: 3 * c.in.Rules.Command,
		StartToCloseTimeout:    c.in.Rules.Command,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 3},
	}), berth.ActivityReportConferences, berth.UnitReport{E164: []string{c.record.E164}, Epoch: c.record.Owner.Epoch})
}

// releaseOwner releases the owner's copy, and waits until the unit has acknowledged or is lost. The end is announced when
// the unit is late.
func (c *conference) releaseOwner(ctx workflow.Context) {
	owner := c.ownerCopy()
	c.addOrder(ctx, berth.ActivityReleaseConference, owner.NodeRef, owner.Epoch)
	release := &reliableCommand{
		unit: owner.NodeRef, timeout: c.in.Rules.Command, name: berth.ActivityReleaseConference,
		args: []any{berth.UnitRelease{E164: c.record.E164, Epoch: owner.Epoch}},
		lost: func() bool {
			return slices.ContainsFunc(c.inbox.notices, func(n UnitNotice) bool {
				return c.fromOwner(n) && n.Gone != "" && n.Gone != berth.DepartureDrained || c.ownerLacksIt(n)
			})
		},
		late: func() {
			c.queueEvent(ctx)
			c.save(ctx)
		},
	}
	c.setOutcome(berth.ActivityReleaseConference, owner.Epoch, release.run(ctx))
}

// runsElsewhere reports whether the conference has a copy besides that of a command, which the owner has acknowledged.
func (c *conference) runsElsewhere(command *unitCommand) bool {
	return c.record.Owner.NodeID != "" && c.record.Owner.NodeID != command.owner.NodeID && c.inFlight.creation == nil
}

// notStarted reports whether a command waited for its unit until it was too late.
func notStarted(err error) bool {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	return ok && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// outcomeOf returns the outcome of a command in plain words, and whether the unit refused it.
func outcomeOf(err error) (outcome string, refused bool) {
	if err == nil {
		return outcomeAcknowledged, false
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && app.Type() == berth.ErrorRefused {
		return "refused: " + app.Message(), true
	}
	return "lost: " + attemptError(err), false
}

// reliableCommand is a command that is retried until the unit has acknowledged it, or its generation has ended.
type reliableCommand struct {
	unit    berth.NodeRef
	name    string
	args    []any
	result  any           // receives the result, unless nil
	timeout time.Duration // of one attempt
	lost    func() bool   // reports whether the end of the generation was notified
	late    func()        // called once if the command is not acknowledged after lateAfter; may be nil
}

// run returns outcomeAcknowledged or outcomeLost.
func (r *reliableCommand) run(ctx workflow.Context) string {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           berth.NodeTaskQueue(r.unit.NodeID, r.unit.Generation),
		StartToCloseTimeout: r.timeout,
		RetryPolicy:         backoff(500*time.Millisecond, maxCommandPause),
	})
	reply := workflow.ExecuteActivity(ctx, r.name, r.args...)
	for interval := unitCheckInterval; ; interval = min(2*interval, maxConnectPause) {
		r.await(ctx, reply, interval)
		failed := reply.IsReady()
		if failed {
			if err := reply.Get(ctx, r.result); err == nil {
				return outcomeAcknowledged
			}
			// The unit reported a permanent error, which may still be wrong.
			_ = waitAtMost(ctx, maxCommandPause, "retry the command", r.lost)
		}
		if r.lost() || !r.registered(ctx) {
			return outcomeLost
		}
		if failed {
			reply = workflow.ExecuteActivity(ctx, r.name, r.args...)
		}
	}
}

// await waits for the reply, for the interval at most. It has no error: the context is cancelled only after run.
func (r *reliableCommand) await(ctx workflow.Context, reply workflow.Future, interval time.Duration) {
	done := func() bool { return reply.IsReady() || r.lost() }
	if late := r.late; late != nil {
		r.late = nil
		_ = waitAtMost(ctx, lateAfter, "unit's acknowledgement", done)
		if done() {
			return
		}
		late()
		interval -= lateAfter
	}
	_ = waitAtMost(ctx, interval, "check the unit", done)
}

// registered reports whether the unit is still registered with this generation.
func (r *reliableCommand) registered(ctx workflow.Context) bool {
	unit, err := untilDone[UnitState](ctx, ReadUnitStateActivity, r.unit)
	return err == nil && unit.Generation == r.unit.Generation
}
