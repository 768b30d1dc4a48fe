package lua_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/lua"
)

func TestReleaseSlot_ModelState_GrantsNextWaiter(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	cases := map[string]struct {
		before modelState
		leases []string
		slots  int
		held   int
		after  modelState
		woken  []string
	}{
		"the next waiter is granted and woken": {
			before: modelState{
				holders: rows{"p/me": keep(500)},
				waiters: map[string]int64{"q/y": 7, "q/z": 9}, waiting: rows{"q/y": keep(30000), "q/z": keep(30000)},
			},
			leases: []string{"p/me"}, slots: 1, held: 1, woken: []string{"q/y"},
			after: modelState{
				holders: rows{"q/y": fresh(grantMs)},
				waiters: map[string]int64{"q/z": 9}, waiting: rows{"q/z": keep(30000)},
			},
		},
		"a waiter of an unresponsive process is skipped": {
			before: modelState{
				holders: rows{"p/me": keep(500)},
				waiters: map[string]int64{"q/y": 7, "q/z": 9}, waiting: rows{"q/y": keep(0), "q/z": keep(30000)},
			},
			leases: []string{"p/me"}, slots: 1, held: 1, woken: []string{"q/z"},
			after: modelState{holders: rows{"q/z": fresh(grantMs)}},
		},
		"a waiter leaves": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/me": 7, "q/z": 9}, waiting: rows{"p/me": keep(30000), "q/z": keep(30000)},
			},
			leases: []string{"p/me"}, slots: 1,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/z": 9}, waiting: rows{"q/z": keep(30000)},
			},
		},
		"an unknown lease changes nothing": {
			before: modelState{holders: rows{"q/x": keep(20000)}},
			leases: []string{"p/me"}, slots: 1,
			after: modelState{holders: rows{"q/x": keep(20000)}},
		},
		"an expired lease does not count": {
			before: modelState{holders: rows{"p/me": keep(0)}},
			leases: []string{"p/me"}, slots: 1,
		},
		"several leases released together: each slot goes to a waiter": {
			before: modelState{
				holders: rows{"p/a": keep(500), "p/b": keep(500), "q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7, "p/c": 8, "q/z": 9},
				waiting: rows{"q/y": keep(30000), "p/c": keep(30000), "q/z": keep(30000)},
			},
			leases: []string{"p/a", "p/b", "p/c"}, slots: 3, held: 2, woken: []string{"q/y", "q/z"},
			after: modelState{holders: rows{"q/x": keep(20000), "q/y": fresh(grantMs), "q/z": fresh(grantMs)}},
		},
		"a lowered cap grants nothing": {
			before: modelState{
				holders: rows{"p/me": keep(500), "q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			leases: []string{"p/me"}, slots: 1, held: 1,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				woken := wakes(t, s, "p", "q")
				seeded := seed(t, s, "m", c.before)
				from := redisMs(t, s)
				held, _, err := s.ReleaseSlot(t.Context(), "m", lua.OneUpstream(c.slots), slotTimes, fulls(c.leases)...)
				to := redisMs(t, s)
				require.NoError(t, err)
				require.Equal(t, c.held, held)
				requireModelState(t, s, "m", c.after, seeded, from, to)
				require.Equal(t, append([]string{}, fulls(c.woken)...), woken())

				held, _, err = s.ReleaseSlot(t.Context(), "m", lua.OneUpstream(c.slots), slotTimes, fulls(c.leases)...)
				require.NoError(t, err)
				require.Zero(t, held, "a second release changes nothing")
				requireModelState(t, s, "m", c.after, seeded, from, to)
			})
		})
	}
}

func TestRenewSlots_ModelState_RenewsOrLosesLeases(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	cases := map[string]struct {
		before  modelState
		mine    lua.ModelLeases
		holders []string
		waiters []lua.SlotReply // Ticket is not compared
		next    int64
		after   modelState
		woken   []string
	}{
		"holders are renewed, an expired one is lost": {
			before:  modelState{holders: rows{"p/a": keep(500), "p/b": keep(0), "q/x": keep(20000)}},
			mine:    lua.ModelLeases{Limits: lua.OneUpstream(3), Holders: heldBy(fulls([]string{"p/a", "p/b", "p/c"})...)},
			holders: []string{lua.SlotHeld, lua.SlotLost, lua.SlotLost},
			after:   modelState{holders: rows{"p/a": fresh(ttlMs), "q/x": keep(20000)}},
		},
		"waiters stay in order and get their position": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/a": 5, "q/y": 7, "p/b": 9},
				waiting: rows{"p/a": keep(500), "q/y": keep(30000), "p/b": keep(500)},
			},
			mine:    lua.ModelLeases{Limits: lua.OneUpstream(1), Waiters: []lua.WaitingLease{{Lease: full("p/a"), Ticket: ticket(5)}, {Lease: full("p/b"), Ticket: ticket(9)}}},
			waiters: []lua.SlotReply{{Code: lua.SlotWaiting}, {Code: lua.SlotWaiting, Position: 2}},
			next:    20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/a": 5, "q/y": 7, "p/b": 9},
				waiting: rows{"p/a": fresh(interestMs), "q/y": keep(30000), "p/b": fresh(interestMs)},
			},
		},
		"a granted waiter claims its slot": {
			before:  modelState{holders: rows{"p/a": keep(grantMs)}},
			mine:    lua.ModelLeases{Limits: lua.OneUpstream(1), Waiters: []lua.WaitingLease{{Lease: full("p/a"), Ticket: ticket(5)}}},
			waiters: []lua.SlotReply{{Code: lua.SlotHeld}},
			after:   modelState{holders: rows{"p/a": fresh(ttlMs)}},
		},
		"expired slots are granted to other processes and to the caller": {
			before: modelState{
				holders: rows{"q/x": keep(0), "q/w": keep(0)},
				waiters: map[string]int64{"q/y": 5, "p/a": 7, "p/b": 9},
				waiting: rows{"q/y": keep(30000), "p/a": keep(500), "p/b": keep(500)},
			},
			mine:    lua.ModelLeases{Limits: lua.OneUpstream(2), Waiters: []lua.WaitingLease{{Lease: full("p/a"), Ticket: ticket(7)}, {Lease: full("p/b"), Ticket: ticket(9)}}},
			waiters: []lua.SlotReply{{Code: lua.SlotGranted}, {Code: lua.SlotWaiting}},
			next:    grantMs, woken: []string{"q/y"},
			after: modelState{
				holders: rows{"q/y": fresh(grantMs), "p/a": fresh(ttlMs)},
				waiters: map[string]int64{"p/b": 9}, waiting: rows{"p/b": fresh(interestMs)},
			},
		},
		"an expired grant enters the queue again at its position": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			mine:    lua.ModelLeases{Limits: lua.OneUpstream(1), Waiters: []lua.WaitingLease{{Lease: full("p/a"), Ticket: ticket(5)}, {Lease: full("p/b")}}},
			waiters: []lua.SlotReply{{Code: lua.SlotWaiting}, {Code: lua.SlotWaiting, Position: 2}},
			next:    20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/a": 5, "q/y": 7, "p/b": -1},
				waiting: rows{"p/a": fresh(interestMs), "q/y": keep(30000), "p/b": fresh(interestMs)},
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				woken := wakes(t, s, "p", "q")
				seeded := seed(t, s, "m", c.before)
				other := seed(t, s, "other", modelState{holders: rows{"p/o": keep(500)}})
				c.mine.Model = "m"
				from := redisMs(t, s)
				now, out, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{
					c.mine, {Model: "other", Limits: lua.OneUpstream(1), Holders: heldBy(fulls([]string{"p/o"})...)},
				})
				to := redisMs(t, s)
				require.NoError(t, err)
				require.Len(t, out, 2)
				require.GreaterOrEqual(t, now, from)
				require.LessOrEqual(t, now, to)
				require.Equal(t, c.holders, out[0].Holders)
				for i := range out[0].Waiters {
					require.Equal(t, out[0].Waiters[i].Code == lua.SlotWaiting, out[0].Waiters[i].Ticket != "")
					require.Equal(t, out[0].Waiters[i].Code != lua.SlotWaiting, out[0].Waiters[i].Upstream == "only")
					out[0].Waiters[i].Ticket, out[0].Waiters[i].Upstream = "", ""
				}
				require.Equal(t, c.waiters, out[0].Waiters)
				require.InDelta(t, float64(c.next), float64(out[0].Next.Milliseconds()), float64(to-seeded))
				require.Equal(t, []string{lua.SlotHeld}, out[1].Holders)
				requireModelState(t, s, "m", c.after, seeded, from, to)
				requireModelState(t, s, "other", modelState{holders: rows{"p/o": fresh(ttlMs)}}, other, from, to)
				require.Equal(t, append([]string{}, fulls(c.woken)...), woken())
			})
		})
	}
}

func TestRenewSlots_ManyWaiters_KeepsCallOrder(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		m := lua.ModelLeases{Model: "m", Limits: lua.OneUpstream(10)}
		for i := range 600 {
			m.Waiters = append(m.Waiters, lua.WaitingLease{Lease: full("p/" + strconv.Itoa(i))})
		}
		_, out, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{m})
		require.NoError(t, err)
		for i, r := range out[0].Waiters {
			if i < 10 {
				require.Equal(t, lua.SlotGranted, r.Code)
			} else {
				require.Equal(t, i-10, r.Position, "arrival order is the order of the call")
			}
		}
	})
}
