package workflows

import (
	"go.temporal.io/sdk/workflow"
)

const (
	// maxRefusals bounds the refused segments in the history of one run. Together with the segments of a turn they stay below
	// Temporal's limit of 2,000 updates. When the bound is reached, the turn continues as new as soon as no job runs; until then
	// further segments are rejected without a trace in the history.
	maxRefusals = 200
	// maxTurnProgress bounds the texts that a run hands to the next one, in bytes of JSON.
	maxTurnProgress = 1 << 19
)

// canContinueAsNew reports whether a new history is needed and can begin here: no job runs, and nothing is in progress.
func (t *turn) canContinueAsNew(ctx workflow.Context) bool {
	if t.refused < maxRefusals && !workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return false
	}
	size := 0
	for i, j := range t.jobs {
		if !j.finished() {
			return false
		}
		if i >= t.stream.reported {
			size += maxJSONLen(j.Text)
		}
	}
	return len(t.jobs) > 0 && size <= maxTurnProgress && t.decided() && t.slots.idle() && t.slots.reasserts.Len() == 0 &&
		!t.stream.publishing && workflow.AllHandlersFinished(ctx)
}

// continueAsNew returns the error that starts the next run with the state of this one. Published texts are needed for queries and
// the turn's result only, which leave out what exceeds maxTurnResult.
func (t *turn) continueAsNew(ctx workflow.Context) error {
	in := t.in
	in.Resumed = &TurnProgress{
		StartedAt: t.startedAt, LastSegment: t.lastSegment, AffinityNodeID: t.affinity, TextSize: t.textSize,
		Unresponsive: t.unresponsive, Published: t.stream.published, Reported: t.stream.reported,
	}
	size := 0
	for i, j := range t.jobs {
		row := j.TurnJob
		if i < t.stream.reported {
			if size += maxJSONLen(row.Text); size > maxTurnResult/2 {
				row.Text = ""
			}
		}
		in.Resumed.Jobs = append(in.Resumed.Jobs, FinishedJob{Job: row, Reply: j.reply})
	}
	return workflow.NewContinueAsNewError(ctx, TurnWorkflow, in)
}

// resume restores the state of the previous run.
func (t *turn) resume(from TurnProgress) {
	t.startedAt, t.lastSegment, t.affinity, t.textSize = from.StartedAt, from.LastSegment, from.AffinityNodeID, from.TextSize
	t.unresponsive, t.stream.published, t.stream.reported = from.Unresponsive, from.Published, from.Reported
	for _, f := range from.Jobs {
		t.jobs = append(t.jobs, &job{TurnJob: f.Job, decided: true, accepted: true, reply: f.Reply})
	}
}
