package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// crowd is a room of executions, with the waiters that were handed a node so far.
type crowd struct {
	t       *testing.T
	s       *lua.Scripts
	handed  []string
	waiting int // numbers the arrivals
}

func newCrowd(t *testing.T, s *lua.Scripts) *crowd {
	c := &crowd{t: t, s: s}
	s.OnHandover(func(ids []string) {
		for _, id := range ids {
			w, err := lua.ParseNodeWaiter(id)
			require.NoError(t, err)
			require.Equal(t, id, w.ID())
			c.handed = append(c.handed, strings.TrimPrefix(w.WorkflowID, "execution:"))
		}
	})
	return c
}

func executionWaiter(user, execution string) lua.NodeWaiter {
	return lua.NodeWaiter{UserID: user, WorkflowID: "execution:" + execution, LeaseID: "execution:" + execution + ":1"}
}

func (c *crowd) queued(user, execution string, set ...func(*lua.Waiting)) lua.Waiting {
	c.waiting++
	q := lua.Waiting{
		NodeWaiter: executionWaiter(user, execution), Left: time.Hour,
		Since: time.UnixMicro(int64(1_000_000 + c.waiting)),
	}
	for _, f := range set {
		f(&q)
	}
	return q
}

// join lets an execution wait as placement does: it waits only when it cannot get a node.
func (c *crowd) join(choice lua.Choice, q lua.Waiting) lua.Decision {
	c.t.Helper()
	if choice.PoolID == "" {
		choice.PoolID = pair
	}
	choice.Hold = time.Hour
	d, err := c.s.TryAssign(c.t.Context(), choice, q)
	require.NoError(c.t, err)
	if d.Code != lua.AssignWaiting && d.Code != lua.AssignFull && d.Code != lua.AssignNone && d.Code != lua.GuardGrace {
		return d
	}
	d, err = c.s.JoinWaiting(c.t.Context(), choice, q)
	require.NoError(c.t, err)
	return d
}

func (c *crowd) waits(user string, executions ...string) {
	c.t.Helper()
	for _, e := range executions {
		require.Equal(c.t, lua.AssignWaiting, c.join(lua.Choice{}, c.queued(user, e)).Code, e)
	}
}

// next releases the slot of an execution, and returns which executions were handed one.
func (c *crowd) next(node, execution string) []string {
	c.t.Helper()
	c.handed = nil
	_, err := c.s.ReleaseNodeSlot(c.t.Context(), node, executionWaiter("", execution).LeaseID)
	require.NoError(c.t, err)
	return c.handed
}

func (c *crowd) position(execution, user string) int {
	c.t.Helper()
	p, err := c.s.ReadWaiting(c.t.Context(), pair, executionWaiter(user, execution))
	require.NoError(c.t, err)
	return p
}

// FF7, B1: a node goes to the execution that has waited longest, users of a pool alternating; one that arrives later does not
// overtake, also while a slot is free.
func TestHandover_SlotReleased_FairOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("alice", "first")).Code)
		c.waits("alice", "a1", "a2", "a3", "a4")
		c.waits("bob/@x", "b1", "b2")
		require.Equal(t, 0, c.position("a1", "alice"))
		require.Equal(t, 1, c.position("b1", "bob/@x"))
		require.Equal(t, 2, c.position("a2", "alice"))
		require.Equal(t, -1, c.position("first", "alice"))

		order := []string{"first"}
		for i := range 6 {
			handed := c.next("n1", order[i])
			require.Len(t, handed, 1)
			order = append(order, handed[0])
			late := c.queued("carol", "late")
			if i < 5 {
				require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{}, late).Code, "does not overtake")
				require.NoError(t, s.LeaveWaiting(t.Context(), pair, late.NodeWaiter))
			}
			d, err := s.TryAssign(t.Context(), lua.Choice{PoolID: pair, Hold: time.Hour}, c.queued("any", handed[0]))
			require.NoError(t, err)
			require.Equal(t, lua.AssignExists, d.Code, "the promoted workflow finds its node")
			require.Equal(t, "n1", d.NodeID)
		}
		require.Equal(t, []string{"first", "a1", "b1", "a2", "b2", "a3", "a4"}, order)
	})
}

// FF7: pools that share nodes share them equally, whatever their backlogs; a pool with waiters of its own nodes does not compete.
func TestHandover_PoolsShareNode_Alternate(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1), can("a", "b")))
		register(t, s, spec("n2", slots(1), can("c")))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{PoolID: "a"}, c.queued("u", "first")).Code)
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{PoolID: "c"}, c.queued("u", "other")).Code)
		for pool, n := range map[string]int{"a": 10, "b": 3, "c": 2} {
			for i := range n {
				require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{PoolID: pool}, c.queued("u", fmt.Sprint(pool, i))).Code)
			}
		}
		order, last := "", "first"
		for range 8 {
			handed := c.next("n1", last)
			require.Len(t, handed, 1)
			last = handed[0]
			order += last[:1]
		}
		require.Equal(t, "ababab", order[:6])
		require.Equal(t, "aa", order[6:])
		require.Equal(t, []string{"c0"}, c.next("n2", "other"))
	})
}

// FF7: an execution whose node failed waits ahead of new ones, and one that may not use the node does not hold it back.
func TestHandover_Redispatched_GoesAhead(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1)))
		register(t, s, spec("n2", slots(1)))
		for _, e := range []string{"x1", "x2"} {
			require.Equal(t, lua.AssignOK, c.join(lua.Choice{Strategy: berth.StrategyAffinity, Own: "n" + e[1:]}, c.queued("u", e)).Code)
		}
		c.waits("alice", "a1", "a2")
		c.waits("bob", "b1")
		again := c.queued("carol", "again", func(q *lua.Waiting) { q.LeaseID, q.Again, q.Since = "execution:again:2", true, time.UnixMicro(1) })
		require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{Excluded: []string{"n1"}}, again).Code)
		require.Equal(t, []string{"a1"}, c.next("n1", "x1"), "it may not use n1")
		require.Equal(t, []string{"again"}, c.next("n2", "x2"))
		require.Equal(t, []string{"b1"}, c.next("n1", "a1"))
	})
}

// FF7: whatever makes capacity available hands it over: a registration, a heartbeat, an end of a cordon, the expiry of a lease.
func TestHandover_CapacityAppears_IsHandedOver(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		n1 := register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("u", "x1")).Code)
		c.waits("u", "w1", "w2", "w3", "w4")
		register(t, s, spec("n2", slots(1)))
		require.Equal(t, []string{"w1"}, c.handed)

		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true}))
		require.Equal(t, []string(nil), c.next("n1", "x1"))
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{}))
		require.NoError(t, s.SweepWaiting(t.Context()))
		require.Equal(t, []string{"w2"}, c.handed)

		c.handed = nil
		expire := func(node, execution string) {
			lease := executionWaiter("", execution).LeaseID
			require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().NodeSlots(node), redis.Z{Score: 1, Member: lease}).Err())
		}
		expire("n1", "w2")
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", n1.Generation, berth.NodeLoad{}))
		require.Equal(t, []string{"w3"}, c.handed)

		// The workflow of an execution whose node expired before it asked for it enters again, ahead of the others.
		d := c.join(lua.Choice{}, c.queued("u", "w2", func(q *lua.Waiting) { q.Since = time.UnixMicro(2) }))
		require.Equal(t, lua.AssignWaiting, d.Code)
		require.Equal(t, []string{"w2"}, c.next("n1", "w3"))
	})
}

// FF7: a cancelled waiter is not served, and one that was handed a node releases it to the next. So does one without a workflow.
func TestHandover_WaiterLeaves_NextIsServed(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("u", "x1")).Code)
		c.waits("u", "w1", "w2", "w3", "w4")
		leave := func(e string) {
			t.Helper()
			require.NoError(t, s.LeaveWaiting(ctx, pair, executionWaiter("u", e)))
		}
		leave("w1")
		leave("w1")
		require.Equal(t, []string{"w2"}, c.next("n1", "x1"))
		c.handed = nil
		leave("w2")
		require.Equal(t, []string{"w3"}, c.handed)

		c.handed = nil
		require.NoError(t, s.Redis().ZAdd(ctx, s.Keys().WaitingPromoted(), redis.Z{Score: 1, Member: c.queued("u", "w3").ID()}).Err())
		require.NoError(t, s.SweepWaiting(ctx))
		require.Equal(t, []string{"w3"}, c.handed, "signalled again")
		c.handed = nil
		require.NoError(t, s.ConfirmHandovers(ctx, nil, []string{c.queued("u", "w3").ID()}))
		require.Equal(t, []string{"w4"}, c.handed)
		require.NoError(t, s.ConfirmHandovers(ctx, []string{c.queued("u", "w4").ID()}, nil))
		require.Zero(t, s.Redis().ZCard(ctx, s.Keys().WaitingPromoted()).Val())

		c.waits("u", "w5")
		expired := c.queued("u", "w5", func(q *lua.Waiting) { q.Left = time.Nanosecond })
		require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{}, expired).Code)
		require.Eventually(t, func() bool { // its deadline has passed
			require.NoError(t, s.SweepWaiting(ctx))
			return c.position("w5", "u") < 0
		}, 10*time.Second, time.Millisecond)
		require.Empty(t, c.next("n1", "w4"))
		pools := s.Keys().WaitingPools()
		require.Zero(t, s.Redis().Exists(ctx, pools, pools+":state", pools+":requests", pools+":listed", pools+":promoted").Val(),
			"nothing remains of waiters")
	})
}

// FF7, L12: after Redis lost its data the workflows enter again; nothing is handed over in the grace, and then in the old order.
func TestHandover_RedisLostData_OldOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		c := newCrowd(t, s)
		queue := []lua.Waiting{c.queued("u", "w1"), c.queued("u", "w2"), c.queued("u", "w3")}
		require.NoError(t, s.Redis().Del(ctx, s.Keys().Guard()).Err())
		register(t, s, spec("n1", slots(1)))
		for _, i := range []int{2, 0, 1} {
			require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{}, queue[i]).Code)
		}
		require.NoError(t, s.SweepWaiting(ctx))
		require.Empty(t, c.handed)
		require.NoError(t, s.Redis().HSet(ctx, s.Keys().Guard(), "grace", "0").Err())
		require.NoError(t, s.SweepWaiting(ctx))
		require.Equal(t, []string{"w1"}, c.handed)
		require.Equal(t, []string{"w2"}, c.next("n1", "w1"))
		require.Equal(t, []string{"w3"}, c.next("n1", "w2"))
	})
}

// FF7: work that needs several capabilities, for which no pool is defined, waits in the same order.
func TestHandover_SeveralCapabilities_NodeHasAll(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1), can("a", "b")))
		register(t, s, spec("n2", slots(1), can("a")))
		for i, e := range []string{"x1", "x2"} {
			own := fmt.Sprint("n", i+1)
			require.Equal(t, lua.AssignOK, c.join(lua.Choice{PoolID: "a", Strategy: berth.StrategyAffinity, Own: own}, c.queued("u", e)).Code)
		}
		both := lua.Choice{PoolID: "a+b", Required: []string{"a", "b"}, Listed: []string{"n1", "n2"}}
		require.Equal(t, lua.AssignWaiting, c.join(both, c.queued("u", "w1", func(q *lua.Waiting) { q.Listed = true })).Code)
		require.Empty(t, c.next("n2", "x2"))
		require.Equal(t, []string{"w1"}, c.next("n1", "x1"))
	})
}

// FA7: the waiters of the work of two users with the same id are different, whatever its workflow and lease are.
func TestNodeWaiter_Keys_RoundTrip(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, user := range []string{"alice", "bob", "a:b", "https://login.example/u/42", "用户🚢"} {
		for _, key := range []string{berth.ExecutionRef{UserID: user, ExecutionID: "e1"}.String(), "https://x/e1", "e%2F1"} {
			for _, lease := range []string{"execution:" + key + ":12", "t1-0:2"} {
				w := lua.NodeWaiter{UserID: user, WorkflowID: "execution:" + key, LeaseID: lease}
				got, err := lua.ParseNodeWaiter(w.ID())
				require.NoError(t, err)
				require.Equal(t, w, got)
				require.False(t, ids[w.ID()])
				ids[w.ID()] = true
			}
		}
	}
	for _, bad := range []string{"", "node/x|user:alice/1/e1", "node/x|user:alice/1/e1/", "node/x|user:alice/1//e1:1", "node/x|user:%/1/w/e1:1", "node/x|user:alice/1/%/e1:1", "node/x|alice/1/w/e1:1", "task/x|user:alice/1/w/e1:1"} {
		_, err := lua.ParseNodeWaiter(bad)
		require.Error(t, err, bad)
	}
}

// FA5: however many pools wait that no free node serves, a pool with a free node gets it: from a release or a heartbeat of the node, and
// from one sweep.
func TestHandover_ManyOtherPoolsWait_DoNotHideServedOne(t *testing.T) { // B1
	t.Parallel()
	const others = 1100
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("busy", slots(1), can("x")))
		n1 := register(t, s, spec("n1", slots(1), can("mine", "a", "b")))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{PoolID: "mine"}, c.queued("u", "x1")).Code)
		for i := range others {
			d, err := s.JoinWaiting(t.Context(), lua.Choice{PoolID: fmt.Sprint("other", i)}, c.queued("u", fmt.Sprint("o", i)))
			require.NoError(t, err)
			require.Equal(t, lua.AssignWaiting, d.Code)
			// The pools of combinations that n1 does not have begin with a capability that it has.
			both := lua.Choice{PoolID: fmt.Sprintf("a+z%04d", i), Required: []string{"a", fmt.Sprintf("z%04d", i)}}
			d, err = s.JoinWaiting(t.Context(), both, c.queued("u", fmt.Sprint("l", i), func(q *lua.Waiting) { q.Listed = true }))
			require.NoError(t, err)
			require.Equal(t, lua.AssignWaiting, d.Code)
		}
		mine := func(ids ...string) {
			for _, id := range ids {
				d, err := s.JoinWaiting(t.Context(), lua.Choice{PoolID: "mine"}, c.queued("u", id))
				require.NoError(t, err)
				require.Equal(t, lua.AssignWaiting, d.Code)
			}
		}
		mine("m1", "m2", "m3")
		require.Equal(t, []string{"m1"}, c.next("n1", "x1"), "by a release")
		require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().NodeSlots("n1"), redis.Z{Score: 1, Member: "execution:m1:1"}).Err())
		c.handed = nil
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", n1.Generation, berth.NodeLoad{}))
		require.Equal(t, []string{"m2"}, c.handed, "by a heartbeat")
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true}))
		require.Empty(t, c.next("n1", "m2"))
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{}))
		for sweeps := 0; len(c.handed) == 0; sweeps++ {
			require.Less(t, sweeps, 4, "by a sweep, of which each looks at about a thousand pools")
			require.NoError(t, s.SweepWaiting(t.Context()))
		}
		require.Equal(t, []string{"m3"}, c.handed)

		both := lua.Choice{PoolID: "a+b", Required: []string{"a", "b"}}
		d, err := s.JoinWaiting(t.Context(), both, c.queued("u", "both", func(q *lua.Waiting) { q.Listed = true }))
		require.NoError(t, err)
		require.Equal(t, lua.AssignWaiting, d.Code)
		handed := c.next("n1", "m3")
		for beats := 0; len(handed) == 0; beats++ {
			require.Less(t, beats, 2*others/64, "each looks at the next ones of its capability")
			require.Equal(t, lua.NodeOK, beat(t, s, "n1", n1.Generation, berth.NodeLoad{}))
			handed = c.handed
		}
		require.Equal(t, []string{"both"}, handed)
		require.Zero(t, s.Redis().HExists(t.Context(), s.Keys().WaitingPools()+":listed", "a+b").Val())
		require.InDelta(t, others, s.Redis().ZScore(t.Context(), s.Keys().WaitingPools()+":anchors", "a").Val(), 0)
	})
}

// FA6: waiters that may not use a free node, because it failed them, do not hide those behind them that may.
func TestHandover_ManyExcludeTheNode_NextOneGetsIt(t *testing.T) { // B1
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1)))
		register(t, s, spec("n2", slots(1)))
		for _, e := range []string{"x1", "x2"} {
			require.Equal(t, lua.AssignOK, c.join(lua.Choice{Strategy: berth.StrategyAffinity, Own: "n" + e[1:]}, c.queued("u", e)).Code)
		}
		for i := range 120 {
			failed := c.queued(fmt.Sprint("user", i%12), fmt.Sprint("f", i), func(q *lua.Waiting) { q.Again = true })
			require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{Excluded: []string{"n1"}}, failed).Code)
		}
		c.waits("user0", "last", "after")
		require.Equal(t, []string{"last"}, c.next("n1", "x1"))
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true}))
		require.Empty(t, c.next("n1", "last"))
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{}))
		require.NoError(t, s.SweepWaiting(t.Context()))
		require.Equal(t, []string{"after"}, c.handed, "by a sweep")
		require.Len(t, c.next("n2", "x2"), 1)
		require.Equal(t, "f0", c.handed[0])
	})
}

// FA11: waiters whose requests Redis has lost are removed, wherever they are; those behind them get the node in their order.
func TestHandover_RequestsLost_OthersAreServed(t *testing.T) { // B1
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		for name, lost := range map[string][]string{
			"first": {"a1"}, "second": {"a2"}, "several": {"a1", "a2", "b1"}, "all of a user": {"b1", "b2"}, "all but the last": {"a1", "a2", "b1"},
		} {
			t.Run(name, func(t *testing.T) {
				c := newCrowd(t, s)
				node, pool := "n-"+strings.ReplaceAll(name, " ", "-"), "p-"+strings.ReplaceAll(name, " ", "-")
				register(t, s, spec(node, slots(1), can(pool)))
				id := func(e string) string { return pool + e }
				require.Equal(t, lua.AssignOK, c.join(lua.Choice{PoolID: pool}, c.queued("u", id("first"))).Code)
				left := []string{}
				for _, e := range []string{"a1", "b1", "a2", "b2", "a3"} {
					user := map[byte]string{'a': "alice", 'b': "bob"}[e[0]]
					require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{PoolID: pool}, c.queued(user, id(e))).Code)
					if !slices.Contains(lost, e) {
						left = append(left, e)
					}
				}
				for _, e := range lost {
					user := map[byte]string{'a': "alice", 'b': "bob"}[e[0]]
					w := executionWaiter(user, id(e))
					require.EqualValues(t, 1, s.Redis().HDel(t.Context(), s.Keys().WaitingPools()+":requests", w.ID()).Val())
				}
				var served []string
				for last := id("first"); len(served) < len(left); {
					handed := c.next(node, last)
					require.Len(t, handed, 1)
					last = handed[0]
					served = append(served, strings.TrimPrefix(last, pool))
				}
				require.ElementsMatch(t, left, served)
				require.Zero(t, s.Redis().ZCard(t.Context(), s.Keys().PoolWaiting(pool)).Val())
			})
		}
	})
}

// FA12: a node without a service that an execution needs is handed to those behind it; the execution gets one that has it.
func TestHandover_ServiceNeeded_NodeWithItAwaited(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		register(t, s, spec("plain", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("ann", "running")).Code)
		require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{Needed: []string{"whisper"}}, c.queued("ben", "speech")).Code)
		c.waits("ben", "text")
		require.Equal(t, []string{"text"}, c.next("plain", "running"))
		require.Empty(t, c.next("plain", "text"))
		register(t, s, spec("able", slots(1), runs("whisper")))
		require.Equal(t, []string{"speech"}, c.handed)
	})
}

// waitingJob is a job that is dispatched again, and waits for a node as the work of a turn does.
type waitingJob struct {
	berth.JobRequest
	lua.Choice
}

func (c *crowd) redispatched(user, turn string, set ...func(*waitingJob)) waitingJob {
	c.waiting++
	j := waitingJob{Choice: lua.Choice{PoolID: pair}}
	j.UserID, j.SessionID, j.TurnID, j.JobID, j.RequestID, j.Dispatch, j.AffinityNodeID = user, "s-"+turn, turn, turn+"-0", "r", 2, "n9"
	j.Waiter = &lua.NodeWaiter{UserID: user, WorkflowID: "turn:" + turn, LeaseID: j.LeaseID()}
	for _, f := range set {
		f(&j)
	}
	return j
}

// dispatch dispatches a job as placement does.
func (c *crowd) dispatch(j waitingJob) lua.Decision {
	c.t.Helper()
	d, err := c.s.DispatchJob(c.t.Context(), j.JobRequest, j.Choice)
	require.NoError(c.t, err)
	if d.Code == lua.AssignOK || d.Code == lua.AssignExists || j.Waiter == nil {
		return d
	}
	w := lua.Waiting{NodeWaiter: *j.Waiter, Left: time.Hour, Since: time.UnixMicro(int64(c.waiting)), Again: true}
	d, err = c.s.JoinWaiting(c.t.Context(), j.Choice, w)
	require.NoError(c.t, err)
	if d.Code == lua.AssignWaiting {
		return d
	}
	d, err = c.s.DispatchJob(c.t.Context(), j.JobRequest, j.Choice)
	require.NoError(c.t, err)
	return d
}

// B1, A11: jobs that are dispatched again wait in the room of their pool with its executions: users alternate, whatever their work is,
// and a job goes ahead of what has entered before it. A node is reserved for a job once, also if the call of its workflow is repeated.
func TestHandover_JobsAndExecutions_FairOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		c := newCrowd(t, s)
		register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("alice", "first")).Code)
		c.waits("alice", "a1", "a2")
		c.waits("bob", "b1", "b2")
		jobs := map[string]waitingJob{"turn:t1": c.redispatched("carol", "t1"), "turn:t2": c.redispatched("carol", "t2")}
		for _, id := range []string{"turn:t1", "turn:t2"} {
			require.Equal(t, lua.AssignWaiting, c.dispatch(jobs[id]).Code)
			require.Equal(t, lua.AssignWaiting, c.dispatch(jobs[id]).Code, "again")
		}
		newSegment := c.redispatched("dave", "t3", func(j *waitingJob) { j.Dispatch, j.Waiter = 1, nil })
		require.Equal(t, lua.AssignFull, c.dispatch(newSegment).Code, "a submitted segment is refused")
		require.Equal(t, 1, c.position("a1", "alice"), "it counts the jobs")
		require.Equal(t, 2, c.position("b1", "bob"))

		var order []string
		lease := executionWaiter("", "first").LeaseID
		for range 6 {
			c.handed = nil
			held, err := s.ReleaseNodeSlot(ctx, "n1", lease)
			require.NoError(t, err)
			require.True(t, held)
			require.Len(t, c.handed, 1)
			next := c.handed[0]
			order = append(order, next)
			lease = executionWaiter("", next).LeaseID
			if j, ok := jobs[next]; ok {
				d := c.dispatch(j)
				require.Equal(t, lua.AssignOK, d.Code, "its workflow finds the node")
				require.Equal(t, "n1", d.NodeID)
				require.Equal(t, berth.AffinityMiss, d.Affinity, "the turn's node is another one")
				again := c.dispatch(j)
				require.Equal(t, lua.AssignExists, again.Code)
				require.Equal(t, d.LeaseID, again.LeaseID)
				job, ok, err := s.FindJob(ctx, j.JobID)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, "n1", job.Assignment.NodeID)
				_, ok, err = s.FindLease(ctx, d.LeaseID)
				require.NoError(t, err)
				require.False(t, ok, "its lease belongs to the job")
				require.NoError(t, s.LeaveWaiting(ctx, pair, *j.Waiter), "too late")
				lease = d.LeaseID
			}
		}
		require.Equal(t, []string{"turn:t1", "a1", "b1", "turn:t2", "a2", "b2"}, order)
		require.Zero(t, s.Redis().Exists(ctx, s.Keys().WaitingPools()).Val())
	})
}

// A11: the generation that failed a job, or an execution, is not handed to it; its node is as soon as it has registered again.
func TestHandover_FailedNodeReturns_IsHandedOver(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		c := newCrowd(t, s)
		n1 := register(t, s, spec("n1", slots(1)))
		failed := []berth.NodeRef{{NodeID: "n1", Generation: n1.Generation}, {NodeID: "n2", Generation: 1}}
		job := c.redispatched("carol", "t1", func(j *waitingJob) { j.Choice.Failed = failed })
		require.Equal(t, lua.AssignWaiting, c.dispatch(job).Code)
		require.Equal(t, lua.AssignWaiting, c.join(lua.Choice{Failed: failed}, c.queued("bob", "b1")).Code)
		require.NoError(t, s.SweepWaiting(t.Context()))
		require.Empty(t, c.handed)
		register(t, s, spec("n1", slots(2), func(n *berth.NodeSpec) { n.Incarnation.PID++ }))
		require.Equal(t, []string{"turn:t1", "b1"}, c.handed)
		d := c.dispatch(job)
		require.Equal(t, lua.AssignOK, d.Code)
		require.Greater(t, d.Generation, n1.Generation)
	})
}

// L12: a reservation that its workflow does not use in time, or that Redis has lost, is not a job's node: the job waits again.
func TestHandover_ReservationLost_JobWaitsAgain(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		c := newCrowd(t, s)
		n1 := register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, c.join(lua.Choice{}, c.queued("u", "x1")).Code)
		job := c.redispatched("carol", "t1")
		require.Equal(t, lua.AssignWaiting, c.dispatch(job).Code)
		c.waits("bob", "b1")
		require.Equal(t, []string{"turn:t1"}, c.next("n1", "x1"))
		require.NoError(t, s.Redis().ZAdd(ctx, s.Keys().NodeSlots("n1"), redis.Z{Score: 1, Member: job.LeaseID()}).Err())
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", n1.Generation, berth.NodeLoad{}))
		require.Equal(t, []string{"turn:t1", "b1"}, c.handed, "it expired")
		require.Equal(t, lua.AssignWaiting, c.dispatch(job).Code)
		require.Equal(t, []string{"turn:t1"}, c.next("n1", "b1"))
		require.Equal(t, lua.AssignOK, c.dispatch(job).Code)
	})
}
