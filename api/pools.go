package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/fleet"
	"berth/internal/ledger"
)

type poolInput struct {
	ID string `path:"id" doc:"Pool id; a slash in it must be escaped"`
}

type putPoolInput struct {
	ID   string `path:"id" doc:"Pool id; a slash in it must be escaped"`
	Body poolView
}

type poolsOutputBody struct {
	Pools      []poolView `json:"pools"`
	NextCursor string     `json:"nextCursor,omitempty" doc:"Absent on the last page"`
	Stale      bool       `json:"stale" doc:"Redis is unavailable: this is the last known state of the pools"`
}

// poolRoutes registers the routes of pools.
func (s *server) poolRoutes() {
	register(s, "GET /v1/pools", forOperator, s.listPools, op("list-pools", "pools",
		"List the pools by id: the defined ones, and the implicit ones of capabilities"))
	register(s, "GET /v1/pools/{id}", forOperator, s.getPool, op("get-pool", "pools",
		"Get a pool with its counts of eligible and excluded nodes and its current strategy"))
	register(s, "PUT /v1/pools/{id}", forOperator, s.putPool, op("put-pool", "pools", "Define a pool",
		"Moves the nodes that belong to it. The response has its number of members, and its capabilities that no registered node has.\n\n"+strategyList()))
	registerOutput(s, "DELETE /v1/pools/{id}", forOperator, s.deletePool, op("delete-pool", "pools", "Delete a pool",
		"A pool that is named like a capability remains as the implicit pool of that capability."))
}

// inField replaces the field of a berth.Error by the one of the request.
func inField(err error, field string) error {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		named := *e
		named.Field = field
		return &named
	}
	return err
}

func (s *server) listPools(_ context.Context, in *PageQuery) (*poolsOutputBody, error) {
	l := s.listed()
	ids, next := page(l.pools, in.Cursor, in.Limit, func(string) bool { return true })
	return &poolsOutputBody{Pools: convert(ids, l.pool), NextCursor: next, Stale: l.of.Stale}, nil
}

func (s *server) getPool(ctx context.Context, in *poolInput) (*poolView, error) {
	id, err := berth.ParsePoolID("poolId", in.ID)
	if err != nil {
		return nil, err
	}
	v, stale, err := latest(s.Fleet.Snapshot(), poolView{}, func() (poolView, error) { return s.poolNow(ctx, id) })
	switch {
	case err != nil:
		return nil, err
	case !stale && !v.Defined && v.Members == 0:
		return nil, berth.Errorf(berth.CodeNotFound, "pool not found")
	case !stale:
		return &v, nil
	}
	l := s.listed()
	if _, ok := l.counts[id]; !ok {
		return nil, unavailable("Redis", nil) // it may have been defined since
	}
	v = l.pool(id)
	v.Stale = true
	return &v, nil
}

func (s *server) putPool(ctx context.Context, in *putPoolInput) (*poolView, error) {
	b := in.Body
	id, err := berth.ParsePoolID("poolId", in.ID)
	if err != nil {
		return nil, err
	}
	if b.PoolID != "" && b.PoolID != in.ID && b.PoolID != id {
		return nil, berth.Invalid("poolId", "does not match the path")
	}
	p := berth.Pool{
		ID: id, Kind: b.Kind, Capabilities: slices.Concat([]string{}, b.Capabilities), Zone: b.Zone, Strategy: b.Strategy,
		GPUWeight: b.GPUWeight, Tenants: b.Tenants,
	}
	if err := p.Normalize(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.ID, err)
	}
	if err := s.set(ctx, ledger.SettingPool, p.ID, body); err != nil {
		return nil, err
	}
	v, err := s.poolNow(ctx, p.ID)
	return &v, fromRedis(err)
}

func (s *server) deletePool(ctx context.Context, in *poolInput) (*struct{}, error) {
	id, err := berth.ParsePoolID("poolId", in.ID)
	if err = cmp.Or(err, s.Fleet.Writable()); err != nil {
		return nil, err
	}
	_, defined, err := s.Scripts.FindPool(ctx, id)
	if err != nil {
		return nil, fromRedis(err)
	}
	if !defined {
		return nil, berth.Errorf(berth.CodeNotFound, "pool not found, or not defined")
	}
	return nil, s.set(ctx, ledger.SettingPool, id, nil)
}

// pool returns a pool of the snapshot.
func (l *listing) pool(id string) poolView {
	p, defined := l.of.Pools[id]
	v := viewPool(l.of.Pool(id), defined, l.counts[id])
	for _, c := range l.of.Pool(id).Capabilities {
		if !l.living[c] {
			v.Missing = append(v.Missing, c)
		}
	}
	if v.StrategyNow = l.of.Strategy(id); p.Strategy == "" && !defined {
		v.Strategy = ""
	}
	v.Stale = l.of.Stale
	return v
}

// poolNow returns a pool as stored in Redis.
func (s *server) poolNow(ctx context.Context, id string) (poolView, error) {
	p, defined, err := s.Scripts.FindPool(ctx, id)
	if err != nil {
		return poolView{}, err
	}
	if !defined {
		p = berth.Pool{ID: id, Capabilities: []string{id}}
	}
	counts, err := s.Scripts.CountPool(ctx, id)
	if err != nil {
		return poolView{}, err
	}
	v := viewPool(p, defined, counts)
	if v.Missing, err = s.Scripts.MissingCapabilities(ctx, p.Capabilities...); err != nil {
		return v, err
	}
	if v.StrategyNow = p.Strategy; v.StrategyNow == "" {
		v.StrategyNow = s.Fleet.Snapshot().Config.AssignmentStrategy
	}
	if v.StrategyNow == berth.StrategyDynamic {
		state, err := s.Scripts.CurrentStrategy(ctx, id)
		if err != nil {
			return v, err
		}
		v.StrategyNow = state.Strategy
	}
	v.Switches, err = s.Scripts.StrategySwitches(ctx, id)
	return v, err
}

func viewPool(p berth.Pool, defined bool, counts berth.PoolCounts) poolView {
	if counts.Excluded == nil {
		counts.Excluded = map[berth.ExcludeReason]int{}
	}
	v := poolView{
		PoolID: p.ID, Defined: defined, Members: counts.Free, Counts: &counts, PoolSpec: client.PoolSpec{
			Kind: p.Kind, Capabilities: slices.Concat([]string{}, p.Capabilities), Zone: p.Zone, Strategy: p.Strategy,
			GPUWeight: p.GPUWeight, Tenants: p.Tenants,
		},
	}
	for _, n := range counts.Excluded {
		v.Members += n
	}
	return v
}

// set stores a setting in the ledger, which is authoritative, and writes it to Redis, where decisions read it. A write that
// has begun is finished even when the client disconnects.
func (s *server) set(ctx context.Context, kind ledger.SettingKind, id string, body json.RawMessage) error {
	if err := s.Fleet.Writable(); err != nil {
		return err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.PutSetting(ctx, ledger.Setting{Kind: kind, ID: id, Body: body, By: by}); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "fleet setting changed", "kind", kind, "id", id, "deleted", len(body) == 0, "by", by)
	if err := s.apply(ctx, kind, id); err != nil {
		return err
	}
	s.catchUp(ctx)
	return nil
}

// catchUp waits until the decisions and the lists of this process have what a request has changed, and these nodes.
func (s *server) catchUp(ctx context.Context, nodes ...string) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	s.Fleet.CatchUpNodes(ctx, nodes...)
}

// apply writes a stored setting to Redis.
func (s *server) apply(ctx context.Context, kind ledger.SettingKind, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	err := fleet.ApplySetting(ctx, s.Ledger, s.Scripts, kind, id)
	if berth.CodeOf(err) == berth.CodeUnavailable || unreachable(err) {
		return berth.Errorf(berth.CodeUnavailable, "change saved but not yet applied; retry").With(err)
	}
	return err
}

// catchUpTimeout limits how long a response waits for the snapshot to have the change.
const catchUpTimeout = 2 * time.Second

// applyTimeout is enough to move ten thousand nodes between pools.
const applyTimeout = 30 * time.Second

// strategyList returns a Markdown list of the strategies.
func strategyList() string {
	var b strings.Builder
	b.WriteString("Strategies:\n\n")
	for _, s := range berth.Strategies() {
		fmt.Fprintf(&b, "- `%s`: %s\n", s, s.Description())
	}
	return b.String()
}
