package lua_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/testredis"
	"berth/lua"
)

// fewAhead makes few calls enough to be ahead of waiters.
var fewAhead = []string{"MIN_AHEAD, MAX_AHEAD, MAX_WINDOWS = 2, 3000, 100, 250, 4", "MIN_AHEAD, MAX_AHEAD, MAX_WINDOWS = 2, 3000, 4, 6, 2"}

// aside is a lobby of model m in which the last tasks of user u are set aside.
type aside struct {
	*lobby
	o *ownTime
	// expected are tasks whose calls are expected; waiting and held are leases of calls.
	expected []lua.ModelWaiter
	waiting  []string
	held     string
}

// newAside lets u have a slot of model n, if it has one there, and as many calls ahead as a user may: two less that slot.
func newAside(t *testing.T, elsewhere, called bool) *aside {
	o := newOwnTime(t)
	o.now = time.Unix(2_000_000_000, 0)
	o.flush(t)
	a := &aside{lobby: newLobby(t, o.s, limitsOf(5, 1)), o: o}
	_, err := o.s.MarkNew(t.Context())
	require.NoError(t, err)
	if elsewhere {
		a.held = lease(paidStream, "u", 0)
		r, err := o.s.AcquireSlot(t.Context(), lua.SlotCall{Model: "n", Limits: a.limits, Lease: a.held, Times: slotTimes})
		require.NoError(t, err)
		require.Equal(t, lua.SlotGranted, r.Code)
	}
	_, err = o.s.SetModelLimits(t.Context(), "m", "", slotTimes, lua.OperatorLimits{Paused: true})
	require.NoError(t, err)
	a.expected = a.enterAll(paidStream, "u", 4)
	if elsewhere {
		require.Len(t, a.expected, 1)
	} else {
		require.Len(t, a.expected, 2)
	}
	if called {
		for _, e := range a.expected {
			id, code := a.begin(e)
			require.Equal(t, lua.SlotWaiting, code)
			a.waiting = append(a.waiting, id)
		}
	}
	require.Empty(t, a.take(), "the others are set aside")
	return a
}

// sweepAll sweeps both models.
func (a *aside) sweepAll() {
	limits := func(string) lua.ModelLimits { return a.limits }
	require.NoError(a.t, a.s.SweepModels(a.t.Context(), []string{"m", "n"}, limits, slotTimes))
}

// FA1: whatever ends what a user at the limit has, the user's next task is promoted, without another submission.
func TestModelWaiters_UserNoLongerAtLimit_NextPromoted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		elsewhere, called bool
		what              func(t *testing.T, a *aside)
	}{
		"a call that waits is cancelled": {called: true, what: func(_ *testing.T, a *aside) { a.release("m", a.waiting[0]) }},
		"a call that waits is not renewed": {called: true, what: func(t *testing.T, a *aside) {
			a.o.pass(t, slotTimes.TTL)
			a.sweepAll()
		}},
		"a call does not come": {what: func(t *testing.T, a *aside) {
			a.o.pass(t, slotTimes.TTL)
			a.sweepAll()
		}},
		"a task whose call is expected is cancelled":       {what: func(t *testing.T, a *aside) { require.NoError(t, a.s.LeaveTask(t.Context(), a.call(a.expected[0]))) }},
		"a workflow whose call is expected has ended":      {what: func(_ *testing.T, a *aside) { a.confirm(nil, a.expected[:1]) }},
		"a slot of another model is released":              {elsewhere: true, what: func(_ *testing.T, a *aside) { a.hall.release("n", a.held) }},
		"a slot of another model is released after a call": {elsewhere: true, called: true, what: func(_ *testing.T, a *aside) { a.hall.release("n", a.held) }},
		"a slot of another model expires": {elsewhere: true, called: true, what: func(t *testing.T, a *aside) {
			a.o.pass(t, slotTimes.TTL/2)
			_, _, err := a.s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{{Model: "m", Limits: a.limits, Waiters: []lua.WaitingLease{{Lease: a.waiting[0]}}}})
			require.NoError(t, err)
			a.o.pass(t, slotTimes.TTL/2)
			a.sweepAll()
		}},
		"the slots of users are more": {what: func(_ *testing.T, a *aside) {
			a.limits.UserCap = 2
			a.o.pass(a.t, time.Second)
			a.sweepAll()
		}},
		"users have no limit any more": {what: func(_ *testing.T, a *aside) {
			a.limits.UserCap = 0
			a.o.pass(a.t, time.Second)
			a.sweepAll()
		}},
		"the set-aside model is forgotten": {elsewhere: true, what: func(t *testing.T, a *aside) {
			require.NoError(t, a.s.Redis().Del(t.Context(), a.s.Keys().UserSlots("u")+":aside").Err())
			a.hall.release("n", a.held)
			a.o.pass(t, time.Second)
			a.sweepAll()
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAside(t, c.elsewhere, c.called)
			c.what(t, a)
			require.NotEmpty(t, a.take())
		})
	}
}

// FA1: a user's calls that wait for a paused model are cancelled; after the resumption, the tasks behind them are served.
func TestRoom_CallsCancelledInPause_OthersServedAfterResumption(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(5, 5))
		set := func(paused bool) {
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, lua.OperatorLimits{Paused: paused})
			require.NoError(t, err)
		}
		set(true)
		var leases []string
		for _, e := range l.enterAll(paidStream, "u", 15) {
			id, _ := l.begin(e)
			leases = append(leases, id)
		}
		require.Len(t, leases, 10)
		l.release("m", leases...)
		set(false)
		promoted := l.take()
		require.Len(t, promoted, 5)
		for _, e := range promoted {
			_, code := l.begin(e)
			require.Equal(t, lua.SlotGranted, code)
		}
	})
}

// FA1: calls of users who are at their limit elsewhere do not keep the tasks of others from a model that is idle.
func TestModelWaiters_CallsOfUsersAtLimitAhead_OthersPromoted(t *testing.T) {
	t.Parallel()
	o := newOwnTime(t, fewAhead...)
	o.now = time.Unix(2_000_000_000, 0)
	o.flush(t)
	_, err := o.s.MarkNew(t.Context())
	require.NoError(t, err)
	l := newLobby(t, o.s, limitsOf(0, 1))
	for i := range 20 {
		user := "u" + strconv.Itoa(i)
		l.limits.Upstreams = lua.OneUpstream(20).Upstreams
		l.arrive("n", paidStream, user, 1) // the only slot of the user
		l.limits.Upstreams = lua.OneUpstream(2).Upstreams
		for _, e := range l.enterAll(paidStream, user, 1) {
			_, code := l.begin(e)
			require.Equal(t, lua.SlotWaiting, code)
		}
	}
	require.LessOrEqual(t, l.waiting("m"), 8, "no more than may be ahead")
	promoted := l.enterAll(paidStream, "other", 1)
	l.sweep()
	require.Contains(t, usersOf(append(promoted, l.take()...)), "other")
}

// FA1, G11: such calls do not keep the tasks of others in their team or application either, whether or not as many calls are ahead as may be.
func TestModelWaiters_CallsOfUsersAtLimitAhead_OthersOfTheirLevelPromoted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		level   lua.Level
		replace []string
	}{
		"team":                              {level: lua.Level{Team: "t"}},
		"team, no more may be ahead":        {level: lua.Level{Team: "t"}, replace: fewAhead},
		"application":                       {level: lua.Level{Team: "t", App: "x"}},
		"application, no more may be ahead": {level: lua.Level{Team: "t", App: "x"}, replace: fewAhead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				s.Replace(tc.replace...)
				require.NoError(t, s.SetLevel(t.Context(), tc.level, 1, 3))
				l := newLobby(t, s, limitsOf(2, 1))
				task := func(user string) lua.ModelWaiter {
					l.number++
					w := l.waiter(paidStream, user, l.number)
					w.Group = lua.Group{Team: "t", App: "x"}
					return w
				}
				running := append(l.arrive("m", paidStream, "v", 1), l.arrive("m", paidStream, "w", 1)...)
				for _, user := range []string{"a", "b"} {
					for range 2 {
						w := task(user)
						require.True(t, l.enter(w))
						_, code := l.begin(w)
						require.Equal(t, lua.SlotWaiting, code)
					}
				}
				for i, user := range []string{"a", "b"} { // two of three slots of the level
					id := lua.Lease{Process: "p", Path: lua.Path{Queue: paidStream, Group: task(user).Group, UserID: user}, Rest: strconv.Itoa(i)}.ID()
					require.Equal(t, lua.SlotGranted, l.acquire("n", id).Code)
				}
				l.release("m", running...)
				require.Empty(t, l.holders("m"), "the users of all calls that wait are at their limit")
				other := task("c")
				require.True(t, l.enter(other))
				_, code := l.begin(other)
				require.Equal(t, lua.SlotGranted, code)
			})
		})
	}
}

// T4: the work of a sweep does not grow with the number of users at their limits.
func TestSweepModels_ManyUsersAtLimit_CommandsStayTheSame(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	l := newLobby(t, s, limitsOf(10_000, 0))
	users := 0
	commands := func(n int) int64 {
		for ; users < n; users++ {
			user := "u" + strconv.Itoa(users)
			l.limits.UserCap = 2
			l.arrive("n", paidStream, user, 2)
			l.limits.UserCap = 1
			require.Empty(t, l.enterAll(paidStream, user, 1))
		}
		aside := s.Keys().ModelWaiters("m")[:len(s.Keys().ModelWaiters("m"))-len("waiting")] + "aside"
		require.EqualValues(t, n, s.Redis().ZCard(t.Context(), aside).Val())
		require.NoError(t, s.Redis().ZUnionStore(t.Context(), aside, &redis.ZStore{Keys: []string{aside}, Weights: []float64{0}}).Err()) // checked long ago
		before := total(t, server)
		l.sweep()
		return total(t, server) - before
	}
	few := commands(100)
	require.Less(t, commands(1000), few*3/2)
}
