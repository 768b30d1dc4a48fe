package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/metrics"
	"berth/internal/pause"
	"berth/lua"
)

// Backoff while Redis or the ledger is unavailable.
const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// sender is the goroutine of a Writer that calls Redis. It keeps the text that Redis confirmed, to append it again when Redis
// has lost it.
type sender struct {
	pub    *Publisher
	ch     lua.Channel
	fence  int64
	base   berth.Event
	reopen func(context.Context) (bool, error)
	trips  *atomic.Int64

	known string // id of the newest entry Redis confirmed
	text  strings.Builder
	count int
	since int64
	until int64
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
	id, wait, restored := lua.NewAppendID(), firstBackoff, false
	for {
		err := s.try(ctx, id, entries)
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
				id = lua.NewAppendID()
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
		s.pub.opt.Logger.WarnContext(ctx, "stream append failed; retrying", "taskId", s.ch.TaskID,
			"fence", s.fence, "restored", restored, "in", wait, "error", err)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(2*wait, maxBackoff)
	}
}

// try makes one round trip.
func (s *sender) try(ctx context.Context, id string, entries []lua.StreamEntry) error {
	s.trips.Add(1)
	res, err := s.pub.scripts.AppendEvents(ctx, s.ch, s.fence, id, s.known, entries)
	if err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	if res.Code == lua.StreamLost {
		return ErrAbsent
	}
	if err := codeError(res.Code); err != nil {
		return err
	}
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
	s.known = ""
	return nil
}

// replayed returns the events that readers of a restored stream get before new ones.
func (s *sender) replayed() []pending {
	again := []pending{{event: berth.Event{Type: berth.EventReset, TS: time.Now().UnixMilli(), Message: "restored"}}}
	if s.count == 0 {
		return again
	}
	return append(again, pending{event: berth.Event{
		Type: berth.EventTokenBatch, TS: time.Now().UnixMilli(), Text: s.text.String(),
		Count: s.count, StartedAt: s.since, EndedAt: s.until,
	}})
}

// record keeps confirmed text. A reset of the producer deletes it.
func (s *sender) record(events []pending) {
	for _, p := range events {
		e := p.event
		switch e.Type {
		case berth.EventReset:
			s.text.Reset()
			s.count = 0
			continue
		case berth.EventToken:
			e.Count, e.StartedAt, e.EndedAt = 1, e.TS, e.TS
		case berth.EventTokenBatch:
		default:
			continue
		}
		if s.count == 0 {
			s.since = e.StartedAt
		}
		s.text.WriteString(e.Text)
		s.count += e.Count
		s.until = e.EndedAt
	}
}

func (s *sender) entries(events []pending) ([]lua.StreamEntry, error) {
	entries := make([]lua.StreamEntry, len(events))
	for i, p := range events {
		ev := p.event
		if ev.TaskID == "" {
			ev.TaskID = s.base.TaskID
		}
		if ev.ServiceID == "" {
			ev.ServiceID = s.base.ServiceID
		}
		if ev.Stage == "" {
			ev.Stage = s.base.Stage
		}
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
