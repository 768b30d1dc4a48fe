package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/ledger"
	"berth/lua"
)

// registerBody is what a node says of itself (L3, C14). berth.NodeSpec.Validate has the rules.
type registerBody struct {
	NodeID             string          `json:"nodeId" doc:"1 to 128 letters, digits, dots, dashes and underscores"`
	Kind               berth.NodeKind  `json:"kind"`
	Incarnation        incarnationBody `json:"incarnation" doc:"Tells one run of the process from the next"`
	Hostname           string          `json:"hostname,omitempty" doc:"For the strategy locality"`
	Zone               string          `json:"zone,omitempty" doc:"For the strategy locality, and for pools of a zone"`
	Capabilities       []string        `json:"capabilities,omitempty" doc:"For instance translate:en-es"`
	SupportedExecutors []string        `json:"supportedExecutors,omitempty" doc:"Another name for capabilities (S4)"`
	MaxConcurrentJobs  int             `json:"maxConcurrentJobs,omitempty" minimum:"1" maximum:"100000" default:"4" doc:"Slots"`
	PreviousGeneration int64           `json:"previousGeneration,omitempty" minimum:"0" maximum:"9007199254740991" doc:"The generation the same process had before: after Redis lost its data, what the node still runs is put back under it"`
}

type incarnationBody struct {
	Host      string `json:"host"`
	PID       int    `json:"pid" minimum:"1" maximum:"9007199254740991"`
	StartedAt int64  `json:"startedAt" minimum:"1" maximum:"9007199254740991" doc:"Unix milliseconds, by the node's clock"`
}

type registerOutput struct{ Body registration }

type registration struct {
	NodeID              string   `json:"nodeId"`
	Generation          int64    `json:"generation" doc:"Every heartbeat carries it"`
	TaskQueue           string   `json:"taskQueue" doc:"Temporal's, to be polled for work"`
	HeartbeatIntervalMs int64    `json:"heartbeatIntervalMs"`
	Pools               []string `json:"pools"`
	Existing            bool     `json:"existing" doc:"The same incarnation was registered: it keeps its generation"`
}

type heartbeatInput struct {
	ID   string `path:"id" doc:"The node"`
	Body struct {
		Generation      int64   `json:"generation" minimum:"1" maximum:"9007199254740991"`
		CPUUsage        float64 `json:"cpuUsage,omitempty" doc:"0 to 100"`
		GPUUsage        float64 `json:"gpuUsage,omitempty" doc:"0 to 100"`
		MemoryUsage     float64 `json:"memoryUsage,omitempty" doc:"0 to 100"`
		CurrentJobs     int     `json:"currentJobs,omitempty" maximum:"1000000"`
		ActiveWorkflows int     `json:"activeWorkflows,omitempty" maximum:"1000000"`
		LatencyMs       float64 `json:"latencyMs,omitempty"`
	}
}

type heartbeatOutput struct {
	Body struct {
		HeartbeatIntervalMs int64     `json:"heartbeatIntervalMs" doc:"From now on; an operator may change it"`
		Cordoned            bool      `json:"cordoned"`
		DrainUntil          time.Time `json:"drainUntil,omitzero" doc:"Be done by then"`
	}
}

type nodeInput struct {
	ID string `path:"id" doc:"The node"`
}

type withdrawInput struct {
	ID         string `path:"id" doc:"The node"`
	Generation int64  `query:"generation" minimum:"0" maximum:"9007199254740991" doc:"Only if it is this one; 0: whichever lives"`
}

type drainInput struct {
	ID   string `path:"id" doc:"The node"`
	Body *struct {
		WithinMs *int64 `json:"withinMs,omitempty" minimum:"0" maximum:"86400000" doc:"Time to be done in, 5 minutes unless given; conferences that are left then are moved, jobs go on"`
	}
}

type ordersOutput struct {
	Body struct {
		NodeID string `json:"nodeId"`
		berth.NodeSettings
	}
}

type unavailableInput struct {
	ID      string `path:"id" doc:"The node"`
	Service string `path:"service"`
	Body    struct {
		TTLMs int64 `json:"ttlMs" minimum:"0" maximum:"2592000000" doc:"For how long; 0: available again"`
	}
}

type unavailableOutput struct {
	Body struct {
		NodeID  string `json:"nodeId"`
		Service string `json:"service"`
		TTLMs   int64  `json:"ttlMs"`
	}
}

// nodeRoutes registers the routes of the registry. Registration and heartbeat are one script each, without a walk over the fleet
// (L3, L13).
func (s *server) nodeRoutes() {
	register(s, huma.Operation{
		OperationID: "register-node", Method: http.MethodPost, Path: "/v1/nodes", Tags: []string{"nodes"},
		Summary:     "Register a node",
		Description: "Asking again is safe: the same incarnation keeps its generation. 409: a later incarnation of the same host has the id.",
	}, forNode, s.registerNode)
	register(s, huma.Operation{
		OperationID: "heartbeat-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/heartbeat", Tags: []string{"nodes"},
		Summary: "Tell that a node lives, and how busy it is", Description: "409: the generation is unknown, dead or superseded. Register again.",
	}, forNode, s.heartbeatNode)
	register(s, huma.Operation{
		OperationID: "withdraw-node", Method: http.MethodDelete, Path: "/v1/nodes/{id}", Tags: []string{"nodes"},
		Summary: "End a node's generation on purpose", DefaultStatus: http.StatusNoContent,
	}, forFleet, s.withdrawNode)
	register(s, huma.Operation{
		OperationID: "drain-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/drain", Tags: []string{"nodes"},
		Summary: "Give a node no new work, and have what is left at a time moved",
	}, forOperator, func(ctx context.Context, in *drainInput) (*ordersOutput, error) {
		within := defaultDrain
		if in.Body != nil && in.Body.WithinMs != nil {
			within = time.Duration(*in.Body.WithinMs) * time.Millisecond
		}
		until := s.Clock().Add(within).UTC().Truncate(time.Millisecond)
		return s.orderNode(ctx, in.ID, func(o *berth.NodeSettings) { o.DrainUntil = until })
	})
	for _, order := range []struct {
		name, summary string
		change        func(*berth.NodeSettings)
	}{
		{"cordon", "Give a node no new work", func(o *berth.NodeSettings) { o.Cordoned = true }},
		{"uncordon", "Give a node new work again; undoes a drain, too", func(o *berth.NodeSettings) { *o = berth.NodeSettings{} }},
		{"undrain", "Undo a drain", func(o *berth.NodeSettings) { o.DrainUntil = time.Time{} }},
	} {
		register(s, huma.Operation{
			OperationID: order.name + "-node", Method: http.MethodPost, Path: "/v1/nodes/{id}/" + order.name,
			Tags: []string{"nodes"}, Summary: order.summary,
		}, forOperator, func(ctx context.Context, in *nodeInput) (*ordersOutput, error) {
			return s.orderNode(ctx, in.ID, order.change)
		})
	}
	register(s, huma.Operation{
		OperationID: "mark-service-unavailable", Method: http.MethodPut, Path: "/v1/nodes/{id}/services/{service}/unavailable",
		Tags: []string{"nodes"}, Summary: "Have a node's service passed over for a time",
	}, forFleet, s.markUnavailable)
	s.nodeReadRoutes()
}

// defaultDrain is a drain's time when none is named.
const defaultDrain = 5 * time.Minute

// spec is the registration as the fleet knows it, checked.
func (b registerBody) spec() (berth.NodeSpec, error) {
	spec := berth.NodeSpec{
		ID: b.NodeID, Kind: b.Kind, Incarnation: berth.Incarnation(b.Incarnation), Hostname: b.Hostname, Zone: b.Zone,
		Capabilities: b.Capabilities, MaxConcurrentJobs: b.MaxConcurrentJobs,
	}
	if len(b.SupportedExecutors) > 0 {
		if len(b.Capabilities) > 0 {
			return spec, berth.Invalid("supportedExecutors", "is another name for capabilities: give one of them")
		}
		if len(b.SupportedExecutors) > berth.MaxCapabilities {
			return spec, berth.Invalid("supportedExecutors", "must be at most %d", berth.MaxCapabilities)
		}
		for _, c := range b.SupportedExecutors {
			if err := berth.ValidCapability("supportedExecutors", c); err != nil {
				return spec, err
			}
		}
		spec.Capabilities = b.SupportedExecutors
	}
	return spec, spec.Validate()
}

func (s *server) registerNode(ctx context.Context, in *struct{ Body registerBody }) (*registerOutput, error) {
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	r, err := s.Scripts.RegisterNode(ctx, spec, lua.Registration{
		Previous: in.Body.PreviousGeneration, Announce: spec.Kind == berth.NodeMedia, // what it runs is to be compared (C15)
	})
	if err != nil {
		return nil, fromRedis(err)
	}
	if r.Code == lua.NodeStale {
		return nil, &berth.Error{
			Code: berth.CodeConflict, Field: "incarnation.startedAt",
			Message: "a later incarnation of the same host is registered under this id",
		}
	}
	out := &registerOutput{Body: registration{
		NodeID: spec.ID, Generation: r.Generation, TaskQueue: berth.NodeTaskQueue(spec.ID, r.Generation),
		HeartbeatIntervalMs: s.Fleet.Snapshot().Config.TimesOf(spec.Kind).Heartbeat.Milliseconds(),
		Pools:               slices.Concat([]string{}, r.Pools), Existing: r.Code == lua.NodeExists,
	}}
	return out, nil
}

func (s *server) heartbeatNode(ctx context.Context, in *heartbeatInput) (*heartbeatOutput, error) {
	b := in.Body
	load := berth.NodeLoad{
		CPUUsage: b.CPUUsage, GPUUsage: b.GPUUsage, MemoryUsage: b.MemoryUsage,
		CurrentJobs: b.CurrentJobs, ActiveWorkflows: b.ActiveWorkflows, LatencyMs: b.LatencyMs,
	}
	if err := berth.ValidID("nodeId", in.ID); err != nil {
		return nil, err
	}
	if err := load.Validate(); err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	now := s.Fleet.Snapshot()
	said, err := s.Scripts.HeartbeatNode(ctx, in.ID, b.Generation, load, now.Config.MemoryWeight)
	if err != nil {
		return nil, fromRedis(err)
	}
	if said.Code == lua.NodeReregister {
		return nil, &berth.Error{
			Code: berth.CodeConflict, Field: "generation",
			Message: "this generation is unknown, dead or superseded: register again",
		}
	}
	out := &heartbeatOutput{}
	out.Body.HeartbeatIntervalMs = now.Config.TimesOf(said.Kind).Heartbeat.Milliseconds()
	out.Body.Cordoned, out.Body.DrainUntil = said.Cordoned, said.DrainUntil
	return out, nil
}

func (s *server) withdrawNode(ctx context.Context, in *withdrawInput) (*struct{}, error) {
	if err := s.writableNode(in.ID); err != nil {
		return nil, err
	}
	code, err := s.Scripts.WithdrawNode(ctx, in.ID, in.Generation)
	return nil, found(code, err)
}

// orderNode changes the operator's orders for a node that is there, or that has some.
func (s *server) orderNode(ctx context.Context, id string, change func(*berth.NodeSettings)) (*ordersOutput, error) {
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
	out := &ordersOutput{}
	out.Body.NodeID = id
	out.Body.NodeSettings, err = s.Ledger.ChangeNodeSettings(ctx, id, by, func(o berth.NodeSettings) berth.NodeSettings { change(&o); return o })
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "orders for a node", "node", id, "cordoned", out.Body.Cordoned, "drainUntil", out.Body.DrainUntil, "by", by)
	if err := s.apply(ctx, ledger.SettingNode, id); err != nil {
		return nil, err
	}
	if nodes, err = s.Scripts.ReadNodes(ctx, id); err != nil {
		return nil, fromRedis(err)
	}
	if n, known := nodes[id]; known { // a drain's deadline by Redis's clock, which is the one that counts
		out.Body.DrainUntil = n.DrainUntil
	}
	return out, nil
}

func (s *server) markUnavailable(ctx context.Context, in *unavailableInput) (*unavailableOutput, error) {
	if err := s.writableNode(in.ID); err != nil {
		return nil, err
	}
	if err := berth.ValidID("service", in.Service); err != nil {
		return nil, err
	}
	code, err := s.Scripts.MarkUnavailable(ctx, in.ID, in.Service, time.Duration(in.Body.TTLMs)*time.Millisecond)
	if err := found(code, err); err != nil {
		return nil, err
	}
	out := &unavailableOutput{}
	out.Body.NodeID, out.Body.Service, out.Body.TTLMs = in.ID, in.Service, in.Body.TTLMs
	return out, nil
}

// writableNode tells whether something may be done to a node of that id now.
func (s *server) writableNode(id string) error {
	if err := berth.ValidID("nodeId", id); err != nil {
		return err
	}
	return s.Fleet.Writable()
}

// found is a script's answer about one node, as an error.
func found(code string, err error) error {
	if err != nil {
		return fromRedis(err)
	}
	if code == lua.NodeGone {
		return errNoNode
	}
	return nil
}

var errNoNode = berth.Errorf(berth.CodeNotFound, "there is no such node, or not this generation of it")

// fromRedis names what is away; other failures stay what they are.
func fromRedis(err error) error {
	if unreachable(err) {
		return unavailable("Redis", err)
	}
	return err
}
