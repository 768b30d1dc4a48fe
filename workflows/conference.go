package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// mostOrders is how many orders a conference remembers, mostSegments how many units it was on.
	mostOrders   = 50
	mostSegments = 200
	// connectDefault is ConferenceRules.Connect where that is 0: longer than a grace, and a heartbeat, last.
	connectDefault = 10 * time.Second
	// mostConnect is the longest pause between two looks at a unit that is there and whose list does not come.
	mostConnect = 5 * time.Minute
	// perEvent is more than is numbered between two events of the history.
	perEvent = 16
	// lastEvent is the number of the event that tells the end, whatever was told before: it is told once.
	lastEvent = 1 << 40
)

// Conference runs one conference, on one unit after the other until it is over (C1-C22). Its result is its record.
func Conference(ctx workflow.Context, in ConferenceInput) (berth.Conference, error) {
	// Whoever cancels it ends it: what it has on units is released all the same.
	steady, _ := workflow.NewDisconnectedContext(ctx)
	c := &conference{in: in}
	if err := c.setup(ctx, steady); err != nil {
		return berth.Conference{}, err
	}
	return c.run(steady)
}

type conference struct {
	in      ConferenceInput
	is      berth.Conference
	firstID string
	// settled is true once the creation can be answered: it is open, refused, or has to wait.
	settled bool
	refusal error
	// saved is true once its end is written.
	saved bool

	// slot is that of the owner's copy, free those of copies that were lost.
	slot *berth.Assignment
	free []berth.Assignment
	// doomed are epochs whose copies are not to come back, leftover copies to be released once another one runs.
	doomed   []int64
	leftover []Copy
	// failed are generations that failed it in this round, silent those that have not answered and are to be passed over by
	// others, too. unheard is true when there were such since it ran last, answered when its owner has just answered.
	failed, silent    []NodeRef
	unheard, answered bool

	// outbox is what the stream has not been told yet, told the number of its last event.
	outbox []berth.ConferenceEvent
	told   int

	// What was heard and not acted on yet.
	news     []UnitNotice
	room     bool
	reassert bool
	ending   berth.ConferenceEnd

	// creating and adopting are the commands in flight.
	creating, adopting *unitCommand

	retryAt   time.Time // of the next attempt to recover it
	connectBy time.Time // when its unit is looked at
	pause     time.Duration
	// placePause is the last pause while Redis or the database did not answer.
	placePause time.Duration
	over       workflow.Future // its end time
	alarm      workflow.Future
	alarmAt    time.Time
	disarm     workflow.CancelFunc
}

func (c *conference) setup(ctx, steady workflow.Context) error {
	in := c.in
	if in.ConferenceID == "" || in.Spec.E164 == "" || in.UserID == "" || in.Rules.Retry <= 0 || in.Rules.GiveUp <= 0 || in.Rules.Command <= 0 {
		return temporal.NewNonRetryableApplicationError("conference input lacks an id, number, user or rule", string(berth.CodeInternal), nil)
	}
	c.is = berth.Conference{
		ConferenceSpec: in.Spec, ID: in.ConferenceID, UserID: in.UserID,
		Segments: []berth.ConferenceSegment{}, Orders: []berth.ConferenceOrder{}, CreatedAt: workflow.Now(ctx),
	}
	if r := in.Resumed; r != nil {
		c.settled, c.firstID, c.is, c.slot, c.told = true, r.SubmissionID, r.Conference, r.Slot, r.Events
		c.doomed, c.leftover, c.retryAt, c.connectBy = r.Fenced, r.Stale, r.RetryAt, r.ConnectBy
	} else {
		c.to(ctx, berth.ConferenceCreating)
	}
	c.over = workflow.NewTimerWithOptions(steady, max(c.is.EndAt.Sub(workflow.Now(ctx)), 0), workflow.TimerOptions{Summary: "end time"})
	if err := workflow.SetQueryHandler(ctx, QueryConference, func() (berth.Conference, error) { return c.is, nil }); err != nil {
		return err
	}
	c.listen(ctx, steady)
	if err := workflow.SetUpdateHandlerWithOptions(ctx, UpdateCreate, c.submit, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, req CreateRequest) error {
			if req.RequestHash != in.RequestHash {
				return temporal.NewNonRetryableApplicationError("the number is in use", string(berth.CodeConflict), nil)
			}
			return nil
		},
	}); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateRelease, c.release, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, req ReleaseRequest) error {
			if req.ConferenceID != "" && req.ConferenceID != in.ConferenceID {
				return temporal.NewNonRetryableApplicationError("the conference is over", string(berth.CodeConflict), nil)
			}
			return nil
		},
	})
}

// listen notes what is heard; it is acted on in the story's own time.
func (c *conference) listen(ctx, steady workflow.Context) {
	workflow.Go(steady, func(ctx workflow.Context) {
		for {
			var n UnitNotice
			workflow.GetSignalChannel(ctx, SignalUnit).Receive(ctx, &n)
			c.news = append(c.news, n)
		}
	})
	workflow.Go(steady, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalCapacity).Receive(ctx, nil) {
			c.room = true
		}
	})
	workflow.Go(steady, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalReassert).Receive(ctx, nil) {
			c.reassert = true
		}
	})
	workflow.Go(steady, func(steady workflow.Context) {
		ctx.Done().Receive(steady, nil)
		c.stop(berth.EndReleased)
	})
}

// submit answers once the conference is open, refused, or has to wait for recovery already. Equal submissions share the
// update, and so the reply.
func (c *conference) submit(ctx workflow.Context, req CreateRequest) (CreateReply, error) {
	if c.firstID == "" {
		c.firstID = req.SubmissionID
	}
	if err := workflow.Await(ctx, func() bool { return c.settled }); err != nil {
		return CreateReply{}, err
	}
	if c.refusal != nil {
		return CreateReply{}, c.refusal
	}
	return CreateReply{SubmissionID: c.firstID, Conference: c.is}, nil
}

// release ends it, whatever it is doing, and answers once that is written everywhere (C10, C17).
func (c *conference) release(ctx workflow.Context, req ReleaseRequest) error {
	if c.ending == "" {
		c.is.EndedBy = req.By
	}
	c.stop(berth.EndReleased)
	return workflow.Await(ctx, func() bool { return c.saved })
}

// stop has it ended, for the first reason that is given.
func (c *conference) stop(reason berth.ConferenceEnd) {
	if c.ending == "" {
		c.ending, c.is.Ending = reason, reason
	}
}

func (c *conference) run(ctx workflow.Context) (berth.Conference, error) {
	if c.in.Resumed == nil {
		c.place(ctx)
	}
	for !c.is.Status.Final() {
		if act := c.next(ctx); act != nil {
			act(ctx)
			continue
		}
		c.arm(ctx)
		if c.mayGoOn(ctx) {
			return c.is, c.goOn(ctx)
		}
		// There is no error: this context is never cancelled.
		_ = workflow.Await(ctx, func() bool { return c.next(ctx) != nil })
	}
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) && c.heardAll(ctx) })
	for _, n := range c.news { // nobody else will hear of them
		if n.Copy != nil {
			c.withdraw(ctx, n.copyRef())
		}
	}
	return c.is, nil
}

// next is what there is to do now; nil when it has to wait.
func (c *conference) next(ctx workflow.Context) func(workflow.Context) {
	now := workflow.Now(ctx)
	idle := c.creating == nil && c.adopting == nil
	switch {
	case c.ending != "":
		return c.end
	case c.over.IsReady():
		return func(workflow.Context) { c.stop(berth.EndTime) }
	case c.creating != nil && c.creating.act.IsReady():
		return c.created
	case c.adopting != nil && c.adopting.act.IsReady():
		return c.adopted
	case c.reassert:
		return c.reassertRow
	case c.audible() >= 0:
		return c.hear
	case c.is.Status == berth.ConferenceAwaitingRecovery && idle && (c.room || !now.Before(c.due())):
		return c.recoverNow
	case c.is.Status == berth.ConferenceAwaitingConnection && !now.Before(c.connectBy):
		return c.lookForUnit
	}
	return nil
}

// due is when something is to be done about a conference that waits.
func (c *conference) due() time.Time {
	if giveUp := c.is.RefusedAt.Add(c.in.Rules.GiveUp); !c.is.RefusedAt.IsZero() && giveUp.Before(c.retryAt) {
		return giveUp
	}
	return c.retryAt
}

// arm has the one timer go off when something is due, besides the end time's.
func (c *conference) arm(ctx workflow.Context) {
	at, why := time.Time{}, ""
	switch {
	case c.creating != nil || c.adopting != nil:
	case c.is.Status == berth.ConferenceAwaitingRecovery:
		at, why = c.due(), "next attempt"
	case c.is.Status == berth.ConferenceAwaitingConnection:
		at, why = c.connectBy, "its unit's list"
	}
	if at.Equal(c.alarmAt) {
		return
	}
	if c.disarm != nil && !c.alarm.IsReady() {
		c.disarm()
	}
	c.alarm, c.disarm, c.alarmAt = nil, nil, at
	if !at.IsZero() && at.Before(c.is.EndAt) {
		timed, cancel := workflow.WithCancel(ctx)
		c.disarm = cancel
		c.alarm = workflow.NewTimerWithOptions(timed, max(at.Sub(workflow.Now(ctx)), 0), workflow.TimerOptions{Summary: why})
	}
}

// to takes it to a status, and notes the event. C13 knows no others: what it forbids is a fault of ours, and is not done.
func (c *conference) to(ctx workflow.Context, status berth.ConferenceStatus) bool {
	if c.is.Status != status && !c.is.Status.CanBecome(status) {
		workflow.GetLogger(ctx).Error("a conference cannot become this", "status", c.is.Status, "next", status)
		return false
	}
	c.is.Status = status
	c.outbox = append(c.outbox, c.is.Event(workflow.Now(ctx)))
	return true
}

// revise numbers what is written next, and the events that are told next. A worker may have written what it died before it
// could say, and it may be done otherwise now, for more was heard: that has to count as later, and the history has grown.
func (c *conference) revise(ctx workflow.Context) {
	r := ConferenceProgress{}
	if c.in.Resumed != nil {
		r = *c.in.Resumed
	}
	grown := perEvent * workflow.GetInfo(ctx).GetCurrentHistoryLength()
	c.is.Revision = max(c.is.Revision+1, r.Conference.Revision+int64(grown))
	c.told = max(c.told, r.Events+grown)
	if c.is.Status.Final() {
		c.told = lastEvent - len(c.outbox)
	}
}

// save writes what it has become, everywhere.
func (c *conference) save(ctx workflow.Context) {
	c.revise(ctx)
	in := SaveInput{
		Conference: c.is, Events: c.outbox, FirstEvent: c.told + 1, Release: c.free, Unresponsive: c.silent, Answered: c.answered,
	}
	if c.slot != nil && !c.is.Status.Final() {
		in.Hold = &HeldSlot{Assignment: *c.slot, Left: max(c.is.EndAt.Sub(workflow.Now(ctx)), 0) + time.Minute}
	}
	c.told += len(c.outbox)
	c.outbox, c.free, c.silent, c.answered = nil, nil, nil, false
	if err := workflow.ExecuteLocalActivity(untilDone(ctx), SaveConferenceActivity, in).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Error("a conference cannot be saved", "error", err) // never: it is tried until it succeeds
	}
}

// order notes what a unit is told.
func (c *conference) order(ctx workflow.Context, command string, unit NodeRef, epoch int64) {
	c.is.Orders = append(slices.Clone(c.is.Orders), berth.ConferenceOrder{
		At: workflow.Now(ctx), Command: command, NodeID: unit.NodeID, Generation: unit.Generation, Epoch: epoch,
	})
	c.is.Orders = c.is.Orders[max(0, len(c.is.Orders)-mostOrders):]
}

// answer notes what a unit said to the last such order.
func (c *conference) answer(command string, epoch int64, outcome string) {
	for i, o := range slices.Backward(c.is.Orders) {
		if o.Command == command && o.Epoch == epoch && o.Outcome == "" {
			c.is.Orders[i].Outcome = clipText(outcome, 200)
			return
		}
	}
}

// mayGoOn tells whether a new history can begin here: nothing is in flight, and nobody waits for an answer.
func (c *conference) mayGoOn(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested() && c.settled && c.creating == nil && c.adopting == nil &&
		len(c.news) == 0 && c.heardAll(ctx) && workflow.AllHandlersFinished(ctx)
}

// heardAll tells whether no signal waits to be noted.
func (c *conference) heardAll(ctx workflow.Context) bool {
	for _, name := range []string{SignalUnit, SignalCapacity, SignalReassert} {
		if workflow.GetSignalChannel(ctx, name).Len() > 0 {
			return false
		}
	}
	return true
}

// goOn starts a new history for a conference that lasts.
func (c *conference) goOn(ctx workflow.Context) error {
	in := c.in
	in.Resumed = &ConferenceProgress{
		SubmissionID: c.firstID, Conference: c.is, Slot: c.slot, Events: c.told, Fenced: c.doomed, Stale: c.leftover,
		RetryAt: c.retryAt, ConnectBy: c.connectBy,
	}
	return workflow.NewContinueAsNewError(ctx, ConferenceWorkflow, in)
}
