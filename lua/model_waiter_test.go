package lua_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// ahead is how many calls are ahead of the waiters of a model with few slots.
const ahead = 100

// lobby lets tasks wait in their workflows, in front of the room of model m.
type lobby struct {
	*hall
	// signals are the waiters whose workflows were to be signalled, in order.
	signals []lua.ModelWaiter
}

func newLobby(t *testing.T, s *lua.Scripts, limits lua.ModelLimits) *lobby {
	t.Helper()
	l := &lobby{hall: &hall{t: t, s: s, limits: limits}}
	s.OnPromotion(func(promotions []lua.Promotion) {
		for _, p := range promotions {
			e, err := lua.ParseModelWaiter(p.Model, p.Waiter)
			require.NoError(t, err)
			l.signals = append(l.signals, e)
		}
	})
	return l
}

func (l *lobby) waiter(queue berth.Queue, user string, n int) lua.ModelWaiter {
	return lua.ModelWaiter{Task: berth.TaskRef{UserID: user, TaskID: "t:" + strconv.Itoa(n)}, Step: 1, Queue: queue, Model: "m"}
}

func (l *lobby) call(e lua.ModelWaiter) lua.ModelWaiterCall {
	return lua.ModelWaiterCall{ModelWaiter: e, Limits: l.limits, Times: slotTimes}
}

func (l *lobby) enter(e lua.ModelWaiter) (promoted bool) {
	l.t.Helper()
	promoted, err := l.s.EnterTask(l.t.Context(), l.call(e), time.Hour, 0)
	require.NoError(l.t, err)
	return promoted
}

// positions returns the estimated positions of waiters, -1 for those that do not wait.
func (l *lobby) positions(waiters ...lua.ModelWaiter) (positions []int) {
	l.t.Helper()
	var keys []lua.ModelWaiterKey
	for _, e := range waiters {
		keys = append(keys, e.Key())
	}
	waits, err := l.s.ReadPositions(l.t.Context(), keys)
	require.NoError(l.t, err)
	for _, w := range waits {
		positions = append(positions, w.Position)
	}
	return positions
}

// enterAll enters n tasks of a user, and returns those whose calls may be made.
func (l *lobby) enterAll(queue berth.Queue, user string, n int) (promoted []lua.ModelWaiter) {
	l.t.Helper()
	for range n {
		l.number++
		e := l.waiter(queue, user, l.number)
		if l.enter(e) {
			promoted = append(promoted, e)
		}
	}
	return promoted
}

// begin requests a slot for a waiter, and returns the lease.
func (l *lobby) begin(e lua.ModelWaiter) (id string, code string) {
	l.t.Helper()
	l.number++
	id = lua.Lease{Process: "p", Path: lua.Path{Queue: e.Queue, Group: e.Group, UserID: e.Task.UserID}, Rest: fmt.Sprintf("%s#%d", e.CallID(1), l.number)}.ID()
	r, err := l.s.AcquireSlot(l.t.Context(), lua.SlotCall{Model: "m", Limits: l.limits, Lease: id, Waiter: e.ID(), Times: slotTimes})
	require.NoError(l.t, err)
	return id, r.Code
}

// confirm records that workflows have been signalled, and that those of gone have ended.
func (l *lobby) confirm(signalled, gone []lua.ModelWaiter) {
	l.t.Helper()
	ids := func(waiters []lua.ModelWaiter) (ids []string) {
		for _, e := range waiters {
			ids = append(ids, e.ID())
		}
		return ids
	}
	require.NoError(l.t, l.s.ConfirmPromotions(l.t.Context(), "m", l.limits, slotTimes, ids(signalled), ids(gone)))
}

func (l *lobby) take() (signals []lua.ModelWaiter) {
	signals, l.signals = l.signals, nil
	return signals
}

func (l *lobby) sweep() {
	l.t.Helper()
	limits := func(string) lua.ModelLimits { return l.limits }
	require.NoError(l.t, l.s.SweepModels(l.t.Context(), []string{"m"}, limits, slotTimes))
}

func (l *lobby) left() int64 {
	l.t.Helper()
	n, err := l.s.Redis().ZCard(l.t.Context(), l.s.Keys().ModelWaiters("m")).Result()
	require.NoError(l.t, err)
	return n
}

func usersOf(waiters []lua.ModelWaiter) (out []string) {
	for _, e := range waiters {
		out = append(out, e.Task.UserID)
	}
	return out
}

func TestModelWaiter_UnusualIDs_ParsedBack(t *testing.T) {
	t.Parallel()
	e := lua.ModelWaiter{Task: berth.TaskRef{UserID: "https://login/u|ä b", TaskID: "a:b:2"}, Step: 3, Queue: freeBatch, Model: "m"}
	parsed, err := lua.ParseModelWaiter("m", e.ID())
	require.NoError(t, err)
	require.Equal(t, e, parsed)
	for _, id := range []string{"", "waiter/q|user:u/1/t", "p/q|user:u/1/t:1", "waiter/q|user:%zz/1/t:1", "waiter/q|u/1/t:1", "waiter/q|user:u/1/t:x"} {
		_, err := lua.ParseModelWaiter("m", id)
		require.Error(t, err, id)
	}
}

// O2: the limit of users is none of API keys, which are a level of their own. A call that waits is that of its task.
func TestModelWaiter_OfAKey_NotLimitedAsAUser(t *testing.T) {
	t.Parallel()
	key := berth.NewID(berth.KeyIDPrefix)
	app := lua.Group{Team: "t", App: key}
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		for _, c := range []struct {
			user, kind, second string
			run                int
		}{
			{"u", lua.KindUser, lua.SlotWaiting, 1},
			{"key_bob", lua.KindUser, lua.SlotWaiting, 1},
			{key, lua.KindKey, lua.SlotGranted, 2},
		} {
			l := newLobby(t, s, limitsOf(2, 1))
			var waiters []lua.ModelWaiter
			var ids []string
			for n := range 3 {
				w := l.waiter(paidStream, c.user, n)
				w.Group = app
				parsed, err := lua.ParseModelWaiter("m", w.ID())
				require.NoError(t, err)
				require.Equal(t, w, parsed)
				id, code := l.begin(w)
				require.Equal(t, []string{lua.SlotGranted, c.second, lua.SlotWaiting}[n], code, c.user)
				waiters, ids = append(waiters, w), append(ids, id)
			}
			require.NotEqual(t, -1, l.positions(waiters[2])[0], "%s: its call waits", c.user)
			tree, err := s.ReadTree(t.Context(), "m", l.limits, 10, lua.Level{})
			require.NoError(t, err)
			level := tree.Nodes[slices.IndexFunc(tree.Nodes, func(n lua.TreeNode) bool { return n.Kind == c.kind })]
			require.Equal(t, c.user, level.ID)
			require.Equal(t, []int{c.run, 3 - c.run}, []int{level.InUse, level.Waiting}, c.user)
			l.release("m", ids...)
		}
	})
}

// B1: calls may be made while there are fewer than 100 without a slot, and one per slot that becomes free.
func TestEnterTask_ManyTasks_FirstPromoted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(2, 0))
		now := l.enterAll(paidStream, "u", ahead+6)
		require.Len(t, now, ahead)
		require.False(t, l.enter(l.waiter(paidStream, "u", ahead+5)))
		require.Equal(t, []int{ahead + 4}, l.positions(l.waiter(paidStream, "u", ahead+5)), "four of its user entered before it")
		require.True(t, l.enter(now[0]), "entering is idempotent")
		require.EqualValues(t, 6, l.left())
		require.Empty(t, l.signals, "the callers know")

		first, code := l.begin(now[0])
		require.Equal(t, lua.SlotGranted, code)
		_, code = l.begin(now[1])
		require.Equal(t, lua.SlotGranted, code)
		require.Len(t, l.take(), 2, "those that have slots are not ahead any more")
		_, code = l.begin(now[2])
		require.Equal(t, lua.SlotWaiting, code)
		require.Empty(t, l.take())
		l.release("m", first)
		require.Equal(t, []lua.ModelWaiter{l.waiter(paidStream, "u", ahead+3)}, l.take())
		require.EqualValues(t, 3, l.left())
	})
}

// B1: the faster calls get slots, the more of them may be made in advance.
func TestSweepModels_CallsEndFast_MorePromoted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(2, 0))
		promoted := len(l.enterAll(paidStream, "u", 300))
		for _, tc := range []struct{ interval, promoted int }{{interval: 1000, promoted: ahead}, {interval: 40, promoted: 150}, {interval: 2, promoted: 250}} {
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelState("m"), "interval", tc.interval).Err())
			for more := 1; more > 0; promoted += more { // a call promotes some
				l.sweep()
				signals := l.take()
				l.confirm(signals, nil)
				more = len(signals) + len(l.take())
			}
			require.Equal(t, tc.promoted, promoted, "a slot every %d ms", tc.interval/2)
		}
	})
}

// B1: a promotion is returned again until a process confirms it, then it counts until the call comes or its time is over.
func TestSweepModels_PromotionNotConfirmed_ReturnedAgain(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(1, 0))
		now := l.enterAll(paidStream, "u", ahead+3)
		l.begin(now[0])
		signals := l.take()
		require.Len(t, signals, 1)
		promoted := s.Keys().ModelPromoted("m")
		l.sweep()
		require.Empty(t, l.take(), "the process that got it may still signal")
		ctx := t.Context()
		require.NoError(t, s.Redis().ZAdd(ctx, promoted, zMember(1, signals[0].ID())).Err())
		l.sweep()
		require.Equal(t, signals, l.take())
		l.confirm(signals, nil)
		require.EqualValues(t, 0, s.Redis().ZCard(ctx, promoted).Val())
		l.sweep()
		require.Empty(t, l.take())

		// The call does not come: another one is promoted. If it comes later, it waits like any other.
		require.NoError(t, s.Redis().ZAdd(ctx, s.Keys().ModelSignalled("m"), zMember(1, signals[0].ID())).Err())
		l.sweep()
		next := l.take()
		require.Len(t, next, 1)
		_, code := l.begin(signals[0])
		require.Equal(t, lua.SlotWaiting, code)

		// A workflow that has ended leaves, and the next one takes its turn.
		l.confirm(nil, next)
		l.release("m", l.holders("m")[0])
		require.NotEmpty(t, l.take())
	})
}

// T13: a task that ends while it waits leaves; it costs its user nothing.
func TestLeaveTask_TaskEnded_NextPromoted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(1, 0))
		now := l.enterAll(paidStream, "u", ahead+2)
		require.Len(t, now, ahead)
		waiting := l.waiter(paidStream, "u", ahead+1)
		require.NoError(t, s.LeaveTask(t.Context(), l.call(waiting)))
		require.NoError(t, s.LeaveTask(t.Context(), l.call(waiting)), "idempotent")
		require.EqualValues(t, 1, l.left())
		require.Empty(t, l.take())
		require.NoError(t, s.LeaveTask(t.Context(), l.call(now[1])))
		require.Equal(t, []lua.ModelWaiter{l.waiter(paidStream, "u", ahead+2)}, l.take(), "in the place of one that was promoted")
	})
}

// B1: a waiter whose task must have ended, by its deadline, is removed.
func TestEnterTask_DeadlinePassed_WaiterRemoved(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(1, 0))
		l.enterAll(paidStream, "u", ahead)
		_, err := s.EnterTask(t.Context(), l.call(l.waiter(paidStream, "u", 90)), time.Millisecond, 0)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			l.enter(l.waiter(paidStream, "v", 91))
			return s.Redis().ZScore(t.Context(), s.Keys().ModelWaiters("m"), l.waiter(paidStream, "u", 90).ID()).Err() != nil
		}, 5*time.Second, time.Millisecond)
	})
}

// entriesInOrder is the scenario of the benchmark through waiters, with `late` calls that end between a promotion and its call. It
// returns the mean positions in which the calls of the small users and of the big one were served.
func entriesInOrder(t *testing.T, s *lua.Scripts, limits lua.ModelLimits, late int) (small, big float64) {
	t.Helper()
	l := newLobby(t, s, limits)
	ready := l.enterAll(paidStream, "big", 210)
	for i := range 9 {
		ready = append(ready, l.enterAll(paidStream, "small"+strconv.Itoa(i), 10)...)
	}
	var sum [2]float64
	var running []string
	position := 0
	pending := map[int][]lua.ModelWaiter{}
	update := func() {
		pending[position+1+late] = append(pending[position+1+late], l.take()...)
		for _, l := range l.holders("m") {
			if !slices.Contains(running, l) {
				running = append(running, l)
			}
		}
	}
	begin := func(waiters []lua.ModelWaiter) {
		l.confirm(waiters, nil)
		for _, e := range waiters {
			l.begin(e)
		}
		update()
	}
	begin(ready)
	for ; position < 300; position++ {
		for len(pending[position]) > 0 {
			due := pending[position]
			delete(pending, position)
			begin(due)
		}
		if len(running) == 0 { // all calls have ended before the next one came
			for p := position + 1; p <= position+1+late; p++ {
				begin(pending[p])
				delete(pending, p)
			}
		}
		require.NotEmpty(t, running, "position %d", position)
		one := running[0]
		running = running[1:]
		if userOf(one) == "big" {
			sum[1] += float64(position+1) / 210
		} else {
			sum[0] += float64(position+1) / 90
		}
		l.release("m", one)
		update()
	}
	require.Zero(t, l.left())
	require.Zero(t, l.waiting("m"))
	return sum[0], sum[1]
}

// B1, T4: mean positions of ten users with one slot in ten each are 50 and 193, also when the room sees few of the calls.
func TestModelWaiters_BigUserFirst_MeanPositionsNearIdeal(t *testing.T) {
	t.Parallel()
	for _, limits := range []lua.ModelLimits{limitsOf(5, 0), limitsOf(5, 5)} {
		for _, late := range []int{0, 3, 30} { // a promotion takes as long as three calls of 50 ms in five slots, on a busy machine longer
			t.Run(fmt.Sprint(limits.UserCap, " ", late), func(t *testing.T) {
				t.Parallel()
				small, big := entriesInOrder(t, newScripts(t), limits, late)
				t.Logf("small %.1f, big %.1f", small, big)
				require.LessOrEqual(t, small, 58.0)
				require.GreaterOrEqual(t, big, 190.0)
			})
		}
	}
}

// B1: four queues that have more tasks than slots share them by their weights.
func TestModelWaiters_FourQueuesOverloaded_SharesMatchWeights(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	l := newLobby(t, s, limitsOf(5, 0))
	weights := map[berth.Queue]float64{paidStream: 8, paidBatch: 4, freeStream: 2, freeBatch: 1}
	var ready []lua.ModelWaiter
	for _, q := range []berth.Queue{freeBatch, freeStream, paidBatch, paidStream} {
		ready = append(ready, l.enterAll(q, "u", 600)...)
	}
	served := map[berth.Queue]float64{}
	var running []string
	update := func() {
		for _, l := range l.holders("m") {
			if !slices.Contains(running, l) {
				running = append(running, l)
			}
		}
	}
	const calls, skipped = 640, 40 // without what was served before all queues had entered
	for i := range calls {
		for ready = append(ready, l.take()...); len(ready) > 0; ready = l.take() {
			l.confirm(ready, nil)
			for _, e := range ready {
				l.begin(e)
			}
		}
		update()
		if i >= skipped {
			served[queueOf(running[0])]++
		}
		l.release("m", running[0])
		running = running[1:]
		update()
	}
	for q, w := range weights {
		require.InEpsilon(t, (calls-skipped)*w/15, served[q], 0.05, q)
	}
}

// B1: the calls of a user at the limit do not keep those of others from being made; when a call ends, the next one is there.
func TestModelWaiters_UserAtLimit_OthersPromoted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(10, 2))
		now := l.enterAll(paidStream, "big", 20)
		require.Len(t, now, 4, "two in use and two that follow")
		var leases []string
		for _, e := range now {
			id, _ := l.begin(e)
			leases = append(leases, id)
		}
		require.Len(t, l.enterAll(paidStream, "other", 3), 3)
		require.Equal(t, []string{"big", "big"}, users(l.holders("m")))
		require.Empty(t, l.take())
		require.Equal(t, []string{"big"}, users(l.next("m", leases[0])))
		require.Equal(t, []string{"big"}, usersOf(l.take()))
	})
}

// B1, L12: after Redis lost its data, tasks are entered again in the order of their creation, nothing is promoted in the grace, and
// then in the fair order.
func TestEnterTask_RedisLostData_PromotedInOrderAfterGrace(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	l := newLobby(t, s, limitsOf(1, 0))
	require.NoError(t, s.Redis().FlushAll(t.Context()).Err())
	created := time.Now().Add(-time.Minute)
	for i, n := range []int{4, 2, 3, 1} {
		promoted, err := s.EnterTask(t.Context(), l.call(l.waiter(paidStream, "big", n)), time.Hour, created.UnixMicro()+int64(n))
		require.NoError(t, err)
		require.False(t, promoted, i)
	}
	require.False(t, l.enter(l.waiter(paidStream, "big", 5)), "a task of the user that is accepted now")
	require.False(t, l.enter(l.waiter(paidStream, "other", 6)))
	l.sweep()
	require.Empty(t, l.take())
	endGrace(t, s)
	var order []lua.ModelWaiter
	for l.sweep(); len(l.signals) > 0; l.sweep() {
		for _, e := range l.take() {
			order = append(order, e)
			l.confirm([]lua.ModelWaiter{e}, nil)
			id, _ := l.begin(e)
			l.release("m", id)
		}
	}
	var big []int
	for _, e := range order {
		if e.Task.UserID == "big" {
			n, err := strconv.Atoi(e.Task.TaskID[2:])
			require.NoError(t, err)
			big = append(big, n)
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 5}, big)
	require.Len(t, order, 6)
	require.Less(t, slices.Index(usersOf(order), "other"), 3, "the other user need not wait for all of the big one's")
}

// T24: positions are those of the fair order, also of tasks whose calls have been made and wait for a slot. A pause is reported.
func TestReadPositions_TasksWait_EstimatedByFairOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		l := newLobby(t, s, limitsOf(1, 0))
		now := l.enterAll(paidStream, "big", ahead+10)
		require.Len(t, l.enterAll(paidStream, "small", ahead/2+2), ahead/2, "half of the part of one")
		last, small := l.waiter(paidStream, "big", ahead+10), l.waiter(paidStream, "small", ahead+10+ahead/2+1)
		before := l.positions(now[0], last, small, l.waiter(paidStream, "absent", 1))
		all := ahead + ahead/2
		require.Equal(t, []int{0, all + 11, all + 1, -1}, before)
		wait, err := s.EstimateWait(t.Context(), last, l.limits)
		require.NoError(t, err)
		require.Equal(t, all+11, wait.Position)
		room, err := s.ReadRoom(t.Context(), "m", l.limits, 5)
		require.NoError(t, err)
		require.Equal(t, 12, room.Waiting)
		require.Equal(t, []lua.UserWaiting{{Path: lua.Path{Queue: paidStream, UserID: "big"}, Waiting: 10}, {Path: lua.Path{Queue: paidStream, UserID: "small"}, Waiting: 2}}, room.Users)
		id, _ := l.begin(now[0])
		require.Equal(t, []int{-1, 0, 1, all + 10}, l.positions(now[0], now[1], now[2], last), "the first call runs")
		for _, e := range now[1:4] {
			_, code := l.begin(e)
			require.Equal(t, lua.SlotWaiting, code)
		}
		require.Equal(t, []int{-1, 0, 1, 2, all + 10}, l.positions(now[0], now[1], now[2], now[3], last), "they wait for a slot")
		wait, err = s.EstimateWait(t.Context(), now[2], l.limits)
		require.NoError(t, err)
		require.Equal(t, lua.Wait{Position: 1, Time: -time.Millisecond}, wait)
		l.release("m", id)
		require.Equal(t, []int{-1, -1, 0, 1, all + 9}, l.positions(now[0], now[1], now[2], now[3], last))

		for _, c := range []struct {
			name   string
			limits lua.OperatorLimits
			paused bool
		}{
			{"by an operator", lua.OperatorLimits{Paused: true}, true},
			{"without slots", lua.OperatorLimits{Cap: new(0)}, true},
			{"resumed", lua.OperatorLimits{}, false},
		} {
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, c.limits)
			require.NoError(t, err)
			waits, err := s.ReadPositions(t.Context(), []lua.ModelWaiterKey{now[2].Key(), last.Key()})
			require.NoError(t, err)
			for _, w := range waits {
				require.Equal(t, c.paused, w.Paused, c.name)
			}
			wait, err := s.EstimateWait(t.Context(), l.waiter(paidStream, "new", 1), l.limits)
			require.NoError(t, err)
			require.Equal(t, c.paused, wait.Paused, c.name)
		}
		until := redisNow(t, t.Context(), s) + 60_000
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelLimits("m"), "until:only", until).Err())
		wait, err = s.EstimateWait(t.Context(), last, l.limits)
		require.NoError(t, err)
		require.True(t, wait.Paused, "by its provider")
	})
}

// G13: a call that only some upstreams may serve shows which, whether one of them works, and how long these take.
func TestReadPositions_CallOfSomeUpstreams_TheyAreNamedAndTheirPauseShown(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		limits := limitsOf(0, 0)
		small := up("a", 1)
		small.Context = 1000
		limits.Upstreams = []lua.UpstreamLimits{small, up("b", 1)}
		l := newLobby(t, s, limits)
		for range 2 {
			l.begin(l.waiter(paidStream, "other", l.number))
		}
		long, short := l.waiter(paidStream, "long", 1000), l.waiter(paidStream, "short", 1001)
		for w, needs := range map[lua.ModelWaiter]lua.Needs{long: {Tokens: 5000}, short: {Tokens: 10}} {
			id := lua.Lease{Process: "p", Path: lua.Path{Queue: w.Queue, UserID: w.Task.UserID}, Needs: needs, Rest: w.CallID(1) + "#1"}.ID()
			require.Equal(t, lua.SlotWaiting, l.acquire("m", id).Code)
		}
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelState("m"), "interval", "1000").Err())
		paused, until := lua.OperatorLimits{Paused: true}, redisNow(t, t.Context(), s)+60_000
		for _, c := range []struct {
			name        string
			a, b        lua.OperatorLimits
			until       bool // the provider has paused b
			long, short bool // paused
			least       [2]time.Duration
		}{
			{name: "both work"},
			{name: "b is paused", b: paused, long: true, least: [2]time.Duration{-time.Millisecond, 0}},
			{name: "a is paused", a: paused},
			{name: "both are paused", a: paused, b: paused, long: true, short: true, least: [2]time.Duration{-time.Millisecond, -time.Millisecond}},
			{name: "b is paused for a minute", until: true, long: true, least: [2]time.Duration{59 * time.Second, 0}},
			{name: "b is paused for a minute, a longer", a: paused, until: true, long: true, short: true, least: [2]time.Duration{59 * time.Second, 59 * time.Second}},
		} {
			for name, o := range map[string]lua.OperatorLimits{"a": c.a, "b": c.b} {
				_, err := s.SetModelLimits(t.Context(), "m", name, slotTimes, o)
				require.NoError(t, err)
			}
			if c.until {
				require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelLimits("m"), "until:b", until).Err())
			}
			waits, err := s.ReadPositions(t.Context(), []lua.ModelWaiterKey{long.Key(), short.Key()})
			require.NoError(t, err)
			require.Equal(t, []any{"b", c.long, "", c.short}, []any{waits[0].Upstreams, waits[0].Paused, waits[1].Upstreams, waits[1].Paused}, c.name)
			for i, w := range waits {
				if c.least[i] < 0 {
					require.Negative(t, w.Time, c.name)
				} else {
					require.GreaterOrEqual(t, w.Time, c.least[i], c.name)
					require.Less(t, w.Time, c.least[i]+20*time.Second, c.name)
				}
			}
			one, err := s.EstimateWait(t.Context(), long, limits)
			require.NoError(t, err)
			require.Equal(t, []any{"b", c.long}, []any{one.Upstreams, one.Paused}, c.name)
			room, err := s.ReadRoom(t.Context(), "m", limits, 0)
			require.NoError(t, err)
			for _, q := range room.Queues {
				require.Equal(t, c.a.Paused && c.b.Paused, q.Wait < 0, "%s: a new call of %s", c.name, q.Queue)
			}
		}
	})
}

// T4: the work of a call does not grow with the number of tasks that wait.
func TestModelWaiters_ManyTasks_CommandsStayTheSame(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	l := newLobby(t, s, limitsOf(5, 5))
	enter := func(from, to int) {
		for i := from; i < to; i++ {
			q := []berth.Queue{paidStream, paidBatch, freeStream, freeBatch}[i%4]
			l.enter(l.waiter(q, fmt.Sprintf("user%d", i%(to/10)), i))
		}
		l.take()
	}
	commands := func() int64 {
		before := total(t, server)
		l.enterAll(paidBatch, "u", 1)
		id, _ := l.begin(l.waiter(paidBatch, "u", 999_999))
		l.release("m", id)
		return total(t, server) - before
	}
	least := func() int64 { // of some: leases that expire meanwhile cost commands, too
		n := commands()
		for range 4 {
			n = min(n, commands())
		}
		return n
	}
	enter(0, 100)
	few := least()
	enter(100, 5_000)
	require.Less(t, least(), few*3/2)
}
