package lua

import (
	"context"
	"fmt"
	"time"

	"berth"
)

// HoldAnswer keeps the answer of a step while the database cannot store it, for at most ttl. A later call replaces it.
func (s *Scripts) HoldAnswer(ctx context.Context, task berth.TaskRef, step int, answer []byte, ttl time.Duration) error {
	if err := s.rdb.Set(ctx, s.keys.Answer(task, step), answer, max(ttl, time.Millisecond)).Err(); err != nil {
		return fmt.Errorf("hold an answer: %w", err)
	}
	return nil
}

// HeldAnswer returns the answer of a step that HoldAnswer kept; ok is false without one.
func (s *Scripts) HeldAnswer(ctx context.Context, task berth.TaskRef, step int) (answer []byte, ok bool, err error) {
	text, ok, err := found(s.rdb.Get(ctx, s.keys.Answer(task, step)), "held answer")
	return []byte(text), ok, err
}

// DropAnswer removes an answer that is stored now.
func (s *Scripts) DropAnswer(ctx context.Context, task berth.TaskRef, step int) error {
	if err := s.rdb.Del(ctx, s.keys.Answer(task, step)).Err(); err != nil {
		return fmt.Errorf("drop an answer: %w", err)
	}
	return nil
}
