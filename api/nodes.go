package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
	"berth/lua"
)

// registerBody is the registration of a node. berth.NodeSpec.Validate has the rules.
type registerBody struct {
	NodeID             string          `json:"nodeId" doc:"1 to 128 letters, digits, dots, dashes and underscores"`
	Kind               berth.NodeKind  `json:"kind"`
	Incarnation        incarnationBody `json:"incarnation" doc:"Identifies one run of the node process"`
	Hostname           string          `json:"hostname,omitempty" doc:"For the strategy locality"`
	Zone               string          `json:"zone,omitempty" doc:"For the strategy locality and for pools of a zone"`
	Capabilities       []string        `json:"capabilities,omitempty" doc:"For example translate:en-es"`
	SupportedExecutors []string        `json:"supportedExecutors,omitempty" doc:"Alias of capabilities"`
	Languages          *languagesBody  `json:"languages,omitempty" doc:"Adds the capability of every pair of a source and a different target language"`
	Services           []string        `json:"services,omitempty" doc:"Services that run on the node, such as whisper: it gets work whose capabilities require them, see PUT /v1/config/services"`
	MaxConcurrentJobs  int             `json:"maxConcurrentJobs,omitempty" minimum:"1" maximum:"100000" default:"4" doc:"Number of slots"`
	ClientURL          string          `json:"clientUrl,omitempty" maxLength:"512" doc:"Of a media unit: where participants reach its server, a ws or wss URL"`
	KeyID              string          `json:"keyId,omitempty" maxLength:"128" doc:"Of a media unit: the id of its server's API key. Required with clientUrl"`
	PreviousGeneration int64           `json:"previousGeneration,omitempty" minimum:"0" maximum:"9007199254740991" doc:"Previous generation of the same process. After Redis lost its data, the work that the node still runs is restored by it"`
}

type languagesBody struct {
	Sources []string `json:"sources" doc:"Language codes"`
	Targets []string `json:"targets" doc:"Language codes"`
}

type incarnationBody struct {
	Host      string `json:"host"`
	PID       int    `json:"pid" minimum:"1" maximum:"9007199254740991"`
	StartedAt int64  `json:"startedAt" minimum:"1" maximum:"9007199254740991" doc:"Unix milliseconds by the node's clock"`
}

type registerInput struct{ Body registerBody }

func (in *registerInput) node() (field, id string) { return "nodeId", in.Body.NodeID }

type heartbeatInput struct {
	ID   string `path:"id" doc:"Node id"`
	Body struct {
		Generation      int64    `json:"generation" minimum:"1" maximum:"9007199254740991"`
		CPUUsage        float64  `json:"cpuUsage,omitempty" doc:"0 to 100"`
		GPUUsage        *float64 `json:"gpuUsage,omitempty" doc:"0 to 100; absent: the node has no GPU, or cannot measure it"`
		MemoryUsage     float64  `json:"memoryUsage,omitempty" doc:"0 to 100"`
		CurrentJobs     int      `json:"currentJobs,omitempty" maximum:"1000000"`
		ActiveWorkflows int      `json:"activeWorkflows,omitempty" maximum:"1000000"`
		LatencyMs       float64  `json:"latencyMs,omitempty" doc:"Mean round trip between the node and the API"`
	}
}

func (in *heartbeatInput) node() (field, id string) { return "nodeId", in.ID }

type nodeInput struct {
	ID string `path:"id" doc:"Node id"`
}

func (in *nodeInput) node() (field, id string) { return "nodeId", in.ID }

type withdrawInput struct {
	ID         string `path:"id" doc:"Node id"`
	Generation int64  `query:"generation" minimum:"0" maximum:"9007199254740991" doc:"Withdraw only this generation; 0 means the current one"`

	Reason berth.Departure `query:"reason" enum:"withdrawn,service_lost" default:"withdrawn" doc:"service_lost: the server that the node represents does not respond or has restarted"`
}

func (in *withdrawInput) node() (field, id string) { return "nodeId", in.ID }

type drainInput struct {
	ID   string `path:"id" doc:"Node id"`
	Body *struct {
		WithinMs *int64 `json:"withinMs,omitempty" minimum:"0" maximum:"86400000" doc:"Time until the deadline of the drain, 5 minutes by default. Conferences that are left then are moved; jobs finish"`
	}
}

type settingsOutputBody struct {
	NodeID string `json:"nodeId"`
	berth.NodeSettings
}

type unavailableInput struct {
	ID      string `path:"id" doc:"Node id"`
	Service string `path:"service"`
	Body    struct {
		TTLMs int64 `json:"ttlMs" minimum:"0" maximum:"2592000000" doc:"Duration in milliseconds; 0 makes the service available again"`
	}
}

func (in *unavailableInput) node() (field, id string) { return "nodeId", in.ID }

type unavailableOutputBody struct {
	NodeID  string `json:"nodeId"`
	Service string `json:"service"`
	TTLMs   int64  `json:"ttlMs"`
}

// nodeRoutes registers the routes of nodes. Registration and heartbeat run one script each, whose cost does not depend on the number
// of nodes.
func (s *server) nodeRoutes() {
	register(s, "POST /v1/nodes", forNode, s.registerNode, op("register-node", "nodes", "Register a node",
		"Retries are idempotent: the same incarnation keeps its generation. 409: a later incarnation of the same host is registered under this id."))
	register(s, "POST /v1/nodes/{id}/heartbeat", forNode, s.heartbeatNode, op("heartbeat-node", "nodes", "Send a heartbeat",
		"409: the generation is unknown, dead or superseded; register again."))
	registerOutput(s, "DELETE /v1/nodes/{id}", forFleet, s.withdrawNode, op("withdraw-node", "nodes", "Withdraw a node"))
	register(s, "POST /v1/nodes/{id}/drain", forOperator, s.drainNode, op("drain-node", "nodes",
		"Drain a node: assign no new work, and move its conferences at the deadline"))
	for _, order := range []struct {
		name, summary string
		change        func(*berth.NodeSettings)
	}{
		{"cordon", "Cordon a node: assign no new work", func(o *berth.NodeSettings) { o.Cordoned = true }},
		{"uncordon", "Uncordon a node, and cancel its drain", func(o *berth.NodeSettings) { *o = berth.NodeSettings{} }},
		{"undrain", "Cancel the drain of a node", func(o *berth.NodeSettings) { o.DrainUntil = time.Time{} }},
	} {
		change := func(ctx context.Context, in *nodeInput) (*settingsOutputBody, error) {
			return s.changeSettings(ctx, in.ID, order.change)
		}
		register(s, "POST /v1/nodes/{id}/"+order.name, forOperator, change, op(order.name+"-node", "nodes", order.summary))
	}
	register(s, "PUT /v1/nodes/{id}/services/{service}/unavailable", forFleet, s.markUnavailable, op("mark-service-unavailable", "nodes",
		"Mark a node's service as temporarily unavailable"))
	s.nodeReadRoutes()
}

// defaultDrain is the default time of a drain.
const defaultDrain = 5 * time.Minute

func (s *server) drainNode(ctx context.Context, in *drainInput) (*settingsOutputBody, error) {
	within := defaultDrain
	if in.Body != nil && in.Body.WithinMs != nil {
		within = fromMs(*in.Body.WithinMs)
	}
	until := s.Clock().Add(within).UTC().Truncate(time.Millisecond)
	return s.changeSettings(ctx, in.ID, func(o *berth.NodeSettings) { o.DrainUntil = until })
}

// spec validates the body and returns the registration.
func (b registerBody) spec() (berth.NodeSpec, error) {
	spec := berth.NodeSpec{
		ID: b.NodeID, Kind: b.Kind, Incarnation: berth.Incarnation(b.Incarnation), Hostname: b.Hostname, Zone: b.Zone,
		Capabilities: b.Capabilities, Services: b.Services, MaxConcurrentJobs: b.MaxConcurrentJobs, ClientURL: b.ClientURL, KeyID: b.KeyID,
	}
	if len(b.SupportedExecutors) > 0 {
		if len(b.Capabilities) > 0 {
			return spec, berth.Invalid("supportedExecutors", "is an alias of capabilities; set only one of them")
		}
		if len(b.SupportedExecutors) > berth.MaxNodeCapabilities {
			return spec, berth.Invalid("supportedExecutors", "exceed the limit of %d", berth.MaxNodeCapabilities)
		}
		for _, c := range b.SupportedExecutors {
			if _, err := berth.ParseCapability("supportedExecutors", c); err != nil {
				return spec, err
			}
		}
		spec.Capabilities = b.SupportedExecutors
	}
	if b.Languages != nil {
		pairs, err := berth.TranslatePairs("languages", b.Languages.Sources, b.Languages.Targets)
		if err != nil {
			return spec, err
		}
		spec.Capabilities = slices.Concat(spec.Capabilities, pairs)
	}
	err := spec.Normalize()
	return spec, err
}

func (s *server) registerNode(ctx context.Context, in *registerInput) (*registration, error) {
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	r, err := s.Scripts.RegisterNode(ctx, spec, lua.Registration{
		Previous: in.Body.PreviousGeneration, Announce: spec.Kind == berth.NodeMedia, // its conferences are reconciled
	})
	if err != nil {
		return nil, fromRedis(err)
	}
	if r.Code == lua.NodeStale {
		return nil, errorIn("incarnation.startedAt", berth.CodeConflict, "a later incarnation of the same host is registered under this id")
	}
	return &registration{
		NodeID: spec.ID, Generation: r.Generation, TaskQueue: berth.NodeTaskQueue(spec.ID, r.Generation),
		HeartbeatIntervalMs: ms(s.Fleet.Snapshot().Config.TimesOf(spec.Kind).Heartbeat),
		Pools:               slices.Concat([]string{}, r.Pools), Existing: r.Code == lua.NodeExists,
	}, nil
}

func (s *server) heartbeatNode(ctx context.Context, in *heartbeatInput) (*heartbeatOutputBody, error) {
	b := in.Body
	load := berth.NodeLoad{
		CPUUsage: b.CPUUsage, GPUUsage: b.GPUUsage, MemoryUsage: b.MemoryUsage,
		CurrentJobs: b.CurrentJobs, ActiveWorkflows: b.ActiveWorkflows, LatencyMs: b.LatencyMs,
	}
	if err := cmp.Or(berth.ValidID("nodeId", in.ID), load.Validate(), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	now := s.Fleet.Snapshot()
	config := now.Config
	weights := lua.Weights{Memory: config.MemoryWeight, GPU: now.GPUWeight(now.Nodes[in.ID])}
	reply, err := s.Scripts.HeartbeatNode(ctx, in.ID, b.Generation, load, weights)
	if err != nil {
		return nil, fromRedis(err)
	}
	if reply.Code == lua.NodeReregister {
		return nil, errorIn("generation", berth.CodeConflict, "generation is unknown, dead or superseded; register again")
	}
	return &heartbeatOutputBody{
		HeartbeatIntervalMs: ms(config.TimesOf(reply.Kind).Heartbeat), Cordoned: reply.Cordoned, DrainUntil: reply.DrainUntil,
	}, nil
}

func (s *server) withdrawNode(ctx context.Context, in *withdrawInput) (*struct{}, error) {
	if err := s.writableNode(in.ID); err != nil {
		return nil, err
	}
	code, err := s.Scripts.WithdrawNode(ctx, in.ID, in.Generation, in.Reason)
	if err == nil && code == lua.NodeOK && in.Reason == berth.DepartureServiceLost {
		fleet.CountLost(ctx, s.Fleet.Snapshot().Nodes[in.ID].Kind, in.Reason)
	}
	if err := found(code, err); err != nil {
		return nil, err
	}
	s.catchUp(ctx, in.ID)
	return nil, nil
}

// changeSettings changes the operator's settings for a node that is registered or has settings already.
func (s *server) changeSettings(ctx context.Context, id string, change func(*berth.NodeSettings)) (*settingsOutputBody, error) {
	if err := s.writableNode(id); err != nil {
		return nil, err
	}
	nodes, err := s.Scripts.ReadNodes(ctx, id)
	if err != nil {
		return nil, fromRedis(err)
	}
	if _, known := nodes[id]; !known {
		switch _, ordered, err := s.Ledger.NodeSettings(ctx, id); {
		case err != nil:
			return nil, err
		case !ordered:
			return nil, errNoNode
		}
	}
	by := callOf(ctx).user.UserID
	out := &settingsOutputBody{NodeID: id}
	out.NodeSettings, err = s.Ledger.ChangeNodeSettings(ctx, id, by, func(o berth.NodeSettings) berth.NodeSettings { change(&o); return o })
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "node settings changed", "node", id, "cordoned", out.Cordoned, "drainUntil", out.DrainUntil, "by", by)
	if err := s.apply(ctx, ledger.SettingNode, id); err != nil {
		return nil, err
	}
	if nodes, err = s.Scripts.ReadNodes(ctx, id); err != nil {
		return nil, fromRedis(err)
	}
	if n, known := nodes[id]; known { // the deadline of a drain by Redis's clock, which decides
		out.DrainUntil = n.DrainUntil
	}
	s.catchUp(ctx, id)
	return out, nil
}

func (s *server) markUnavailable(ctx context.Context, in *unavailableInput) (*unavailableOutputBody, error) {
	if err := cmp.Or(s.writableNode(in.ID), berth.ValidID("service", in.Service)); err != nil {
		return nil, err
	}
	code, err := s.Scripts.MarkUnavailable(ctx, in.ID, in.Service, fromMs(in.Body.TTLMs))
	if err := found(code, err); err != nil {
		return nil, err
	}
	s.catchUp(ctx, in.ID)
	return &unavailableOutputBody{NodeID: in.ID, Service: in.Service, TTLMs: in.Body.TTLMs}, nil
}

// writableNode returns an error unless id can be the id of a node and Redis is available.
func (s *server) writableNode(id string) error {
	return cmp.Or(berth.ValidID("nodeId", id), s.Fleet.Writable())
}

// found translates the reply of a script about one node into an error.
func found(code string, err error) error {
	if err != nil {
		return fromRedis(err)
	}
	if code == lua.NodeGone {
		return errNoNode
	}
	return nil
}

var errNoNode = berth.Errorf(berth.CodeNotFound, "node or generation not found")

// fromRedis reports that Redis is unavailable where that is the cause, and returns other errors unchanged.
func fromRedis(err error) error {
	if unreachable(err) {
		return unavailable("Redis", err)
	}
	return err
}
