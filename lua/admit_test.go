package lua_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/lua"
)

var (
	firstStep = berth.Step{Queue: paidBatch, Model: "m"}
	nextStep  = berth.Step{Queue: paidStream, Model: "n"}
)

// gate admits and admissions tasks of one user and service.
type gate struct {
	t      require.TestingT
	ctx    context.Context
	s      *lua.Scripts
	user   string
	limits lua.AdmissionLimits
}

func (g gate) admit(id string) lua.AdmitReply {
	r, err := g.s.AdmitTask(g.ctx, lua.Submission{Task: berth.TaskRef{UserID: g.user, TaskID: id}, ServiceID: "jobs", Queue: firstStep.Queue, Limits: g.limits})
	require.NoError(g.t, err)
	return r
}

func (g gate) admissions(id string) lua.Admissions {
	return lua.Admissions{Task: berth.TaskRef{UserID: g.user, TaskID: id}, ServiceID: "jobs", Queues: []berth.Queue{paidBatch, paidStream, freeBatch}}
}

func (g gate) keep(id string) {
	require.NoError(g.t, g.s.KeepAdmissions(g.ctx, g.admissions(id), firstStep.Queue, time.Hour))
}

func (g gate) move(id string) {
	require.NoError(g.t, g.s.MoveAdmissions(g.ctx, g.admissions(id), nextStep.Queue, time.Hour))
}

func (g gate) remove(id string) {
	require.NoError(g.t, g.s.RemoveAdmissions(g.ctx, g.admissions(id)))
}

// taken returns the admissions that have not expired: of the first queue, of the next one, and of the user and service.
func (g gate) taken() [3]int64 {
	var n [3]int64
	now := strconv.FormatInt(redisNow(g.t, g.ctx, g.s), 10)
	for i, key := range []string{g.s.Keys().QueueAdmissions(paidBatch), g.s.Keys().QueueAdmissions(paidStream), g.s.Keys().UserAdmissions(g.user, "jobs")} {
		var err error
		n[i], err = g.s.Redis().ZCount(g.ctx, key, "("+now, "+inf").Result()
		require.NoError(g.t, err)
	}
	return n
}

func redisNow(t require.TestingT, ctx context.Context, s *lua.Scripts) int64 {
	now, err := s.Redis().Time(ctx).Result()
	require.NoError(t, err)
	return now.UnixMilli()
}

// expire moves the end of a task's admissions into the past.
func (g gate) expire(id string) {
	member, past := berth.TaskRef{UserID: g.user, TaskID: id}.String(), float64(redisNow(g.t, g.ctx, g.s)-1)
	for _, key := range []string{g.s.Keys().QueueAdmissions(paidBatch), g.s.Keys().UserAdmissions(g.user, "jobs")} {
		require.NoError(g.t, g.s.Redis().ZAddXX(g.ctx, key, zMember(past, member)).Err())
	}
}

func newGate(t *testing.T, s *lua.Scripts, limits lua.AdmissionLimits) gate {
	return gate{t: t, ctx: t.Context(), s: s, user: "al:ice", limits: limits}
}

func TestAdmitTask_QueueFull_RefusedUntilOneEnds(t *testing.T) { // T5
	t.Parallel()
	require.Equal(t, "{c1}:bp:al%3Aice:jobs", lua.Keys{Cell: "c1"}.UserAdmissions("al:ice", "jobs"))
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 2})
		require.Equal(t, lua.AdmitReply{Code: lua.TaskAdmitted, Rate: lua.RateState{Left: -1}, Tokens: lua.RateState{Left: -1}}, g.admit("a"))
		require.Equal(t, 1, g.admit("b").Ahead)
		g.keep("a")
		full := lua.AdmitReply{Code: lua.TaskQueueFull, Rate: lua.RateState{Left: -1}, Tokens: lua.RateState{Left: -1}, Ahead: 2}
		require.Equal(t, full, g.admit("c"))
		other := g
		other.user = "bob"
		require.Equal(t, full, other.admit("a"), "the task of another user with the same id is another task")
		require.Equal(t, lua.TaskAdmitted, g.admit("b").Code, "a repeated submission has its admission")
		require.Equal(t, [3]int64{2, 0, 2}, g.taken())

		g.expire("b") // its workflow never kept it
		require.Equal(t, lua.TaskAdmitted, g.admit("c").Code)
		require.Equal(t, [3]int64{2, 0, 2}, g.taken())
		require.Equal(t, lua.TaskQueueFull, g.admit("b").Code)

		g.move("a")
		require.Equal(t, [3]int64{1, 1, 2}, g.taken(), "the task is in the queue of its next step")
		g.move("a")
		require.Equal(t, [3]int64{1, 1, 2}, g.taken())
		g.remove("a")
		g.remove("a")
		g.move("a") // late
		require.Equal(t, [3]int64{1, 0, 1}, g.taken(), "an ended task gets no admission")
		g.keep("d") // accepted after its admission had expired
		require.Equal(t, [3]int64{2, 0, 2}, g.taken())
	})
}

// T5: the last tenth of a queue is for users who have no admission in it.
func TestAdmitTask_QueueFilledByFewUsers_OthersAdmitted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 20})
		for i := range 18 {
			require.Equal(t, lua.TaskAdmitted, g.admit(fmt.Sprint(i)).Code)
		}
		require.Equal(t, lua.TaskQueueFull, g.admit("more").Code)
		a, b, c := g, g, g
		a.user, b.user, c.user = "a", "b", "c"
		require.Equal(t, lua.TaskAdmitted, a.admit("1").Code)
		require.Equal(t, lua.TaskAdmitted, a.admit("1").Code, "a repeated submission has its admission")
		require.Equal(t, lua.TaskQueueFull, a.admit("2").Code, "it has an admission")
		require.Equal(t, lua.TaskAdmitted, b.admit("1").Code)
		require.Equal(t, lua.TaskQueueFull, c.admit("1").Code, "all admissions are taken")
		a.keep("1")
		a.move("1") // to the queue of its next step
		require.Equal(t, lua.TaskQueueFull, g.admit("more").Code)
		require.Equal(t, lua.TaskAdmitted, c.admit("1").Code)
		require.Equal(t, lua.TaskQueueFull, a.admit("2").Code)
		b.remove("1")
		require.Equal(t, lua.TaskAdmitted, b.admit("2").Code, "its other task has ended")
		for _, queue := range []berth.Queue{paidBatch, paidStream} {
			ttl, err := s.Redis().PTTL(g.ctx, s.Keys().QueueAdmissions(queue)+":of:a").Result()
			require.NoError(t, err)
			require.NotEqual(t, time.Duration(-1), ttl, "no key is kept indefinitely")
		}
	})
}

// T5: users whom a full queue refuses get turns at the pace at which admissions become free. Neither others nor more submissions of a
// user take the admission of one whose turn it is.
func TestAdmitTask_QueueFullForManyUsers_AdmittedByRetries(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 3})
		key := s.Keys().QueueAdmissions(paidBatch)
		user := func(name string) gate {
			other := g
			other.user = name
			return other
		}
		for _, id := range []string{"1", "2", "3"} {
			require.Equal(t, lua.TaskAdmitted, g.admit(id).Code)
		}
		unknown, err := s.PlanRetry(g.ctx, paidBatch, "u")
		require.NoError(t, err)
		require.Negative(t, unknown, "no admission has ended")
		g.remove("1")
		g.admit("4")
		require.NoError(t, s.Redis().HSet(g.ctx, key+":pace", "freed", redisNow(t, g.ctx, s)-4000).Err())
		g.remove("2")
		g.admit("5")
		a, b, c := user("a"), user("b"), user("c")
		// refused submits a task, and requires the time until the retry.
		refused := func(g gate, want time.Duration) {
			t.Helper()
			require.Equal(t, lua.TaskQueueFull, g.admit("refused").Code)
			wait, err := s.PlanRetry(g.ctx, paidBatch, g.user)
			require.NoError(t, err)
			require.InDelta(t, want, wait, float64(500*time.Millisecond))
		}
		refused(a, 4*time.Second)
		refused(b, 8*time.Second)
		refused(a, 4*time.Second) // a user has one retry
		refused(c, 12*time.Second)

		// The retry of a has begun: the admission is not for others.
		now := redisNow(t, g.ctx, s)
		require.NoError(t, s.Redis().ZAdd(g.ctx, key+":retries:first", zMember(float64(now-1), "a")).Err())
		refused(a, 4*time.Second) // the queue is still full: again soon, not behind all others
		require.NoError(t, s.Redis().ZAdd(g.ctx, key+":retries:first", zMember(float64(now-1), "a")).Err())
		g.remove("3")
		require.Equal(t, lua.TaskQueueFull, g.admit("6").Code)
		require.Equal(t, lua.TaskQueueFull, b.admit("x").Code)
		require.Equal(t, lua.TaskAdmitted, a.admit("x").Code)
		refused(a, 3750*time.Millisecond) // with an admission now; of two admissions, one ended immediately

		// The retry of one who does not return expires.
		g.remove("4")
		require.NoError(t, s.Redis().ZAdd(g.ctx, key+":retries:first", zMember(float64(redisNow(t, g.ctx, s)-2000), "b")).Err())
		require.Equal(t, lua.TaskQueueFull, c.admit("x").Code)
		require.NoError(t, s.Redis().ZAdd(g.ctx, key+":retries:first", zMember(float64(redisNow(t, g.ctx, s)-3000), "b")).Err())
		require.Equal(t, lua.TaskAdmitted, c.admit("x").Code)
		require.Equal(t, lua.TaskQueueFull, c.admit("y").Code)

		// The longest wait is a minute, however many wait.
		for i := range 40 {
			wait, err := s.PlanRetry(g.ctx, paidBatch, fmt.Sprint("user", i))
			require.NoError(t, err)
			require.LessOrEqual(t, wait, time.Minute)
		}
		refused(user("late"), time.Minute)
		ttl, err := s.Redis().PTTL(g.ctx, key+":retries:first").Result()
		require.NoError(t, err)
		require.Positive(t, ttl, "retries are not kept indefinitely")
	})
}

func TestAdmitTask_Admissions_ExpireUnlessKept(t *testing.T) { // T5
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{})
		left := func(key, id string) time.Duration {
			score, err := s.Redis().ZScore(g.ctx, key, berth.TaskRef{UserID: g.user, TaskID: id}.String()).Result()
			require.NoError(t, err)
			ttl, err := s.Redis().PTTL(g.ctx, key).Result()
			require.NoError(t, err)
			rest := time.Duration(int64(score)-redisNow(t, g.ctx, s)) * time.Millisecond
			require.GreaterOrEqual(t, ttl, rest-time.Second, "the key lasts as long as its last admission")
			return rest
		}
		for _, key := range []string{s.Keys().QueueAdmissions(paidBatch), s.Keys().UserAdmissions(g.user, "jobs")} {
			id := key
			g.admit(id)
			require.InDelta(t, lua.AdmissionHold, left(key, id), float64(5*time.Second))
			g.keep(id)
			require.InDelta(t, time.Hour, left(key, id), float64(5*time.Second))
			g.admit(id)
			require.InDelta(t, time.Hour, left(key, id), float64(5*time.Second), "a repeated submission does not shorten it")
		}
	})
}

// A process keeps what it has with one request, also on a Redis that does not have the script, and has lost its data.
func TestKeepAllAdmissions_RedisHasForgotten_AllRestored(t *testing.T) { // O9
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{})
		var all []lua.Admissions
		for i := range 300 {
			id := strconv.Itoa(i)
			g.admit(id)
			held := g.admissions(id)
			held.Queues = held.Queues[:1]
			all = append(all, held)
		}
		require.NoError(t, s.Redis().Del(g.ctx, s.Keys().QueueAdmissions(paidBatch), s.Keys().UserAdmissions(g.user, "jobs")).Err())
		require.Equal(t, [3]int64{}, g.taken())
		for range 2 {
			require.NoError(t, s.KeepAllAdmissions(g.ctx, all, time.Hour))
			require.Equal(t, [3]int64{300, 0, 300}, g.taken())
		}
		for _, held := range all {
			require.NoError(t, s.RemoveAdmissions(g.ctx, held))
		}
		require.Equal(t, [3]int64{}, g.taken())
	})
}

func TestAdmitTask_ServiceFull_OtherUsersAdmitted(t *testing.T) { // T5
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 10, Service: 1, Rate: 5})
		require.Equal(t, lua.TaskAdmitted, g.admit("a").Code)
		r := g.admit("b")
		require.Equal(t, lua.TaskServiceFull, r.Code)
		require.Equal(t, 1, r.Ahead)
		require.Equal(t, 4, r.Rate.Left, "a refused submission is not counted")
		require.Equal(t, [3]int64{1, 0, 1}, g.taken(), "and has no admission")
		g.move("a")
		require.Equal(t, lua.TaskServiceFull, g.admit("b").Code, "in whichever queue the task is")
		other := g
		other.user = "bob"
		require.Equal(t, lua.TaskAdmitted, other.admit("b").Code)
	})
}

func TestAdmitTask_RateExceeded_RetryTimeIsExact(t *testing.T) { // T6
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Rate: 3})
		for i := range 3 {
			r := g.admit(fmt.Sprint(i))
			require.Equal(t, lua.TaskAdmitted, r.Code)
			require.Equal(t, 2-i, r.Rate.Left)
			require.InDelta(t, lua.RateWindow, r.Rate.Reset, float64(10*time.Second))
		}
		require.Equal(t, 0, g.admit("1").Rate.Left, "a repeated submission is not counted")
		g.remove("0") // the end of a task does not change the rate
		// The submissions were 50, 40 and 30 s ago.
		now := redisNow(t, g.ctx, s)
		for i, ago := range []int64{50, 40, 30} {
			member := berth.TaskRef{UserID: g.user, TaskID: fmt.Sprint(i)}.String()
			require.NoError(t, s.Redis().ZAddXX(g.ctx, s.Keys().Submissions(g.user), zMember(float64(now-ago*1000), member)).Err())
		}
		r := g.admit("3")
		require.Equal(t, lua.TaskRateLimited, r.Code)
		within(t, 10*time.Second, r.Retry)
		require.Equal(t, 0, r.Rate.Left)
		lower := g
		lower.limits.Rate = 1
		within(t, 30*time.Second, lower.admit("3").Retry)
		read, err := s.ReadRate(g.ctx, g.user, 3)
		require.NoError(t, err)
		require.Equal(t, 0, read.Left)
		within(t, 10*time.Second, read.Reset)
		other := g
		other.user = "bob"
		require.Equal(t, lua.TaskAdmitted, other.admit("3").Code)

		// The oldest leaves the window.
		member := berth.TaskRef{UserID: g.user, TaskID: "0"}.String()
		require.NoError(t, s.Redis().ZAddXX(g.ctx, s.Keys().Submissions(g.user), zMember(float64(now-60_001), member)).Err())
		require.Equal(t, lua.TaskAdmitted, g.admit("3").Code)
		require.Equal(t, lua.TaskRateLimited, g.admit("4").Code)
	})
}

// T5: concurrent submissions never exceed a bound, and repeated ones have one admission.
func TestAdmitTask_Concurrent_NeverAboveBounds(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 7, Service: 5, Rate: 100})
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				one := g
				one.user = fmt.Sprint("u", i%2)
				for range 2 { // retried at the same time as others
					r, err := s.AdmitTask(g.ctx, lua.Submission{
						Task: berth.TaskRef{UserID: one.user, TaskID: fmt.Sprint(i / 2)}, ServiceID: "jobs", Queue: firstStep.Queue, Limits: g.limits,
					})
					if err == nil && r.Code == lua.TaskAdmitted {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 14, admitted.Load(), "seven tasks, twice each")
		require.EqualValues(t, 7, g.taken()[0])
	})
}

// T5: whatever is retried, lost or late, the admissions are those of the tasks that a model of the rules has, and never more than
// the bounds when a task is admitted.
func TestAdmitTask_AnyOrder_AdmissionsMatchModel(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	ctx := t.Context()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		user := fmt.Sprint("user", run)
		require.NoError(rt, s.Redis().Del(ctx, s.Keys().QueueAdmissions(paidBatch), s.Keys().QueueAdmissions(paidStream)).Err())
		g := gate{t: rt, ctx: ctx, s: s, user: user, limits: lua.AdmissionLimits{Queue: 3, Service: 4, Rate: 12}}
		first, second, counted := map[string]bool{}, map[string]bool{}, map[string]bool{}
		id := rapid.StringMatching("[a-p]")
		rt.Repeat(map[string]func(*rapid.T){
			"admit": func(rt *rapid.T) {
				one := id.Draw(rt, "task")
				want := lua.TaskAdmitted
				switch {
				case !counted[one] && len(counted) >= 12:
					want = lua.TaskRateLimited
				case !first[one] && len(first) >= 3:
					want = lua.TaskQueueFull
				case !first[one] && !second[one] && len(first)+len(second) >= 4:
					want = lua.TaskServiceFull
				case second[one]: // its id is known to the database, so that it is never admitted again
					return
				}
				require.Equal(rt, want, g.admit(one).Code)
				if want == lua.TaskAdmitted {
					first[one], counted[one] = true, true
				}
			},
			"keep": func(rt *rapid.T) {
				if one := id.Draw(rt, "task"); first[one] {
					g.keep(one)
				}
			},
			"move": func(rt *rapid.T) {
				one := id.Draw(rt, "task")
				if g.move(one); first[one] {
					delete(first, one)
					second[one] = true
				}
			},
			"remove": func(rt *rapid.T) {
				one := id.Draw(rt, "task")
				g.remove(one)
				delete(first, one)
				delete(second, one)
			},
			"expire": func(rt *rapid.T) {
				if one := id.Draw(rt, "task"); first[one] {
					g.expire(one)
					delete(first, one)
				}
			},
			"": func(rt *rapid.T) {
				require.Equal(rt, [3]int64{int64(len(first)), int64(len(second)), int64(len(first) + len(second))}, g.taken())
			},
		})
	})
}

// T5, T24: the position of a new lease is that of fair order, and the wait follows from the pace at which the model is in use.
func TestEstimateWait_ModelBusy_PositionByFairOrder(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		wait := func(queue berth.Queue, user string) lua.Wait {
			w, err := s.EstimateWait(t.Context(), lua.ModelWaiter{Task: berth.TaskRef{UserID: user, TaskID: "new"}, Queue: queue, Model: "m"}, limitsOf(1, 0))
			require.NoError(t, err)
			return w
		}
		unknown := -time.Millisecond
		require.Equal(t, lua.Wait{}, wait(paidStream, "a"), "no process has used the model")
		h := &hall{t: t, s: s, limits: limitsOf(1, 0)}
		held := h.arrive("m", paidStream, "big", 1)
		h.release("m", held...)
		require.Equal(t, lua.Wait{}, wait(paidStream, "a"), "a slot is free")
		h.arrive("m", paidStream, "big", 9)
		require.Equal(t, lua.Wait{Position: 8, Time: unknown}, wait(paidStream, "big"), "behind its own")
		small := wait(paidStream, "small")
		require.LessOrEqual(t, small.Position, 1, "a user without waiting leases is next or after one other")

		// Two waiting calls get slots: the time between them is the pace.
		h.next("m", h.holders("m")[0])
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelState("m"), "granted", redisNow(t, t.Context(), s)-4000).Err())
		h.next("m", h.holders("m")[0])
		big := wait(paidStream, "big")
		require.Equal(t, 6, big.Position)
		require.InDelta(t, 7*4*time.Second, big.Time, float64(7*time.Second))
		room, err := s.ReadRoom(t.Context(), "m", h.limits, 0)
		require.NoError(t, err)
		for _, q := range room.Queues {
			require.Equal(t, wait(q.Queue, "new").Time, q.Wait, "%s: the estimate of a user without calls", q.Queue)
		}
		// The call that has the slot lasts longer than those before it.
		taken := func(ago int64) {
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelState("m"), "taken", redisNow(t, t.Context(), s)-ago).Err())
		}
		taken(10_000)
		require.InDelta(t, 7*10*time.Second, wait(paidStream, "big").Time, float64(7*time.Second))
		taken(0)

		// A higher cap applies to the estimate before any call was served with it, and so does its end. The time of a pause is not part
		// of the pace.
		limits := func(l lua.OperatorLimits) {
			_, err := s.SetModelLimits(t.Context(), "m", "", slotTimes, l)
			require.NoError(t, err)
		}
		limits(lua.OperatorLimits{Cap: new(4)}) // three slots are free
		require.InDelta(t, 4*time.Second, wait(paidStream, "big").Time, float64(time.Second), "four calls of 1 s each")
		limits(lua.OperatorLimits{})
		require.InDelta(t, 4*4*time.Second, wait(paidStream, "big").Time, float64(4*time.Second))
		for len(h.holders("m")) > 1 {
			h.release("m", h.holders("m")[0])
		}
		last := wait(paidStream, "big")
		redisHash := s.Keys().ModelState("m")
		require.NoError(t, s.Redis().HSet(t.Context(), redisHash, "granted", redisNow(t, t.Context(), s)-600_000).Err())
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ModelLimits("m"), "until:only", redisNow(t, t.Context(), s)-1000).Err())
		h.next("m", h.holders("m")[0])
		require.Less(t, wait(paidStream, "big").Time, last.Time, "ten minutes of pause before the call")

		limits(lua.OperatorLimits{Paused: true})
		require.Equal(t, unknown, wait(paidStream, "big").Time, "an operator's pause has no end")
	})
}

func zMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
