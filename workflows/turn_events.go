package workflows

import (
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// maxTurnText bounds the texts of all segments of a turn, in bytes: what one history carries.
	maxTurnText = 1 << 20
	// maxTurnResult bounds the translations that a turn's result and query carry, in bytes of JSON, so that with all else
	// they stay below what Temporal takes; those beyond are left out, and in the stream as all are.
	maxTurnResult = 1 << 20
	// publishMost bounds the events that one activity appends.
	publishMost = 64
)

// tell puts what has become of the segments into the outbox, in their order (A10), and at the end, once, that the turn is
// done. A missing segment is waited for until the turn takes no more.
func (t *turn) tell() {
	for ; t.told < len(t.jobs); t.told++ {
		j := t.jobs[t.told]
		if !j.over() || !t.closed && j.Index != t.told {
			return
		}
		ev := berth.SessionEvent{
			Type: berth.EventTranslation, SpeakerID: j.SpeakerID, JobID: j.JobID, Index: &j.Index, NodeID: j.NodeID, Text: j.Text,
		}
		if j.Status == berth.JobFailed {
			ev.Type, ev.Text, ev.Code, ev.Message = berth.EventTranslationFailed, "", j.Code, j.Message
		}
		t.publish(ev)
	}
	if t.unbound && !t.done {
		t.done = true
		done := berth.SessionEvent{Type: berth.EventDone, Reason: t.reason, Jobs: len(t.jobs)}
		for _, j := range t.jobs {
			if j.Status == berth.JobFailed {
				done.Failed++
			}
		}
		t.publish(done)
	}
}

// publish has an event appended to the session's stream, soon, and after all that came before.
func (t *turn) publish(ev berth.SessionEvent) {
	ev.SessionID, ev.TurnID = t.in.SessionID, t.in.TurnID
	t.outbox = append(t.outbox, ev)
	if t.publishing {
		return
	}
	t.publishing = true
	workflow.Go(t.steady, func(ctx workflow.Context) {
		defer func() { t.publishing = false }()
		for len(t.outbox) > 0 {
			batch := t.outbox[:min(len(t.outbox), publishMost)]
			t.outbox = t.outbox[len(batch):]
			if err := workflow.ExecuteLocalActivity(untilDone(ctx), PublishTurnActivity, TurnEvents{
				UserID: t.in.UserID, SessionID: t.in.SessionID, TurnID: t.in.TurnID, First: t.published + 1, Events: batch,
			}).Get(ctx, nil); err != nil {
				return // never: it is tried until it succeeds
			}
			t.published += len(batch)
		}
	})
}

// snapshot is the turn as it is now.
func (t *turn) snapshot() berth.Turn {
	out := berth.Turn{
		ID: t.in.TurnID, SessionID: t.in.SessionID, UserID: t.in.UserID, SrcLang: t.in.SrcLang, TgtLang: t.in.TgtLang,
		Status: t.status, Reason: t.reason, AffinityNodeID: t.affinity, Jobs: []berth.TurnJob{},
		StartedAt: t.startedAt, FinalizedAt: t.finalizedAt,
	}
	size := 0
	for _, j := range t.jobs {
		if !j.accepted {
			continue
		}
		row := j.TurnJob
		if row.Dispatches > 1 {
			row.Affinity, row.Missed = "", ""
		}
		if size += mostJSON(row.Text); size > maxTurnResult {
			row.Text = ""
		}
		out.Jobs = append(out.Jobs, row)
	}
	return out
}

// mostJSON bounds the bytes of a text as JSON.
func mostJSON(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == '<' || c == '>' || c == '&': // \u003c
			n += 5
		case c == '"' || c == '\\' || c >= 0x80: // the line separators of Unicode are three bytes and become six
			n++
		}
	}
	return n
}
