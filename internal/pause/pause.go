// Package pause waits for a time that a context can cut short, between the attempts of a call, and for what succeeds only after a time.
package pause

import (
	"context"
	"fmt"
	"time"
)

// For waits for d and reports true, or returns false as soon as ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ForOr is For that also ends, with true, when early receives.
func ForOr(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-early:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff has the pauses between the attempts of a call: each is twice the last one. NewBackoff makes one.
type Backoff struct{ first, longest, last time.Duration }

// NewBackoff returns a backoff whose pauses are first, at the beginning and after Reset, to longest.
func NewBackoff(first, longest time.Duration) Backoff { return Backoff{first: first, longest: longest} }

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.first), b.longest)
	return b.last
}

// Reset begins again, after an attempt that succeeded.
func (b *Backoff) Reset() { b.last = 0 }

// Wait waits for the next pause. It returns as For.
func (b *Backoff) Wait(ctx context.Context) bool { return For(ctx, b.Next()) }

// Until calls try, at an interval, until it returns nil. After the time within, or when ctx ends, it returns the last error
// of try with the cause.
func Until(ctx context.Context, within, every time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if !For(ctx, every) {
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
