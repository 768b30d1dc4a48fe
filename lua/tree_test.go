package lua_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// party is a group of users whose calls always wait.
type party struct {
	group lua.Group
	users int
	// ends is the number of end users of each user's calls, 0 for none.
	ends int
	idle bool
}

// forest keeps parties waiting for one model and counts what each gets.
type forest struct {
	*hall
	parties []*party
	of      map[string]*party // by lease
	got     map[*party]int
	users   map[string]int
}

func newForest(t *testing.T, s *lua.Scripts, slots int, parties ...*party) *forest {
	f := &forest{
		hall: &hall{t: t, s: s, limits: limitsOf(slots, 0)}, parties: parties, of: map[string]*party{}, users: map[string]int{},
	}
	for _, c := range parties {
		for range 4 * c.users * max(1, c.ends) {
			f.arrive(c)
		}
	}
	return f
}

func (f *forest) arrive(c *party) {
	f.number++
	p := lua.Path{Queue: paidStream, Group: c.group, UserID: c.group.Team + c.group.App + "-" + strconv.Itoa(f.number%c.users)}
	if c.ends > 0 {
		p.EndUser = strconv.Itoa(f.number % c.ends)
	}
	l := lua.Lease{Process: "p", Path: p, Rest: strconv.Itoa(f.number)}.ID()
	f.of[l] = c
	f.acquire("m", l)
}

// run lets so many calls end, and others of the same party arrive.
func (f *forest) run(rounds int) {
	f.got = map[*party]int{}
	clear(f.users)
	for range rounds {
		for _, l := range f.next("m", f.holders("m")[0]) {
			c := f.of[l]
			f.got[c]++
			f.users[userOf(l)]++
			if !c.idle {
				f.arrive(c)
			}
		}
	}
}

func (f *forest) requireShares(weights map[*party]float64) {
	f.t.Helper()
	all, sum := 0, 0.0
	for c, w := range weights {
		all, sum = all+f.got[c], sum+w
	}
	for c, w := range weights {
		require.InEpsilon(f.t, float64(all)*w/sum, f.got[c], 0.05, "%+v of %d", *c, all)
	}
}

// G11: the slots of a queue are shared by its teams, not by the number of their users.
func TestTree_TeamsOverloaded_SharesMatchWeights(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	big, small := &party{group: lua.Group{Team: "big"}, users: 50}, &party{group: lua.Group{Team: "small"}, users: 2}
	heavy := &party{group: lua.Group{Team: "heavy"}, users: 5}
	require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "heavy"}, 3, 0))
	f := newForest(t, s, 5, big, small, heavy)
	f.run(1000)
	f.requireShares(map[*party]float64{big: 1, small: 1, heavy: 3})
	for i := range 50 {
		require.InDelta(t, 4, f.users["big-"+strconv.Itoa(i)], 1, "users of a team share equally")
	}

	heavy.idle = true
	f.run(200) // until its calls have ended
	f.run(400)
	require.Zero(t, f.got[heavy])
	f.requireShares(map[*party]float64{big: 1, small: 1})

	require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "small"}, 4, 0))
	f.run(20)
	f.run(500)
	f.requireShares(map[*party]float64{big: 1, small: 4})
}

// G11: the figures of the issue: a team of 50 users with 1,000 calls, one of two users with 20, one with weight 3, and beside them a user who
// invents an end user for each call and one who does not. Shares are within 5 % while all have waiting calls; then those that remain use what
// the small team leaves, and a new team is served among the next.
func TestTree_ThousandCallsAndTwenty_SharesIdleShareAndNewcomer(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "heavy"}, 3, 0))
	filler := &party{group: lua.Group{Team: "filler"}, users: 1, idle: true}
	big, small := &party{group: lua.Group{Team: "big"}, users: 50}, &party{group: lua.Group{Team: "small"}, users: 2}
	heavy := &party{group: lua.Group{Team: "heavy"}, users: 4}
	inventor, honest := &party{group: lua.Group{App: "inventor"}, users: 1, ends: 1_000_000}, &party{group: lua.Group{App: "honest"}, users: 1}
	const slots = 5
	f := newForest(t, s, slots)
	calls := map[*party]int{filler: slots, big: 1000, small: 20, heavy: 900, inventor: 400, honest: 400}
	for _, c := range []*party{filler, big, small, heavy, inventor, honest} {
		c.idle = true // no further calls
		for range calls[c] {
			f.arrive(c)
		}
	}
	shares := func(weights map[*party]float64, grants int) {
		t.Helper()
		f.run(grants)
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		for c, w := range weights {
			want := float64(grants) * w / sum
			require.InDelta(t, want, f.got[c], max(1, 0.05*want), "%+v of %d", *c, grants)
			t.Logf("%s%s: %d of %d, its share is %.1f", c.group.Team, c.group.App, f.got[c], grants, want)
		}
	}
	shares(map[*party]float64{big: 1, small: 1, heavy: 3, inventor: 1, honest: 1}, 18*7) // the small team has two calls left
	for i := range 50 {
		require.LessOrEqual(t, f.users["big-"+strconv.Itoa(i)], 1, "one round of its users has not ended")
	}
	f.run(14)
	require.Equal(t, 2, f.got[small])
	shares(map[*party]float64{big: 1, heavy: 3, inventor: 1, honest: 1}, 300)
	require.Zero(t, f.got[small])

	newcomer := &party{group: lua.Group{Team: "new"}, users: 1, idle: true}
	f.arrive(newcomer)
	waited := 0
	for f.run(1); f.got[newcomer] == 0; f.run(1) {
		waited++
	}
	require.LessOrEqual(t, waited, 1, "its call is the next but one at most, before more than 1,000 others")
	require.Greater(t, f.waiting("m"), 1000)
}

// G11: a newcomer gets one of the next slots, on whatever level it is new.
func TestTree_Newcomer_GetsNextSlot(t *testing.T) {
	t.Parallel()
	for name, newcomer := range map[string]lua.Path{
		"team": {Group: lua.Group{Team: "new"}, UserID: "n"}, "user of a team": {Group: lua.Group{Team: "a"}, UserID: "n"},
		"application": {Group: lua.Group{App: "new"}, UserID: "n"}, "user without a team": {UserID: "n"},
		"end user": {Group: lua.Group{App: "app", EndUser: "new"}, UserID: "app-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScripts(t)
			f := newForest(t, s, 5, &party{group: lua.Group{Team: "a"}, users: 20}, &party{group: lua.Group{Team: "b"}, users: 3},
				&party{group: lua.Group{App: "app"}, users: 1, ends: 20})
			f.run(100)
			newcomer.Queue = paidStream
			l := lua.Lease{Process: "p", Path: newcomer, Rest: "new"}.ID()
			position := f.acquire("m", l).Position
			waited := 0
			for f.of[l] = f.parties[0]; !slices.Contains(f.holders("m"), l); waited++ {
				f.next("m", f.holders("m")[0])
			}
			require.LessOrEqual(t, waited, 2+2*3, "of 3 neighbours on the highest level")
			require.InDelta(t, position, waited, 6)
		})
	}
}

// G11: a user who names many end users gets the share of one user.
func TestTree_ManyEndUsers_ShareOfOneUser(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	inventor, honest := &party{group: lua.Group{App: "a"}, users: 1, ends: 100}, &party{group: lua.Group{App: "b"}, users: 1}
	f := newForest(t, s, 3, inventor, honest, &party{users: 1})
	f.run(600)
	f.requireShares(map[*party]float64{inventor: 1, honest: 1, f.parties[2]: 1})
}

// G11: a team at its limit leaves its slots to others, and returns with the next slot that it releases.
func TestTree_TeamAtLimit_OthersUseTheRest(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		limited, other := &party{group: lua.Group{Team: "limited"}, users: 8}, &party{group: lua.Group{Team: "other"}, users: 2}
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "limited"}, 10, 2))
		f := newForest(t, s, 5, limited, other)
		for range 60 {
			f.run(1)
			held := 0
			for _, l := range f.holders("m") {
				if f.of[l] == limited {
					held++
				}
			}
			require.Equal(t, 2, held, "its weight would give it all")
		}
		for len(f.holders("m")) > 0 {
			f.release("m", f.holders("m")[0])
		}
		require.Zero(t, f.waiting("m"), "what is left is served")
	})
}

// The tree of a room leaves nothing behind once no lease waits.
func TestTree_Drained_KeepsOnlyQueues(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "a"}, 2, 3))
	f := newForest(t, s, 2, &party{group: lua.Group{Team: "a"}, users: 3}, &party{group: lua.Group{Team: "b", App: "x"}, users: 2, ends: 2})
	for _, c := range f.parties {
		c.idle = true
	}
	f.drain("m")
	f.release("m", f.holders("m")...)
	keys, err := s.Redis().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, k := range keys {
		require.NotContains(t, k, "team:", "a key of a team")
		require.NotContains(t, k, "order:")
	}
	state, err := s.Redis().HKeys(t.Context(), s.Keys().ModelState("m")).Result()
	require.NoError(t, err)
	for _, field := range state {
		require.NotContains(t, field, "|")
	}
}

// G10: calls of a queue that the routing file no longer has are still shown, and served with the default weight.
func TestReadRoom_QueueRemoved_ItsCallsAreShown(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		h.limits.Queues = map[berth.Queue]int{"kept": 2, "removed": 4}
		h.arrive("m", "kept", "u", 2)
		h.arrive("m", "removed", "u", 2)
		h.limits.Queues = map[berth.Queue]int{"kept": 2}
		room, err := s.ReadRoom(t.Context(), "m", h.limits, 0)
		require.NoError(t, err)
		queues := map[berth.Queue][]int{}
		for _, q := range room.Queues {
			queues[q.Queue] = []int{q.Weight, q.InUse, q.Waiting}
		}
		require.Equal(t, map[berth.Queue][]int{"kept": {2, 1, 1}, "removed": {1, 0, 2}}, queues)
		require.Len(t, h.drain("m"), 3)
	})
}

// G11: a team whose only user is at the limit hides no other, also after the renewal of its waiting calls.
func TestTree_OnlyUserOfTeamAtLimit_OthersAreServed(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		require.NoError(t, s.SetLevel(t.Context(), lua.Level{Team: "t"}, 2, 2))
		h := &hall{t: t, s: s, limits: limitsOf(1, 1)}
		of := func(p lua.Path, rest string) string { return lua.Lease{Process: "p", Path: p, Rest: rest}.ID() }
		a := lua.Path{Queue: paidStream, Group: lua.Group{Team: "t"}, UserID: "a"}
		require.Equal(t, lua.SlotGranted, h.acquire("other", of(a, "1")).Code)
		h.limits.Upstreams = lua.OneUpstream(0).Upstreams
		mine := lua.ModelLeases{Model: "m", Limits: h.limits}
		for _, l := range []string{of(a, "2"), of(lua.Path{Queue: freeBatch, UserID: "c"}, "3")} {
			mine.Waiters = append(mine.Waiters, lua.WaitingLease{Lease: l, Ticket: h.acquire("m", l).Ticket})
		}
		for range 2 {
			_, _, err := s.RenewSlots(t.Context(), longTimes, []lua.ModelLeases{mine})
			require.NoError(t, err)
		}
		mine.Limits.Upstreams = lua.OneUpstream(1).Upstreams
		_, out, err := s.RenewSlots(t.Context(), longTimes, []lua.ModelLeases{mine})
		require.NoError(t, err)
		require.Equal(t, []string{lua.SlotWaiting, lua.SlotGranted}, []string{out[0].Waiters[0].Code, out[0].Waiters[1].Code})
	})
}
