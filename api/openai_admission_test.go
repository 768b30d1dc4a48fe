package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The process of a call keeps its admission as long as the call lasts: one that is lost is restored, and that of a call that has ended is not. Nothing else
// keeps it, so that it expires when the process has died.
func TestOpenAI_AdmissionLost_RestoredUntilCallEnds(t *testing.T) { // O9
	t.Parallel()
	m := newModels(t, []int{1})
	let := hold(m.providers[0])
	defer let()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	key := m.scripts.Keys().QueueAdmissions("q_paid_stream")
	admitted := func() (calls []redis.Z) {
		calls, err := m.harness.client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		require.NoError(t, err)
		return calls
	}
	lines, _ := m.open(ctx, m.secret)
	<-lines
	before := admitted()
	require.Len(t, before, 1)
	require.NoError(t, m.harness.client.Del(t.Context(), key).Err())
	require.Eventually(t, func() bool { return len(admitted()) == 1 }, 30*time.Second, 50*time.Millisecond)
	after := admitted()
	require.Equal(t, before[0].Member, after[0].Member)
	require.Less(t, after[0].Score, before[0].Score+float64(time.Minute.Milliseconds()), "it expires unless it is kept")
	let()
	for range lines { //nolint:revive // until it has ended
	}
	require.Empty(t, admitted())
}
