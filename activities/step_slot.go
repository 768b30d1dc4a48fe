package activities

import (
	"context"

	"berth"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/lua"
)

// acquire waits for a slot of the model. Its readers read the position themselves, see internal/waiting, once they know that the step waits. A
// call that another upstream failed has the ticket of its slot, with which it keeps its position.
func (s *step) acquire(ctx context.Context, call llm.Call, ticket string) (*lease.Slot, error) {
	waiter := s.waiter()
	cost, conversation := llm.Cost(call.Messages), s.in.UserID+"/"+string(s.in.Template) // whose prompts begin alike
	if s.in.Forwarded != nil {
		cost, conversation = call.Raw.Cost(), s.in.Forwarded.Conversation
	}
	r := lease.Request{
		Model: s.in.Step.Model, Queue: s.in.Step.Queue, Group: s.in.Group, UserID: s.in.UserID, Cost: cost,
		Needs: lua.Needs{
			Tokens: s.Catalog(s.in.Step.Model).Size(call), Excluded: s.tried.Excluded,
			Conversation: conversation,
		},
		Ticket: ticket, Waiter: waiter.ID(), LeaseID: waiter.CallID(s.attempt.Fence),
		OnPosition: func(int) { s.announce() },
	}
	if ticket != "" {
		r.Waiter = "" // it has ended
	}
	if s.calls == 0 {
		return s.Slots.Acquire(ctx, r)
	}
	s.announced.Store(false)
	slot, err := s.Slots.Acquire(ctx, r)
	s.waitedAgain = s.announced.Swap(true)
	return slot, err
}

func (s *step) waiter() lua.ModelWaiter {
	return lua.ModelWaiterOf(s.in.Ref(), s.in.Group, s.in.Index, s.in.Step)
}

// announcement returns the events that notify readers that this step is next, or that it starts again; none when they
// know it. A step that need not wait publishes them with its start, in one call to Redis. first: this attempt has made no call yet.
func (s *step) announcement(first bool) []berth.Event {
	switch {
	case s.announced.Swap(true):
		return nil
	case first && (s.attempt.Called || !s.attempt.First && s.in.Forwarded != nil): // by which readers of a response know the attempt
		return []berth.Event{{
			Type: berth.EventReset, Attempt: s.attempt.Fence, Message: text(s.in.Locale, msgReset), Status: s.in.Step.Status,
		}}
	default:
		return []berth.Event{{
			Type: berth.EventStageProgress, Stage: berth.StageQueue, Status: s.in.Step.Status, Message: text(s.in.Locale, msgWaiting),
			Queue: s.in.Step.Queue, Model: s.in.Step.Model,
		}}
	}
}

// announce publishes the announcement of a step that has to wait.
func (s *step) announce() {
	if err := s.writer.Event(s.announcement(s.calls == 0)...); err != nil {
		s.Logger.Debug("step announcement not published", "task", s.in.ID, "error", err)
	}
}

func (s *step) firstStage() berth.Stage { return s.template.FirstStage(s.in.Step.Name) }
