// Package sampler exports the metrics of the whole system that are not known to any process: what Redis, Temporal and the
// database know, and sums over the fleet. Every API process runs a Sampler, and one of them at a time samples, at a slow pace, so
// that the cost does not grow with the number of processes.
package sampler

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/metrics"
	"berth/internal/pause"
	"berth/internal/redisconn"
	"berth/lua"
)

// Options are the sources of a Sampler and its settings.
type Options struct {
	ProcessID string // unique
	Scripts   *lua.Scripts
	// Inspect returns the state of the Redis that has the keys.
	Inspect func(ctx context.Context) (redisconn.Server, error)
	// Queues are the task queues of the system. DescribeQueue returns the number of processes that poll one, and how much work
	// waits in it.
	Queues        func() []string
	DescribeQueue func(ctx context.Context, queue string) (pollers int, backlog int64, err error)
	// Models returns the names of the models, and Waiting how many tasks and calls wait for one.
	Models  func() []string
	Waiting func(ctx context.Context, model string) (int, error)
	// Teams returns what the teams use that have a series of their own, at most MaxTeams.
	Teams func(ctx context.Context) (map[string]TeamUse, error)
	// Budgets returns the fullest budgets, at most limit.
	Budgets     func(ctx context.Context, limit int) ([]berth.Budget, error)
	Conferences func(ctx context.Context) (map[berth.ConferenceStatus]int, error)
	Overdue     func(ctx context.Context, before time.Time) (map[berth.ReconcileRule]int, error)
	Fleet       func() *fleet.Snapshot
	Every       time.Duration // between two samples; 15 s
	Logger      *slog.Logger
}

// TeamUse is what the calls of a team use of all models.
type TeamUse struct{ InUse, Waiting int }

// MaxTeams is how many teams have a series of their own.
const MaxTeams = 50

const (
	// overdueAfter is how long a row may be open past its deadline. The reconciliation ends it after half of that.
	overdueAfter = 2 * time.Minute
	// maxPools is how many pools have a series of their own. The others are added up as otherPools.
	maxPools = 50
	// maxBudgets is how many budgets have a series of their own.
	maxBudgets = 100
	otherPools = "*"
)

// Sampler samples and exports. Run is called once.
type Sampler struct {
	opt  Options
	last atomic.Pointer[sample] // nil while another process samples
	// failed has the sources of which the last sample failed.
	failed map[string]bool
}

// sample has what was read at one time. Parts that could not be read are absent.
type sample struct {
	at          time.Time
	redis       redisconn.Server
	queues      map[string]queue
	waiting     map[string]int
	teams       map[string]TeamUse
	budgets     []berth.Budget
	conferences map[berth.ConferenceStatus]int
	overdue     map[berth.ReconcileRule]int
	pools       map[string]int
}

type queue struct {
	pollers int
	backlog int64
}

// New returns a Sampler.
func New(opt Options) *Sampler {
	opt.Every = cmp.Or(opt.Every, 15*time.Second)
	return &Sampler{opt: opt, failed: map[string]bool{}}
}

// Run samples until ctx ends, and returns nil then.
func (s *Sampler) Run(ctx context.Context) error {
	defer metrics.Observe(s.observe, metrics.RedisMemoryUsed, metrics.RedisMemoryMax, metrics.TaskQueuePollers, metrics.TaskQueueBacklog,
		metrics.ModelWaiting, metrics.TeamInUse, metrics.TeamWaiting, metrics.BudgetUsed, metrics.Conferences, metrics.PoolFreeSlots, metrics.RowsPastDeadline)()
	for wait := min(s.opt.Every, time.Second); pause.For(ctx, wait); wait = s.opt.Every {
		s.last.Store(s.sample(ctx))
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.last.Load() != nil {
		_, _ = s.opt.Scripts.ClaimSampler(release, s.opt.ProcessID, 0) // otherwise it expires
	}
	return nil
}

// validFor is how long a claim and a sample are valid.
func (s *Sampler) validFor() time.Duration { return 5 * s.opt.Every / 2 }

// sample returns nil if another process samples.
func (s *Sampler) sample(ctx context.Context) *sample {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Every)
	defer cancel()
	claimed, err := s.opt.Scripts.ClaimSampler(ctx, s.opt.ProcessID, s.validFor())
	if err != nil || !claimed {
		return nil // an outage of Redis is logged and has a metric elsewhere
	}
	now := &sample{at: time.Now()}
	now.redis = read(ctx, s, health.Redis, "Redis", s.opt.Inspect)
	now.queues = read(ctx, s, health.Temporal, "Temporal", s.readQueues)
	now.waiting = read(ctx, s, health.Redis, "models", s.readWaiting)
	now.teams = read(ctx, s, health.Redis, "teams", s.opt.Teams)
	now.budgets = read(ctx, s, health.Database, "budgets", func(ctx context.Context) ([]berth.Budget, error) { return s.opt.Budgets(ctx, maxBudgets) })
	now.conferences = read(ctx, s, health.Database, "conferences", s.opt.Conferences)
	now.overdue = read(ctx, s, health.Database, "deadlines", func(ctx context.Context) (map[berth.ReconcileRule]int, error) {
		return s.opt.Overdue(ctx, now.at.Add(-overdueAfter))
	})
	if fleet := s.opt.Fleet(); !fleet.Stale {
		now.pools = freeSlots(fleet)
	}
	return now
}

// read returns a part of a sample, and logs the first of several failures.
func read[T any](ctx context.Context, s *Sampler, dependency, source string, get func(context.Context) (T, error)) (part T) {
	v, err := get(ctx)
	if err != nil && !s.failed[source] && ctx.Err() == nil {
		s.opt.Logger.WarnContext(ctx, "metrics not sampled", "dependency", dependency, "source", source, "error", err)
	}
	if s.failed[source] = err != nil; err != nil {
		return part
	}
	return v
}

func (s *Sampler) readQueues(ctx context.Context) (map[string]queue, error) {
	all := map[string]queue{}
	for _, name := range s.opt.Queues() {
		pollers, backlog, err := s.opt.DescribeQueue(ctx, name)
		if err != nil {
			return nil, err
		}
		all[name] = queue{pollers, backlog}
	}
	return all, nil
}

func (s *Sampler) readWaiting(ctx context.Context) (map[string]int, error) {
	all := map[string]int{}
	for _, model := range s.opt.Models() {
		n, err := s.opt.Waiting(ctx, model)
		if err != nil {
			return nil, err
		}
		all[model] = n
	}
	return all, nil
}

// freeSlots adds up the free slots of each pool's nodes that can be chosen. The defined pools come first, then those of
// capabilities, by id.
func freeSlots(f *fleet.Snapshot) map[string]int {
	free := map[string]int{}
	for id := range f.Pools {
		free[id] = 0
	}
	for _, n := range f.Nodes {
		slots := 0
		if n.Excluded == "" {
			slots = max(0, n.MaxConcurrentJobs-n.Leases)
		}
		for _, pool := range n.Pools {
			free[pool] += slots
		}
	}
	ids := slices.SortedFunc(maps.Keys(free), func(a, b string) int {
		_, definedA := f.Pools[a]
		_, definedB := f.Pools[b]
		switch {
		case definedA && !definedB:
			return -1
		case definedB && !definedA:
			return 1
		}
		return cmp.Compare(a, b)
	})
	for _, id := range ids[min(maxPools, len(ids)):] {
		free[otherPools] += free[id]
		delete(free, id)
	}
	return free
}

func (s *Sampler) observe(o metric.Observer) {
	v := s.last.Load()
	if v == nil || time.Since(v.at) > s.validFor() {
		return
	}
	if v.redis.UsedMemory > 0 {
		o.ObserveInt64(metrics.RedisMemoryUsed, v.redis.UsedMemory)
	}
	if v.redis.MaxMemory > 0 {
		o.ObserveInt64(metrics.RedisMemoryMax, v.redis.MaxMemory)
	}
	for name, q := range v.queues {
		labels := metrics.With(metrics.TaskQueue.String(name))
		o.ObserveInt64(metrics.TaskQueuePollers, int64(q.pollers), labels)
		o.ObserveInt64(metrics.TaskQueueBacklog, q.backlog, labels)
	}
	for model, n := range v.waiting {
		o.ObserveInt64(metrics.ModelWaiting, int64(n), metrics.With(metrics.Model.String(model)))
	}
	for team, use := range v.teams {
		labels := metrics.With(metrics.Team.String(team))
		o.ObserveInt64(metrics.TeamInUse, int64(use.InUse), labels)
		o.ObserveInt64(metrics.TeamWaiting, int64(use.Waiting), labels)
	}
	for _, b := range v.budgets {
		o.ObserveFloat64(metrics.BudgetUsed, float64(b.Used)/float64(b.Credits), metrics.With(metrics.Kind.String(string(b.Kind)), metrics.Budget.String(b.ID)))
	}
	if v.conferences != nil {
		for _, status := range berth.ConferenceStatuses() {
			if !status.Final() {
				o.ObserveInt64(metrics.Conferences, int64(v.conferences[status]), metrics.With(metrics.Status.String(string(status))))
			}
		}
	}
	for rule, n := range v.overdue {
		o.ObserveInt64(metrics.RowsPastDeadline, int64(n), metrics.With(metrics.Rule.String(string(rule))))
	}
	for pool, n := range v.pools {
		o.ObserveInt64(metrics.PoolFreeSlots, int64(n), metrics.With(metrics.Pool.String(pool)))
	}
}
