package activities

import (
	"context"
	"strings"

	"berth"
	"berth/internal/starter"
	"berth/workflows"
)

// lostTurnEvent is the number of the event that ends a turn without a run. It is higher than those of all events of turns, so that it
// is published once.
const lostTurnEvent = 1 << 40

func turnOf(workflowID string) string { return strings.TrimPrefix(workflowID, workflows.TurnPrefix) }

// closedTurn considers the affinity of a turn whose run has closed.
func (p *pass) closedTurn(ctx context.Context, workflowID string) error {
	has, err := p.r.Scripts.HasTurn(ctx, turnOf(workflowID))
	if err != nil || !has {
		return err
	}
	return p.candidate(ctx, berth.RuleTurnWithoutRun, workflowID)
}

// turns considers all turns that have an affinity.
func (p *pass) turns(ctx context.Context) error {
	if err := p.listRunning(ctx, workflows.TurnWorkflow, func(string) {}); err != nil {
		return err
	}
	return p.r.Scripts.Turns(ctx, func(ids []string) error {
		for _, id := range ids {
			if id := workflows.TurnWorkflowID(id); !p.listed(id) {
				if err := p.candidate(ctx, berth.RuleTurnWithoutRun, id); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (r *Reconciler) turnWithoutRun(ctx context.Context, id string) (version int64, differs bool, err error) {
	run, ok, err := r.Starter.CurrentRun(ctx, id)
	if err != nil || ok && run.Running {
		return 0, false, err
	}
	has, err := r.Scripts.HasTurn(ctx, turnOf(id))
	return run.StartedAt.UnixMilli(), has, err
}

// endTurn ends a turn for its session, whose readers get its last event. Where Temporal has lost the run, the session is not known.
func (r *Reconciler) endTurn(ctx context.Context, f berth.ReconcileFinding) error {
	run, ok, err := r.Starter.CurrentRun(ctx, f.Subject)
	if err != nil {
		return err
	}
	if !ok {
		return r.Scripts.DropTurn(ctx, turnOf(f.Subject))
	}
	in, err := starter.Input[workflows.TurnInput](ctx, r.Starter, run)
	if err != nil {
		return err
	}
	if err := r.Turns.publish(ctx, workflows.TurnEvents{
		UserID: in.UserID, SessionID: in.SessionID, TurnID: in.TurnID, First: lostTurnEvent,
		Events: []berth.SessionEvent{{
			Type: berth.EventDone, SessionID: in.SessionID, TurnID: in.TurnID, Code: berth.CodeLost,
			Message: berth.TurnLost,
		}},
	}, 0); err != nil {
		return err
	}
	return r.Turns.FinalizeTurn(ctx, workflows.TurnRef{UserID: in.UserID, SessionID: in.SessionID, TurnID: in.TurnID})
}
