package lua_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testdocs"
	"berth/lua"
)

var update = flag.Bool("update", false, "rewrite the state chart of docs/architecture.md")

// The states of a node and what leads from each to the next. Every event happens to a node in every state, and the chart of
// docs/architecture.md has exactly the transitions that were observed.
func TestArchitecture_NodeStates_AreThoseOfTheScripts(t *testing.T) {
	t.Parallel()
	times := berth.DefaultNodeTimes(berth.NodeTranslate)
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		state := func(id string) string {
			state, err := s.Redis().HGet(ctx, s.Keys().Node(id), "state").Result()
			require.True(t, err == nil || errors.Is(err, redis.Nil), err)
			return state
		}
		// Heartbeats that were missed count only while sweeps observe them.
		sweepOnce := func() {
			now := redisMs(t, s)
			require.NoError(t, s.Redis().HSet(ctx, s.Keys().Sweep(), "seen_from_ms", now-600_000, "last_ms", now).Err())
			sweep(t, s, times, false)
		}
		lastHeartbeat := func(id string, ago time.Duration) {
			for _, key := range []string{s.Keys().NodeBeats("translate"), s.Keys().NodeSuspects("translate")} {
				member := redis.Z{Score: float64(redisMs(t, s) - ago.Milliseconds()), Member: id}
				require.NoError(t, s.Redis().ZAddXX(ctx, key, member).Err())
			}
		}
		generation := func(id string) int64 {
			g, err := s.Redis().HGet(ctx, s.Keys().Node(id), "generation").Int64()
			require.True(t, err == nil || errors.Is(err, redis.Nil), err)
			return g
		}
		withdraw := func(id string) {
			_, err := s.WithdrawNode(ctx, id, 0, berth.DepartureWithdrawn)
			require.NoError(t, err)
		}
		states := []string{"", string(berth.NodeReady), string(berth.NodeSuspect), string(berth.NodeDead)}
		enter := map[string]func(id string){
			"":                        func(string) {},
			string(berth.NodeReady):   func(id string) { register(t, s, spec(id)) },
			string(berth.NodeSuspect): func(id string) { register(t, s, spec(id)); lastHeartbeat(id, times.Suspect+time.Second); sweepOnce() },
			string(berth.NodeDead):    func(id string) { register(t, s, spec(id)); withdraw(id) },
		}
		events := []struct {
			name   string
			happen func(id string)
		}{
			{"registers", func(id string) { register(t, s, spec(id)) }},
			{"heartbeat", func(id string) { beat(t, s, id, generation(id), berth.NodeLoad{}) }},
			{fmt.Sprintf("no heartbeat for %.0f s", times.Suspect.Seconds()), func(id string) { lastHeartbeat(id, times.Suspect+time.Second); sweepOnce() }},
			{"no response to work, heartbeat overdue", func(id string) {
				lastHeartbeat(id, times.Suspect-times.Heartbeat)
				_, err := s.ReportUnresponsive(ctx, id, generation(id), berth.DefaultNodeTimes)
				require.NoError(t, err)
			}},
			{fmt.Sprintf("no heartbeat for %.0f s", times.Death.Seconds()), func(id string) { lastHeartbeat(id, times.Death+time.Second); sweepOnce() }},
			{"withdrawn", withdraw},
			{"an hour later", func(id string) {
				if s.Redis().ZScore(ctx, s.Keys().NodesDead(), id).Err() == nil {
					require.NoError(t, s.Redis().ZIncrBy(ctx, s.Keys().NodesDead(), -3_600_001, id).Err())
				}
				sweepOnce()
			}},
		}
		var observed []testdocs.Transition
		for _, from := range states {
			for i, event := range events {
				id := fmt.Sprintf("n-%s-%d", from, i)
				enter[from](id)
				require.Equal(t, from, state(id))
				event.happen(id)
				to := state(id)
				withdraw(id) // it must not take part in what follows
				if to == from {
					continue
				}
				same := func(e testdocs.Transition) bool { return e.From == from && e.To == to }
				if at := slices.IndexFunc(observed, same); at >= 0 {
					observed[at].Label += " / " + event.name
					continue
				}
				observed = append(observed, testdocs.Transition{From: from, To: to, Label: event.name})
			}
		}
		testdocs.RequireBlock(t, "../docs/architecture.md", "state of a node", testdocs.StateChart(observed), *update)
	})
}
