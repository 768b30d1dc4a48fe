package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"berth"
	"berth/internal/health"
	"berth/internal/ledger"
	"berth/internal/metrics"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// ReconcileOptions are the settings of the reconciliation.
type ReconcileOptions struct {
	// FullEvery is the time between two full passes.
	FullEvery time.Duration
	// Pause is the time between the two checks of a finding, and how long dependencies must have been available.
	Pause time.Duration
	// MaxRepairs is how many differences one pass repairs, MaxFindings with how many more it stops without a repair.
	MaxRepairs, MaxFindings int
	// Queues returns those in which tasks may have admissions.
	Queues func() []berth.Queue
	// Disabled are rules that are not applied.
	Disabled []berth.ReconcileRule
	// Conferences are the rules of a conference whose input is lost.
	Conferences workflows.ConferenceRules
}

const (
	// maxGap is the time without a pass after which the next one is full. Visibility may have lost what has closed in it, or an
	// older database may have been restored.
	maxGap = 10 * time.Minute
	// visibilityLag is how much later than its end a run may be listed as closed.
	visibilityLag = time.Minute
	// stoppedPause is the time until a full pass that repaired nothing of what it found is repeated.
	stoppedPause = 5 * time.Minute
	// reconcilePage is how many rows are read at a time.
	reconcilePage = 1000
	// maxFindingsSize bounds the findings of a pass in bytes of JSON, below Temporal's limit of 2 MiB: the name of a subject may be long.
	// findingOverhead is more than a finding has besides its subject.
	maxFindingsSize = 3 << 19
	findingOverhead = 150
)

// Reconciler implements the activities of reconciliation passes.
type Reconciler struct {
	Ledger  *ledger.Ledger
	Scripts *lua.Scripts
	Starter *starter.Starter
	// The activities of the workflows whose effects are repaired.
	Tasks       *Tasks
	Turns       *Turns
	Executions  *Executions
	Conferences *Conferences
	// Health returns the state of this process's dependencies.
	Health  func() health.Report
	Options ReconcileOptions
	Logger  *slog.Logger
}

// rule is how the differences of one rule are checked and repaired.
type rule struct {
	// check reports whether the subject differs now, and the version of its state. It reads the run first: what a run writes before
	// it ends is then read after its end.
	check func(ctx context.Context, subject string) (version int64, differs bool, err error)
	// repair repairs a difference that check has just confirmed. It is idempotent. ledger.ErrStale when the subject has changed.
	repair func(ctx context.Context, f berth.ReconcileFinding) error
}

// rules returns the implementation of each rule of berth.ReconcileRules.
func (r *Reconciler) rules() map[berth.ReconcileRule]rule {
	return map[berth.ReconcileRule]rule{
		berth.RuleTaskWithoutRun:       {r.taskWithoutRun, r.failLostTask},
		berth.RuleTaskOverdue:          {r.taskOverdue, r.endOverdueTask},
		berth.RuleRunWithoutTask:       {r.runWithoutTask, r.restoreTask},
		berth.RuleStreamWithoutRun:     {r.streamWithoutRun, r.endStream},
		berth.RuleTaskUnsettled:        {r.taskUnsettled, r.settleTask},
		berth.RuleCallUnsettled:        {r.callsUnsettled, r.settleCalls},
		berth.RuleAdmissionWithoutTask: {r.placeWithoutTask, r.removeAdmission},
		berth.RuleBalance:              {r.unbalanced, r.correctBalance},
		berth.RuleTurnWithoutRun:       {r.turnWithoutRun, r.endTurn},

		berth.RuleExecutionWithoutRun: {r.executionWithoutRun, r.endLostExecution},
		berth.RuleExecutionOverdue:    {r.executionOverdue, r.endOverdueExecution},
		berth.RuleRunWithoutExecution: {r.runWithoutExecution, r.restoreExecution},
		berth.RuleSlotWithoutRun:      {r.slotWithoutRun, r.releaseSlot},
		berth.RuleDeliveryWithoutRun:  {r.deliveryWithoutRun, r.startDelivery},

		berth.RuleConferenceWithoutRun:     {r.conferenceWithoutRun, r.restartConference},
		berth.RuleRunWithoutConference:     {r.runWithoutConference, r.saveConference},
		berth.RuleOwnerNotLive:             {r.ownerNotLive, r.loseOwner},
		berth.RuleLicenceWithoutConference: {r.licenceWithoutConference, r.releaseLicence},

		berth.RuleMemberWithoutNode: {r.memberWithoutNode, r.dropMember},
	}
}

// errTooMany ends a pass that has found more than ReconcileOptions.MaxFindings.
var errTooMany = errors.New("too many differences")

// pass is one pass while its first check runs.
type pass struct {
	berth.ReconcilePass

	r     *Reconciler
	rules map[berth.ReconcileRule]rule
	found []berth.ReconcileFinding
	seen  map[berth.ReconcileFinding]struct{}
	// streamsSince is from which time on tasks have ended whose streams a full pass compares.
	streamsSince time.Time
	// previous is the start of the last completed pass.
	previous time.Time
	// failed are the comparisons that could not be made.
	failed []string
	size   int // of found, in bytes of JSON
	// running has the names of the workflows that a full pass has listed as running, open the ids of the open conferences. What belongs to them
	// differs only if the list is late, and is found by the next pass.
	running, open map[string]struct{}
}

// candidate checks a subject that may differ, and keeps what differs.
func (p *pass) candidate(ctx context.Context, name berth.ReconcileRule, subject string) error {
	f := berth.ReconcileFinding{Rule: name, Subject: subject, Outcome: berth.FindingFound}
	if _, done := p.seen[f]; done || slices.Contains(p.r.Options.Disabled, name) {
		return nil
	}
	p.seen[f] = struct{}{}
	version, differs, err := p.rules[name].check(ctx, subject)
	if err != nil || !differs {
		return err
	}
	f.Version = version
	p.found, p.size = append(p.found, f), p.size+len(subject)+findingOverhead
	if len(p.found) > p.r.Options.MaxFindings || p.size > maxFindingsSize {
		return errTooMany
	}
	return nil
}

// FindDifferences makes the first check of a pass. It changes nothing but the record of a pass without findings. Some units are
// requested to list their conferences, which makes each differing conference correct itself.
func (r *Reconciler) FindDifferences(ctx context.Context, in workflows.PassInput) (workflows.Differences, error) {
	defer heartbeats(ctx)()
	p := &pass{
		r: r, rules: r.rules(), seen: map[berth.ReconcileFinding]struct{}{}, running: map[string]struct{}{}, open: map[string]struct{}{},
	}
	p.ReconcilePass = berth.ReconcilePass{
		ID: in.PassID, Kind: berth.ReconcileFull, DryRun: in.DryRun, Requested: in.Requested, StartedAt: time.Now(),
		Counts: []berth.ReconcileCount{}, Findings: []berth.ReconcileFinding{},
	}
	if p.Reason = r.unsettled(ctx); p.Reason != "" {
		p.Status = berth.ReconcileSkipped
		return workflows.Differences{Pass: r.end(ctx, p.ReconcilePass, nil)}, nil
	}
	if err := r.plan(ctx, p); err != nil {
		r.Logger.WarnContext(ctx, "earlier passes of the reconciliation not read", "error", err)
		return workflows.Differences{}, unavailable("earlier passes not read", err)
	}
	err := p.compare(ctx)
	switch {
	case errors.Is(err, errTooMany):
		p.Status = berth.ReconcileStopped
		p.Reason = fmt.Sprintf("more than %d differences; nothing was repaired", min(len(p.found)-1, r.Options.MaxFindings))
		return workflows.Differences{Pass: r.end(ctx, p.ReconcilePass, p.found)}, nil
	case err != nil && (ctx.Err() != nil || activity.GetInfo(ctx).Attempt < workflows.ReconcileAttempts):
		return workflows.Differences{}, unavailable("differences not found", err)
	case err != nil: // what could be compared is repaired
		p.Reason = "not compared: " + strings.Join(p.failed, ", ") + "; the workers' logs have the causes"
	}
	if len(p.found) == 0 {
		p.Status = compared(p.ReconcilePass)
		return workflows.Differences{Pass: r.end(ctx, p.ReconcilePass, nil)}, nil
	}
	return workflows.Differences{Pass: p.ReconcilePass, Found: p.found, Pause: r.Options.Pause}, nil
}

// compared returns the status of a pass that was neither skipped nor stopped.
func compared(p berth.ReconcilePass) berth.ReconcileStatus {
	if p.Reason != "" {
		return berth.ReconcileIncomplete
	}
	return berth.ReconcileCompleted
}

// unsettled returns why nothing is repaired now, empty if a repair is safe: what this process reads must not be the consequence of an
// outage that work has not recovered from yet.
func (r *Reconciler) unsettled(ctx context.Context) string {
	for name, d := range r.Health().Dependencies {
		switch {
		case d.Status != health.OK:
			return name + " is unavailable"
		case time.Since(d.Since) < r.Options.Pause:
			return name + " has just become available"
		}
	}
	if err := r.Ledger.Ping(ctx); err != nil {
		return "the database is unavailable"
	}
	g, err := r.Scripts.CheckGuard(ctx)
	switch {
	case err != nil:
		return "Redis is unavailable"
	case g.Left > 0:
		return "Redis may have lost data"
	case !g.Until.IsZero() && -g.Left < r.Options.Pause:
		return "Redis may have lost data a moment ago"
	}
	return ""
}

// plan decides what a pass compares.
func (r *Reconciler) plan(ctx context.Context, p *pass) error {
	h, err := r.Ledger.PassHistory(ctx)
	if err != nil {
		return err
	}
	p.streamsSince, p.previous = h.Whole.StartedAt.Add(-time.Hour), h.Completed.StartedAt
	if p.Requested || r.fullDue(h, p.StartedAt) {
		return nil
	}
	p.Kind, p.Since = berth.ReconcileQuick, h.Completed.StartedAt.Add(-visibilityLag)
	return nil
}

// fullDue reports whether everything has to be compared now. What a pass could not repair is tried again by a full pass: immediately if
// the pass had to leave some, after a time if it repaired nothing.
func (r *Reconciler) fullDue(h ledger.PassHistory, now time.Time) bool {
	rested := now.Sub(h.Full.EndedAt) >= stoppedPause
	switch {
	case h.Full.ID == "", now.Sub(h.Full.StartedAt) >= r.Options.FullEvery:
		return true
	case h.Unfinished.ID != "" && (rested || h.Unfinished.Repaired() > 0):
		return true
	default:
		return rested && (h.Completed.ID == "" || now.Sub(h.Completed.EndedAt) >= maxGap)
	}
}

// comparison finds the candidates of some rules.
type comparison struct {
	of  string
	run func(context.Context) error
}

// compare finds the candidates of every rule. A comparison that fails does not prevent the others.
func (p *pass) compare(ctx context.Context) error {
	all := []comparison{
		{"overdue tasks", p.overdueTasks},
		{"unsettled tasks", p.unsettledTasks},
		{"abandoned calls", p.abandonedCalls},
		{"overdue executions", p.overdueExecutions},
		{"unsent events", p.unsentDeliveries},
		{"owners of conferences", p.owners},
	}
	if p.Kind == berth.ReconcileFull {
		all = append(all, []comparison{
			{"open tasks", p.openTasks},
			{"open conferences", p.openConferences},
			{"open executions", p.openExecutions},
			{"streams of ended tasks", p.endedTasks},
			{"admissions to queues", p.admissions},
			{"turns", p.turns},
			{"slots of nodes", p.fullSlots},
			{"licences", p.licences},
			{"members of pools", p.members},
			{"accounts", p.accounts},
		}...)
	} else {
		all = append(all, comparison{"closed runs", p.closedRuns})
	}
	if !p.DryRun {
		all = append(all, comparison{"conferences of units", p.listUnits})
	}
	var failed error
	for _, c := range all {
		err := c.run(ctx)
		if errors.Is(err, errTooMany) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			p.r.Logger.WarnContext(ctx, "comparison of the reconciliation failed", "of", c.of, "pass", p.ID, "error", err)
			p.failed, failed = append(p.failed, c.of), errors.Join(failed, err)
		}
	}
	return failed
}

// eachRow passes all rows of a query that is read page by page, each behind the last row of the one before.
func eachRow[T any](ctx context.Context, read func(after T) ([]T, error), each func(T) error) error {
	for after := *new(T); ; {
		page, err := read(after)
		if err != nil {
			return err
		}
		for _, after = range page {
			if err := each(after); err != nil {
				return err
			}
		}
		if len(page) < reconcilePage {
			return ctx.Err()
		}
	}
}

// compareOpen compares open rows, by the names of their workflows, with the running workflows of a type. Temporal's list of these is a
// hint: what differs from it is checked with the workflow itself.
func (p *pass) compareOpen(
	ctx context.Context, workflowType string, withoutRun, withoutRow berth.ReconcileRule, rows func(each func(name string) error) error,
) error {
	unmatched := map[string]struct{}{}
	if err := p.listRunning(ctx, workflowType, func(name string) { unmatched[name] = struct{}{} }); err != nil {
		return err
	}
	if err := rows(func(name string) error {
		if _, ok := unmatched[name]; ok {
			delete(unmatched, name)
			return nil
		}
		return p.candidate(ctx, withoutRun, name)
	}); err != nil {
		return err
	}
	for name := range unmatched {
		if err := p.candidate(ctx, withoutRow, name); err != nil {
			return err
		}
	}
	return nil
}

// listRunning lists the names of the running workflows of a type.
func (p *pass) listRunning(ctx context.Context, workflowType string, each func(name string)) error {
	return p.r.Starter.OpenRuns(ctx, workflowType, func(run starter.Run) error {
		name, err := p.r.name(ctx, run)
		if err != nil {
			return err
		}
		p.running[name] = struct{}{}
		each(name)
		return nil
	})
}

func (p *pass) listed(name string) bool {
	_, ok := p.running[name]
	return ok
}

// name returns the name of a run's workflow, which is the subject of findings. That of a task with a shortened id is in the input of the
// run; all others are their ids.
func (r *Reconciler) name(ctx context.Context, run starter.Run) (string, error) {
	if run.Type != workflows.TaskWorkflow || !workflows.Shortened(run.WorkflowID) {
		return run.WorkflowID, nil
	}
	in, err := starter.Input[workflows.TaskInput](ctx, r.Starter, run)
	return workflows.TaskName(in.Ref()), err
}

// closedTypes are the workflows whose end a quick pass considers.
var closedTypes = []string{workflows.TaskWorkflow, workflows.TurnWorkflow, workflows.ConferenceWorkflow, workflows.ExecutionWorkflow}

// closedRuns considers what has closed since the last pass. Workflows that end by themselves have released their slots.
func (p *pass) closedRuns(ctx context.Context) error {
	ended := map[string]struct{}{}
	if err := p.r.Starter.RunsClosedSince(ctx, p.Since, closedTypes, func(run starter.Run) error {
		name, err := p.r.name(ctx, run)
		if err != nil {
			return err
		}
		if run.Ended {
			ended[name] = struct{}{}
		}
		switch run.Type {
		case workflows.TurnWorkflow:
			return p.closedTurn(ctx, name)
		case workflows.ConferenceWorkflow:
			return p.closedConference(ctx, name)
		case workflows.TaskWorkflow:
			return p.closedTask(ctx, name)
		default:
			return p.closedExecution(ctx, name)
		}
	}); err != nil || len(ended) == 0 {
		return err
	}
	return p.slotsOfEnded(ctx, ended)
}

// RepairDifferences makes the second check of the findings and repairs those that still hold, in the order of the rules. Idempotent.
func (r *Reconciler) RepairDifferences(ctx context.Context, in workflows.Differences) (berth.ReconcilePass, error) {
	defer heartbeats(ctx)()
	p, rules := in.Pass, r.rules()
	if reason := r.unsettled(ctx); reason != "" {
		p.Status, p.Reason = berth.ReconcileSkipped, reason
		return r.end(ctx, p, in.Found), nil
	}
	repaired := 0
	found := slices.Clone(in.Found)
	for _, info := range berth.ReconcileRules() {
		for i, f := range found {
			if f.Rule != info.Rule {
				continue
			}
			f = r.settle(ctx, rules[f.Rule], f, !p.DryRun && repaired < r.Options.MaxRepairs)
			if found[i] = f; f.Outcome == berth.FindingRepaired {
				repaired++
			}
			if err := ctx.Err(); err != nil {
				return berth.ReconcilePass{}, err
			}
		}
	}
	p.Status = compared(p)
	return r.end(ctx, p, found), nil
}

// settle checks a finding again and repairs it.
func (r *Reconciler) settle(ctx context.Context, rule rule, f berth.ReconcileFinding, repair bool) berth.ReconcileFinding {
	version, differs, err := rule.check(ctx, f.Subject)
	switch {
	case err == nil && (!differs || version != f.Version):
		f.Outcome = berth.FindingGone
		return f
	case err == nil && !repair:
		f.Outcome = berth.FindingHolds
		return f
	case err == nil:
		err = rule.repair(ctx, f)
	}
	switch {
	case errors.Is(err, ledger.ErrStale):
		f.Outcome = berth.FindingGone
	case err != nil:
		f.Outcome, f.Message = berth.FindingFailed, hideCause(err).Error()
		r.Logger.WarnContext(ctx, "difference not repaired", "rule", f.Rule, "subject", f.Subject, "error", err)
	default:
		f.Outcome = berth.FindingRepaired
		r.Logger.WarnContext(ctx, "difference repaired", "rule", f.Rule, "subject", f.Subject, "version", f.Version)
	}
	return f
}

// BeginCounters makes the counters of passes and repairs 0. A counter that begins with its first pass would not have increased by it.
func (r *Reconciler) BeginCounters(ctx context.Context) {
	for _, kind := range []berth.ReconcileKind{berth.ReconcileQuick, berth.ReconcileFull} {
		for _, status := range []berth.ReconcileStatus{
			berth.ReconcileCompleted, berth.ReconcileIncomplete, berth.ReconcileStopped, berth.ReconcileSkipped,
		} {
			metrics.ReconcilePasses.Add(ctx, 0, metrics.With(metrics.Kind.String(string(kind)), metrics.Outcome.String(string(status))))
		}
	}
	for _, info := range berth.ReconcileRules() {
		for _, outcome := range []berth.ReconcileOutcome{berth.FindingRepaired, berth.FindingFailed} {
			metrics.ReconcileFindings.Add(ctx, 0, metrics.With(metrics.Rule.String(string(info.Rule)), metrics.Outcome.String(string(outcome))))
		}
	}
}

// end completes, counts and stores a pass. A pass that cannot be stored is repeated by the next one.
func (r *Reconciler) end(ctx context.Context, p berth.ReconcilePass, found []berth.ReconcileFinding) berth.ReconcilePass {
	p.EndedAt, p.Findings = time.Now(), append([]berth.ReconcileFinding{}, found[:min(len(found), berth.MaxListedFindings)]...)
	p.Left, p.Counts = 0, []berth.ReconcileCount{}
	for _, info := range berth.ReconcileRules() {
		c := berth.ReconcileCount{Rule: info.Rule}
		for _, f := range found {
			if f.Rule == info.Rule {
				count(&c, &p.Left, f.Outcome)
			}
		}
		if c.Found > 0 {
			p.Counts = append(p.Counts, c)
		}
	}
	if !p.DryRun { // a dry run is not the pass that the alerts expect
		passes := metrics.With(metrics.Kind.String(string(p.Kind)), metrics.Outcome.String(string(p.Status)))
		metrics.ReconcilePasses.Add(ctx, 1, passes)
		metrics.ReconcileDuration.Record(ctx, p.EndedAt.Sub(p.StartedAt).Seconds(), passes)
		for _, f := range found {
			metrics.ReconcileFindings.Add(ctx, 1, metrics.With(metrics.Rule.String(string(f.Rule)), metrics.Outcome.String(string(f.Outcome))))
		}
	}
	level := slog.LevelDebug
	if p.Status == berth.ReconcileStopped || p.Status == berth.ReconcileIncomplete || len(found) > 0 {
		level = slog.LevelWarn
	}
	r.Logger.Log(ctx, level, "reconciliation pass", "pass", p.ID, "kind", p.Kind, "status", p.Status, "reason", p.Reason,
		"found", len(found), "left", p.Left, "duration", p.EndedAt.Sub(p.StartedAt))
	changed := r.changed(ctx, p)
	if err := r.Ledger.SavePass(ctx, p); err != nil {
		r.Logger.WarnContext(ctx, "reconciliation pass not stored", "pass", p.ID, "error", err)
	}
	if !changed {
		return p
	}
	ev := berth.OperatorEvent{
		Type: berth.EventReconciliation, PassID: p.ID, Status: string(p.Status), Reason: p.Reason, Found: len(found), Left: p.Left,
	}
	if err := r.Scripts.AppendOperatorEvents(ctx, ev); err != nil { // the row has the outcome
		r.Logger.WarnContext(ctx, "operators not notified of a reconciliation pass", "pass", p.ID, "error", err)
	}
	return p
}

// changed reports whether a pass is a change for operators: it found something, an operator started it, or it ended differently than the
// one before. All others, one every 30 s, would displace the changes from the lists of recent ones.
func (r *Reconciler) changed(ctx context.Context, p berth.ReconcilePass) bool {
	if p.Found() > 0 || p.Requested || p.DryRun {
		return true
	}
	passes, err := r.Ledger.Passes(ctx, 10)
	if err != nil {
		r.Logger.WarnContext(ctx, "earlier reconciliation passes not read", "error", err)
		return true
	}
	for _, before := range passes {
		if before.ID != p.ID && !before.DryRun {
			return before.Status != p.Status
		}
	}
	return p.Status != berth.ReconcileCompleted
}

func count(c *berth.ReconcileCount, left *int, outcome berth.ReconcileOutcome) {
	c.Found++
	switch outcome {
	case berth.FindingGone:
		return
	case berth.FindingFound:
	case berth.FindingHolds:
		c.Held++
	case berth.FindingRepaired:
		c.Held++
		c.Repaired++
		return
	case berth.FindingFailed:
		c.Failed++
	}
	*left++
}

// runs reports whether the workflow with a name has a running run.
func (r *Reconciler) runs(ctx context.Context, name string) (bool, error) {
	run, ok, err := r.Starter.CurrentRun(ctx, name)
	return ok && run.Running, err
}
