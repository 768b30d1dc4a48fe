package activities

import (
	"context"
	"errors"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// ReadUnitState reads which generation of a unit lives.
func (l *Links) ReadUnitState(ctx context.Context, in workflows.NodeRef) (workflows.UnitState, error) {
	return lookAtUnit(ctx, l.Scripts, in.NodeID)
}

// LoseUnit tells every conference of a generation, or of an earlier one, that it is gone or drained (C1). A conference
// that is told twice takes no harm.
func (l *Links) LoseUnit(ctx context.Context, n berth.NodeNotice) error {
	rows, err := l.Ledger.ConferencesOf(ctx, n.NodeID)
	if err != nil {
		return again(berth.CodeUnavailable, "the unit's conferences cannot be read", 0, err)
	}
	rows = slices.DeleteFunc(rows, func(c berth.Conference) bool { return c.Owner.Generation > n.Generation })
	news := workflows.UnitNotice{NodeID: n.NodeID, Generation: n.Generation, Incarnation: n.Incarnation, Gone: n.Reason}
	if err := l.Starter.SignalConferences(ctx, numbersOf(rows), workflows.SignalUnit, news); err != nil {
		return again(berth.CodeUnavailable, "a conference cannot be told", 0, err)
	}
	l.Logger.InfoContext(ctx, "conferences were told of their unit", "unit", n.NodeID, "generation", n.Generation,
		"reason", n.Reason, "conferences", len(rows))
	return nil
}

// ReadUnit reads what a unit should run: the conferences that it is known to have run.
func (l *Links) ReadUnit(ctx context.Context, in workflows.NodeRef) (workflows.UnitRows, error) {
	rows, err := l.Ledger.ConferencesOf(ctx, in.NodeID)
	if err != nil {
		return workflows.UnitRows{}, again(berth.CodeUnavailable, "the unit's conferences cannot be read", 0, err)
	}
	var out workflows.UnitRows
	for _, c := range rows {
		if c.Status == berth.ConferenceOpen || c.Status == berth.ConferenceAwaitingConnection {
			out.Rows = append(out.Rows, workflows.UnitRow{E164: c.E164, Epoch: c.Owner.Epoch})
		}
	}
	return out, nil
}

// ReconcileUnit tells each conference what the unit's list says of it, and answers which copies nobody wants (C15). What
// Redis has of the unit, and no conference has any more, goes.
func (l *Links) ReconcileUnit(ctx context.Context, in workflows.ReconcileInput) (workflows.ReconcileReply, error) {
	unwanted := make([]bool, len(in.List.Conferences))
	var g errgroup.Group
	g.SetLimit(signalsAtOnce)
	listed := map[string]bool{}
	for i, copied := range in.List.Conferences {
		listed[copied.E164] = true
		g.Go(func() error {
			known, err := l.isOpen(ctx, copied)
			if err != nil {
				return err
			}
			if known {
				known, err = l.Starter.SignalConference(ctx, copied.E164, workflows.SignalUnit, workflows.UnitNotice{
					NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, Incarnation: in.List.Incarnation, Copy: &copied,
				})
			}
			unwanted[i] = !known
			return err
		})
	}
	for _, row := range in.Rows {
		if listed[row.E164] {
			continue
		}
		g.Go(func() error {
			_, err := l.Starter.SignalConference(ctx, row.E164, workflows.SignalUnit, workflows.UnitNotice{
				NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, Incarnation: in.List.Incarnation, Missing: true, Epoch: row.Epoch,
			})
			return err
		})
	}
	if err := errors.Join(g.Wait(), l.sweepRows(ctx, in.Unit.NodeID, listed)); err != nil {
		return workflows.ReconcileReply{}, again(berth.CodeUnavailable, "a conference cannot be told", 0, err)
	}
	var out workflows.ReconcileReply
	for i, copied := range in.List.Conferences {
		if unwanted[i] {
			out.Withdraw = append(out.Withdraw, berth.UnitRelease{E164: copied.E164, Epoch: copied.Epoch})
		}
	}
	l.Logger.InfoContext(ctx, "a unit's list was compared", "unit", in.Unit.NodeID, "generation", in.Unit.Generation,
		"listed", len(in.List.Conferences), "expected", len(in.Rows), "unknown", len(out.Withdraw),
		"released", out.Withdraw[:min(len(out.Withdraw), namesInLog)])
	return out, nil
}

// namesInLog is how many copies one line of the log names.
const namesInLog = 20

// isOpen tells whether the copy is of a conference that is not over.
func (l *Links) isOpen(ctx context.Context, copied berth.UnitCopy) (bool, error) {
	c, err := l.Ledger.FindConference(ctx, copied.E164)
	switch {
	case berth.CodeOf(err) == berth.CodeNotFound:
		return false, nil
	case err != nil:
		return false, err
	}
	return !c.Status.Final() && (copied.ConferenceID == "" || copied.ConferenceID == c.ID), nil
}

// sweepRows forgets the rows of a unit's conferences that are over: a write that came late may have left one.
func (l *Links) sweepRows(ctx context.Context, nodeID string, listed map[string]bool) error {
	numbers, err := l.Scripts.UnitConferences(ctx, nodeID)
	if err != nil {
		return err
	}
	for _, e164 := range numbers {
		if listed[e164] {
			continue
		}
		c, err := l.Ledger.FindConference(ctx, e164)
		if err != nil && berth.CodeOf(err) != berth.CodeNotFound {
			return err
		}
		if err == nil && c.Status.Final() {
			if _, err := l.Scripts.DropConference(ctx, e164, c.ID, c.Epoch); err != nil {
				return err
			}
		}
	}
	return nil
}

// WakeWaiting tells as many waiting conferences as the unit has room for that they should try (C2).
func (l *Links) WakeWaiting(ctx context.Context, in workflows.NodeRef) error {
	if err := l.WakeFor(ctx, []string{in.NodeID}); err != nil {
		return again(berth.CodeUnavailable, "those who wait cannot be told", 0, err)
	}
	return nil
}

// WakeFor tells as many waiting conferences as the units have room for that they should try (C2).
func (l *Links) WakeFor(ctx context.Context, unitIDs []string) error {
	room, err := roomOf(ctx, l.Scripts, unitIDs)
	if err != nil {
		return err
	}
	return wakeWaiting(ctx, l.Ledger, l.Starter, room, math.MaxInt)
}

// roomOf is how many more conferences the units take, by their zones.
func roomOf(ctx context.Context, scripts *lua.Scripts, unitIDs []string) (map[string]int, error) {
	units, err := scripts.ReadNodes(ctx, unitIDs...)
	room := map[string]int{}
	for _, u := range units {
		if u.Kind == berth.NodeMedia && u.Excluded == "" {
			room[u.Zone] += u.MaxConcurrentJobs - u.Leases
		}
	}
	return room, err
}

// waitingPage is how many of those who wait are looked at: there may be room only in a zone that few of them want.
const waitingPage = 1000

// wakeWaiting tells waiting conferences that there is room for so many in each zone, at most so many of them.
func wakeWaiting(ctx context.Context, l *ledger.Ledger, st *starter.Starter, room map[string]int, maxSignals int) error {
	left := 0
	for _, n := range room {
		left += n
	}
	if left = min(left, maxSignals); left <= 0 {
		return nil
	}
	rows, err := l.WaitingConferences(ctx, waitingPage)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(c berth.Conference) bool {
		if left == 0 || c.Zone != "" && room[c.Zone] <= 0 {
			return true
		}
		left--
		if c.Zone != "" {
			room[c.Zone]--
		}
		return false
	})
	return st.SignalConferences(ctx, numbersOf(rows), workflows.SignalCapacity, nil)
}

func numbersOf(rows []berth.Conference) []string {
	numbers := make([]string, len(rows))
	for i, row := range rows {
		numbers[i] = row.E164
	}
	return numbers
}
