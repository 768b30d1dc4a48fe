package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeasureSlots_KnownSchedule_EachFigure(t *testing.T) { // B1
	t.Parallel()
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	var calls []call
	for i := range 2 * slotCap { // two rounds of calls of 10 ms, the second 2 ms after the first
		user := bigUser
		if i%2 == 1 {
			user = "small1"
		}
		round := i / slotCap
		calls = append(calls, call{user: user, begin: at(12 * round), end: at(12*round + 10).Add(time.Duration(i))})
	}
	calls[9].over = true
	r := measureSlots(calls)
	require.Equal(t, 1, r.over)
	require.Len(t, r.handOver, slotCap)
	require.InDelta(t, 2*time.Millisecond, r.handOver.at(0.5), 100)
	require.InDelta(t, 22*time.Millisecond, r.wall, 100)
	require.InDelta(t, 100*time.Millisecond, r.busy, 1000)
	require.InDelta(t, 5, mean(r.big), 0.001)
	require.InDelta(t, 6, mean(r.small), 0.001)
}

func TestIdealPositions_UsersAlternate_AsComputedByHand(t *testing.T) { // B1
	t.Parallel()
	small, big := idealPositions()
	require.InDelta(t, 51, small, 0.001) // 10 rounds of ten: the mean of 6 + 10 r
	require.InDelta(t, 193.1, big, 0.1)  // 1, 11, … 91, then 101 to 300
	require.InDelta(t, 300*301/2, 90*small+210*big, 0.001)
}
