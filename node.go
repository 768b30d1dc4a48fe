package berth

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// NodeKind is the kind of work that a node takes; each kind has its own times.
type NodeKind string

// The kinds of nodes.
const (
	NodeTranslate NodeKind = "translate" // jobs of turns
	NodeMedia     NodeKind = "media"     // conferences (a CMU)
	NodeEngine    NodeKind = "engine"    // named executors
)

// NodeKinds lists all kinds.
func NodeKinds() []NodeKind { return []NodeKind{NodeTranslate, NodeMedia, NodeEngine} }

// validate returns CodeInvalid for the field unless k is a kind of node.
func (k NodeKind) validate(field string) error {
	if !slices.Contains(NodeKinds(), k) {
		return Invalid(field, "invalid kind %q; must be one of %v", k, NodeKinds())
	}
	return nil
}

// NodeState is a node's health, which only the sweep changes. It is independent of the operator's NodeSettings.
type NodeState string

// The states of a generation. NodeDead is final for it.
const (
	NodeReady   NodeState = "ready"
	NodeSuspect NodeState = "suspect" // missed heartbeats: no new work
	NodeDead    NodeState = "dead"    // missed heartbeats for too long, withdrawn, or superseded
)

// NodeStates lists all states.
func NodeStates() []NodeState { return []NodeState{NodeReady, NodeSuspect, NodeDead} }

// DefaultMaxConcurrentJobs is a node's capacity when it does not state one.
const DefaultMaxConcurrentJobs = 4

// Incarnation identifies one run of a node's process.
type Incarnation struct {
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	StartedAt int64  `json:"startedAt"` // Unix ms, by the node's clock; compared only with those of the same host
}

// NodeLoad is what a node reports with a heartbeat.
type NodeLoad struct {
	CPUUsage        float64  `json:"cpuUsage"` // 0-100
	GPUUsage        *float64 `json:"gpuUsage,omitempty" doc:"0 to 100; absent: the node has no GPU, or cannot measure it"`
	MemoryUsage     float64  `json:"memoryUsage"` // 0-100
	CurrentJobs     int      `json:"currentJobs"`
	ActiveWorkflows int      `json:"activeWorkflows"`
	// LatencyMs is the mean round trip of the node's calls of the API, not the distance to a caller.
	LatencyMs float64 `json:"latencyMs" doc:"Mean round trip between the node and the API"`
}

// GPU returns the usage by which nodes are compared, 0-100: one that is not known is treated as in full use, so that it attracts no
// work that weighs it.
func (l NodeLoad) GPU() float64 {
	if l.GPUUsage == nil {
		return 100
	}
	return *l.GPUUsage
}

// Validate returns CodeInvalid for the first field that is out of range.
func (l NodeLoad) Validate() error {
	for _, p := range []struct {
		field string
		value float64
	}{{"cpuUsage", l.CPUUsage}, {"memoryUsage", l.MemoryUsage}} {
		if !(p.value >= 0 && p.value <= 100) { // NaN too
			return Invalid(p.field, "must be 0 to 100")
		}
	}
	switch {
	case l.GPUUsage != nil && !(*l.GPUUsage >= 0 && *l.GPUUsage <= 100):
		return Invalid("gpuUsage", "must be 0 to 100")
	case l.CurrentJobs < 0:
		return Invalid("currentJobs", "must not be negative")
	case l.ActiveWorkflows < 0:
		return Invalid("activeWorkflows", "must not be negative")
	case !(l.LatencyMs >= 0 && l.LatencyMs < 1e9):
		return Invalid("latencyMs", "must be milliseconds from 0 to 1e9")
	}
	return nil
}

// NodeSpec describes a node in its registration.
type NodeSpec struct {
	ID           string      `json:"nodeId"`
	Kind         NodeKind    `json:"kind"`
	Incarnation  Incarnation `json:"incarnation"`
	Hostname     string      `json:"hostname,omitempty"`
	Zone         string      `json:"zone,omitempty"`
	Capabilities []string    `json:"capabilities"`
	// Services are what runs on the node for its work, such as the program of a capability. A capability may require some of them:
	// see RequiredServices.
	Services          []string `json:"services,omitempty"`
	MaxConcurrentJobs int      `json:"maxConcurrentJobs"` // 0: DefaultMaxConcurrentJobs
	// ClientURL is where participants of conferences reach a media unit's server, KeyID the id of its API key. A unit without
	// them takes conferences that no participant can join.
	ClientURL string `json:"clientUrl,omitempty"`
	KeyID     string `json:"keyId,omitempty"`
}

// Bounds of a registration and of a pool.
const (
	MaxCapabilities     = 64   // required by a pool or a request
	MaxNodeCapabilities = 1000 // of a node: any-to-any translation of 32 languages has 992 pairs
	MaxNodeServices     = 64
	MaxNodeConcurrency  = 100_000
	maxClientURL        = 512
)

// Normalize brings names and capabilities into their stored forms, and returns CodeInvalid for the first invalid field.
func (s *NodeSpec) Normalize() (err error) {
	if err := ValidID("nodeId", s.ID); err != nil {
		return err
	}
	if err := s.Kind.validate("kind"); err != nil {
		return err
	}
	// The host is compared with what the node sends later: it stays as it is.
	if host, err := Name("incarnation.host", s.Incarnation.Host, MaxLabel); err != nil {
		return err
	} else if host == "" {
		return Invalid("incarnation.host", "must be the name of the host")
	}
	if s.Hostname, err = Name("hostname", s.Hostname, MaxLabel); err != nil {
		return err
	}
	if s.Zone, err = Name("zone", s.Zone, MaxLabel); err != nil {
		return err
	}
	switch {
	case s.Incarnation.PID <= 0:
		return Invalid("incarnation.pid", "must be a process id")
	case s.Incarnation.StartedAt <= 0:
		return Invalid("incarnation.startedAt", "must be Unix milliseconds")
	case s.MaxConcurrentJobs < 0 || s.MaxConcurrentJobs > MaxNodeConcurrency:
		return Invalid("maxConcurrentJobs", "must be 1 to %d", MaxNodeConcurrency)
	case len(s.Capabilities) > MaxNodeCapabilities:
		return Invalid("capabilities", "exceed the limit of %d", MaxNodeCapabilities)
	}
	if s.Capabilities, err = parseCapabilities("capabilities", s.Capabilities); err != nil {
		return err
	}
	if len(s.Services) > MaxNodeServices {
		return Invalid("services", "exceed the limit of %d", MaxNodeServices)
	}
	for _, service := range s.Services {
		if err := ValidID("services", service); err != nil {
			return err
		}
	}
	return s.validateClient()
}

// validateClient checks ClientURL and KeyID.
func (s NodeSpec) validateClient() error {
	switch u, err := url.Parse(s.ClientURL); {
	case s.ClientURL == "" && s.KeyID == "":
		return nil
	case s.Kind != NodeMedia:
		return Invalid("clientUrl", "only a node of kind media has one")
	case s.ClientURL == "":
		return Invalid("clientUrl", "is required with keyId")
	case s.KeyID == "":
		return Invalid("keyId", "is required with clientUrl")
	case len(s.ClientURL) > maxClientURL || err != nil || (u.Scheme != "ws" && u.Scheme != "wss") || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Invalid("clientUrl", "must be a ws or wss URL of at most %d bytes without user, query and fragment", maxClientURL)
	}
	_, err := Name("keyId", s.KeyID, MaxLabel)
	return err
}

// NodeRef is one generation of a node.
type NodeRef struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
}

// TaskQueue returns the Temporal task queue of the generation.
func (n NodeRef) TaskQueue() string { return NodeTaskQueue(n.NodeID, n.Generation) }

// Node is a registered node as stored in Redis.
type Node struct {
	NodeSpec
	Generation int64         `json:"generation"`
	State      NodeState     `json:"state"`
	Excluded   ExcludeReason `json:"excluded,omitempty"` // why it is excluded now; empty when it can be chosen
	Cordoned   bool          `json:"cordoned"`
	DrainUntil time.Time     `json:"drainUntil,omitzero"` // set while it drains
	Pools      []string      `json:"pools"`
	Load       NodeLoad      `json:"load"`
	Leases     int           `json:"leases"` // slots in use when it was read
	// Unavailable maps the node's unavailable services to the time, by Redis's clock, at which they become available again.
	Unavailable map[string]time.Time `json:"unavailable,omitempty" doc:"Unavailable services of the node, and when they become available again"`
	// RegisteredAt, HeartbeatAt and UpdatedAt are times of Redis's clock.
	RegisteredAt time.Time `json:"registeredAt"`
	HeartbeatAt  time.Time `json:"heartbeatAt"`
	UpdatedAt    time.Time `json:"updatedAt"`
	// LostAt is when a generation of the node was last lost, and Departure why its last generation ended, while it is dead.
	LostAt    time.Time `json:"lostAt,omitzero" doc:"When the node was last lost: it missed heartbeats, or its service did not respond. It stays when the node registers again"`
	Departure Departure `json:"departure,omitempty" doc:"Of a dead node: why it ended"`
}

// NodeTaskQueue returns the Temporal task queue of one generation of a node. No process polls the queue of a dead generation.
func NodeTaskQueue(nodeID string, generation int64) string {
	return "node." + nodeID + "." + strconv.FormatInt(generation, 10)
}

// NodeTimes are the times of one kind of node. Death - Suspect should be at least Heartbeat, so that all nodes of a mass loss
// are suspect before the first of them is declared dead.
type NodeTimes struct {
	Heartbeat time.Duration `json:"heartbeatInterval"`
	Suspect   time.Duration `json:"suspectAfter"`
	Death     time.Duration `json:"failureDetectionTimeout"`
}

// DefaultNodeTimes returns the default times of a kind. The death of a media unit is detected within 5 s.
func DefaultNodeTimes(k NodeKind) NodeTimes {
	switch k {
	case NodeMedia:
		return NodeTimes{Heartbeat: time.Second, Suspect: 2500 * time.Millisecond, Death: 4 * time.Second}
	case NodeEngine:
		return NodeTimes{Heartbeat: 30 * time.Second, Suspect: 60 * time.Second, Death: 90 * time.Second}
	default:
		return NodeTimes{Heartbeat: 5 * time.Second, Suspect: 12 * time.Second, Death: 20 * time.Second}
	}
}

// NodeSettings are the operator's settings for a node. They are independent of its health and survive its registrations.
type NodeSettings struct {
	Cordoned   bool      `json:"cordoned"`
	DrainUntil time.Time `json:"drainUntil,omitzero"` // deadline of the drain; zero when it is not draining
}

// Departure is the event that a NodeNotice reports: why a generation ended, or another reason to check what a node runs.
type Departure string

// The departures. A generation has at most one of the first four.
const (
	DepartureUnresponsive Departure = "unresponsive" // no heartbeat for the death time
	DepartureSuperseded   Departure = "superseded"   // another incarnation registered under the same id
	DepartureWithdrawn    Departure = "withdrawn"    // on its own request, or removed by the operator
	// On its own request, because the server that it represents does not respond or has restarted; the node's process runs.
	DepartureServiceLost Departure = "service_lost"
	DepartureDrained     Departure = "drained"    // the drain's deadline has passed; the node is alive, and what it still runs is moved
	ArrivalRegistered    Departure = "registered" // a new generation that asked for reconciliation
)

// NodeNotice is an entry of the fleet's outbox: an event of a generation, kept until a process has handled it.
type NodeNotice struct {
	NodeID      string      `json:"nodeId"`
	Generation  int64       `json:"generation"`
	Kind        NodeKind    `json:"kind"`
	Incarnation Incarnation `json:"incarnation"`
	Reason      Departure   `json:"reason"`
	At          time.Time   `json:"at"` // Redis's clock
	// Receipt acknowledges the entry.
	Receipt string `json:"-"`
}

// String returns the id of the generation for logs.
func (n Node) String() string { return fmt.Sprintf("%s.%d", n.ID, n.Generation) }
