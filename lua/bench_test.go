package lua_test

import (
	"context"
	"fmt"
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

// BenchmarkAssign_Server measures the time for which a decision occupies Redis, by Redis's own statistics, in microseconds: the
// median and the minimum over chunks of 500 decisions about a pool of 1,000 nodes, without and with a service that the nodes have to
// declare. Run it with -benchtime 1x.
func BenchmarkAssign_Server(b *testing.B) {
	server := testredis.Start(b)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(b.Context())
	require.NoError(b, err)
	for i := range 1000 {
		_, err := s.RegisterNode(b.Context(), spec(fmt.Sprintf("n%04d", i), slots(berth.MaxNodeConcurrency), runs("whisper")), lua.Registration{})
		require.NoError(b, err)
	}
	for name, needed := range map[string][]string{"no service": nil, "one service": {"whisper"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var chunks []float64
				for range 40 {
					var taken []berth.Assignment
					chunks = append(chunks, callTime(b, server, func() {
						for i := range 500 {
							d, err := s.Assign(b.Context(), strconv.Itoa(i), lua.Choice{PoolID: pair, Strategy: berth.StrategyPowerOfTwo, Needed: needed})
							require.NoError(b, err)
							require.Equal(b, lua.AssignOK, d.Code)
							taken = append(taken, d.Assignment)
						}
					}))
					for _, a := range taken {
						_, err := s.ReleaseNodeSlot(b.Context(), a.NodeID, a.LeaseID)
						require.NoError(b, err)
					}
				}
				reportTimes(b, chunks)
			}
		})
	}
}

// BenchmarkSlots_Waiters measures the time for which a pair of acquire and release occupies Redis while others wait, by Redis's
// own statistics, in microseconds per call, on paths of two and of five levels, with one and with ten upstreams. Run it with -benchtime 1x:
// the time with 100,000 waiters has to be at most 1.5 times that with 1,000.
func BenchmarkSlots_Waiters(b *testing.B) {
	for _, depth := range []int{2, 5} {
		for _, upstreams := range []int{1, 10} {
			for _, waiters := range []int{0, 1_000, 100_000} {
				b.Run(fmt.Sprintf("depth %d, upstreams %d, waiters %d", depth, upstreams, waiters), func(b *testing.B) {
					benchmarkSlots(b, depth, upstreams, waiters)
				})
			}
		}
	}
}

func benchmarkSlots(b *testing.B, depth, upstreams, waiters int) {
	server := testredis.Start(b)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(b.Context())
	require.NoError(b, err)
	limits, group := limitsOf(10, 5), func(int) lua.Group { return lua.Group{} }
	if upstreams > 1 {
		limits.Upstreams = nil
		for i := range upstreams {
			limits.Upstreams = append(limits.Upstreams, lua.UpstreamLimits{Name: "upstream-" + strconv.Itoa(i), Rank: 1 + i%2, Cap: 10 / upstreams})
		}
	}
	if depth == 5 {
		group = func(i int) lua.Group {
			return lua.Group{Team: strconv.Itoa(i % 20), App: strconv.Itoa(i % 20), EndUser: strconv.Itoa(i % 1000)}
		}
	}
	id := func(queue berth.Queue, i, number int) string {
		p := lua.Path{Queue: queue, UserID: fmt.Sprintf("user%d", i), Group: group(i)}
		return lua.Lease{Process: "p", Path: p, Needs: lua.Needs{Conversation: p.UserID}, Rest: strconv.Itoa(number)}.ID()
	}
	for i := range 10 {
		r, err := s.AcquireSlot(b.Context(), lua.SlotCall{Model: "m", Limits: limits, Lease: id("q_paid_batch", i, i), Times: longTimes})
		require.NoError(b, err)
		require.Equal(b, lua.SlotGranted, r.Code)
	}
	fillAt(b, s, limits, waiters, group)
	for b.Loop() {
		var chunks []float64
		for range 20 {
			chunks = append(chunks, callTime(b, server, func() {
				for i := range 200 {
					_, err := s.AcquireSlot(b.Context(), lua.SlotCall{Model: "m", Limits: limits, Lease: id("q_paid_stream", i, b.N*1_000_000+i), Times: longTimes})
					require.NoError(b, err)
					holders, err := s.Redis().ZRange(b.Context(), s.Keys().ModelHolders("m"), 0, 0).Result()
					require.NoError(b, err)
					_, _, err = s.ReleaseSlot(b.Context(), "m", limits, longTimes, holders[0])
					require.NoError(b, err)
				}
			}))
		}
		reportTimes(b, chunks)
	}
}

// longTimes let nothing expire while a test or a benchmark runs, on a slow machine too.
var longTimes = lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}

var perCall = regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`)

// callTime returns the mean time for which one script of the calls occupied Redis, by Redis's own statistics, in microseconds.
func callTime(b *testing.B, server *testredis.Server, calls func()) float64 {
	b.Helper()
	server.Do("CONFIG", "RESETSTAT")
	calls()
	m := perCall.FindStringSubmatch(server.Do("INFO", "commandstats"))
	require.NotNil(b, m)
	us, err := strconv.ParseFloat(m[1], 64)
	require.NoError(b, err)
	return us
}

// reportTimes reports the median and the minimum of the chunks of a benchmark.
func reportTimes(b *testing.B, chunks []float64) {
	b.Helper()
	slices.Sort(chunks)
	b.ReportMetric(chunks[len(chunks)/2], "median-us")
	b.ReportMetric(chunks[0], "min-us")
}

// BenchmarkHandover_Waiters measures the time for which a release occupies Redis that hands its node to a waiting execution, and
// without waiters, by Redis's own statistics, in microseconds. Run it with -benchtime 1x: the time must not grow with the waiters.
func BenchmarkHandover_Waiters(b *testing.B) {
	for _, waiters := range []int{0, 1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(waiters), func(b *testing.B) {
			server := testredis.Start(b)
			s := lua.New(server.Client(), lua.Keys{})
			_, err := s.MarkNew(b.Context())
			require.NoError(b, err)
			_, err = s.RegisterNode(b.Context(), spec("n1", slots(1)), lua.Registration{})
			require.NoError(b, err)
			next := 0
			enter := func() lua.NodeWaiter {
				next++
				w := executionWaiter(fmt.Sprint("user", next%100), fmt.Sprint("e", next))
				q := lua.Waiting{NodeWaiter: w, Left: time.Hour, Since: time.UnixMicro(int64(next))}
				d, err := s.TryAssign(b.Context(), lua.Choice{PoolID: pair, Hold: time.Hour}, q)
				require.NoError(b, err)
				if d.Code != lua.AssignOK {
					_, err = s.JoinWaiting(b.Context(), lua.Choice{PoolID: pair, Hold: time.Hour}, q)
					require.NoError(b, err)
				}
				return w
			}
			held := enter().LeaseID
			for range waiters {
				enter()
			}
			s.OnHandover(func(ids []string) {
				w, err := lua.ParseNodeWaiter(ids[0])
				require.NoError(b, err)
				held = w.LeaseID
			})
			for b.Loop() {
				var chunks []float64
				for range 20 {
					chunks = append(chunks, callTime(b, server, func() {
						for range 20 {
							_, err := s.ReleaseNodeSlot(b.Context(), "n1", held)
							require.NoError(b, err)
						}
					}))
				}
				reportTimes(b, chunks)
			}
		})
	}
}

// BenchmarkAppend_Server measures the time for which an append occupies Redis, by Redis's own statistics, in microseconds. Run it with
// -benchtime 1x.
func BenchmarkAppend_Server(b *testing.B) {
	const event = `{"type":"translation","ts":1790000000000,"sessionId":"s1","turnId":"t1","index":1,"nodeId":"n1","text":"some words of a sentence"}`
	for name, appendOne := range appends(event) {
		b.Run(name, func(b *testing.B) {
			server := testredis.Start(b)
			s := lua.New(server.Client(), lua.Keys{})
			for b.Loop() {
				var chunks []float64
				for range 40 {
					chunks = append(chunks, callTime(b, server, func() {
						for i := range 250 {
							require.NoError(b, appendOne(b.Context(), s, len(chunks), i+1))
						}
					}))
				}
				reportTimes(b, chunks)
			}
		})
	}
}

// appends returns for each producer a function that appends the n-th event of a stream.
func appends(event string) map[string]func(ctx context.Context, s *lua.Scripts, stream, n int) error {
	token := []lua.StreamEntry{{Type: berth.EventToken, Data: event}}
	task := func(stream int) lua.Channel {
		return lua.Channel{UserID: "alice", ServiceID: "web", TaskID: fmt.Sprint(stream)}
	}
	return map[string]func(ctx context.Context, s *lua.Scripts, stream, n int) error{
		"task": func(ctx context.Context, s *lua.Scripts, stream, n int) error {
			if n == 1 {
				if _, err := s.OpenStream(ctx, task(stream), 1, time.Hour, ""); err != nil {
					return err
				}
			}
			_, err := s.AppendEvents(ctx, task(stream), lua.Append{Producer: "p", First: n, Confirmed: n - 1, Fence: 1, Events: token})
			return err
		},
		"turn": func(ctx context.Context, s *lua.Scripts, stream, n int) error {
			ch := lua.SessionChannel("alice", fmt.Sprint(stream))
			_, err := s.AppendEvents(ctx, ch, lua.Append{
				Producer: fmt.Sprint("turn", (n-1)/5), First: (n-1)%5 + 1, Confirmed: (n - 1) % 5, TTL: time.Hour, Trim: 1000, Events: lua.StreamEntries(event),
			})
			return err
		},
		"operator": func(ctx context.Context, s *lua.Scripts, _, _ int) error {
			return s.AppendOperatorEvents(ctx, berth.OperatorEvent{Type: berth.EventNode, NodeID: "n1", Status: "ready"})
		},
		"end": func(ctx context.Context, s *lua.Scripts, stream, n int) error {
			ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: fmt.Sprint(stream, "-", n)}
			if _, err := s.OpenStream(ctx, ch, 1, time.Hour, ""); err != nil {
				return err
			}
			_, _, err := s.EndStream(ctx, ch, event, time.Minute, 1000)
			return err
		},
	}
}
