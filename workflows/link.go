package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// LinkInput starts a link.
type LinkInput struct {
	NodeID     string        `json:"nodeId"`
	Generation int64         `json:"generation"`
	Command    time.Duration `json:"command"` // how long the unit may take to reply; 0 is 10 s
	// Withdraw are copies still to be released, from the previous run.
	Withdraw []berth.UnitRelease `json:"withdraw,omitempty"`
}

// UnitRows is the result of ReadUnit: what a unit should run, read before its list is requested.
type UnitRows struct {
	Rows []UnitRow `json:"rows,omitempty"`
}

// UnitRow is a conference that a unit should run.
type UnitRow struct {
	E164  string `json:"e164"`
	Epoch int64  `json:"epoch"`
}

// ReconcileInput is the argument of ReconcileUnit.
type ReconcileInput struct {
	Unit berth.NodeRef  `json:"unit"`
	Rows []UnitRow      `json:"rows,omitempty"`
	List berth.UnitList `json:"list"`
}

// ReconcileReply is the result of ReconcileUnit: the copies of no open conference.
type ReconcileReply struct {
	Withdraw []berth.UnitRelease `json:"withdraw,omitempty"`
}

// linkCommandDefault is LinkInput.Command where that is 0.
const linkCommandDefault = 10 * time.Second

// Link handles what concerns one generation of a media unit. When the unit registers, it reconciles the unit's list with
// berth's conferences; when the generation ends, it notifies the unit's conferences; and it releases copies on the unit
// until that is acknowledged or the generation has ended. It ends when there is nothing to do; the next signal starts it
// again.
func Link(ctx workflow.Context, in LinkInput) error {
	if in.NodeID == "" || in.Generation == 0 {
		return refuse(berth.CodeInternal, "link input lacks a unit")
	}
	if in.Command <= 0 {
		in.Command = linkCommandDefault
	}
	l := &link{in: in, unit: berth.NodeRef{NodeID: in.NodeID, Generation: in.Generation}}
	l.receiveSignals(ctx)
	for _, r := range in.Withdraw {
		l.withdraw(ctx, r)
	}
	return l.run(ctx)
}

type link struct {
	in       LinkInput
	unit     berth.NodeRef
	notices  []berth.NodeNotice
	releases []berth.UnitRelease // that the unit has not acknowledged yet
	gone     bool                // the generation has ended
	// reconciling is true while a coroutine reconciles the unit, and registered if the unit has registered since.
	reconciling, registered bool
}

func (l *link) receiveSignals(ctx workflow.Context) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var n berth.NodeNotice
			workflow.GetSignalChannel(ctx, SignalNotice).Receive(ctx, &n)
			l.notices = append(l.notices, n)
			l.gone = l.gone || n.Reason != berth.ArrivalRegistered && n.Reason != berth.DepartureDrained
		}
	})
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			var r berth.UnitRelease
			workflow.GetSignalChannel(ctx, SignalWithdraw).Receive(ctx, &r)
			l.withdraw(ctx, r)
		}
	})
}

// run handles notices until there are none and every release is acknowledged.
func (l *link) run(ctx workflow.Context) error {
	for {
		if err := workflow.Await(ctx, func() bool {
			return len(l.notices) > 0 || !l.reconciling && l.allSignalsReceived(ctx) &&
				(len(l.releases) == 0 || workflow.GetInfo(ctx).GetContinueAsNewSuggested())
		}); err != nil {
			return err
		}
		switch {
		case len(l.notices) > 0:
			l.handleNotice(ctx)
		case len(l.releases) == 0:
			return nil
		default:
			in := l.in
			in.Withdraw = l.releases
			return workflow.NewContinueAsNewError(ctx, LinkWorkflow, in)
		}
	}
}

// allSignalsReceived reports whether no signal is buffered.
func (l *link) allSignalsReceived(ctx workflow.Context) bool {
	return workflow.GetSignalChannel(ctx, SignalNotice).Len() == 0 && workflow.GetSignalChannel(ctx, SignalWithdraw).Len() == 0
}

// handleNotice handles the oldest notice. One reconciliation serves all registrations that were notified before it.
func (l *link) handleNotice(ctx workflow.Context) {
	n := l.notices[0]
	l.notices = l.notices[1:]
	if n.Reason != berth.ArrivalRegistered {
		if _, err := untilDoneWithin[noResult](ctx, fanOutTimeout, LoseUnitActivity, n); err != nil { // unreachable
			workflow.GetLogger(ctx).Error("conferences not notified of their unit's loss", "error", err)
		}
		return
	}
	l.registered = true
	if l.reconciling || l.gone {
		return
	}
	l.reconciling = true
	workflow.Go(ctx, func(ctx workflow.Context) { // because the unit may not reply, and a drain must not wait for it
		defer func() { l.reconciling = false }()
		for l.registered && !l.gone {
			l.registered = false
			l.reconcile(ctx)
		}
	})
}

// reconcile compares what the unit runs with what it should run, makes it release other copies and report the rest to the
// data proxy, and finally offers its capacity to waiting conferences.
func (l *link) reconcile(ctx workflow.Context) {
	expected, err := untilDone[UnitRows](ctx, ReadUnitActivity, l.unit)
	if err != nil {
		return // unreachable: retried until it succeeds
	}
	var list berth.UnitList
	if !l.command(ctx, &list, berth.ActivityListConferences) {
		return
	}
	unknown, err := untilDoneWithin[ReconcileReply](ctx, fanOutTimeout, ReconcileUnitActivity,
		ReconcileInput{Unit: l.unit, Rows: expected.Rows, List: list})
	if err != nil {
		return
	}
	for _, r := range unknown.Withdraw {
		l.withdraw(ctx, r)
	}
	if !l.command(ctx, nil, berth.ActivityReportConferences, berth.UnitReport{}) {
		return
	}
	_, _ = untilDoneWithin[noResult](ctx, fanOutTimeout, WakeWaitingActivity, l.unit) // retried until it succeeds
}

// withdraw makes the unit release a copy, in a coroutine of its own.
func (l *link) withdraw(ctx workflow.Context, r berth.UnitRelease) {
	if slices.Contains(l.releases, r) {
		return
	}
	l.releases = append(l.releases, r)
	workflow.Go(ctx, func(ctx workflow.Context) {
		l.command(ctx, nil, berth.ActivityReleaseConference, r)
		l.releases = slices.DeleteFunc(l.releases, func(o berth.UnitRelease) bool { return o == r })
	})
}

// command sends the unit a command until it is acknowledged; it returns false if the generation has ended before.
func (l *link) command(ctx workflow.Context, result any, name string, args ...any) bool {
	c := &reliableCommand{
		unit: l.unit, timeout: l.in.Command, name: name, args: args, result: result, lost: func() bool { return l.gone },
	}
	return c.run(ctx) == outcomeAcknowledged
}
