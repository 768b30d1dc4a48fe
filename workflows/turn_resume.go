package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// maxRefusals bounds the refused segments in the history of one run. Together with the segments of a turn they stay below
	// Temporal's limit of 2,000 updates. When the bound is reached, the turn continues as new as soon as no job runs; until then
	// further segments are rejected without a trace in the history.
	maxRefusals = 200
	// maxTurnProgress bounds all that a run hands to the next one, in bytes of JSON.
	maxTurnProgress = 15 << 17
)

// canContinueAsNew reports whether a new history is needed and can begin here: no job runs, and nothing is in progress.
func (t *turn) canContinueAsNew(ctx workflow.Context) bool {
	if t.refused < maxRefusals && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return false
	}
	if slices.ContainsFunc(t.jobs, func(j *job) bool { return !j.finished() }) {
		return false
	}
	return len(t.jobs) > 0 && t.leftForTexts() >= 0 && t.decided() && t.slots.idle() &&
		!t.stream.publishing && workflow.AllHandlersFinished(ctx)
}

// leftForTexts returns how many bytes of published texts the next run can get.
func (t *turn) leftForTexts() int {
	left := maxTurnProgress
	for i, j := range t.jobs {
		left -= rowSize(j.TurnJob) + replySize(j.reply)
		if i >= t.stream.reported {
			left -= jsonLen(j.Text) + jsonLen(j.Message)
		}
	}
	return left
}

// continueAsNew returns the error that starts the next run with the state of this one.
func (t *turn) continueAsNew(ctx workflow.Context) error {
	in := t.in
	in.Resumed = t.progress()
	return workflow.NewContinueAsNewError(ctx, TurnWorkflow, in)
}

// progress returns the state for the next run. Published texts are needed for queries and the turn's result only, which leave out
// what exceeds maxTurnResult.
func (t *turn) progress() *TurnProgress {
	out := &TurnProgress{
		StartedAt: t.startedAt, LastSegment: t.lastSegment, AffinityNodeID: t.affinity, TextSize: t.textSize,
		Unresponsive: t.unresponsive, Published: t.stream.published, Reported: t.stream.reported,
	}
	rows := make([]berth.TurnJob, len(t.jobs))
	for i, j := range t.jobs {
		rows[i] = j.TurnJob
	}
	fill(rows[:t.stream.reported], t.leftForTexts())
	for i, j := range t.jobs {
		out.Jobs = append(out.Jobs, FinishedJob{Job: rows[i], Reply: j.reply})
	}
	return out
}

// resume restores the state of the previous run.
func (t *turn) resume(from TurnProgress) {
	t.startedAt, t.lastSegment, t.affinity, t.textSize = from.StartedAt, from.LastSegment, from.AffinityNodeID, from.TextSize
	t.unresponsive, t.stream.published, t.stream.reported = from.Unresponsive, from.Published, from.Reported
	for _, f := range from.Jobs {
		t.jobs = append(t.jobs, &job{TurnJob: f.Job, decided: true, accepted: true, reply: f.Reply})
	}
}
