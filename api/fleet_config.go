package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth"
	"berth/internal/ledger"
)

// configView is berth.FleetConfig with times in milliseconds. Fields that a PUT omits take their defaults.
type configView struct {
	AssignmentStrategy berth.Strategy              `json:"assignmentStrategy,omitempty" doc:"Strategy of pools without their own. Absent: load-balanced in small pools, power-of-two in large ones"`
	MemoryWeight       float64                     `json:"memoryWeight" required:"false" doc:"Weight of memory usage in the load of a node, relative to CPU usage"`
	GPUWeight          float64                     `json:"gpuWeight" required:"false" doc:"Weight of GPU usage in the load of a node, relative to CPU usage, for nodes of pools without their own. A usage that is not known is treated as 100"`
	LockTimeoutMs      int64                       `json:"lockTimeoutMs" required:"false" minimum:"0" maximum:"86400000" doc:"Default lifetime of the lease of an assignment"`
	MaxRetries         int                         `json:"maxRetries" required:"false"`
	EnableFailover     bool                        `json:"enableFailover" required:"false"`
	Times              map[berth.NodeKind]timeView `json:"times" required:"false" doc:"Times by kind of node; omitted kinds have their defaults"`
	Dynamic            dynamicView                 `json:"dynamic" required:"false" doc:"When a dynamic pool switches its strategy"`
	SessionAffinity    bool                        `json:"sessionAffinity" required:"false" doc:"Spread new sessions over the pools that serve them, by a stable hash of their routing key; false: the first pool takes all. Default: true"`
	HashSeed           uint32                      `json:"hashSeed" required:"false" maximum:"4294967295" doc:"Changes that hash. Sessions that have a pool keep it"`
	Stale              bool                        `json:"stale" readOnly:"true" doc:"Redis is unavailable: this is the last known value"`
}

type timeView struct {
	HeartbeatIntervalMs       int64 `json:"heartbeatIntervalMs" minimum:"100" maximum:"86400000"`
	SuspectAfterMs            int64 `json:"suspectAfterMs" minimum:"100" maximum:"86400000"`
	FailureDetectionTimeoutMs int64 `json:"failureDetectionTimeoutMs" minimum:"100" maximum:"86400000"`
}

type dynamicView struct {
	LoadHigh      float64 `json:"loadHigh" required:"false" doc:"0 to 1. Above it the pool is load-balanced"`
	LoadLow       float64 `json:"loadLow" required:"false" doc:"Load below which a load-balanced pool switches back"`
	LatencyHighMs float64 `json:"latencyHighMs" required:"false" doc:"Mean latency between the pool's nodes and the API above which the pool uses locality"`
	LatencyLowMs  float64 `json:"latencyLowMs" required:"false" doc:"Latency below which a pool with locality switches back"`
	DwellMs       int64   `json:"dwellMs" required:"false" minimum:"0" maximum:"86400000" doc:"Minimum time between two switches"`
}

type configInput struct {
	Body    configView
	RawBody []byte
}

type tenantInput struct {
	ID string `path:"id" doc:"Tenant id"`
}

type bindInput struct {
	ID   string `path:"id" doc:"Tenant id"`
	Body struct {
		PoolID string `json:"poolId"`
	}
}

type bindOutputBody struct {
	TenantID string `json:"tenantId"`
	PoolID   string `json:"poolId"`
	Members  int    `json:"members" doc:"Number of members of the pool"`
}

type servicesInput struct{ Body berth.RequiredServices }

type servicesOutput struct {
	Stale string `header:"Berth-Stale" doc:"true: Redis is unavailable, and this is the last known value"`
	Body  berth.RequiredServices
}

type statsOutputBody struct {
	Pools map[string]map[berth.ExcludeReason]int64 `json:"pools" doc:"Number of times that nodes were excluded, by pool and reason"`
	Stale bool                                     `json:"stale" doc:"Redis is unavailable: this is the last known value"`
}

// fleetConfigRoutes registers the routes of the configuration that operators change at run time, and of statistics.
func (s *server) fleetConfigRoutes() {
	register(s, "PUT /v1/tenants/{id}/pool", forOperator, s.bindTenant, op("bind-tenant", "pools", "Bind a tenant to a pool",
		"The tenant's new sessions use the pool where it serves their language pair."))
	registerOutput(s, "DELETE /v1/tenants/{id}/pool", forOperator, s.freeTenant, op("free-tenant", "pools",
		"Unbind a tenant from its pool"))
	register(s, "GET /v1/config/strategy", forOperator, s.getStrategy, op("get-strategy", "config", "Get the configuration of assignment"))
	register(s, "PUT /v1/config/strategy", forOperator, s.putStrategy, op("put-strategy", "config",
		"Replace the configuration of assignment", "Omitted fields take their defaults."))
	registerOutput(s, "GET /v1/config/services", forOperator, s.getServices, op("get-services", "config",
		"Get the services that capabilities require"))
	registerOutput(s, "PUT /v1/config/services", forOperator, s.putServices, op("put-services", "config",
		"Replace the services that capabilities require",
		"Maps a capability, or the kind before its colon, to the services that a node has to declare to get work that needs the "+
			"capability: `{\"asr\": [\"whisper\"]}`. A node that declares no services gets no such work."))
	register(s, "GET /v1/stats/excludes", forOperator, s.excludeStats, op("exclude-stats", "pools",
		"Count the exclusions of nodes by pool and reason"))
}

func (s *server) bindTenant(ctx context.Context, in *bindInput) (*bindOutputBody, error) {
	poolID, err := berth.ParsePoolID("poolId", in.Body.PoolID)
	if err = cmp.Or(berth.ValidID("tenantId", in.ID), err); err != nil {
		return nil, err
	}
	pool, defined, err := s.Scripts.FindPool(ctx, poolID)
	if err != nil {
		return nil, fromRedis(err)
	}
	if defined && !pool.Allows(in.ID) {
		return nil, &berth.Error{
			Code: berth.CodeConflict, Field: "poolId", Message: "the pool does not allow the tenant; add it to the pool's tenants",
		}
	}
	body, err := json.Marshal(poolID)
	if err != nil {
		return nil, fmt.Errorf("tenant %s: %w", in.ID, err)
	}
	if err := s.set(ctx, ledger.SettingTenant, in.ID, body); err != nil {
		return nil, err
	}
	counts, err := s.Scripts.CountPool(ctx, poolID)
	if err != nil {
		return nil, fromRedis(err)
	}
	members := viewPool(berth.Pool{}, false, counts).Members
	return &bindOutputBody{TenantID: in.ID, PoolID: poolID, Members: members}, nil
}

func (s *server) freeTenant(ctx context.Context, in *tenantInput) (*struct{}, error) {
	if err := berth.ValidID("tenantId", in.ID); err != nil {
		return nil, err
	}
	return nil, s.set(ctx, ledger.SettingTenant, in.ID, nil)
}

func (s *server) getStrategy(ctx context.Context, _ *struct{}) (*configView, error) {
	now := s.Fleet.Snapshot()
	config, stale, err := latest(now, now.Config, func() (berth.FleetConfig, error) { return s.Scripts.FleetConfig(ctx) })
	if err != nil {
		return nil, err
	}
	v := effective(config)
	v.Stale = stale
	return &v, nil
}

func (s *server) putStrategy(ctx context.Context, in *configInput) (*configView, error) {
	v := viewConfig(berth.DefaultFleetConfig())
	if err := json.Unmarshal(in.RawBody, &v); err != nil { // huma has validated it, but without the defaults
		return nil, berth.Invalid("body", "must be a JSON object").With(err)
	}
	c := v.config()
	if err := c.Validate(); err != nil {
		return nil, inView(err)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("fleet configuration: %w", err)
	}
	if err := s.set(ctx, ledger.SettingStrategy, "", body); err != nil {
		return nil, err
	}
	v = effective(c)
	return &v, nil
}

// inView replaces fields of berth.FleetConfig by those of configView.
func inView(err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if ok && slices.Contains([]string{"lockTimeout", "dynamic.latencyLow", "dynamic.dwell"}, e.Field) {
		return inField(err, e.Field+"Ms")
	}
	return err
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func fromMs(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func viewConfig(c berth.FleetConfig) configView {
	v := configView{
		AssignmentStrategy: c.AssignmentStrategy, MemoryWeight: c.MemoryWeight, GPUWeight: c.GPUWeight, LockTimeoutMs: ms(c.LockTimeout),
		MaxRetries: c.MaxRetries, EnableFailover: c.EnableFailover, SessionAffinity: c.SessionAffinity, HashSeed: c.HashSeed, Times: map[berth.NodeKind]timeView{},
		Dynamic: dynamicView{
			LoadHigh: c.Dynamic.LoadHigh, LoadLow: c.Dynamic.LoadLow, LatencyHighMs: c.Dynamic.LatencyHigh,
			LatencyLowMs: c.Dynamic.LatencyLow, DwellMs: ms(c.Dynamic.Dwell),
		},
	}
	for kind, t := range c.Times {
		v.Times[kind] = timeView{ms(t.Heartbeat), ms(t.Suspect), ms(t.Death)}
	}
	return v
}

// effective returns the configuration with the default times of omitted kinds filled in.
func effective(c berth.FleetConfig) configView {
	times := map[berth.NodeKind]berth.NodeTimes{}
	for _, kind := range berth.NodeKinds() {
		times[kind] = c.TimesOf(kind)
	}
	c.Times = times
	return viewConfig(c)
}

func (v configView) config() berth.FleetConfig {
	c := berth.FleetConfig{
		AssignmentStrategy: v.AssignmentStrategy, MemoryWeight: v.MemoryWeight, GPUWeight: v.GPUWeight, LockTimeout: fromMs(v.LockTimeoutMs),
		MaxRetries: v.MaxRetries, EnableFailover: v.EnableFailover, SessionAffinity: v.SessionAffinity, HashSeed: v.HashSeed,
		Dynamic: berth.DynamicRule{
			LoadHigh: v.Dynamic.LoadHigh, LoadLow: v.Dynamic.LoadLow, LatencyHigh: v.Dynamic.LatencyHighMs,
			LatencyLow: v.Dynamic.LatencyLowMs, Dwell: fromMs(v.Dynamic.DwellMs),
		},
	}
	for kind, t := range v.Times {
		if c.Times == nil {
			c.Times = map[berth.NodeKind]berth.NodeTimes{}
		}
		c.Times[kind] = berth.NodeTimes{
			Heartbeat: fromMs(t.HeartbeatIntervalMs), Suspect: fromMs(t.SuspectAfterMs), Death: fromMs(t.FailureDetectionTimeoutMs),
		}
	}
	return c
}

func (s *server) getServices(ctx context.Context, _ *struct{}) (*servicesOutput, error) {
	now := s.Fleet.Snapshot()
	required, stale, err := latest(now, now.Services, func() (berth.RequiredServices, error) { return s.Scripts.Services(ctx) })
	if err != nil {
		return nil, err
	}
	if required == nil {
		required = berth.RequiredServices{}
	}
	out := &servicesOutput{Body: required}
	if stale {
		out.Stale = "true"
	}
	return out, nil
}

func (s *server) putServices(ctx context.Context, in *servicesInput) (*servicesOutput, error) {
	if err := in.Body.Normalize(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(in.Body)
	if err != nil {
		return nil, fmt.Errorf("required services: %w", err)
	}
	if err := s.set(ctx, ledger.SettingServices, "", body); err != nil {
		return nil, err
	}
	return &servicesOutput{Body: in.Body}, nil
}

// excludeStats returns the statistics of Redis, or the last known ones while it is unavailable.
func (s *server) excludeStats(ctx context.Context, _ *struct{}) (*statsOutputBody, error) {
	last := map[string]map[berth.ExcludeReason]int64{}
	if seen := s.stats.Load(); seen != nil {
		last = *seen
	}
	pools, stale, err := latest(s.Fleet.Snapshot(), last, func() (map[string]map[berth.ExcludeReason]int64, error) {
		return s.Scripts.ExcludeStats(ctx)
	})
	if err != nil {
		return nil, err
	}
	s.stats.Store(&pools)
	return &statsOutputBody{Pools: pools, Stale: stale}, nil
}
