package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/metrics"
	"berth/internal/pause"
	"berth/lua"
)

// newBackoff returns the pauses while Redis or the ledger is unavailable.
func newBackoff() pause.Backoff { return pause.NewBackoff(50*time.Millisecond, 2*time.Second) }

// sender is the goroutine of a Writer that calls Redis. It keeps what Redis confirmed and readers need, to append it again when
// Redis has lost it: the start, the stages with their points, and the text.
type sender struct {
	pub    *Publisher
	ch     lua.Channel
	fence  int64
	base   berth.Event
	reopen func(context.Context) (bool, error)
	trips  *atomic.Int64

	producer  string // in the stream as it was opened last
	confirmed int    // how many of its events Redis confirmed
	known     string // id of the newest entry Redis confirmed
	start     *berth.Event
	kept      []*kept
}

// kept is an event that is appended again: progress, or all tokens between two of these.
type kept struct {
	event berth.Event
	text  strings.Builder // of tokens
}

// run appends each piece of work and reports it; the first failure is the last report.
func (s *sender) run(ctx context.Context, work <-chan []pending, results chan<- error) {
	for events := range work {
		err := s.append(ctx, events)
		metrics.Publishes.Add(ctx, 1, metrics.With(metrics.Outcome.String(outcome(err))))
		results <- err // does not block: there is one piece of work at a time
		if err != nil {
			return
		}
	}
}

func (s *sender) append(ctx context.Context, events []pending) error {
	entries, err := s.entries(events)
	if err != nil {
		return err
	}
	backoff, restored := newBackoff(), false
	for {
		err := s.try(ctx, entries)
		if err == nil {
			s.record(events)
			return nil
		}
		if errors.Is(err, ErrAbsent) {
			err = s.restore(ctx)
			if err == nil {
				if entries, err = s.entries(append(s.replayed(), events...)); err != nil {
					return err
				}
				if !restored {
					restored = true
					continue
				}
				err = errors.New("stream lost again after it was restored")
			}
		}
		if final(err) {
			return err
		}
		wait := backoff.Next()
		s.pub.opt.Logger.WarnContext(ctx, "stream append failed; retrying", "taskId", s.ch.TaskID,
			"fence", s.fence, "restored", restored, "in", wait, "error", err)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// try makes one round trip.
func (s *sender) try(ctx context.Context, entries []lua.StreamEntry) error {
	s.trips.Add(1)
	res, err := s.pub.scripts.AppendEvents(ctx, s.ch, lua.Append{
		Producer: s.producer, First: s.confirmed + 1, Confirmed: s.confirmed, Fence: s.fence, Events: entries,
	})
	if err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	if res.Code == lua.StreamLost {
		return ErrAbsent
	}
	if err := codeError(res.Code); err != nil {
		return err
	}
	s.confirmed += len(entries)
	s.known = res.LastID
	return nil
}

// restore opens the stream again if the task is open according to the ledger and the fence is still the attempt's.
func (s *sender) restore(ctx context.Context) error {
	if s.reopen == nil {
		return ErrEnded
	}
	ours, err := s.reopen(ctx)
	if err != nil {
		return fmt.Errorf("check whether to reopen the stream: %w", err)
	}
	if !ours {
		return ErrEnded
	}
	deadline, _ := ctx.Deadline()
	if err := s.pub.reopen(ctx, s.ch, s.fence, deadline, s.known); err != nil {
		return err
	}
	s.producer, s.confirmed, s.known = lua.NewProducer(), 0, ""
	return nil
}

// replayed returns the events that readers of a restored stream get before new ones.
func (s *sender) replayed() []pending {
	now := time.Now().UnixMilli()
	again := make([]pending, 0, 2+len(s.kept))
	if s.start != nil {
		again = append(again, pending{event: *s.start})
	}
	again = append(again, pending{event: berth.Event{Type: berth.EventReset, TS: now, Attempt: s.fence, Message: "restored"}})
	for _, k := range s.kept {
		e := k.event
		e.TS = now
		if e.Type == berth.EventTokenBatch {
			e.Text = k.text.String()
		}
		again = append(again, pending{event: e})
	}
	return again
}

// record keeps confirmed events. A reset of the producer deletes all but the start.
func (s *sender) record(events []pending) {
	for _, p := range events {
		e := p.event
		switch {
		case e.Type == berth.EventReset:
			s.kept = nil
		case e.Type == berth.EventStart:
			s.start = &e
		case e.Type == berth.EventStageProgress && e.Code == "":
			s.keep(e)
		case e.Type == berth.EventToken:
			e.Count, e.StartedAt, e.EndedAt = 1, e.TS, e.TS
			s.keepText(e)
		case e.Type == berth.EventTokenBatch:
			s.keepText(e)
		}
	}
}

// keep keeps progress. Points that follow each other become one event, and of several messages the last one is kept.
func (s *sender) keep(e berth.Event) {
	if n := len(s.kept); n > 0 {
		last := &s.kept[n-1].event
		if last.Type == e.Type && last.Stage == e.Stage && (len(last.Items) > 0) == (len(e.Items) > 0) {
			e.Items = append(slices.Clip(last.Items), e.Items...)
			e.Status = cmp.Or(e.Status, last.Status)
			*last = e
			return
		}
	}
	s.kept = append(s.kept, &kept{event: e})
}

// keepText keeps tokens as one batch for each stage and each stretch between progress.
func (s *sender) keepText(e berth.Event) {
	n := len(s.kept)
	if n == 0 || s.kept[n-1].event.Type != berth.EventTokenBatch || s.kept[n-1].event.Stage != e.Stage {
		s.kept = append(s.kept, &kept{event: berth.Event{Type: berth.EventTokenBatch, Stage: e.Stage, StartedAt: e.StartedAt}})
		n++
	}
	k := s.kept[n-1]
	k.text.WriteString(e.Text)
	k.event.Count += e.Count
	k.event.EndedAt = e.EndedAt
}

func (s *sender) entries(events []pending) ([]lua.StreamEntry, error) {
	entries := make([]lua.StreamEntry, len(events))
	for i, p := range events {
		ev := p.event
		ev.TaskID = cmp.Or(ev.TaskID, s.base.TaskID)
		ev.ServiceID = cmp.Or(ev.ServiceID, s.base.ServiceID)
		ev.Stage = cmp.Or(ev.Stage, s.base.Stage)
		var err error
		if entries[i], err = entryOf(s.ch, ev); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// outcome returns the label of an append: an attempt that was superseded is not a failure to publish.
func outcome(err error) string {
	switch {
	case err == nil:
		return metrics.OK
	case errors.Is(err, ErrFenced):
		return "fenced"
	case errors.Is(err, ErrEnded):
		return "ended"
	default:
		return "failed"
	}
}

// final reports whether a retry cannot succeed.
func final(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrEnded)
}
