package lua_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/lua"
)

// G11: calls that waited because their team was at its limit are served after the limit was removed, with the next renewal.
func TestSetLevel_LimitRemoved_WaitingCallsAreServed(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "t"}, 1, 1))
		h := &hall{t: t, s: s, limits: lua.ModelLimits{Queues: sixQueues, Cap: 3}}
		of := func(user, rest string) string {
			return lua.Lease{Process: "p", Path: lua.Path{Queue: paidStream, Group: lua.Group{Team: "t"}, UserID: user}, Rest: rest}.ID()
		}
		require.Equal(t, lua.SlotGranted, h.acquire("m", of("a", "1")).Code)
		mine := lua.ModelLeases{Model: "m", Limits: h.limits}
		for _, l := range []string{of("a", "2"), of("b", "3")} {
			mine.Waiters = append(mine.Waiters, lua.WaitingLease{Lease: l, Ticket: h.acquire("m", l).Ticket})
		}
		require.Equal(t, 2, h.waiting("m"))
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "t"}, 1, 0))
		_, _, err := s.RenewSlots(t.Context(), longTimes, []lua.ModelLeases{mine})
		require.NoError(t, err)
		require.Zero(t, h.waiting("m"))
	})
}
