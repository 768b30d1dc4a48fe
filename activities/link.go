package activities

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// Links are the activities of links.
type Links struct {
	Starter *starter.Starter
	Ledger  *ledger.Ledger
	Scripts *lua.Scripts
	Logger  *slog.Logger
}

const (
	// maxReconciled is how many conferences of a unit's list are reconciled concurrently.
	maxReconciled = 32
	// maxLogged is how many copies one log line names.
	maxLogged = 20
)

// ReadUnitState returns the registered generation of a unit.
func (l *Links) ReadUnitState(ctx context.Context, in berth.NodeRef) (workflows.UnitState, error) {
	return readUnitState(ctx, l.Scripts, in.NodeID)
}

// LoseUnit notifies every conference of a generation, or of an earlier one, that it is lost or drained. Idempotent.
func (l *Links) LoseUnit(ctx context.Context, n berth.NodeNotice) error {
	rows, err := l.Ledger.ConferencesOf(ctx, n.NodeID)
	if err != nil {
		return unavailable("conferences of the unit not read", err)
	}
	rows = slices.DeleteFunc(rows, func(c berth.Conference) bool { return c.Owner.Generation > n.Generation })
	notice := workflows.UnitNotice{NodeID: n.NodeID, Generation: n.Generation, Incarnation: n.Incarnation, Gone: n.Reason}
	if err := l.Starter.SignalConferences(ctx, numbersOf(rows), workflows.SignalUnit, notice); err != nil {
		return unavailable("conferences of the unit not notified", err)
	}
	l.Logger.InfoContext(ctx, "conferences notified of their unit", "unit", n.NodeID, "generation", n.Generation,
		"reason", n.Reason, "conferences", len(rows))
	return nil
}

// ReadUnit returns the conferences that a unit should run.
func (l *Links) ReadUnit(ctx context.Context, in berth.NodeRef) (workflows.UnitRows, error) {
	rows, err := l.Ledger.ConferencesOf(ctx, in.NodeID)
	if err != nil {
		return workflows.UnitRows{}, unavailable("conferences of the unit not read", err)
	}
	var out workflows.UnitRows
	for _, c := range rows {
		if c.Status == berth.ConferenceOpen || c.Status == berth.ConferenceAwaitingConnection {
			out.Rows = append(out.Rows, workflows.UnitRow{E164: c.E164, Epoch: c.Owner.Epoch})
		}
	}
	return out, nil
}

// ReconcileUnit notifies each conference of its copy on the unit's list, or that the list lacks it, and returns the copies
// of no open conference. It removes rows of ended conferences from Redis. Idempotent.
func (l *Links) ReconcileUnit(ctx context.Context, in workflows.ReconcileInput) (workflows.ReconcileReply, error) {
	unknown := make([]bool, len(in.List.Conferences))
	listed := map[string]bool{}
	var g errgroup.Group
	g.SetLimit(maxReconciled)
	for i, copied := range in.List.Conferences {
		listed[copied.E164] = true
		g.Go(func() error {
			known, err := l.notifyListed(ctx, in, copied)
			unknown[i] = !known
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
	if err := errors.Join(g.Wait(), l.removeEndedRows(ctx, in.Unit.NodeID, listed)); err != nil {
		return workflows.ReconcileReply{}, unavailable("conferences of the unit not notified", err)
	}
	var out workflows.ReconcileReply
	for i, copied := range in.List.Conferences {
		if unknown[i] {
			out.Withdraw = append(out.Withdraw, berth.UnitRelease{E164: copied.E164, Epoch: copied.Epoch})
		}
	}
	l.Logger.InfoContext(ctx, "unit reconciled", "unit", in.Unit.NodeID, "generation", in.Unit.Generation,
		"listed", len(in.List.Conferences), "expected", len(in.Rows), "unknown", len(out.Withdraw),
		"released", out.Withdraw[:min(len(out.Withdraw), maxLogged)])
	return out, nil
}

// notifyListed notifies a conference of its copy on the unit's list. It returns false if the conference does not exist or
// has ended.
func (l *Links) notifyListed(ctx context.Context, in workflows.ReconcileInput, copied berth.UnitCopy) (bool, error) {
	c, ok, err := berth.Found(l.Ledger.FindConference(ctx, copied.E164))
	if err != nil || !ok || c.Status.Final() || copied.ConferenceID != "" && copied.ConferenceID != c.ID {
		return false, err
	}
	return l.Starter.SignalConference(ctx, copied.E164, workflows.SignalUnit, workflows.UnitNotice{
		NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, Incarnation: in.List.Incarnation, Copy: &copied,
	})
}

// removeEndedRows removes the rows of a unit's ended conferences, which a late write may have left in Redis.
func (l *Links) removeEndedRows(ctx context.Context, nodeID string, listed map[string]bool) error {
	numbers, err := l.Scripts.UnitConferences(ctx, nodeID)
	if err != nil {
		return err
	}
	for _, e164 := range numbers {
		if listed[e164] {
			continue
		}
		c, ok, err := berth.Found(l.Ledger.FindConference(ctx, e164))
		if err != nil {
			return err
		}
		if ok && c.Status.Final() {
			if _, err := l.Scripts.DropConference(ctx, e164, c.ID, c.Epoch); err != nil {
				return err
			}
		}
	}
	return nil
}
