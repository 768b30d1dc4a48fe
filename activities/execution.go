package activities

import (
	"context"
	"time"

	"berth"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/placement"
	"berth/workflows"
)

// Executions are the side effects of executions.
type Executions struct {
	NodeSlots
	Ledger *ledger.Ledger
	Placer *placement.Placer
	Gate   *health.Gate
}

// AssignNode chooses a node and takes a slot. A refusal is an application error with a berth.Refusal as its detail. With
// CodeNodeFull the execution waits in the room of its pool, and an accepted one also with CodeNoNode: workflows.SignalPromoted
// announces that a node is reserved for it. Idempotent by lease id while the slot is held.
func (e *Executions) AssignNode(ctx context.Context, in workflows.AssignInput) (workflows.AssignReply, error) {
	a, err := e.Placer.AssignOrWait(ctx, placement.Request{
		Requirements: in.Where, Failed: in.Failed, Readmit: in.Readmit,
		Wait: waitOf(in.Wait, in.Accepted),
	})
	if err != nil {
		return workflows.AssignReply{}, refused(err)
	}
	config := e.Fleet.Snapshot().Config
	return workflows.AssignReply{Assignment: a, MaxRetries: config.MaxRetries, EnableFailover: config.EnableFailover}, nil
}

// CheckTemporal returns for how long this worker has reached Temporal without interruption.
func (e *Executions) CheckTemporal(context.Context) (workflows.Availability, error) {
	return workflows.Availability{For: e.Gate.AvailableFor(health.Temporal)}, nil
}

// SaveExecution writes the row of an execution unless that has ended. Idempotent.
func (e *Executions) SaveExecution(ctx context.Context, ex berth.ExecutionRow) error {
	if _, err := e.save(ctx, ex); err != nil {
		return unavailable("execution not written", err)
	}
	return nil
}

// save writes the row of an execution unless that has ended, keeps or removes its admission, and notifies operators. It reports whether it did.
func (e *Executions) save(ctx context.Context, ex berth.ExecutionRow) (saved bool, err error) {
	if ex.Status.Final() {
		err = e.Scripts.RemoveExecution(ctx, ex.Ref())
	} else {
		err = e.Scripts.KeepExecution(ctx, ex.Ref(), time.Until(ex.DeadlineAt))
	}
	if err != nil {
		return false, err
	}
	if saved, err = e.Ledger.SaveExecution(ctx, ex); saved {
		ev := berth.OperatorEvent{
			Type: berth.EventExecution, UserID: ex.UserID, ExecutionID: ex.ID, NodeID: ex.NodeID, PoolID: ex.PoolID,
			Status: string(ex.Status), Reason: string(ex.Code),
		}
		if err := e.Scripts.AppendOperatorEvents(ctx, ev); err != nil { // the row has the status
			e.Logger.WarnContext(ctx, "operators not notified of an execution", "execution", ex.Key, "error", err)
		}
	}
	return saved, err
}
