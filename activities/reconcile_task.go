package activities

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// overdueAfter is how long after its deadline an unfinished task is a difference: its run ends it within seconds.
const overdueAfter = time.Minute

// taskOf returns the task of a workflow's name.
func taskOf(name string) (berth.TaskRef, bool) {
	id, ok := strings.CutPrefix(name, workflows.TaskPrefix)
	if !ok {
		return berth.TaskRef{}, false
	}
	return berth.ParseTaskRef(id)
}

// row returns the row of a task; ok is false when there is none.
func (r *Reconciler) row(ctx context.Context, name string) (t berth.Task, ok bool, err error) {
	ref, ok := taskOf(name)
	if !ok {
		return t, false, nil
	}
	return berth.Found(r.Ledger.GetTask(ctx, ref))
}

func (r *Reconciler) streamOpen(ctx context.Context, t berth.Task) (bool, error) {
	state, err := r.Scripts.StreamState(ctx, channel(t.UserID, t.ServiceID, t.ID))
	return err == nil && state.Exists && !state.Ended, err
}

// closedTask considers the task of a run that has closed.
func (p *pass) closedTask(ctx context.Context, name string) error {
	t, ok, err := p.r.row(ctx, name)
	if err != nil || !ok {
		return err
	}
	if !t.Status.Final() {
		return p.candidate(ctx, berth.RuleTaskWithoutRun, name)
	}
	return p.endedTask(ctx, t)
}

// endedTask considers the stream of a task that has ended.
func (p *pass) endedTask(ctx context.Context, t berth.Task) error {
	open, err := p.r.streamOpen(ctx, t)
	if err != nil || !open {
		return err
	}
	return p.candidate(ctx, berth.RuleStreamWithoutRun, workflows.TaskName(t.Ref()))
}

// overdueTasks considers the unfinished tasks past their deadlines.
func (p *pass) overdueTasks(ctx context.Context) error {
	return eachRow(ctx, func(after berth.Task) ([]berth.Task, error) {
		return p.r.Ledger.OverdueTasks(ctx, p.StartedAt.Add(-overdueAfter), after, reconcilePage)
	}, func(t berth.Task) error {
		id := workflows.TaskName(t.Ref())
		if err := p.candidate(ctx, berth.RuleTaskOverdue, id); err != nil {
			return err
		}
		return p.candidate(ctx, berth.RuleTaskWithoutRun, id)
	})
}

// openTasks compares the unfinished tasks with their runs.
func (p *pass) openTasks(ctx context.Context) error {
	return p.compareOpen(ctx, workflows.TaskWorkflow, berth.RuleTaskWithoutRun, berth.RuleRunWithoutTask, func(each func(string) error) error {
		return eachRow(ctx, func(after berth.TaskRef) ([]berth.TaskRef, error) {
			return p.r.Ledger.OpenTasks(ctx, after, reconcilePage)
		}, func(t berth.TaskRef) error { return each(workflows.TaskName(t)) })
	})
}

// endedTasks considers the streams of the tasks that have ended since the last full pass.
func (p *pass) endedTasks(ctx context.Context) error {
	for after := (ledger.EndedTask{}); ; {
		page, err := p.r.Ledger.EndedTasks(ctx, p.streamsSince, after, reconcilePage)
		if err != nil {
			return err
		}
		channels := make([]lua.Channel, len(page))
		for i, t := range page {
			channels[i], after = channel(t.UserID, t.ServiceID, t.TaskID), t
		}
		open, err := p.r.Scripts.OpenStreams(ctx, channels)
		if err != nil {
			return err
		}
		for i, t := range page {
			if !open[i] {
				continue
			}
			if err := p.candidate(ctx, berth.RuleStreamWithoutRun, workflows.TaskName(t.TaskRef)); err != nil {
				return err
			}
		}
		if len(page) < reconcilePage {
			return ctx.Err()
		}
	}
}

// settleAfter is how long after the end of a metered task the worker of its last call may report what that used.
const settleAfter = 10 * time.Minute

// unsettledTasks considers the metered tasks that ended and are not settled.
func (p *pass) unsettledTasks(ctx context.Context) error {
	return eachRow(ctx, func(after berth.TaskRef) ([]berth.TaskRef, error) {
		return p.r.Ledger.UnsettledTasks(ctx, p.StartedAt.Add(-settleAfter), after, reconcilePage)
	}, func(t berth.TaskRef) error { return p.candidate(ctx, berth.RuleTaskUnsettled, workflows.TaskName(t)) })
}

func (r *Reconciler) taskUnsettled(ctx context.Context, id string) (version int64, differs bool, err error) {
	t, ok, err := r.row(ctx, id)
	return t.EndedAt.UnixMilli(), ok && t.Unsettled && t.Status.Final(), err
}

func (r *Reconciler) settleTask(ctx context.Context, f berth.ReconcileFinding) error {
	ref, _ := taskOf(f.Subject)
	return r.Ledger.SettleTask(ctx, ref)
}

// admissions considers the admissions in all queues.
func (p *pass) admissions(ctx context.Context) error {
	for _, queue := range p.r.Options.Queues() {
		if err := p.r.Scripts.QueueAdmissions(ctx, queue, func(page []lua.Admitted) error {
			for _, admission := range page {
				if !kept(admission.Until) {
					continue
				}
				id := workflows.TaskPrefix + admission.Task
				if p.listed(id) {
					continue
				}
				if t, ok, err := p.r.row(ctx, id); err != nil {
					return err
				} else if ok && !t.Status.Final() {
					continue
				}
				if err := p.candidate(ctx, berth.RuleAdmissionWithoutTask, id); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// kept reports whether an admission with this expiry was confirmed by a workflow. Others expire by themselves, and their workflows may not
// have started yet.
func kept(until time.Time) bool { return time.Until(until) > lua.AdmissionHold }

// accounts considers all accounts.
func (p *pass) accounts(ctx context.Context) error {
	for after := ""; ; {
		users, last, err := p.r.Ledger.UnbalancedAccounts(ctx, after, reconcilePage)
		if err != nil {
			return err
		}
		for _, user := range users {
			if err := p.candidate(ctx, berth.RuleBalance, user); err != nil {
				return err
			}
		}
		if after = last; last == "" {
			return nil
		}
	}
}

func (r *Reconciler) taskWithoutRun(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	t, ok, err := r.row(ctx, id)
	return t.UpdatedAt.UnixMilli(), ok && !t.Status.Final(), err
}

func (r *Reconciler) failLostTask(ctx context.Context, f berth.ReconcileFinding) error {
	return r.endTask(ctx, f.Subject, ledger.End{
		Code: berth.CodeLost, Message: "the run was ended or lost outside of berth; retry",
		Unchanged: time.UnixMilli(f.Version),
	})
}

func (r *Reconciler) taskOverdue(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || !running {
		return 0, false, err
	}
	t, ok, err := r.row(ctx, id)
	return t.DeadlineAt.UnixMilli(), ok && !t.Status.Final() && time.Since(t.DeadlineAt) > overdueAfter, err
}

func (r *Reconciler) endOverdueTask(ctx context.Context, f berth.ReconcileFinding) error {
	run, ok, err := r.Starter.CurrentRun(ctx, f.Subject)
	if err != nil {
		return err
	}
	if err := r.endTask(ctx, f.Subject, ledger.End{
		Code: berth.CodeDeadlineExceeded, Message: "there was no complete answer before the deadline",
	}); err != nil || !ok {
		return err
	}
	return r.Starter.TerminateRun(ctx, run, "ended after its deadline")
}

// endTask fails a task as its workflow would have done.
func (r *Reconciler) endTask(ctx context.Context, id string, end ledger.End) error {
	end.TaskRef, _ = taskOf(id)
	end.Status = berth.TaskFailed
	if _, _, err := r.Ledger.FinishTask(ctx, end); err != nil {
		return err
	}
	r.Tasks.Running.NotifyEnd(ctx, end.TaskRef)
	return r.Tasks.PublishEnd(ctx, end.TaskRef)
}

func (r *Reconciler) runWithoutTask(ctx context.Context, id string) (version int64, differs bool, err error) {
	run, ok, err := r.Starter.CurrentRun(ctx, id)
	if err != nil || !ok || !run.Running {
		return 0, false, err
	}
	if _, ok, err = r.row(ctx, id); err != nil || ok {
		return run.StartedAt.UnixMilli(), false, err
	}
	accepted, err := r.Starter.Begun(ctx, run) // else its first worker accepts the task, or refuses it when its caller has given up
	return run.StartedAt.UnixMilli(), accepted, err
}

// restoreTask writes the row of a task from the input of its run. Its attempts continue behind those that the stream has seen.
func (r *Reconciler) restoreTask(ctx context.Context, f berth.ReconcileFinding) error {
	run, ok, err := r.Starter.CurrentRun(ctx, f.Subject)
	if err != nil || !ok {
		return err
	}
	in, err := starter.Input[workflows.TaskInput](ctx, r.Starter, run)
	if err != nil {
		return err
	}
	if ref, _ := taskOf(f.Subject); in.Ref() != ref {
		return fmt.Errorf("the input of the run is of task %s", in.Ref())
	}
	state, err := r.Scripts.StreamState(ctx, channel(in.UserID, in.ServiceID, in.ID))
	if err != nil {
		return err
	}
	return r.Ledger.RestoreTask(ctx, berth.Task{
		TaskPlan: in.TaskPlan, Status: berth.TaskPending, CreatedAt: run.StartedAt, DeadlineAt: run.StartedAt.Add(in.Deadline),
	}, state.Fence)
}

func (r *Reconciler) streamWithoutRun(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	t, ok, err := r.row(ctx, id)
	if err != nil || !ok || !t.Status.Final() {
		return 0, false, err
	}
	open, err := r.streamOpen(ctx, t)
	return t.EndedAt.UnixMilli(), open, err
}

func (r *Reconciler) endStream(ctx context.Context, f berth.ReconcileFinding) error {
	ref, _ := taskOf(f.Subject)
	return r.Tasks.PublishEnd(ctx, ref)
}

func (r *Reconciler) placeWithoutTask(ctx context.Context, id string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, id); err != nil || running {
		return 0, false, err
	}
	t, ok, err := r.row(ctx, id)
	if err != nil || ok && !t.Status.Final() {
		return 0, false, err
	}
	ref, _ := taskOf(id)
	until, err := r.Scripts.AdmittedUntil(ctx, ref, r.Options.Queues())
	return until.UnixMilli(), kept(until), err
}

// removeAdmission removes a task from all queues, and from the tasks of its user and service, team and application if its row states them;
// otherwise these expire.
func (r *Reconciler) removeAdmission(ctx context.Context, f berth.ReconcileFinding) error {
	ref, _ := taskOf(f.Subject)
	t, _, err := r.row(ctx, f.Subject)
	if err != nil {
		return err
	}
	return r.Scripts.RemoveAdmissions(ctx, lua.Admissions{Task: ref, ServiceID: t.ServiceID, Group: t.Group, Queues: r.Options.Queues()})
}

func (r *Reconciler) unbalanced(ctx context.Context, user string) (version int64, differs bool, err error) {
	credits, sum, err := r.Ledger.Balance(ctx, user, false)
	return int64(credits - sum), credits != sum, err
}

func (r *Reconciler) correctBalance(ctx context.Context, f berth.ReconcileFinding) error {
	_, _, err := r.Ledger.Balance(ctx, f.Subject, true)
	return err
}
