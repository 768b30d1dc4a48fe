package sampler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"berth"
	"berth/internal/fleet"
	"berth/internal/metrics"
	"berth/internal/redisconn"
	"berth/internal/testredis"
	"berth/lua"
)

// observed records the values of a collection by gauge and labels.
type observed struct {
	noop.Observer
	values map[string]int64
}

var names = map[metric.Int64Observable]string{
	metrics.RedisMemoryUsed: "used", metrics.RedisMemoryMax: "max", metrics.TaskQueuePollers: "pollers", metrics.TaskQueueBacklog: "backlog", metrics.ModelWaiting: "waiting",
	metrics.TeamInUse: "teamUses", metrics.TeamWaiting: "teamWaits",
	metrics.Conferences: "conferences", metrics.PoolFreeSlots: "free", metrics.RowsPastDeadline: "overdue",
}

func (o *observed) ObserveInt64(g metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	labels := metric.NewObserveConfig(opts).Attributes()
	o.values[names[g]+labels.Encoded(attribute.DefaultEncoder())] = v
}

func (o *observed) ObserveFloat64(g metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	if g == metrics.BudgetUsed {
		labels := metric.NewObserveConfig(opts).Attributes()
		o.values["percentOfBudget"+labels.Encoded(attribute.DefaultEncoder())] = int64(v * 100)
	}
}

func (s *Sampler) collect() map[string]int64 {
	o := &observed{values: map[string]int64{}}
	s.observe(o)
	return o.values
}

func options(t *testing.T, process string, scripts *lua.Scripts) Options {
	t.Helper()
	return Options{
		ProcessID: process, Scripts: scripts, Every: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Inspect: func(context.Context) (redisconn.Server, error) {
			return redisconn.Server{UsedMemory: 7, MaxMemory: 9}, nil
		},
		Queues:        func() []string { return []string{"tasks", "q_paid_stream.m"} },
		DescribeQueue: func(_ context.Context, queue string) (int, int64, error) { return 2, int64(len(queue)), nil },
		Models:        func() []string { return []string{"m"} },
		Waiting:       func(context.Context, string) (int, error) { return 6, nil },
		Teams: func(context.Context) (map[string]TeamUse, error) {
			return map[string]TeamUse{"ads": {InUse: 8, Waiting: 1}}, nil
		},
		Budgets: func(_ context.Context, limit int) ([]berth.Budget, error) {
			require.Equal(t, maxBudgets, limit)
			return []berth.Budget{{Kind: berth.BudgetTeam, ID: "ads", Credits: 400, Used: 300}}, nil
		},
		Conferences: func(context.Context) (map[berth.ConferenceStatus]int, error) {
			return map[berth.ConferenceStatus]int{berth.ConferenceOpen: 4}, nil
		},
		Overdue: func(_ context.Context, before time.Time) (map[berth.ReconcileRule]int, error) {
			require.Less(t, time.Until(before), -time.Minute)
			return map[berth.ReconcileRule]int{berth.RuleTaskOverdue: 3}, nil
		},
		Fleet: func() *fleet.Snapshot { return &fleet.Snapshot{} },
	}
}

func TestSampler_TwoProcesses_OneExports(t *testing.T) { // X3
	t.Parallel()
	scripts := lua.New(testredis.Start(t).Client(), lua.Keys{})
	a, b := New(options(t, "a", scripts)), New(options(t, "b", scripts))
	a.opt.Every, b.opt.Every = time.Minute, time.Minute // a claim that is not ended lasts longer than this test
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	require.Eventually(t, func() bool { return len(a.collect()) > 0 }, time.Minute, time.Millisecond)
	require.Equal(t, map[string]int64{
		"used": 7, "max": 9, "pollerstask_queue=tasks": 2, "backlogtask_queue=tasks": 5,
		"waitingmodel=m": 6, "teamUsesteam=ads": 8, "teamWaitsteam=ads": 1, "percentOfBudgetid=ads,kind=team": 75, "pollerstask_queue=q_paid_stream.m": 2, "backlogtask_queue=q_paid_stream.m": 15, "conferencesstatus=creating": 0,
		"conferencesstatus=open": 4, "conferencesstatus=awaiting-connection": 0, "conferencesstatus=awaiting-recovery": 0,
		"overduerule=task-past-deadline": 3,
	}, a.collect())
	require.Nil(t, b.sample(t.Context()), "the other process samples")

	stop()
	running.Wait()
	require.Eventually(t, func() bool { return b.sample(t.Context()) != nil }, 30*time.Second, time.Millisecond, "the other process has ended its claim")
}

func TestSampler_SourcesFail_OnlyTheirPartsAbsent(t *testing.T) { // X3
	t.Parallel()
	server := testredis.Start(t)
	opt := options(t, "a", lua.New(server.Client(), lua.Keys{}))
	opt.Every = time.Minute
	opt.DescribeQueue = func(context.Context, string) (int, int64, error) { return 0, 0, errors.New("no Temporal") }
	s := New(opt)
	s.last.Store(s.sample(t.Context()))
	values := s.collect()
	require.NotContains(t, values, "pollerstask_queue=tasks")
	require.EqualValues(t, 7, values["used"])
	require.EqualValues(t, 4, values["conferencesstatus=open"])
	server.Kill()
	s.last.Store(s.sample(t.Context()))
	require.Empty(t, s.collect(), "another process may sample")
}

func TestFreeSlots_ManyPools_DefinedFirstOthersAddedUp(t *testing.T) { // X3
	t.Parallel()
	f := &fleet.Snapshot{Pools: map[string]berth.Pool{"vip": {}}, Nodes: map[string]berth.Node{}}
	for i := range maxPools + 10 {
		pool := fmt.Sprintf("translate:%03d", i)
		f.Nodes[pool] = berth.Node{NodeSpec: berth.NodeSpec{MaxConcurrentJobs: 5}, Leases: 2, Pools: []string{pool, "vip"}}
	}
	f.Nodes["full"] = berth.Node{NodeSpec: berth.NodeSpec{MaxConcurrentJobs: 5}, Leases: 7, Pools: []string{"vip"}}
	f.Nodes["cordoned"] = berth.Node{NodeSpec: berth.NodeSpec{MaxConcurrentJobs: 5}, Excluded: berth.ExcludeCordoned, Pools: []string{"vip"}}
	free := freeSlots(f)
	require.Len(t, free, maxPools+1)
	require.Equal(t, 3*(maxPools+10), free["vip"])
	require.Equal(t, 3, free["translate:000"])
	require.Equal(t, 3*11, free[otherPools])
}

func BenchmarkFreeSlots(b *testing.B) { // of 10,000 nodes in 56 pools
	f := &fleet.Snapshot{Nodes: map[string]berth.Node{}}
	for i := range 10_000 {
		id := fmt.Sprintf("n%05d", i)
		f.Nodes[id] = berth.Node{NodeSpec: berth.NodeSpec{MaxConcurrentJobs: 5}, Pools: []string{fmt.Sprint("pool-", i%56)}}
	}
	for b.Loop() {
		freeSlots(f)
	}
}
