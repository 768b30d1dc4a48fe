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

// gate admits and places tasks of one user and service.
type gate struct {
	t      require.TestingT
	ctx    context.Context
	s      *lua.Scripts
	user   string
	limits lua.AdmissionLimits
}

func (g gate) admit(id string) lua.AdmitReply {
	r, err := g.s.AdmitTask(g.ctx, lua.Admission{Task: berth.TaskRef{UserID: g.user, TaskID: id}, ServiceID: "jobs", Step: firstStep, Limits: g.limits})
	require.NoError(g.t, err)
	return r
}

func (g gate) places(id string) lua.Places {
	return lua.Places{Task: berth.TaskRef{UserID: g.user, TaskID: id}, ServiceID: "jobs", Queues: []berth.Queue{paidBatch, paidStream, freeBatch}}
}

func (g gate) keep(id string) {
	require.NoError(g.t, g.s.KeepPlaces(g.ctx, g.places(id), firstStep.Queue, time.Hour))
}

func (g gate) move(id string) {
	require.NoError(g.t, g.s.MovePlaces(g.ctx, g.places(id), nextStep.Queue, time.Hour))
}

func (g gate) remove(id string) {
	require.NoError(g.t, g.s.RemovePlaces(g.ctx, g.places(id)))
}

// taken returns the places that have not expired: of the first queue, of the next one, and of the user and service.
func (g gate) taken() [3]int64 {
	var n [3]int64
	now := strconv.FormatInt(redisNow(g.t, g.ctx, g.s), 10)
	for i, key := range []string{g.s.Keys().QueuePlaces(paidBatch), g.s.Keys().QueuePlaces(paidStream), g.s.Keys().UserPlaces(g.user, "jobs")} {
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

// expire moves the end of a task's places into the past.
func (g gate) expire(id string) {
	member, past := berth.TaskRef{UserID: g.user, TaskID: id}.String(), float64(redisNow(g.t, g.ctx, g.s)-1)
	for _, key := range []string{g.s.Keys().QueuePlaces(paidBatch), g.s.Keys().UserPlaces(g.user, "jobs")} {
		require.NoError(g.t, g.s.Redis().ZAddXX(g.ctx, key, zMember(past, member)).Err())
	}
}

func newGate(t *testing.T, s *lua.Scripts, limits lua.AdmissionLimits) gate {
	return gate{t: t, ctx: t.Context(), s: s, user: "al:ice", limits: limits}
}

func TestAdmitTask_QueueFull_RefusedUntilPlaceIsFree(t *testing.T) { // T5
	t.Parallel()
	require.Equal(t, "{c1}:bp:al%3Aice:jobs", lua.Keys{Cell: "c1"}.UserPlaces("al:ice", "jobs"))
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{Queue: 2})
		require.Equal(t, lua.AdmitReply{Code: lua.TaskAdmitted, Rate: lua.RateState{Left: -1}}, g.admit("a"))
		require.Equal(t, 1, g.admit("b").Ahead)
		g.keep("a")
		full := lua.AdmitReply{Code: lua.TaskQueueFull, Rate: lua.RateState{Left: -1}, Ahead: 2, Retry: -time.Millisecond}
		require.Equal(t, full, g.admit("c"))
		other := g
		other.user = "bob"
		require.Equal(t, full, other.admit("a"), "the task of another user with the same id is another task")
		require.Equal(t, lua.TaskAdmitted, g.admit("b").Code, "a repeated submission has its place")
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
		require.Equal(t, [3]int64{1, 0, 1}, g.taken(), "an ended task gets no place")
		g.keep("d") // accepted after its place had expired
		require.Equal(t, [3]int64{2, 0, 2}, g.taken())
	})
}

func TestAdmitTask_Places_ExpireUnlessKept(t *testing.T) { // T5
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := newGate(t, s, lua.AdmissionLimits{})
		left := func(key, id string) time.Duration {
			score, err := s.Redis().ZScore(g.ctx, key, berth.TaskRef{UserID: g.user, TaskID: id}.String()).Result()
			require.NoError(t, err)
			ttl, err := s.Redis().PTTL(g.ctx, key).Result()
			require.NoError(t, err)
			rest := time.Duration(int64(score)-redisNow(t, g.ctx, s)) * time.Millisecond
			require.GreaterOrEqual(t, ttl, rest-time.Second, "the key lasts as long as its last place")
			return rest
		}
		for _, key := range []string{s.Keys().QueuePlaces(paidBatch), s.Keys().UserPlaces(g.user, "jobs")} {
			id := key
			g.admit(id)
			require.InDelta(t, lua.PlaceHold, left(key, id), float64(5*time.Second))
			g.keep(id)
			require.InDelta(t, time.Hour, left(key, id), float64(5*time.Second))
			g.admit(id)
			require.InDelta(t, time.Hour, left(key, id), float64(5*time.Second), "a repeated submission does not shorten it")
		}
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
		require.Equal(t, [3]int64{1, 0, 1}, g.taken(), "and has no place")
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

// T5: concurrent submissions never exceed a bound, and repeated ones have one place.
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
					r, err := s.AdmitTask(g.ctx, lua.Admission{
						Task: berth.TaskRef{UserID: one.user, TaskID: fmt.Sprint(i / 2)}, ServiceID: "jobs", Step: firstStep, Limits: g.limits,
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

// T5: whatever is retried, lost or late, the places are those of the tasks that a model of the rules has, and never more than
// the bounds when a task is admitted.
func TestAdmitTask_AnyOrder_PlacesMatchModel(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	ctx := t.Context()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		user := fmt.Sprint("user", run)
		require.NoError(rt, s.Redis().Del(ctx, s.Keys().QueuePlaces(paidBatch), s.Keys().QueuePlaces(paidStream)).Err())
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
			w, err := s.EstimateWait(t.Context(), lua.Entry{Task: berth.TaskRef{UserID: user, TaskID: "new"}, Queue: queue, Model: "m"})
			require.NoError(t, err)
			return w
		}
		unknown := -time.Millisecond
		require.Equal(t, lua.Wait{Time: unknown}, wait(paidStream, "a"), "no process has used the model")
		h := &hall{t: t, s: s, limits: lua.ModelLimits{Cap: 1}}
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
		g := newGate(t, s, lua.AdmissionLimits{Queue: 1})
		g.admit("one")
		require.InDelta(t, 4*time.Second, g.admit("two").Retry, float64(time.Second), "a place is expected to be free after one call")

		_, err := s.SetModelLimits(t.Context(), "m", slotTimes, lua.OperatorLimits{Paused: true})
		require.NoError(t, err)
		require.Equal(t, unknown, wait(paidStream, "big").Time, "an operator's pause has no end")
	})
}

func zMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }
