package lua

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
)

// Codes of the scripts of pools and strategies.
const (
	PoolOK           = "OK"
	PoolExists       = "EXISTS"   // define_pool: there was the same definition, or one to be kept
	StrategySwitched = "SWITCHED" // switch_strategy
	StrategyKept     = "KEPT"
)

// DefinePool writes a pool's definition and moves the nodes that it affects. With keep, an existing definition stays. It
// returns PoolOK or PoolExists. p has to be valid. Nodes that register meanwhile use the new definition immediately, the
// others move in batches; a call that failed halfway can be repeated.
func (s *Scripts) DefinePool(ctx context.Context, p berth.Pool, keep bool) (code string, err error) {
	p.Capabilities, p.Tenants = unique(p.Capabilities), unique(p.Tenants)
	b, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("pool %s: %w", p.ID, err)
	}
	return s.definePool(ctx, p.ID, string(b), keep)
}

// DeletePool deletes a pool's definition. A pool named like a capability continues as the pool of that capability.
func (s *Scripts) DeletePool(ctx context.Context, poolID string) error {
	_, err := s.definePool(ctx, poolID, "", false)
	return err
}

func (s *Scripts) definePool(ctx context.Context, id, definition string, keep bool) (string, error) {
	k := s.keys
	code, err := s.code(ctx, "define_pool", []string{k.ConfigPools(), k.ConfigAnchors()},
		id, definition, flag(keep), k.ConfigUpdated(), k.prefix(), operatorJSON(berth.OperatorEvent{
			Type: berth.EventConfig, PoolID: id, Status: "pools",
		}))
	if err != nil || code == PoolExists && keep {
		return code, err
	}
	ids, err := s.NodeIDs(ctx)
	if err != nil {
		return "", err
	}
	return code, s.MovePools(ctx, ids...)
}

// MovePools moves nodes to the pools whose selectors match them.
func (s *Scripts) MovePools(ctx context.Context, nodeIDs ...string) error {
	for batch := range slices.Chunk(nodeIDs, 100) {
		if _, err := s.run(ctx, "move_pools", []string{s.keys.ConfigPools()}, with([]any{s.keys.stem()}, batch...)...); err != nil {
			return err
		}
	}
	return nil
}

// Pools returns the defined pools by id.
func (s *Scripts) Pools(ctx context.Context) (map[string]berth.Pool, error) {
	rows, err := s.hash(ctx, s.keys.ConfigPools(), "pools")
	if err != nil {
		return nil, err
	}
	out := make(map[string]berth.Pool, len(rows))
	for id, row := range rows {
		var p berth.Pool
		if err := json.Unmarshal([]byte(row), &p); err != nil {
			return nil, fmt.Errorf("pool %s: %w", id, err)
		}
		out[id] = p
	}
	return out, nil
}

// FindPool returns one defined pool; ok is false when it is not defined.
func (s *Scripts) FindPool(ctx context.Context, poolID string) (p berth.Pool, ok bool, err error) {
	row, ok, err := found(s.rdb.HGet(ctx, s.keys.ConfigPools(), poolID), "pool "+poolID)
	if !ok {
		return p, false, err
	}
	if err := json.Unmarshal([]byte(row), &p); err != nil {
		return p, false, fmt.Errorf("read pool %s: %w", poolID, err)
	}
	return p, true, nil
}

// KnowsCapability reports whether a node has registered with a capability, also if that node is forgotten. The 10,000 that were
// registered last are kept.
func (s *Scripts) KnowsCapability(ctx context.Context, capability string) (bool, error) {
	err := s.rdb.ZScore(ctx, s.keys.KnownCapabilities(), capability).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read capability: %w", err)
	}
	return true, nil
}

// MissingCapabilities returns the capabilities of the list that no registered node has.
func (s *Scripts) MissingCapabilities(ctx context.Context, capabilities ...string) ([]string, error) {
	if len(capabilities) == 0 {
		return nil, nil
	}
	counts, err := s.rdb.HMGet(ctx, s.keys.Capabilities(), capabilities...).Result()
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	var missing []string
	for i, n := range counts {
		if n == nil {
			missing = append(missing, capabilities[i])
		}
	}
	return missing, nil
}

// CountPool returns how many of a pool's nodes can be chosen, and why the others cannot.
func (s *Scripts) CountPool(ctx context.Context, poolID string) (berth.PoolCounts, error) {
	classes, err := s.rdb.ZRange(ctx, s.keys.PoolClasses(poolID), 0, -1).Result()
	if err != nil {
		return berth.PoolCounts{}, fmt.Errorf("count pool %s: %w", poolID, err)
	}
	out := berth.PoolCounts{Excluded: map[berth.ExcludeReason]int{}}
	for batch := range slices.Chunk(classes, readBatch) {
		rows := make([]*redis.MapStringStringCmd, len(batch))
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, class := range batch {
				rows[i] = p.HGetAll(ctx, s.keys.classState(class))
			}
			return nil
		})
		if err != nil {
			return berth.PoolCounts{}, fmt.Errorf("count pool %s: %w", poolID, err)
		}
		for _, row := range rows {
			for reason, n := range row.Val() {
				if reason == "free" {
					out.Free += int(number(n))
				} else if number(n) > 0 {
					out.Excluded[berth.ExcludeReason(reason)] += int(number(n))
				}
			}
		}
	}
	return out, nil
}

// ExcludeStats returns how often nodes were excluded, by pool and reason: a node to which the work might have gone, and every node
// of the pool when no node could take it. Pools without nodes are counted together, as "*".
func (s *Scripts) ExcludeStats(ctx context.Context) (map[string]map[berth.ExcludeReason]int64, error) {
	rows, err := s.hash(ctx, s.keys.ExcludeStats(), "exclude statistics")
	if err != nil {
		return nil, err
	}
	out := map[string]map[berth.ExcludeReason]int64{}
	for field, n := range rows {
		pool, reason, _ := strings.Cut(field, "|")
		if out[pool] == nil {
			out[pool] = map[berth.ExcludeReason]int64{}
		}
		out[pool][berth.ExcludeReason(reason)] = number(n)
	}
	return out, nil
}

// StrategyState is the current strategy of a dynamic pool.
type StrategyState struct {
	Strategy berth.Strategy
	Since    time.Time // of the last switch, by Redis's clock; zero before the first
}

// SwitchStrategy decides the strategy of a dynamic pool. before is the previous strategy, which differs from the returned one
// when this call switched.
func (s *Scripts) SwitchStrategy(
	ctx context.Context, poolID string, by berth.SystemState, r berth.DynamicRule,
) (state StrategyState, before berth.Strategy, err error) {
	res := s.call(ctx, "switch_strategy", []string{s.keys.PoolStrategy(poolID), s.keys.PoolSwitches(poolID)},
		poolID, by.Load, by.LatencyMs, r.LoadHigh, r.LoadLow, r.LatencyHigh, r.LatencyLow, r.Dwell.Milliseconds(),
		s.keys.ConfigUpdated(), s.keys.prefix())
	res.code(StrategySwitched, StrategyKept)
	return StrategyState{berth.Strategy(res.text()), msTime(res.text())}, berth.Strategy(res.text()), res.done()
}

// CurrentStrategy returns a dynamic pool's strategy without deciding it.
func (s *Scripts) CurrentStrategy(ctx context.Context, poolID string) (StrategyState, error) {
	f, err := s.hash(ctx, s.keys.PoolStrategy(poolID), "strategy of pool "+poolID)
	return StrategyState{cmp.Or(berth.Strategy(f["strategy"]), berth.StrategyRoundRobin), msTime(f["since_ms"])}, err
}

// StrategySwitches returns a dynamic pool's last 50 switches, newest first.
func (s *Scripts) StrategySwitches(ctx context.Context, poolID string) ([]berth.StrategySwitch, error) {
	rows, err := s.rdb.LRange(ctx, s.keys.PoolSwitches(poolID), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read switches of pool %s: %w", poolID, err)
	}
	var out []berth.StrategySwitch
	for _, row := range rows {
		if f := strings.Split(row, "\n"); len(f) == 5 {
			out = append(out, berth.StrategySwitch{
				PoolID: poolID, From: berth.Strategy(f[0]), To: berth.Strategy(f[1]),
				By: berth.SystemState{Load: float(f[2]), LatencyMs: float(f[3])}, At: msTime(f[4]),
			})
		}
	}
	return out, nil
}

// BindTenant binds a tenant's sessions to a pool; an empty one removes the binding.
func (s *Scripts) BindTenant(ctx context.Context, tenantID, poolID string) error {
	return s.configure(ctx, "tenants", func(p redis.Pipeliner) {
		if poolID == "" {
			p.HDel(ctx, s.keys.ConfigTenants(), tenantID)
		} else {
			p.HSet(ctx, s.keys.ConfigTenants(), tenantID, poolID)
		}
	})
}

// Tenants returns the pools to which tenants are bound, by tenant.
func (s *Scripts) Tenants(ctx context.Context) (map[string]string, error) {
	return s.hash(ctx, s.keys.ConfigTenants(), "tenants")
}

// PutFleetConfig writes the configuration of the fleet. c has to be valid.
func (s *Scripts) PutFleetConfig(ctx context.Context, c berth.FleetConfig) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("fleet configuration: %w", err)
	}
	return s.configure(ctx, "strategy", func(p redis.Pipeliner) { p.Set(ctx, s.keys.ConfigStrategy(), b, 0) })
}

// FleetConfig returns the configuration of the fleet, the defaults where none was written.
func (s *Scripts) FleetConfig(ctx context.Context) (berth.FleetConfig, error) {
	c, _, err := s.FindFleetConfig(ctx)
	return c, err
}

// FindFleetConfig is FleetConfig; ok is false where none was written, or Redis has lost it.
func (s *Scripts) FindFleetConfig(ctx context.Context) (c berth.FleetConfig, ok bool, err error) {
	c = berth.DefaultFleetConfig()
	doc, ok, err := found(s.rdb.Get(ctx, s.keys.ConfigStrategy()), "fleet configuration")
	if !ok {
		return c, false, err
	}
	if err := json.Unmarshal([]byte(doc), &c); err != nil {
		return c, false, fmt.Errorf("read fleet configuration: %w", err)
	}
	return c, true, nil
}

// PutServices writes the services that capabilities require, as JSON.
func (s *Scripts) PutServices(ctx context.Context, doc json.RawMessage) error {
	return s.configure(ctx, "services", func(p redis.Pipeliner) { p.Set(ctx, s.keys.ConfigServices(), []byte(doc), 0) })
}

// Services returns the services that capabilities require; nil when Redis has none.
func (s *Scripts) Services(ctx context.Context) (berth.RequiredServices, error) {
	doc, ok, err := found(s.rdb.Get(ctx, s.keys.ConfigServices()), "services")
	if !ok {
		return nil, err
	}
	return berth.ParseRequiredServices([]byte(doc)), nil
}

// StoredSettings are the operator settings that Redis has; the ids of those map to true.
type StoredSettings struct {
	Pools, Tenants, Nodes, Models map[string]bool
	Strategy, Services            bool
	// Levels are the teams and applications whose limits are not the default.
	Levels map[Level]LevelLimits
}

// StoredSettings returns which operator settings Redis has; of the settings of nodes and models it checks only the named ones.
func (s *Scripts) StoredSettings(ctx context.Context, nodeIDs, modelNames []string) (StoredSettings, error) {
	var pools, tenants *redis.StringSliceCmd
	var levels *redis.MapStringStringCmd
	var strategy, services *redis.IntCmd
	nodes, models := make([]*redis.IntCmd, len(nodeIDs)), make([]*redis.BoolCmd, len(modelNames))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		pools, tenants = p.HKeys(ctx, s.keys.ConfigPools()), p.HKeys(ctx, s.keys.ConfigTenants())
		levels = p.HGetAll(ctx, s.keys.Levels())
		strategy, services = p.Exists(ctx, s.keys.ConfigStrategy()), p.Exists(ctx, s.keys.ConfigServices())
		for i, id := range nodeIDs {
			nodes[i] = p.Exists(ctx, s.keys.NodeCordon(id))
		}
		for i, name := range modelNames {
			models[i] = p.HExists(ctx, s.keys.ModelLimits(name), "paused") // set_model_limits always writes it
		}
		return nil
	})
	if err != nil {
		return StoredSettings{}, fmt.Errorf("read the fleet's settings in Redis: %w", err)
	}
	out := StoredSettings{
		Pools: map[string]bool{}, Tenants: map[string]bool{}, Nodes: map[string]bool{}, Models: map[string]bool{},
		Strategy: strategy.Val() == 1, Services: services.Val() == 1, Levels: parseLevels(levels.Val()),
	}
	for _, id := range pools.Val() {
		out.Pools[id] = true
	}
	for _, id := range tenants.Val() {
		out.Tenants[id] = true
	}
	for i, id := range nodeIDs {
		out.Nodes[id] = nodes[i].Val() == 1
	}
	for i, name := range modelNames {
		out.Models[name] = models[i].Val()
	}
	return out, nil
}

// configure writes and publishes the change in one transaction.
func (s *Scripts) configure(ctx context.Context, what string, write func(redis.Pipeliner)) error {
	err := s.transaction(ctx, func(p redis.Pipeliner) error {
		write(p)
		p.Publish(ctx, s.keys.ConfigUpdated(), what)
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return s.AppendOperatorEvents(ctx, berth.OperatorEvent{Type: berth.EventConfig, Status: what})
}
