package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// commandDefault is LinkInput.Command where that is 0.
const commandDefault = 10 * time.Second

// Link looks after one generation of a unit: it tells its conferences what became of it, reconciles with it when it is
// there, and has it release what is not to run on it, until that is acknowledged or the generation is no more (C15). It ends
// when there is nothing to do, and begins again when there is.
func Link(ctx workflow.Context, in LinkInput) error {
	if in.NodeID == "" || in.Generation == 0 {
		return temporal.NewNonRetryableApplicationError("link input lacks a unit", string(berth.CodeInternal), nil)
	}
	if in.Command <= 0 {
		in.Command = commandDefault
	}
	l := &link{in: in, unit: NodeRef{NodeID: in.NodeID, Generation: in.Generation}}
	return l.run(ctx)
}

type link struct {
	in      LinkInput
	unit    NodeRef
	notices []berth.NodeNotice
	// open are the copies that the unit has not acknowledged the release of.
	open []berth.UnitRelease
	// left is true once the generation is no more.
	left bool
}

func (l *link) run(ctx workflow.Context) error {
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var n berth.NodeNotice
			workflow.GetSignalChannel(ctx, SignalNotice).Receive(ctx, &n)
			l.notices = append(l.notices, n)
			l.left = l.left || departs(n)
		}
	})
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var r berth.UnitRelease
			workflow.GetSignalChannel(ctx, SignalWithdraw).Receive(ctx, &r)
			l.withdraw(ctx, r)
		}
	})
	for _, r := range l.in.Withdraw {
		l.withdraw(ctx, r)
	}
	for {
		if err := workflow.Await(ctx, func() bool {
			return len(l.notices) > 0 || l.heardAll(ctx) && (len(l.open) == 0 || l.tooLong(ctx))
		}); err != nil {
			return err
		}
		switch {
		case len(l.notices) > 0:
			l.hear(ctx)
		case len(l.open) == 0:
			return nil
		default:
			in := l.in
			in.Withdraw = l.open
			return workflow.NewContinueAsNewError(ctx, LinkWorkflow, in)
		}
	}
}

// heardAll tells whether no signal waits to be noted.
func (l *link) heardAll(ctx workflow.Context) bool {
	return workflow.GetSignalChannel(ctx, SignalNotice).Len() == 0 && workflow.GetSignalChannel(ctx, SignalWithdraw).Len() == 0
}

func (l *link) tooLong(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

func departs(n berth.NodeNotice) bool {
	return n.Reason != berth.ArrivalRegistered && n.Reason != berth.DepartureDrained
}

// hear acts on the oldest notice. Of several arrivals one is as good as all.
func (l *link) hear(ctx workflow.Context) {
	n := l.notices[0]
	l.notices = l.notices[1:]
	if n.Reason != berth.ArrivalRegistered {
		if err := workflow.ExecuteLocalActivity(untilDoneWithin(ctx, fanOutTimeout), LoseUnitActivity, n).Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("a unit's loss cannot be told", "error", err) // never: it is tried until it succeeds
		}
		return
	}
	l.notices = slices.DeleteFunc(l.notices, func(n berth.NodeNotice) bool { return n.Reason == berth.ArrivalRegistered })
	if !l.left {
		l.linkUp(ctx)
	}
}

// linkUp reconciles with the unit: what it runs, what it should run, and what it has room for (C15).
func (l *link) linkUp(ctx workflow.Context) {
	var known UnitRows
	if err := workflow.ExecuteLocalActivity(untilDoneWithin(ctx, fanOutTimeout), ReadUnitActivity, l.unit).Get(ctx, &known); err != nil {
		return // never: it is tried until it succeeds
	}
	var list berth.UnitList
	if !l.tell(ctx, &list, berth.ActivityListConferences) {
		return
	}
	var unwanted ReconcileReply
	if err := workflow.ExecuteLocalActivity(untilDoneWithin(ctx, fanOutTimeout), ReconcileUnitActivity, ReconcileInput{
		Unit: l.unit, Rows: known.Rows, List: list,
	}).Get(ctx, &unwanted); err != nil {
		return
	}
	for _, r := range unwanted.Withdraw {
		l.withdraw(ctx, r)
	}
	if !l.tell(ctx, nil, berth.ActivityReportConferences, berth.UnitReport{}) {
		return
	}
	if err := workflow.ExecuteLocalActivity(untilDoneWithin(ctx, fanOutTimeout), WakeWaitingActivity, l.unit).Get(ctx, nil); err != nil {
		return
	}
}

// withdraw has the unit release a copy, beside everything else.
func (l *link) withdraw(ctx workflow.Context, r berth.UnitRelease) {
	if slices.Contains(l.open, r) {
		return
	}
	l.open = append(l.open, r)
	workflow.Go(ctx, func(ctx workflow.Context) {
		l.tell(ctx, nil, berth.ActivityReleaseConference, r)
		l.open = slices.DeleteFunc(l.open, func(o berth.UnitRelease) bool { return o == r })
	})
}

// tell has the unit do something until it has acknowledged it; false when it is no more.
func (l *link) tell(ctx workflow.Context, out any, command string, args ...any) bool {
	return tellUnit(ctx, l.unit, l.in.Command, func() bool { return l.left }, nil, out, command, args...) == "acknowledged"
}

// probeWithin is how long a unit may take to answer a probe.
const probeWithin = 2 * time.Second

// Probe asks units that are silent for something, and answers how many did it: if any did, it is us who do not hear (C21).
func Probe(ctx workflow.Context, in ProbeInput) (int, error) {
	answered, left := 0, len(in.Units)
	for _, u := range in.Units {
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer func() { left-- }()
			err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				TaskQueue:              berth.NodeTaskQueue(u.NodeID, u.Generation),
				ScheduleToCloseTimeout: probeWithin,
				RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
			}), berth.ActivityListConferences).Get(ctx, nil)
			if !temporal.IsTimeoutError(err) {
				answered++ // a refusal is an answer too
			}
		})
	}
	err := workflow.Await(ctx, func() bool { return left == 0 })
	return answered, err
}
