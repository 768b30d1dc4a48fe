package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/testredis"
	"berth/lua"
)

// fast has times that let a test wait for a death.
var fast = berth.NodeTimes{Heartbeat: 20 * time.Millisecond, Suspect: 150 * time.Millisecond, Death: 300 * time.Millisecond}

// fastConfig is the default configuration with fast times, and dynamic pools that may switch immediately.
func fastConfig() berth.FleetConfig {
	c := berth.DefaultFleetConfig()
	c.Times = map[berth.NodeKind]berth.NodeTimes{berth.NodeTranslate: fast}
	c.Dynamic.Dwell = 0
	return c
}

// journal collects log lines; only the test's goroutine reads it.
type journal struct {
	incoming chan []byte
	lines    []map[string]any
}

func newJournal() *journal { return &journal{incoming: make(chan []byte, 10_000)} }

func (j *journal) Write(line []byte) (int, error) {
	j.incoming <- slices.Clone(line)
	return len(line), nil
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

// all returns the lines with the message.
func (j *journal) all(t *testing.T, message string) (out []map[string]any) {
	t.Helper()
	for {
		select {
		case line := <-j.incoming:
			var fields map[string]any
			require.NoError(t, json.Unmarshal(line, &fields))
			j.lines = append(j.lines, fields)
			continue
		default:
		}
		break
	}
	for _, l := range j.lines {
		if l["msg"] == message {
			out = append(out, l)
		}
	}
	return out
}

// sweeping runs a sweeper until the test ends.
func sweeping(t *testing.T, f *fleet.Fleet, opt fleet.SweeperOptions) {
	t.Helper()
	opt.Every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = fleet.NewSweeper(f, opt).Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func register(t *testing.T, s *lua.Scripts, id string, capabilities ...string) int64 {
	t.Helper()
	r, err := s.RegisterNode(t.Context(), spec(id, capabilities...), lua.Registration{})
	require.NoError(t, err)
	return r.Generation
}

// beats sends heartbeats of the nodes until stop is called, and registers a node when a reply requests it.
func beats(t *testing.T, s *lua.Scripts, ids ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	for _, id := range ids {
		beating.Go(func() {
			tick := time.NewTicker(fast.Heartbeat)
			defer tick.Stop()
			generation := int64(0)
			for {
				if reply, err := s.HeartbeatNode(ctx, id, generation, berth.NodeLoad{}, lua.Weights{Memory: 0.5}); err == nil && reply.Code == lua.NodeReregister {
					if r, err := s.RegisterNode(ctx, spec(id, "c"), lua.Registration{Previous: generation}); err == nil {
						generation = r.Generation
					}
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	stop = func() { cancel(); beating.Wait() }
	t.Cleanup(stop)
	return stop
}

// P10: two sweepers declare each death once. Each notice is delivered until a process has handled it, so that a recovery
// named after the generation starts once. Late heartbeats of a dead generation have no effect.
func TestSweeper_SeveralProcesses_DeathDeclaredOnceAndDelivered(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	require.NoError(t, s.PutFleetConfig(t.Context(), fastConfig()))
	until(t, f, "configuration", func(s *fleet.Snapshot) bool { return len(s.Config.Times) > 0 })
	var living []string
	for i := range 8 {
		living = append(living, fmt.Sprintf("living-%d", i))
	}
	beats(t, s, living...)
	dead := map[string]int64{}
	for i := range 5 {
		id := fmt.Sprintf("dead-%d", i)
		dead[id] = register(t, s, id, "c")
	}

	type call struct {
		sweeper int
		notice  berth.NodeNotice
	}
	calls := make(chan call, 1000)
	var refusals sync.Map
	log := newJournal()
	for i := range 2 {
		sweeping(t, f, fleet.SweeperOptions{Logger: log.logger(), OnNotice: func(_ context.Context, n berth.NodeNotice) error {
			calls <- call{i, n}
			if _, again := refusals.LoadOrStore(fmt.Sprint(i, n.NodeID), true); !again {
				return errors.New("not now")
			}
			return nil
		}})
	}
	require.Eventually(t, func() bool {
		_, left, err := s.TakeOutbox(t.Context(), 0, 0)
		return err == nil && left == 0 && len(calls) >= len(dead)
	}, waitLimit, 5*time.Millisecond, "every notice is handled")

	declared := map[string]int{}
	for _, l := range log.all(t, "nodes declared dead") {
		for _, d := range l["nodes"].([]any) {
			declared[d.(map[string]any)["NodeID"].(string)]++
		}
	}
	require.Len(t, declared, len(dead))
	for id, n := range declared {
		require.Equal(t, 1, n, "%s is declared dead once", id)
	}
	started := map[string]bool{}
	for range len(calls) {
		c := <-calls
		require.Equal(t, berth.DepartureUnresponsive, c.notice.Reason)
		require.Equal(t, dead[c.notice.NodeID], c.notice.Generation)
		started[fmt.Sprintf("%s.%d", c.notice.NodeID, c.notice.Generation)] = true
	}
	require.Len(t, started, len(dead), "one recovery for each dead generation")
	require.GreaterOrEqual(t, len(log.all(t, "node notice not handled")), len(dead), "a notice that was not handled stays in the outbox")
	require.NotEmpty(t, log.all(t, "node notice")[0]["reason"])

	for id, generation := range dead {
		reply, err := s.HeartbeatNode(t.Context(), id, generation, berth.NodeLoad{}, lua.Weights{Memory: 0.5})
		require.NoError(t, err)
		require.Equal(t, lua.NodeReregister, reply.Code)
	}
	_, left, err := s.TakeOutbox(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Zero(t, left)
	for _, id := range living {
		require.NotContains(t, declared, id)
	}
}

// S7: the reports of its nodes switch the strategy of a dynamic pool; the switch is recorded and logged.
func TestSweeper_LoadOrLatencyHigh_DynamicPoolSwitches(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	require.NoError(t, s.PutFleetConfig(t.Context(), fastConfig()))
	_, err := s.DefinePool(t.Context(), berth.Pool{ID: "d", Capabilities: []string{"c"}, Strategy: berth.StrategyDynamic}, false)
	require.NoError(t, err)
	generation := register(t, s, "n1", "c")
	log := newJournal()
	sweeping(t, f, fleet.SweeperOptions{Switch: 10 * time.Millisecond, Logger: log.logger()})
	previous := berth.StrategyRoundRobin
	for _, step := range []struct {
		load berth.NodeLoad
		to   berth.Strategy
	}{
		{berth.NodeLoad{CPUUsage: 95}, berth.StrategyLoadBalanced},
		{berth.NodeLoad{LatencyMs: 150}, berth.StrategyLocality},
		{berth.NodeLoad{LatencyMs: 10}, berth.StrategyRoundRobin},
	} {
		until(t, f, string(step.to), func(now *fleet.Snapshot) bool {
			reply, err := s.HeartbeatNode(t.Context(), "n1", generation, step.load, lua.Weights{Memory: 0.5})
			if err == nil && reply.Code == lua.NodeReregister {
				generation = register(t, s, "n1", "c")
			}
			return now.Strategy("d") == step.to
		})
		var last map[string]any
		require.Eventually(t, func() bool {
			lines := log.all(t, "pool switched its strategy")
			if len(lines) > 0 {
				last = lines[len(lines)-1]
			}
			return last["to"] == string(step.to)
		}, waitLimit, 5*time.Millisecond)
		require.Equal(t, "d", last["pool"])
		require.Equal(t, string(previous), last["from"])
		previous = step.to
	}
	switches, err := s.StrategySwitches(t.Context(), "d")
	require.NoError(t, err)
	require.Len(t, switches, 3)
	require.Len(t, log.all(t, "pool switched its strategy"), 3)
}

// L11, L12: while Redis is unavailable no node is declared dead, and the outage is logged once. In a Redis that lost its data
// the operator's configuration is restored first and then everything else, once for each grace.
func TestSweeper_RedisLostData_SettingsRestoredOncePerGrace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		lose    func(t *testing.T, s *lua.Scripts, server *testredis.Server, log *journal)
		outages int // expected log lines about an unavailable Redis
	}{
		"restarted empty": {lose: outlast, outages: 1},
		"restarted with its data": {
			args: []string{"--appendonly", "yes", "--appendfsync", "always"}, lose: outlast, outages: 1,
		},
		"flushed": {lose: func(t *testing.T, _ *lua.Scripts, server *testredis.Server, _ *journal) {
			t.Helper()
			require.NoError(t, server.Client().FlushAll(t.Context()).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s, server := follow(t, c.args...)
			require.NoError(t, waitReady(t, f))
			config := fastConfig()
			require.NoError(t, s.PutFleetConfig(t.Context(), config))
			until(t, f, "configuration", func(s *fleet.Snapshot) bool { return len(s.Config.Times) > 0 })
			log, events := newJournal(), make(chan string, 1000)
			failures := 3
			sweeping(t, f, fleet.SweeperOptions{
				Logger: log.logger(), Limits: lua.SweepLimits{MaxGap: 100 * time.Millisecond},
				Restore: func(ctx context.Context) error {
					if failures--; failures%3 != 0 {
						return errors.New("database unavailable")
					}
					events <- "restored"
					return s.PutFleetConfig(ctx, config)
				},
				OnGrace: func(_ context.Context, until time.Time) error {
					events <- "grace " + fmt.Sprint(until.UnixMilli())
					return nil
				},
			})
			next := func() string {
				select {
				case e := <-events:
					return e
				case <-time.After(waitLimit):
					require.FailNow(t, "nothing happened")
					return ""
				}
			}
			require.Equal(t, "restored", next())
			first := next()
			beats(t, s, "n1")
			until(t, f, "registered", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].State == berth.NodeReady })

			c.lose(t, s, server, log)

			require.Equal(t, "restored", next())
			second := next()
			require.NotEqual(t, first, second)
			until(t, f, "as before", func(s *fleet.Snapshot) bool {
				return !s.Stale && len(s.Config.Times) > 0 && s.Nodes["n1"].State == berth.NodeReady
			})
			require.Empty(t, log.all(t, "nodes declared dead"))
			require.Eventually(t, func() bool { // the log line may follow the event
				return len(log.all(t, "fleet maintenance works again")) == c.outages+2
			}, waitLimit, time.Millisecond, "also the two restorations that failed at first")
			outages := 0
			for _, l := range log.all(t, "fleet maintenance failed") {
				if l["task"] == "sweep" {
					outages++
				} else {
					require.Equal(t, "recovery after a grace", l["task"])
				}
			}
			require.Equal(t, c.outages, outages)
			require.Empty(t, events, "once for each grace")
		})
	}
}

// outlast stops Redis for longer than the time after which a node is declared dead, and restarts it.
func outlast(t *testing.T, _ *lua.Scripts, server *testredis.Server, log *journal) {
	t.Helper()
	server.Kill()
	gone := time.Now()
	require.Eventually(t, func() bool {
		return time.Since(gone) > 3*fast.Death && len(log.all(t, "fleet maintenance failed")) > 1
	}, waitLimit, time.Millisecond)
	server.Restart()
}

// A hanging callback does not delay the sweep.
func TestSweeper_CallbackHangs_SweepContinues(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	require.NoError(t, s.PutFleetConfig(t.Context(), fastConfig()))
	until(t, f, "configuration", func(s *fleet.Snapshot) bool { return len(s.Config.Times) > 0 })
	hanging := make(chan struct{}, 100)
	register(t, s, "n1", "c")
	sweeping(t, f, fleet.SweeperOptions{OnNotice: func(ctx context.Context, _ berth.NodeNotice) error {
		hanging <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	select {
	case <-hanging:
	case <-time.After(waitLimit):
		require.FailNow(t, "no notice")
	}
	register(t, s, "n2", "c")
	until(t, f, "the second death", func(s *fleet.Snapshot) bool { return s.Nodes["n2"].State == berth.NodeDead })
}

// A fleet that was never read is not swept: its times may not be the operator's.
func TestSweeper_FleetNeverRead_NothingSwept(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, fleet.NewSweeper(fleet.New(s, fleet.Options{}), fleet.SweeperOptions{}).Run(ctx))
	require.Zero(t, server.Client().Exists(t.Context(), s.Keys().Sweep(), s.Keys().Guard()).Val())
}

// C21: after a mass loss no node is declared dead until the loss is confirmed by other means.
func TestSweeper_MassLoss_HeldBackUntilConfirmed(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "not lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s, _ := follow(t)
			require.NoError(t, waitReady(t, f))
			require.NoError(t, s.PutFleetConfig(t.Context(), fastConfig()))
			until(t, f, "configuration", func(s *fleet.Snapshot) bool { return len(s.Config.Times) > 0 })
			for i := range 12 {
				register(t, s, fmt.Sprintf("n%d", i), "c")
			}
			asked := make(chan berth.NodeKind, 1000)
			sweeping(t, f, fleet.SweeperOptions{
				Limits: lua.SweepLimits{MassLossDelay: time.Hour},
				Confirm: func(_ context.Context, kind berth.NodeKind) (bool, error) {
					asked <- kind
					if len(asked) == 1 {
						return false, errors.New("cannot be confirmed now")
					}
					return lost, nil
				},
			})
			require.Eventually(t, func() bool { return len(asked) > 3 || lost && len(asked) > 1 }, waitLimit, time.Millisecond, "the confirmation is retried")
			require.Equal(t, berth.NodeTranslate, <-asked)
			if lost {
				until(t, f, "dead", func(s *fleet.Snapshot) bool {
					return s.Nodes["n0"].State == berth.NodeDead && s.Nodes["n11"].State == berth.NodeDead
				})
				return
			}
			nodes, err := s.ReadNodes(t.Context(), "n0", "n11")
			require.NoError(t, err)
			require.Equal(t, berth.NodeSuspect, nodes["n0"].State)
			require.Equal(t, berth.NodeSuspect, nodes["n11"].State)
		})
	}
}
