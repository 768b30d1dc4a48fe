package activities

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/lua"
)

// showPositionEvery is the interval at which readers are notified of the step's position in the queue. A step that gets
// its slot sooner publishes no position.
const showPositionEvery = 500 * time.Millisecond

// acquire waits for the model's slot and meanwhile publishes the position.
func (s *step) acquire(ctx context.Context, messages []llm.Message) (*lease.Slot, error) {
	var newest atomic.Int64
	newest.Store(-1)
	waiting, granted := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(showPositionEvery)
		defer tick.Stop()
		for last := int64(-1); ; {
			select {
			case <-waiting.Done():
				return
			case <-tick.C:
				s.announce()
				if n := newest.Load(); n != last {
					last = n
					s.position(waiting, int(n))
				}
			}
		}
	})
	defer func() { granted(); shown.Wait() }() // no position after the start
	return s.Slots.Acquire(ctx, lease.Request{
		Model: s.in.Step.Model, Queue: s.in.Step.Queue, UserID: s.in.UserID, Cost: llm.Cost(messages),
		Entry:   s.entry().ID(),
		LeaseID: fmt.Sprintf("%s:%d:%d", s.in.Ref(), s.in.Index, s.attempt.Fence),
		OnPosition: func(n int) {
			s.announce()
			newest.Store(int64(n))
		},
	})
}

// position publishes the position with an estimate of the wait, without one where Redis fails or the model has no pace yet.
func (s *step) position(ctx context.Context, n int) {
	wait, err := s.Scripts.EstimateWaitAt(ctx, s.entry(), n)
	if err != nil {
		s.Logger.Debug("wait not estimated", "task", s.in.ID, "error", err)
	}
	err = s.writer.Event(berth.Event{
		Type: berth.EventQueued, Stage: berth.StageQueue, Position: &n, Queue: s.in.Step.Queue, Model: s.in.Step.Model,
		EtaSeconds: int(math.Ceil(max(0, wait.Time).Seconds())),
	})
	if err != nil {
		s.Logger.Debug("queue position not published", "task", s.in.ID, "error", err)
	}
}

func (s *step) entry() lua.Entry { return lua.EntryOf(s.in.Ref(), s.in.Index, s.in.Step) }

// announcement returns the events that notify readers that this step is next, or that it starts again; none when they
// know it. A step that need not wait publishes them with its start, in one call to Redis.
func (s *step) announcement() []berth.Event {
	switch {
	case s.announced.Swap(true):
		return nil
	case !s.attempt.First:
		return []berth.Event{{
			Type: berth.EventReset, Attempt: s.attempt.Fence, Message: text(s.in.Locale, msgReset), Status: s.in.Step.PendingStatus(),
		}}
	default:
		return []berth.Event{{
			Type: berth.EventStageProgress, Status: s.in.Step.PendingStatus(), Message: text(s.in.Locale, msgWaiting),
			Queue: s.in.Step.Queue, Model: s.in.Step.Model,
		}}
	}
}

// announce publishes the announcement of a step that has to wait.
func (s *step) announce() {
	if err := s.writer.Event(s.announcement()...); err != nil {
		s.Logger.Debug("step announcement not published", "task", s.in.ID, "error", err)
	}
}

func (s *step) firstStage() berth.Stage { return s.in.Step.Template.Spec().FirstStage() }
