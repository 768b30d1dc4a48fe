package berth

import (
	"hash/fnv"
	"slices"
	"strings"
)

// Strategy is how a node of a pool is chosen.
type Strategy string

// The strategies. An empty one means load-balanced in small pools and power-of-two in large ones.
const (
	StrategyRoundRobin   Strategy = "round-robin"
	StrategyLoadBalanced Strategy = "load-balanced"
	StrategyAffinity     Strategy = "affinity"
	StrategyCapability   Strategy = "capability"
	StrategyLocality     Strategy = "locality"
	StrategyPowerOfTwo   Strategy = "power-of-two"
	StrategyDynamic      Strategy = "dynamic"
)

// strategies is the table of strategies, in the order of documentation. Validation, the OpenAPI description and the scripts'
// arguments derive from it; lua/include/pick.lua implements each script.
var strategies = []struct {
	name   Strategy
	script Strategy // the strategy that the scripts run for it
	doc    string
}{
	{StrategyRoundRobin, StrategyRoundRobin, "the node that was chosen longest ago"},
	{StrategyLoadBalanced, StrategyLoadBalanced, "the node with the lowest load"},
	{StrategyAffinity, StrategyAffinity, "the caller's own node, otherwise the node with the lowest load"},
	{StrategyCapability, StrategyLoadBalanced, "the node with the lowest load that has every required capability"},
	{StrategyLocality, StrategyLocality, "the caller's own node, otherwise one on its host, otherwise one in its zone, otherwise the node with the lowest load"},
	{StrategyPowerOfTwo, StrategyPowerOfTwo, "the node with the lower load of two random ones"},
	{StrategyDynamic, StrategyRoundRobin, "round-robin, load-balanced or locality, switched by the mean load of the pool's nodes and by their latency to the API"},
}

// Strategies lists what a pool can be given.
func Strategies() []Strategy {
	var out []Strategy
	for _, s := range strategies {
		out = append(out, s.name)
	}
	return out
}

// Script returns the strategy that the scripts run for s, which is s itself for most.
func (s Strategy) Script() Strategy {
	for _, row := range strategies {
		if row.name == s {
			return row.script
		}
	}
	return s
}

// Description returns how s chooses a node, as a phrase for documentation.
func (s Strategy) Description() string {
	for _, row := range strategies {
		if row.name == s {
			return row.doc
		}
	}
	return ""
}

// validate returns CodeInvalid for the field unless s is empty or a strategy.
func (s Strategy) validate(field string) error {
	if s != "" && !slices.Contains(Strategies(), s) {
		return Invalid(field, "invalid strategy %q", s)
	}
	return nil
}

// ExcludeReason is why a node was excluded from a choice.
type ExcludeReason string

// The reasons.
const (
	ExcludeOffline            ExcludeReason = "offline" // dead or not registered
	ExcludeSuspect            ExcludeReason = "suspect"
	ExcludeFull               ExcludeReason = "full"
	ExcludeNotInPool          ExcludeReason = "not_in_pool"
	ExcludeCapabilityMissing  ExcludeReason = "capability_missing"
	ExcludeServiceUnavailable ExcludeReason = "service_unavailable" // marked for a time
	ExcludeServiceMissing     ExcludeReason = "service_missing"     // the node does not declare it
	ExcludeCordoned           ExcludeReason = "cordoned"
	ExcludeDraining           ExcludeReason = "draining"
	ExcludeByCaller           ExcludeReason = "excluded" // the request excluded the node
)

// ExcludeReasons lists all reasons.
func ExcludeReasons() []ExcludeReason {
	return []ExcludeReason{
		ExcludeOffline, ExcludeSuspect, ExcludeFull, ExcludeNotInPool, ExcludeCapabilityMissing,
		ExcludeServiceUnavailable, ExcludeServiceMissing, ExcludeCordoned, ExcludeDraining, ExcludeByCaller,
	}
}

// Pool is the set of nodes that have all of its capabilities and are of its kind and zone, where those are set. Each
// capability is implicitly a pool of the same name unless a pool of that name is defined.
type Pool struct {
	ID           string   `json:"poolId"`
	Kind         NodeKind `json:"kind,omitempty"`
	Capabilities []string `json:"capabilities"`
	Zone         string   `json:"zone,omitempty"`
	Strategy     Strategy `json:"strategy,omitempty"`
	// GPUWeight is the weight of GPU usage in the load of the pool's nodes, relative to CPU usage; nil for the fleet's.
	GPUWeight *float64 `json:"gpuWeight,omitempty"`
	// Tenants are the tenants that may use the pool; without any, every caller may.
	Tenants []string `json:"tenants,omitempty"`
}

// MaxPoolTenants limits the tenants of a pool, which every process keeps in memory.
const MaxPoolTenants = 1000

// Allows reports whether a tenant may use the pool. A caller without a tenant has an empty one.
func (p Pool) Allows(tenantID string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenantID)
}

// Normalize brings zone and capabilities into their stored forms, and returns CodeInvalid for the first invalid field.
func (p *Pool) Normalize() (err error) {
	if err := ValidPoolID("poolId", p.ID); err != nil {
		return err
	}
	if p.Kind != "" {
		if err := p.Kind.validate("kind"); err != nil {
			return err
		}
	}
	if len(p.Capabilities) > MaxCapabilities {
		return Invalid("capabilities", "exceed the limit of %d", MaxCapabilities)
	}
	if p.Capabilities != nil {
		if p.Capabilities, err = parseCapabilities("capabilities", p.Capabilities); err != nil {
			return err
		}
	}
	if p.Zone, err = Name("zone", p.Zone, MaxLabel); err != nil {
		return err
	}
	if w := p.GPUWeight; w != nil && !(*w >= 0 && *w <= maxWeight) {
		return Invalid("gpuWeight", "must be 0 to %d", maxWeight)
	}
	if len(p.Tenants) > MaxPoolTenants {
		return Invalid("tenants", "exceed the limit of %d", MaxPoolTenants)
	}
	for _, tenant := range p.Tenants {
		if err := ValidID("tenants", tenant); err != nil {
			return err
		}
	}
	return p.Strategy.validate("strategy")
}

const (
	poolJoin  = "+"
	maxPoolID = 512
)

// ValidPoolID returns CodeInvalid for the field unless id can be the id of a pool: one or several capabilities, or a name like one.
func ValidPoolID(field, id string) error {
	if id == "" || len(id) > maxPoolID {
		return Invalid(field, "must be 1 to %d bytes", maxPoolID)
	}
	for part := range strings.SplitSeq(id, poolJoin) {
		if !capabilityPattern.MatchString(part) {
			return Invalid(field, "must consist of letters, digits and ._:/-, and start with a letter or digit")
		}
	}
	return nil
}

// ParsePoolID returns the canonical form of the id of a pool, in which language pairs are those of capabilities.
func ParsePoolID(field, id string) (string, error) {
	if err := ValidPoolID(field, id); err != nil {
		return "", err
	}
	parts := strings.Split(id, poolJoin)
	for i, part := range parts {
		var err error
		if parts[i], err = ParseCapability(field, part); err != nil {
			return "", err
		}
	}
	return strings.Join(parts, poolJoin), nil
}

// CapabilityPool returns the pool of the nodes that have every capability. With one capability it needs no definition; with
// several, its id does not depend on their order.
func CapabilityPool(capabilities ...string) Pool {
	c := slices.Compact(slices.Sorted(slices.Values(capabilities)))
	return Pool{ID: strings.Join(c, poolJoin), Capabilities: c, Strategy: StrategyCapability}
}

// Serves reports whether all nodes of the pool have the capability.
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
	// Services must be available on the node, in addition to those that its capabilities require. A node that declares services
	// must declare these too.
	Services []string `json:"services,omitempty"`
	Excluded []string `json:"excluded,omitempty"` // ids of nodes
	// Own is the caller's own node, OwnZone and OwnHost are the caller's location.
	Own     string `json:"own,omitempty"`
	OwnZone string `json:"ownZone,omitempty"`
	OwnHost string `json:"ownHost,omitempty"`
}

// RoutingHash returns the stable hash by which a session's pool is chosen: 32-bit FNV-1a. A seed other than 0 gives another
// distribution, by the finaliser of MurmurHash3.
func RoutingHash(key string, seed uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	n := h.Sum32()
	if seed == 0 {
		return n
	}
	n ^= seed
	n = (n ^ n>>16) * 0x85ebca6b
	n = (n ^ n>>13) * 0xc2b2ae35
	return n ^ n>>16
}

// PoolCounts is how many members of a pool can be chosen, and how many are excluded for each reason.
type PoolCounts struct {
	Free     int                   `json:"free"`
	Excluded map[ExcludeReason]int `json:"excluded"`
}

// Affinity is the part that a turn's affinity had in a decision.
type Affinity string

// The values; empty for work outside of turns.
const (
	AffinityFirst Affinity = "first" // the turn had no node: this job's node becomes the turn's unless the job ends it
	AffinityHit   Affinity = "hit"   // the turn's node was chosen
	AffinityMiss  Affinity = "miss"  // the turn's node could not take the job; another was chosen by the strategy
)

// Affinities lists all values of work inside of turns.
func Affinities() []Affinity { return []Affinity{AffinityFirst, AffinityHit, AffinityMiss} }

// Assignment is a slot of a node that was taken.
type Assignment struct {
	LeaseID string `json:"leaseId"`
	JobID   string `json:"jobId,omitempty"`
	NodeRef
	PoolID   string   `json:"poolId"`
	Strategy Strategy `json:"strategy,omitempty"` // that chose the node; empty when the affinity did
	Affinity Affinity `json:"affinity,omitempty"`
	// Missed is why the turn's node could not take the job; set with AffinityMiss only.
	Missed ExcludeReason `json:"missed,omitempty"`
	// Existed is true when an earlier call of the same request took the slot.
	Existed bool `json:"-"`
}
