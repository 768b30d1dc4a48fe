package workflows

import (
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// maxTurnText bounds the texts of all segments of a turn, in bytes, because one history holds them.
	maxTurnText = 1 << 20
	// maxTurnResult bounds the translations in a turn's result and query, in bytes of JSON, so that both stay below
	// Temporal's limit on payloads. Translations beyond it are omitted there; the stream has all.
	maxTurnResult = 1 << 20
	// maxPublishedEvents bounds the events that one activity appends.
	maxPublishedEvents = 64
)

// turnStream is what the session's stream has received of the turn.
type turnStream struct {
	closed     bool // no more jobs can come
	unbound    bool // the affinity is deleted
	done       bool // the done event is in outbox or published
	reported   int  // jobs whose result is in outbox or published
	outbox     []berth.SessionEvent
	published  int  // events
	publishing bool // a coroutine publishes the outbox
}

// publishResults publishes the results of finished jobs in the order of their segments, and finally, once, that the turn
// is done. A missing segment delays the later ones until the turn accepts no more jobs.
func (t *turn) publishResults() {
	s := &t.stream
	for ; s.reported < len(t.jobs); s.reported++ {
		j := t.jobs[s.reported]
		if !j.finished() || !s.closed && j.Index != s.reported {
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
	if s.unbound && !s.done {
		s.done = true
		done := berth.SessionEvent{Type: berth.EventDone, Reason: t.reason, Jobs: len(t.jobs)}
		for _, j := range t.jobs {
			if j.Status == berth.JobFailed {
				done.Failed++
			}
		}
		t.publish(done)
	}
}

// publish appends an event to the session's stream, after all earlier ones. It does not block.
func (t *turn) publish(ev berth.SessionEvent) {
	s := &t.stream
	ev.SessionID, ev.TurnID = t.in.SessionID, t.in.TurnID
	s.outbox = append(s.outbox, ev)
	t.single(&s.publishing, func(ctx workflow.Context) {
		for len(s.outbox) > 0 {
			batch := s.outbox[:min(len(s.outbox), maxPublishedEvents)]
			s.outbox = s.outbox[len(batch):]
			if _, err := untilDone[noResult](ctx, PublishTurnActivity, TurnEvents{
				UserID: t.in.UserID, SessionID: t.in.SessionID, TurnID: t.in.TurnID, First: s.published + 1, Events: batch,
			}); err != nil {
				return // unreachable: retried until it succeeds
			}
			s.published += len(batch)
		}
	})
}

// snapshot returns the current state of the turn.
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
		if size += maxJSONLen(row.Text); size > maxTurnResult {
			row.Text = ""
		}
		out.Jobs = append(out.Jobs, row)
	}
	return out
}

// maxJSONLen returns an upper bound of the bytes of a text as JSON.
func maxJSONLen(s string) int {
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
