package workflows

import (
	"go.temporal.io/sdk/workflow"

	"berth"
)

// maxPublishedEvents bounds the events that one activity appends.
const maxPublishedEvents = 64

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
