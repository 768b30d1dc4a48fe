package berth

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// Strategy is how a pool's node is chosen (S1-S9).
type Strategy string

// The strategies. The empty one is load-balanced in small pools and power-of-two in large ones.
const (
	StrategyRoundRobin   Strategy = "round-robin"
	StrategyLoadBalanced Strategy = "load-balanced"
	StrategyAffinity     Strategy = "affinity"
	StrategyCapability   Strategy = "capability" // load-balanced among the nodes that have every required capability
	StrategyLocality     Strategy = "locality"
	StrategyPowerOfTwo   Strategy = "power-of-two"
	StrategyDynamic      Strategy = "dynamic" // switches by load and latency (S7)
)

// Strategies lists what a pool can be given.
func Strategies() []Strategy {
	return []Strategy{
		StrategyRoundRobin, StrategyLoadBalanced, StrategyAffinity, StrategyCapability,
		StrategyLocality, StrategyPowerOfTwo, StrategyDynamic,
	}
}

// ExcludeReason is why a node was passed over (L9).
type ExcludeReason string

// The reasons.
const (
	ExcludeOffline            ExcludeReason = "offline" // dead or not registered
	ExcludeSuspect            ExcludeReason = "suspect"
	ExcludeFull               ExcludeReason = "full"
	ExcludeNotInPool          ExcludeReason = "not_in_pool"
	ExcludeCapabilityMissing  ExcludeReason = "capability_missing"
	ExcludeServiceUnavailable ExcludeReason = "service_unavailable"
	ExcludeCordoned           ExcludeReason = "cordoned"
	ExcludeDraining           ExcludeReason = "draining"
	ExcludeByCaller           ExcludeReason = "excluded" // the caller asked for another one
)

// ExcludeReasons lists all reasons.
func ExcludeReasons() []ExcludeReason {
	return []ExcludeReason{
		ExcludeOffline, ExcludeSuspect, ExcludeFull, ExcludeNotInPool, ExcludeCapabilityMissing,
		ExcludeServiceUnavailable, ExcludeCordoned, ExcludeDraining, ExcludeByCaller,
	}
}

// Pool is the nodes that have all of its capabilities and are of its kind and zone, where those are set. Every
// capability is by itself a pool of that name, until a pool of the name is defined otherwise.
type Pool struct {
	ID           string   `json:"poolId"`
	Kind         NodeKind `json:"kind,omitempty"`
	Capabilities []string `json:"capabilities"`
	Zone         string   `json:"zone,omitempty"`
	Strategy     Strategy `json:"strategy,omitempty"`
}

// Validate tells the first field that is wrong, as CodeInvalid.
func (p Pool) Validate() error {
	if p.ID == "" || len(p.ID) > maxPoolID {
		return Invalid("poolId", "must be 1 to %d bytes", maxPoolID)
	}
	for part := range strings.SplitSeq(p.ID, poolJoin) {
		if !capabilityPattern.MatchString(part) {
			return Invalid("poolId", "must be letters, digits and ._:/-, beginning with a letter or digit")
		}
	}
	if p.Kind != "" && !slices.Contains(NodeKinds(), p.Kind) {
		return Invalid("kind", "must be translate, media or engine")
	}
	if len(p.Capabilities) > MaxCapabilities {
		return Invalid("capabilities", "must be at most %d", MaxCapabilities)
	}
	for _, c := range p.Capabilities {
		if err := ValidCapability("capabilities", c); err != nil {
			return err
		}
	}
	if !plainText(p.Zone) {
		return Invalid("zone", "must be printable and at most %d bytes", maxName)
	}
	if p.Strategy != "" && !slices.Contains(Strategies(), p.Strategy) {
		return Invalid("strategy", "%q is no strategy", p.Strategy)
	}
	return nil
}

const (
	poolJoin  = "+"
	maxPoolID = 512
)

// CapabilityPool is the pool of the nodes that have every capability (S4). With one capability it needs no
// definition; with several its id is the same whatever their order.
func CapabilityPool(capabilities ...string) Pool {
	c := slices.Compact(slices.Sorted(slices.Values(capabilities)))
	return Pool{ID: strings.Join(c, poolJoin), Capabilities: c, Strategy: StrategyCapability}
}

// Serves tells whether the pool's nodes all have the capability.
func (p Pool) Serves(capability string) bool {
	return p.ID == capability && len(p.Capabilities) == 0 || slices.Contains(p.Capabilities, capability)
}

// Matches reports whether a node belongs to the pool.
func (p Pool) Matches(n NodeSpec) bool {
	return (p.Kind == "" || p.Kind == n.Kind) && (p.Zone == "" || p.Zone == n.Zone) &&
		!slices.ContainsFunc(p.Capabilities, func(c string) bool { return !slices.Contains(n.Capabilities, c) })
}

// Requirements state which nodes a piece of work can be given to.
type Requirements struct {
	PoolID string `json:"poolId"`
	// Capabilities are required of the node, instead of those of the pool's definition. A pool of several capabilities is
	// created on demand.
	Capabilities []string `json:"capabilities,omitempty"`
	// Strategy is used instead of the pool's.
	Strategy Strategy `json:"strategy,omitempty"`
	// Services must be available on the node, in addition to those of its capabilities.
	Services []string `json:"services,omitempty"`
	Excluded []string `json:"excluded,omitempty"` // ids of nodes
	// Own is the caller's own node, OwnZone and OwnHost are the caller's location.
	Own     string `json:"own,omitempty"`
	OwnZone string `json:"ownZone,omitempty"`
	OwnHost string `json:"ownHost,omitempty"`
}

// RoutingHash is the stable hash by which a session's pool is chosen (L5); FNV-1a of 32 bits.
func RoutingHash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32()
}

// PoolCounts is how many members of a pool can be chosen, and how many are passed over for what reason.
type PoolCounts struct {
	Free     int                   `json:"free"`
	Excluded map[ExcludeReason]int `json:"passed"`
}

// Affinity tells how a turn's affinity took part in a decision (A3-A5).
type Affinity string

// The values; empty for what belongs to no turn.
const (
	AffinityFirst Affinity = "first" // this job's node is the turn's from now on, or would be if it did not end the turn
	AffinityHit   Affinity = "hit"   // the turn's node
	AffinityMiss  Affinity = "miss"  // the turn's node could not take it: ordinary selection
)

// Assignment is a slot of a node, taken.
type Assignment struct {
	LeaseID    string   `json:"leaseId"`
	JobID      string   `json:"jobId,omitempty"`
	NodeID     string   `json:"nodeId"`
	Generation int64    `json:"generation"`
	PoolID     string   `json:"poolId"`
	Strategy   Strategy `json:"strategy,omitempty"` // that decided; empty when affinity did
	Affinity   Affinity `json:"affinity,omitempty"`
	// Missed is why the turn's node could not take the job; with AffinityMiss only.
	Missed ExcludeReason `json:"missed,omitempty"`
	// Existed tells that an earlier call had taken it: the same request again.
	Existed bool `json:"-"`
}

// TaskQueue is where the work goes.
func (a Assignment) TaskQueue() string { return NodeTaskQueue(a.NodeID, a.Generation) }

// Session is one user's live translation as Redis has it (L5).
type Session struct {
	ID            string    `json:"sessionId"`
	UserID        string    `json:"userId"`
	TenantID      string    `json:"tenantId,omitempty"`
	SrcLang       string    `json:"srcLang"`
	TgtLang       string    `json:"tgtLang"`
	PreferredPool string    `json:"preferredPool"`
	RoutingKey    string    `json:"routingKey"`
	CurrentTurnID string    `json:"currentTurnId,omitempty"`
	UpdatedAt     time.Time `json:"updatedAt"`
}

// FleetConfig is what operators may change at run time about how work is assigned (S6, L8).
type FleetConfig struct {
	AssignmentStrategy Strategy               `json:"assignmentStrategy,omitempty"` // of pools without one of their own
	MemoryWeight       float64                `json:"memoryWeight"`
	LockTimeout        time.Duration          `json:"lockTimeout"` // of an engine's assignment
	MaxRetries         int                    `json:"maxRetries"`
	EnableFailover     bool                   `json:"enableFailover"`
	Times              map[NodeKind]NodeTimes `json:"times,omitempty"` // kinds left out have DefaultNodeTimes
	Dynamic            DynamicRule            `json:"dynamic"`
}

// DynamicRule is when a pool whose strategy is dynamic switches (S7).
type DynamicRule struct {
	LoadHigh    float64       `json:"loadHigh"`    // over it: load-balanced
	LoadLow     float64       `json:"loadLow"`     // and until it is under this
	LatencyHigh float64       `json:"latencyHigh"` // ms; over it: locality
	LatencyLow  float64       `json:"latencyLow"`  // ms; and until it is under this
	Dwell       time.Duration `json:"dwell"`       // the least time between two switches
}

// DefaultFleetConfig is the documents' (S6, S7).
func DefaultFleetConfig() FleetConfig {
	return FleetConfig{
		MemoryWeight: 0.5, LockTimeout: 300 * time.Second, MaxRetries: 3, EnableFailover: true,
		Dynamic: DynamicRule{LoadHigh: 0.8, LoadLow: 0.7, LatencyHigh: 100, LatencyLow: 80, Dwell: 30 * time.Second},
	}
}

// TimesOf are the times of a kind.
func (c FleetConfig) TimesOf(k NodeKind) NodeTimes {
	if t, ok := c.Times[k]; ok {
		return t
	}
	return DefaultNodeTimes(k)
}

// Validate tells the first field that is wrong, as CodeInvalid.
func (c FleetConfig) Validate() error {
	switch d := c.Dynamic; {
	case c.AssignmentStrategy != "" && !slices.Contains(Strategies(), c.AssignmentStrategy):
		return Invalid("assignmentStrategy", "%q is no strategy", c.AssignmentStrategy)
	case !(c.MemoryWeight >= 0 && c.MemoryWeight <= 10):
		return Invalid("memoryWeight", "must be 0 to 10")
	case c.LockTimeout < time.Second || c.LockTimeout > 24*time.Hour:
		return Invalid("lockTimeout", "must be 1 s to 24 h")
	case c.MaxRetries < 0 || c.MaxRetries > 100:
		return Invalid("maxRetries", "must be 0 to 100")
	case !(d.LoadLow > 0 && d.LoadLow <= d.LoadHigh && d.LoadHigh <= 1):
		return Invalid("dynamic.loadLow", "must be over 0, not over loadHigh, which must not be over 1")
	case !(d.LatencyLow > 0 && d.LatencyLow <= d.LatencyHigh):
		return Invalid("dynamic.latencyLow", "must be over 0 and not over latencyHigh")
	case d.Dwell < 0:
		return Invalid("dynamic.dwell", "must not be negative")
	}
	for k, t := range c.Times {
		if !slices.Contains(NodeKinds(), k) {
			return Invalid("times", "%q is no kind of node", k)
		}
		if t.Heartbeat <= 0 || t.Suspect <= t.Heartbeat || t.Death <= t.Suspect {
			return Invalid("times", "%s: heartbeatInterval, suspectAfter and failureDetectionTimeout must rise", k)
		}
	}
	return nil
}

// SystemState is what a dynamic pool's strategy is decided by (S7).
type SystemState struct {
	Load      float64 `json:"load"` // 0-1
	LatencyMs float64 `json:"latencyMs"`
}

// StrategySwitch is one change of a dynamic pool's strategy.
type StrategySwitch struct {
	PoolID string      `json:"poolId"`
	From   Strategy    `json:"from"`
	To     Strategy    `json:"to"`
	By     SystemState `json:"by"`
	At     time.Time   `json:"at"` // Redis's clock
}
