package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/pause"
)

func TestBackoff_AttemptsFail_PauseDoublesUntilReset(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		first, longest time.Duration
		want           []time.Duration
	}{
		"grows":                      {50 * ms, time.Second, []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}},
		"first is the longest":       {time.Second, time.Second, []time.Duration{time.Second, time.Second}},
		"first is more than longest": {time.Second, 10 * ms, []time.Duration{10 * ms, 10 * ms}},
		"longest is between two":     {200 * ms, 5 * time.Second, []time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5 * time.Second, 5 * time.Second}},
	} {
		b := pause.NewBackoff(c.first, c.longest)
		for range 2 {
			for i, want := range c.want {
				require.Equal(t, want, b.Next(), "%s: %d", name, i)
			}
			b.Reset()
		}
	}
}

func TestBackoff_ContextEnds_WaitReportsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := pause.NewBackoff(time.Second, time.Minute)
		begun := time.Now()
		require.True(t, b.Wait(t.Context()))
		require.True(t, b.Wait(t.Context()))
		require.Equal(t, 3*time.Second, time.Since(begun))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, b.Wait(ctx), "the next pause takes four seconds")
		require.Equal(t, 4*time.Second, time.Since(begun))
	})
}
