// Package pause waits for a time that a context can cut short, and for what succeeds only after a time.
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
