package activities

import (
	"context"
	"time"

	"berth"
)

// unseenAfter is how long a process was not seen when its direct calls are settled without it. A process that lives records so every few seconds.
const unseenAfter = time.Minute

// abandonedCalls considers the processes with direct calls that no process will end. All calls of a process are one difference: one that is
// killed may have made thousands.
func (p *pass) abandonedCalls(ctx context.Context) error {
	return eachRow(ctx, func(after string) ([]string, error) {
		return p.r.Ledger.AbandonedProcesses(ctx, unseenAfter, after, reconcilePage)
	}, func(process string) error { return p.candidate(ctx, berth.RuleCallUnsettled, process) })
}

func (r *Reconciler) callsUnsettled(ctx context.Context, process string) (version int64, differs bool, err error) {
	calls, err := r.Ledger.AbandonedCalls(ctx, process, unseenAfter, 1)
	return 0, len(calls) > 0, err
}

func (r *Reconciler) settleCalls(ctx context.Context, f berth.ReconcileFinding) error {
	for {
		calls, err := r.Ledger.AbandonedCalls(ctx, f.Subject, unseenAfter, reconcilePage)
		if err != nil {
			return err
		}
		for _, id := range calls {
			if err := r.Ledger.SettleAbandoned(ctx, id, unseenAfter); err != nil {
				return err
			}
		}
		if len(calls) < reconcilePage {
			return nil
		}
	}
}
