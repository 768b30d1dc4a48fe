package activities

import (
	"context"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/workflows"
)

// executionOf returns the key of the execution of a workflow id.
func executionOf(workflowID string) string {
	return strings.TrimPrefix(workflowID, workflows.ExecutionPrefix)
}

// execution returns the row of an execution; ok is false when there is none.
func (r *Reconciler) execution(ctx context.Context, workflowID string) (e berth.ExecutionRow, ok bool, err error) {
	return berth.Found(r.Ledger.GetExecution(ctx, executionOf(workflowID)))
}

// closedExecution considers the execution of a run that has closed.
func (p *pass) closedExecution(ctx context.Context, workflowID string) error {
	e, ok, err := p.r.execution(ctx, workflowID)
	if err != nil || !ok || e.Status.Final() {
		return err
	}
	return p.candidate(ctx, berth.RuleExecutionWithoutRun, workflowID)
}

// overdueExecutions considers the executions past their deadlines.
func (p *pass) overdueExecutions(ctx context.Context) error {
	return eachRow(ctx, func(after berth.ExecutionRow) ([]berth.ExecutionRow, error) {
		return p.r.Ledger.OverdueExecutions(ctx, p.StartedAt.Add(-overdueAfter), after, reconcilePage)
	}, func(e berth.ExecutionRow) error {
		id := workflows.ExecutionWorkflowID(e.Key)
		if err := p.candidate(ctx, berth.RuleExecutionOverdue, id); err != nil {
			return err
		}
		return p.candidate(ctx, berth.RuleExecutionWithoutRun, id)
	})
}

// openExecutions compares the open executions with their runs.
func (p *pass) openExecutions(ctx context.Context) error {
	return p.compareOpen(ctx, workflows.ExecutionWorkflow, berth.RuleExecutionWithoutRun, berth.RuleRunWithoutExecution,
		func(each func(string) error) error {
			return eachRow(ctx, func(after string) ([]string, error) {
				return p.r.Ledger.OpenExecutions(ctx, after, reconcilePage)
			}, func(key string) error { return each(workflows.ExecutionWorkflowID(key)) })
		})
}

func (r *Reconciler) executionWithoutRun(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	e, ok, err := r.execution(ctx, id)
	return e.StartedAt.UnixMilli(), ok && !e.Status.Final(), err
}

// endLostExecution ends an execution as its run has, if Temporal knows how that ended: the row may be from an older database.
func (r *Reconciler) endLostExecution(ctx context.Context, f berth.ReconcileFinding) error {
	row, _, err := r.execution(ctx, f.Subject)
	if err != nil {
		return err
	}
	run, ok, err := r.Starter.CurrentRun(ctx, f.Subject)
	if err != nil {
		return err
	}
	last := berth.Execution{}
	if ok && !run.Ended { // the state of a terminated run needs a worker of its version, which there may not be any more
		if last, _, err = berth.Found(r.Starter.GetExecution(ctx, row.Key)); err != nil {
			return err
		}
	}
	if last.Status.Final() && last.StartedAt.UnixMilli() == f.Version {
		row.Execution = last
	} else {
		row.Status, row.Code, row.Message = berth.ExecutionFailed, berth.CodeLost, berth.ExecutionLost
	}
	return r.endExecution(ctx, f, row)
}

// endExecution writes the end of the execution that started at the time of the finding.
func (r *Reconciler) endExecution(ctx context.Context, f berth.ReconcileFinding, e berth.ExecutionRow) error {
	if e.EndedAt.IsZero() {
		e.EndedAt = time.Now().UTC()
	}
	if e.StartedAt.UnixMilli() != f.Version {
		return ledger.ErrStale
	}
	saved, err := r.Executions.save(ctx, e)
	if err == nil && !saved {
		return ledger.ErrStale
	}
	return err
}

func (r *Reconciler) executionOverdue(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || !running {
		return 0, false, err
	}
	e, ok, err := r.execution(ctx, id)
	return e.StartedAt.UnixMilli(), ok && !e.Status.Final() && time.Since(e.DeadlineAt) > overdueAfter, err
}

// endOverdueExecution terminates the run first, because an ended row would not be found again. Its slot is released by another rule.
func (r *Reconciler) endOverdueExecution(ctx context.Context, f berth.ReconcileFinding) error {
	run, ok, err := r.Starter.CurrentRun(ctx, f.Subject)
	if err != nil {
		return err
	}
	e, _, err := r.execution(ctx, f.Subject)
	if err != nil {
		return err
	}
	if ok {
		if err := r.Starter.TerminateRun(ctx, run, "the execution was ended after its deadline"); err != nil {
			return err
		}
	}
	e.Status, e.Code, e.Message = berth.ExecutionFailed, berth.CodeDeadlineExceeded, "the execution did not finish before its deadline"
	return r.endExecution(ctx, f, e)
}

func (r *Reconciler) runWithoutExecution(ctx context.Context, id string) (version int64, differs bool, err error) {
	run, ok, err := r.Starter.CurrentRun(ctx, id)
	if err != nil || !ok || !run.Running {
		return 0, false, err
	}
	_, ok, err = r.execution(ctx, id)
	return run.StartedAt.UnixMilli(), !ok && err == nil, err
}

// restoreExecution writes the row of an execution from the state of its run.
func (r *Reconciler) restoreExecution(ctx context.Context, f berth.ReconcileFinding) error {
	key := executionOf(f.Subject)
	e, err := r.Starter.GetExecution(ctx, key)
	if err != nil {
		return err
	}
	if e.Status.Final() { // its run writes the row
		return ledger.ErrStale
	}
	_, err = r.Executions.save(ctx, berth.ExecutionRow{Key: key, Execution: e})
	return err
}
