package lua_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

const (
	paidStream = berth.Queue("q_paid_stream")
	paidBatch  = berth.Queue("q_paid_batch")
	freeStream = berth.Queue("q_free_stream")
	freeBatch  = berth.Queue("q_free_batch")
)

// limitsOf returns the limits of a model with one upstream that has so many slots, of which one user may use so many.
func limitsOf(slots, user int) lua.ModelLimits {
	l := lua.OneUpstream(slots)
	l.Queues, l.UserCap = sixQueues, user
	return l
}

// heldBy returns leases as holders of slots of the only upstream.
func heldBy(leases ...string) (held []lua.HeldLease) {
	for _, l := range leases {
		held = append(held, lua.HeldLease{Lease: l, Upstream: "only"})
	}
	return held
}

// sixQueues are the weights of some queues; those of others are 1.
var sixQueues = map[berth.Queue]int{paidStream: 8, paidBatch: 4, "q_paid_vision": 4, freeStream: 2, freeBatch: 1, "q_free_vision": 1}

// hall calls the slot scripts for many users. The process that holds a lease is known to be `p`, so that grants to others are
// read from the holders.
type hall struct {
	t      *testing.T
	s      *lua.Scripts
	limits lua.ModelLimits
	number int
}

func lease(queue berth.Queue, user string, n int) string {
	return lua.Lease{Process: "p", Path: lua.Path{Queue: queue, UserID: user}, Rest: strconv.Itoa(n)}.ID()
}

// arrive lets a user request n slots and returns the leases.
func (h *hall) arrive(model string, queue berth.Queue, user string, n int) (leases []string) {
	h.t.Helper()
	for range n {
		h.number++
		l := lease(queue, user, h.number)
		h.acquire(model, l)
		leases = append(leases, l)
	}
	return leases
}

func (h *hall) acquire(model, l string) lua.SlotReply {
	h.t.Helper()
	r, err := h.s.AcquireSlot(h.t.Context(), lua.SlotCall{Model: model, Limits: h.limits, Lease: l, Times: longTimes})
	require.NoError(h.t, err)
	return r
}

func (h *hall) release(model string, leases ...string) {
	h.t.Helper()
	_, _, err := h.s.ReleaseSlot(h.t.Context(), model, h.limits, longTimes, leases...)
	require.NoError(h.t, err)
}

func (h *hall) holders(model string) []string {
	h.t.Helper()
	all, err := h.s.Redis().ZRange(h.t.Context(), h.s.Keys().ModelHolders(model), 0, -1).Result()
	require.NoError(h.t, err)
	return all
}

func (h *hall) waiting(model string) int {
	h.t.Helper()
	n, err := h.s.Redis().ZCard(h.t.Context(), h.s.Keys().ModelWaiting(model)).Result()
	require.NoError(h.t, err)
	return int(n)
}

// next releases one lease and returns those that got a slot by it.
func (h *hall) next(model, released string) (granted []string) {
	h.t.Helper()
	before := h.holders(model)
	h.release(model, released)
	for _, l := range h.holders(model) {
		if !slices.Contains(before, l) {
			granted = append(granted, l)
		}
	}
	return granted
}

// drain serves all waiters of a model, with one slot released at a time, and returns the order in which they got one. It has to
// have one slot.
func (h *hall) drain(model string) (order []string) {
	h.t.Helper()
	for h.waiting(model) > 0 {
		granted := h.next(model, h.holders(model)[0])
		require.Len(h.t, granted, 1)
		order = append(order, granted[0])
	}
	return order
}

var leaseParts = regexp.MustCompile(`^[^/]+/([^/|]+)\|.*user:([^/|]+)[^/]*/[^/]+/[^/]*/(?:.*#)?(\d+)$`)

func queueOf(lease string) berth.Queue { return berth.Queue(leaseParts.FindStringSubmatch(lease)[1]) }
func userOf(lease string) string       { return leaseParts.FindStringSubmatch(lease)[2] }

func users(leases []string) (out []string) {
	for _, l := range leases {
		out = append(out, userOf(l))
	}
	return out
}

// B1, T4: a user with many leases does not delay those of others.
func TestRoom_BigUserFirst_SmallUsersAlternateWithIt(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		h.arrive("m", paidStream, "big", 9)
		h.arrive("m", paidStream, "a", 2)
		h.arrive("m", paidStream, "b", 2)
		require.Equal(t, []string{"big", "a", "b", "big", "a", "b", "big", "big", "big", "big", "big", "big"}, users(h.drain("m")))
	})
}

// bigAndSmall is the scenario of the benchmark without its times: 210 leases of one user, then 10 each of nine others, five
// slots. It returns the mean positions in which the leases of the small users and of the big one were served.
func bigAndSmall(t *testing.T, s *lua.Scripts) (small, big float64) {
	t.Helper()
	h := &hall{t: t, s: s, limits: limitsOf(5, 5)}
	h.arrive("m", paidStream, "big", 210)
	for i := range 9 {
		h.arrive("m", paidStream, "small"+strconv.Itoa(i), 10)
	}
	var sum [2]float64
	position := 0
	served := h.holders("m")
	for len(served) > 0 {
		one := served[0]
		position++
		if userOf(one) == "big" {
			sum[1] += float64(position) / 210
		} else {
			sum[0] += float64(position) / 90
		}
		served = append(served[1:], h.next("m", one)...)
	}
	require.Equal(t, 300, position)
	require.Zero(t, h.waiting("m"))
	return sum[0], sum[1]
}

// B1, T4: mean positions of ten users with one slot in ten each are 50 and 193.
func TestRoom_BigUserFirst_MeanPositionsNearIdeal(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	small, big := bigAndSmall(t, s)
	t.Logf("small %.1f, big %.1f", small, big)
	require.LessOrEqual(t, small, 58.0)
	require.GreaterOrEqual(t, big, 190.0)
}

// This verifies the test above: users who are tagged by arrival are served in the order of arrival.
func TestRoom_VariantWithoutUsers_ServesBigUserFirst(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	s.Replace("redis.call('ZADD', node.parent.order, precise(tag), member or node.name)",
		"redis.call('ZADD', node.parent.order, member and string.sub(member, 1, 16) or precise(tag), member or node.name)")
	small, big := bigAndSmall(t, s)
	require.Greater(t, small, 250.0)
	require.Less(t, big, 110.0)
}

func newScripts(t *testing.T) *lua.Scripts {
	t.Helper()
	s := lua.New(testredis.Start(t).Client(), lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	return s
}

// B1, T4: four queues that always have waiters share the slots by their weights, whatever their number of users.
func TestRoom_FourQueuesOverloaded_SharesMatchWeights(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	h := &hall{t: t, s: s, limits: limitsOf(5, 5)}
	weights := map[berth.Queue]int{paidStream: 8, paidBatch: 4, freeStream: 2, freeBatch: 1}
	number := map[berth.Queue]int{paidStream: 1, paidBatch: 40, freeStream: 7, freeBatch: 3}
	rnd := rand.New(rand.NewPCG(1, 2))
	arrive := func(q berth.Queue) { h.arrive("m", q, fmt.Sprintf("%s%d", q, rnd.IntN(number[q])), 1) }
	for range 20 {
		for q := range weights {
			arrive(q)
		}
	}
	const rounds = 1500
	share := map[berth.Queue]int{}
	for range rounds {
		holders := h.holders("m")
		require.Len(t, holders, 5)
		for _, l := range h.next("m", holders[rnd.IntN(5)]) {
			share[queueOf(l)]++
			arrive(queueOf(l))
		}
	}
	for q, w := range weights {
		require.InEpsilon(t, float64(rounds*w)/15, share[q], 0.05, "%s", q)
	}
	room, err := s.ReadRoom(t.Context(), "m", h.limits, 3)
	require.NoError(t, err)
	require.Equal(t, 5, room.InUse)
	require.Len(t, room.Users, 3)
	require.Len(t, room.Queues, 6)
	waiters, err := s.Redis().ZRange(t.Context(), s.Keys().ModelWaiting("m"), 0, -1).Result()
	require.NoError(t, err)
	held, waiting := perQueue(h.holders("m")), perQueue(waiters)
	for _, q := range room.Queues { // any of them may hold nothing for a moment
		if w, ok := weights[q.Queue]; ok {
			require.Equal(t, w, q.Weight, "%s", q.Queue)
			require.Positive(t, q.Waiting, "%s", q.Queue)
		}
		require.Equal(t, []int{held[q.Queue], waiting[q.Queue]}, []int{q.InUse, q.Waiting}, "%s", q.Queue)
	}
}

func perQueue(leases []string) map[berth.Queue]int {
	n := map[berth.Queue]int{}
	for _, l := range leases {
		n[queueOf(l)]++
	}
	return n
}

// atLimit serves a user who is limited by the slots of another model while others are served, then releases these, and returns
// how many of the next ten slots that user gets.
func atLimit(t *testing.T, s *lua.Scripts) (slots int) {
	t.Helper()
	h := &hall{t: t, s: s, limits: limitsOf(2, 2)}
	elsewhere := h.arrive("other", paidStream, "limited", 2)
	h.limits.Upstreams = lua.OneUpstream(1).Upstreams
	h.arrive("m", paidStream, "a", 60)
	h.arrive("m", paidStream, "b", 60)
	h.arrive("m", paidStream, "limited", 60)
	for range 60 {
		require.NotEqual(t, []string{"limited"}, users(h.next("m", h.holders("m")[0])))
	}
	h.limits.Upstreams = lua.OneUpstream(2).Upstreams
	h.release("other", elsewhere...)
	h.limits.Upstreams = lua.OneUpstream(1).Upstreams
	for range 10 {
		if users(h.next("m", h.holders("m")[0]))[0] == "limited" {
			slots++
		}
	}
	return slots
}

// T4: a user who waited at the limit returns to the others' present, not to the past.
func TestRoom_UserWasAtLimit_GainsNothingByIt(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		n := atLimit(t, s)
		require.GreaterOrEqual(t, n, 3)
		require.LessOrEqual(t, n, 4)
	})
}

// This verifies the test above: with the tags that leases would have had on arrival, which do not follow the virtual time, the
// user gets all slots.
func TestRoom_VariantWithArrivalTags_UserAtLimitGetsAll(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	s.Replace("list(node, member, tag_of(room, node, 0))", "list(node, member, member and finish_of(node) or tag_of(room, node, 0))",
		"if past[1] then", "if false then")
	require.Equal(t, 10, atLimit(t, s))
}

// T4: the limit of a user holds for all models together, and a release serves the models that wait for it.
func TestReleaseSlot_UserAtLimit_ServesOtherModels(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(5, 3)}
		held := h.arrive("m0", paidStream, "u", 3)
		for i := range 20 { // more than one release serves
			h.arrive("m"+strconv.Itoa(i), freeBatch, "u", 1)
		}
		for i := range 20 {
			granted := h.total(20)
			require.Equal(t, 3, granted)
			l := held[0]
			held = held[1:]
			before := h.all(20)
			h.release("m"+strconv.Itoa(modelOf(before, l)), l)
			for model, leases := range h.all(20) {
				for _, l := range leases {
					if !slices.Contains(before[model], l) {
						held = append(held, l)
					}
				}
			}
			require.Len(t, held, 3, "release %d serves another model", i)
		}
		for i := range 20 {
			require.Zero(t, h.waiting("m"+strconv.Itoa(i)))
		}
	})
}

func (h *hall) all(models int) (out [][]string) {
	for i := range models {
		out = append(out, h.holders("m"+strconv.Itoa(i)))
	}
	return out
}

func (h *hall) total(models int) (n int) {
	for _, leases := range h.all(models) {
		n += len(leases)
	}
	return n
}

func modelOf(all [][]string, lease string) int {
	return slices.IndexFunc(all, func(leases []string) bool { return slices.Contains(leases, lease) })
}

// T4: the models of a provider share its slots, alternating.
func TestReleaseSlot_ProviderAtCap_ModelsAlternate(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(5, 0)}
		h.limits.Upstreams[0].Provider, h.limits.Upstreams[0].ProviderCap = "deep seek", 2
		for i := range 3 {
			h.arrive("m"+strconv.Itoa(i), paidStream, "u", 6)
		}
		require.Equal(t, 2, h.total(3))
		served := map[int]int{}
		for range 12 {
			before := h.all(3)
			model := slices.IndexFunc(before, func(l []string) bool { return len(l) > 0 })
			h.release("m"+strconv.Itoa(model), before[model][0])
			require.LessOrEqual(t, h.total(3), 2)
			for i, leases := range h.all(3) {
				for _, l := range leases {
					if !slices.Contains(before[i], l) {
						served[i]++
					}
				}
			}
		}
		for i := range 3 {
			require.GreaterOrEqual(t, served[i], 2, "model %d", i)
		}
	})
}

// B1, P16: a user who rarely has a call is served before users who always wait. It keeps one call of its unused share, not more.
func TestRoom_UserWithFewCalls_ServedFirst(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		for _, u := range []string{"a", "b", "c", "d"} {
			h.arrive("m", paidStream, u, 20)
		}
		for i := range 5 {
			for range 8 + i { // at any position between the users
				h.next("m", h.holders("m")[0])
			}
			h.arrive("m", paidStream, "rare", 1)
			require.Equal(t, []string{"rare"}, users(h.next("m", h.holders("m")[0])))
		}
		for range 10 {
			h.next("m", h.holders("m")[0])
		}
		h.arrive("m", paidStream, "rare", 3)
		order := users(h.drain("m"))
		require.Equal(t, "rare", order[0])
		require.NotContains(t, order[2:6], "rare", "as often as the others after that: %v", order)
	})
}

// T4: a cancelled waiter costs its user nothing.
func TestReleaseSlot_WaiterCancelled_UserKeepsShare(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		h.arrive("m", paidStream, "x", 1)
		gone := h.arrive("m", paidStream, "a", 5)
		h.arrive("m", paidStream, "b", 3)
		h.arrive("m", paidStream, "a", 3)
		h.release("m", gone...)
		require.Equal(t, []string{"b", "a", "b", "a", "b", "a"}, users(h.drain("m")))
	})
}

// lostRoom serves some waiters of three users in two queues, lets the room be changed, and returns the order in which the others
// are served. Waiters keep their tickets as their process does.
func lostRoom(t *testing.T, s *lua.Scripts, change func(h *hall, renew func())) (order []string) {
	t.Helper()
	h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
	all := slices.Concat(
		h.arrive("m", paidStream, "big", 9), h.arrive("m", paidStream, "a", 3), h.arrive("m", freeBatch, "b", 2),
	)
	for range 4 {
		h.next("m", h.holders("m")[0])
	}
	mine := lua.ModelLeases{Model: "m", Limits: h.limits, Holders: heldBy(h.holders("m")...)}
	for _, l := range all {
		if s.Redis().ZScore(t.Context(), s.Keys().ModelWaiting("m"), l).Err() == nil {
			mine.Waiters = append(mine.Waiters, lua.WaitingLease{Lease: l})
		}
	}
	require.Len(t, mine.Waiters, 9)
	renew := func() {
		_, out, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{mine})
		require.NoError(t, err)
		require.Equal(t, []string{lua.SlotHeld}, out[0].Holders)
		for i, r := range out[0].Waiters {
			require.Equal(t, lua.SlotWaiting, r.Code)
			mine.Waiters[i].Ticket = r.Ticket
		}
	}
	renew()
	change(h, renew)
	return h.drain("m")
}

// L12, T4: after Redis lost its data, waiters return to the order that they had, and the first of each user before new users.
func TestRenewSlots_RedisLostData_WaitersKeepOrder(t *testing.T) {
	t.Parallel()
	expected := lostRoom(t, newScripts(t), func(*hall, func()) {})
	s := newScripts(t)
	order := lostRoom(t, s, func(h *hall, renew func()) {
		require.NoError(t, s.Redis().FlushAll(t.Context()).Err())
		newcomers := h.arrive("m", paidStream, "new", 2) // before the others return
		require.Equal(t, 2, h.waiting("m"))
		renew()
		endGrace(t, s)
		require.Equal(t, lua.SlotWaiting, h.acquire("m", newcomers[0]).Code)
	})
	next := map[string][]string{} // of each user, as served without a loss
	for _, l := range expected {
		next[userOf(l)] = append(next[userOf(l)], l)
	}
	firsts, began := len(next), map[string]bool{}
	for _, l := range order {
		user := userOf(l)
		if user == "new" {
			require.Zero(t, firsts, "a new user was served before the others")
			continue
		}
		if !began[user] {
			began[user] = true
			firsts--
		}
		require.Equal(t, next[user][0], l, "a user's leases are served in their order")
		next[user] = next[user][1:]
	}
	require.Len(t, order, len(expected)+2)
}

// T4: the work of a call does not grow with the number of waiters. Redis counts the commands that the scripts execute.
func TestSlotScripts_ManyWaiters_CommandsStayTheSame(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	h := &hall{t: t, s: s, limits: limitsOf(5, 5)}
	commands := func() (n int64) {
		h.arrive("m", freeBatch, "someone", 1)
		before := total(t, server)
		h.arrive("m", paidBatch, "u", 1)
		h.next("m", h.holders("m")[0])
		return total(t, server) - before
	}
	fill(t, s, h.limits, 100)
	few := commands()
	fill(t, s, h.limits, 20_000)
	require.Equal(t, 20_101, h.waiting("m")+5)
	require.Less(t, commands(), few*3/2)
}

// total returns how many commands a server has executed, those of scripts included.
func total(t *testing.T, server *testredis.Server) (n int64) {
	t.Helper()
	for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(server.Do("INFO", "commandstats"), -1) {
		calls, err := strconv.ParseInt(m[2], 10, 64)
		require.NoError(t, err)
		n += calls
	}
	return n
}

// fill lets n leases of many users wait.
func fill(t testing.TB, s *lua.Scripts, limits lua.ModelLimits, n int) {
	t.Helper()
	fillAt(t, s, limits, n, func(int) lua.Group { return lua.Group{} })
}

// fillAt lets n leases wait, of users in groups.
func fillAt(t testing.TB, s *lua.Scripts, limits lua.ModelLimits, n int, group func(i int) lua.Group) {
	t.Helper()
	const batch = 100 // a busy machine renews more too slowly
	for from := 0; from < n; from += batch {
		m := lua.ModelLeases{Model: "m", Limits: limits}
		for i := from; i < min(n, from+batch); i++ {
			q := []berth.Queue{paidStream, paidBatch, freeStream, freeBatch}[i%4]
			p := lua.Path{Queue: q, UserID: fmt.Sprintf("user%d", i%(n/10)), Group: group(i)}
			m.Waiters = append(m.Waiters, lua.WaitingLease{Lease: lua.Lease{Process: "p", Path: p, Rest: strconv.Itoa(1_000_000 + n + i)}.ID()})
		}
		_, _, err := s.RenewSlots(t.Context(), longTimes, []lua.ModelLeases{m})
		require.NoError(t, err)
	}
}

// T4: operators change limits for all processes, which apply to the next decision.
func TestSetModelLimits_Changed_AppliesImmediately(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(2, 0)}
		h.arrive("m", paidStream, "u", 10)
		require.Len(t, h.holders("m"), 2)
		set := func(l lua.OperatorLimits) {
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, l)
			require.NoError(t, err)
		}
		read := func() lua.Room {
			room, err := s.ReadRoom(t.Context(), "m", h.limits, 10)
			require.NoError(t, err)
			return room
		}
		set(lua.OperatorLimits{Cap: new(5)})
		require.Len(t, h.holders("m"), 5, "free slots are granted by the change")
		require.Equal(t, 5, read().Upstreams[0].Cap)
		set(lua.OperatorLimits{Cap: new(1)})
		require.Len(t, h.holders("m"), 5, "nothing is revoked")
		require.Empty(t, h.next("m", h.holders("m")[0]))
		set(lua.OperatorLimits{Paused: true, Reason: "maintenance"})
		h.release("m", h.holders("m")...)
		require.Empty(t, h.holders("m"))
		require.Equal(t, lua.SlotWaiting, h.acquire("m", lease(paidStream, "v", 1)).Code)
		room := read()
		require.True(t, room.Paused)
		require.Equal(t, "maintenance", room.Reason)
		require.Equal(t, 6, room.Waiting)
		require.Equal(t, []lua.UserWaiting{{Path: lua.Path{Queue: paidStream, UserID: "u"}, Waiting: 5}, {Path: lua.Path{Queue: paidStream, UserID: "v"}, Waiting: 1}}, room.Users)
		set(lua.OperatorLimits{})
		require.Len(t, h.holders("m"), 2, "as configured")
		require.False(t, read().Paused)
	})
}

// T4: only a new resumption ends a provider's pause, so that other changes and a restore keep it.
func TestSetModelLimits_ProviderPaused_OnlyResumptionEndsIt(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(2, 0)}
		paused := func(l lua.OperatorLimits) bool {
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, l)
			require.NoError(t, err)
			room, err := s.ReadRoom(t.Context(), "m", h.limits, 0)
			require.NoError(t, err)
			return !room.Upstreams[0].PausedUntil.IsZero()
		}
		for resumed := range int64(2) {
			_, _, err := s.ReportCall(t.Context(), lua.CallReport{Model: "m", Upstream: "only", Outcome: lua.CallLimited, RetryAfter: time.Minute})
			require.NoError(t, err)
			require.True(t, paused(lua.OperatorLimits{Cap: new(1), Resumed: resumed}))
			require.False(t, paused(lua.OperatorLimits{Cap: new(1), Resumed: resumed + 1}))
		}
	})
}

// T4: reading a room changes nothing, so that the limits of a process that only reads apply to no call.
func TestReadRoom_OtherLimitsThanWorkers_NotKept(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		h.arrive("m", paidStream, "u", 3)
		room, err := s.ReadRoom(t.Context(), "m", limitsOf(7, 0), 5)
		require.NoError(t, err)
		require.Equal(t, []int{7, 1, 2}, []int{room.Upstreams[0].Cap, room.InUse, room.Waiting})
		_, err = s.SetModelLimits(t.Context(), "m", "", slotTimes, lua.OperatorLimits{})
		require.NoError(t, err)
		require.Len(t, h.holders("m"), 1, "the limit of the workers applies")
	})
}

// T4, T20: a pause has an end; each reply has the time until then.
func TestReportCall_ModelLimited_NoneGrantedUntilItsEnd(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		h := &hall{t: t, s: s, limits: limitsOf(2, 0)}
		_, _, err := s.ReportCall(t.Context(), lua.CallReport{
			Model: "m", Upstream: "only", Outcome: lua.CallLimited, RetryAfter: time.Hour, Reason: "rate limited",
		})
		require.NoError(t, err)
		l := lease(paidStream, "u", 1)
		r := h.acquire("m", l)
		require.Equal(t, lua.SlotWaiting, r.Code)
		require.Greater(t, r.Next, 50*time.Second)
		room, err := s.ReadRoom(t.Context(), "m", h.limits, 0)
		require.NoError(t, err)
		require.Equal(t, "rate limited", room.Upstreams[0].Cause)
		require.False(t, room.Upstreams[0].PausedUntil.IsZero())
		require.Greater(t, room.Stopped, 50*time.Second)

		ended := strconv.FormatInt(redisMs(t, s)-1, 10)
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelLimits("m"), "until:only", ended).Err())
		require.Equal(t, lua.SlotGranted, h.acquire("m", l).Code)
	})
}

// T4: grants follow the limits per minute.
func TestAcquireSlot_LimitPerMinute_PacesGrants(t *testing.T) {
	t.Parallel()
	limits := map[string]lua.UpstreamLimits{
		"requests": {Cap: 1000, RPM: 20},
		"tokens":   {Cap: 1000, TPM: 20_000}, // a call of cost 1 has a thousand
	}
	servers := slotServers(t)
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				h := &hall{t: t, s: s, limits: lua.ModelLimits{Upstreams: []lua.UpstreamLimits{l}}}
				leases := h.arrive("m", paidStream, "u", 10)
				require.Len(t, h.holders("m"), 2, "a burst of a tenth")
				r := h.acquire("m", leases[9])
				require.Positive(t, r.Next)
				require.LessOrEqual(t, r.Next, 3200*time.Millisecond)
				h.release("m", h.holders("m")...)
				require.Empty(t, h.holders("m"), "free slots do not change the pace")
			})
		})
	}
}

// A user id may contain anything that is printable.
func TestReadRoom_UnusualUserID_IsReturned(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		const id = "https://login.example/u/42|ä b"
		h := &hall{t: t, s: s}
		h.arrive("m", freeBatch, id, 2)
		room, err := s.ReadRoom(t.Context(), "m", h.limits, 5)
		require.NoError(t, err)
		require.Equal(t, []lua.UserWaiting{{Path: lua.Path{Queue: freeBatch, UserID: id}, Waiting: 2}}, room.Users)
	})
}

// An unreadable argument is refused without an effect.
func TestSlotScripts_UnreadableArgument_Refused(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx, limits := t.Context(), limitsOf(1, 0)
		_, err := s.AcquireSlot(ctx, lua.SlotCall{Model: "m", Limits: limits, Lease: "p/x", Times: slotTimes})
		require.ErrorContains(t, err, "unreadable")
		_, err = s.AcquireSlot(ctx, lua.SlotCall{Model: "m", Limits: limits, Lease: full("p/x"), Ticket: "7", Times: slotTimes})
		require.ErrorContains(t, err, "unreadable")
		_, _, err = s.ReleaseSlot(ctx, "m", limits, slotTimes, "x")
		require.ErrorContains(t, err, "unreadable")
		_, _, err = s.RenewSlots(ctx, slotTimes, []lua.ModelLeases{{Model: "m", Holders: heldBy(full("p/a"), "x")}})
		require.ErrorContains(t, err, "unreadable")
		room, err := s.ReadRoom(ctx, "m", limits, 5)
		require.NoError(t, err)
		require.Zero(t, room.InUse+room.Waiting)
	})
}
