package berth

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// FleetConfig is the configuration of assignment that operators can change at run time.
type FleetConfig struct {
	AssignmentStrategy Strategy               `json:"assignmentStrategy,omitempty"` // for pools without their own
	MemoryWeight       float64                `json:"memoryWeight"`
	GPUWeight          float64                `json:"gpuWeight"`   // for nodes of pools without their own
	LockTimeout        time.Duration          `json:"lockTimeout"` // lifetime of an assignment by default
	MaxRetries         int                    `json:"maxRetries"`
	EnableFailover     bool                   `json:"enableFailover"`
	Times              map[NodeKind]NodeTimes `json:"times,omitempty"` // absent kinds have DefaultNodeTimes
	Dynamic            DynamicRule            `json:"dynamic"`
	// SessionAffinity spreads new sessions over the pools that serve them by a stable hash of their routing key, which HashSeed
	// changes; without it the first pool takes all.
	SessionAffinity bool   `json:"sessionAffinity"`
	HashSeed        uint32 `json:"hashSeed"`
}

// MaxFailureDetection is the longest failureDetectionTimeout. It is less than the lifetime of a node's key in Redis, so that a
// node is declared dead before others no longer find it.
const MaxFailureDetection = 30 * time.Minute

// maxWeight limits the weights of memory and GPU usage in the load, relative to CPU usage.
const maxWeight = 10

// DynamicRule states when a pool whose strategy is dynamic switches. Each threshold has hysteresis.
type DynamicRule struct {
	LoadHigh    float64       `json:"loadHigh"`    // above it: load-balanced
	LoadLow     float64       `json:"loadLow"`     // until the load is below it
	LatencyHigh float64       `json:"latencyHigh"` // ms between nodes and API; above it: locality
	LatencyLow  float64       `json:"latencyLow"`  // ms; until the latency is below it
	Dwell       time.Duration `json:"dwell"`       // minimum time between two switches
}

// DefaultFleetConfig returns the configuration of a fleet that no operator has configured.
func DefaultFleetConfig() FleetConfig {
	return FleetConfig{
		MemoryWeight: 0.5, LockTimeout: 300 * time.Second, MaxRetries: 3, EnableFailover: true, SessionAffinity: true,
		Dynamic: DynamicRule{LoadHigh: 0.8, LoadLow: 0.7, LatencyHigh: 100, LatencyLow: 80, Dwell: 30 * time.Second},
	}
}

// TimesOf returns the times of a kind.
func (c FleetConfig) TimesOf(k NodeKind) NodeTimes {
	if t, ok := c.Times[k]; ok {
		return t
	}
	return DefaultNodeTimes(k)
}

// Validate returns CodeInvalid for the first invalid field.
func (c FleetConfig) Validate() error {
	if err := c.AssignmentStrategy.validate("assignmentStrategy"); err != nil {
		return err
	}
	switch d := c.Dynamic; {
	case !(c.MemoryWeight >= 0 && c.MemoryWeight <= maxWeight):
		return Invalid("memoryWeight", "must be 0 to %d", maxWeight)
	case !(c.GPUWeight >= 0 && c.GPUWeight <= maxWeight):
		return Invalid("gpuWeight", "must be 0 to %d", maxWeight)
	case c.LockTimeout < time.Second || c.LockTimeout > 24*time.Hour:
		return Invalid("lockTimeout", "must be 1 s to 24 h")
	case c.MaxRetries < 0 || c.MaxRetries > 100:
		return Invalid("maxRetries", "must be 0 to 100")
	case !(d.LoadLow > 0 && d.LoadLow <= d.LoadHigh && d.LoadHigh <= 1):
		return Invalid("dynamic.loadLow", "must be above 0 and at most loadHigh, which must be at most 1")
	case !(d.LatencyLow > 0 && d.LatencyLow <= d.LatencyHigh):
		return Invalid("dynamic.latencyLow", "must be above 0 and at most latencyHigh")
	case d.Dwell < 0:
		return Invalid("dynamic.dwell", "must not be negative")
	}
	for k, t := range c.Times {
		if err := k.validate("times"); err != nil {
			return err
		}
		if t.Death > MaxFailureDetection {
			return Invalid("times", "%s: failureDetectionTimeout must be at most %s", k, MaxFailureDetection)
		}
		if t.Heartbeat <= 0 || t.Suspect <= t.Heartbeat || t.Death <= t.Suspect {
			return Invalid("times", "%s: must satisfy 0 < heartbeatInterval < suspectAfter < failureDetectionTimeout", k)
		}
	}
	return nil
}

// RequiredServices maps a capability, or the kind before its colon, to the services that a node must declare to get work that
// needs the capability.
type RequiredServices map[string][]string

// Bounds of RequiredServices, which every process keeps in memory.
const (
	maxServiceRules = 1000
	maxRuleServices = 16
)

// ParseRequiredServices reads a stored document. Entries of another form have no effect: earlier releases stored any object.
func ParseRequiredServices(doc []byte) RequiredServices {
	var all map[string]json.RawMessage
	if json.Unmarshal(doc, &all) != nil {
		return nil
	}
	out := RequiredServices{}
	for capability, row := range all {
		var services []string
		rule := RequiredServices{}
		if json.Unmarshal(row, &services) == nil {
			rule[capability] = services
		}
		if len(services) > 0 && rule.Normalize() == nil {
			maps.Copy(out, rule)
		}
	}
	return out
}

// Normalize brings the capabilities into their canonical form, and returns CodeInvalid for the first invalid entry.
func (r RequiredServices) Normalize() error {
	if len(r) > maxServiceRules {
		return Invalid("body", "exceeds the limit of %d capabilities", maxServiceRules)
	}
	for _, capability := range slices.Sorted(maps.Keys(r)) {
		parsed, err := ParseCapability("body", capability)
		if err != nil {
			return err
		}
		if len(r[capability]) > maxRuleServices {
			return Invalid(capability, "exceeds the limit of %d services", maxRuleServices)
		}
		for _, service := range r[capability] {
			if err := ValidID(capability, service); err != nil {
				return err
			}
		}
		if parsed != capability {
			r[parsed] = r[capability]
			delete(r, capability)
		}
	}
	return nil
}

// Of returns the services that the capabilities require, sorted.
func (r RequiredServices) Of(capabilities []string) []string {
	if len(r) == 0 {
		return nil
	}
	var out []string
	for _, c := range capabilities {
		out = append(out, r[c]...)
		if kind, _, ok := strings.Cut(c, ":"); ok {
			out = append(out, r[kind]...)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// Has reports whether any capability requires the service.
func (r RequiredServices) Has(service string) bool {
	for _, services := range r {
		if slices.Contains(services, service) {
			return true
		}
	}
	return false
}

// SystemState is the state of a pool by which its dynamic strategy switches.
type SystemState struct {
	Load      float64 `json:"load"` // 0-1
	LatencyMs float64 `json:"latencyMs" doc:"Mean round trip between the pool's nodes and the API"`
}

// StrategySwitch is one change of a dynamic pool's strategy.
type StrategySwitch struct {
	PoolID string      `json:"poolId"`
	From   Strategy    `json:"from"`
	To     Strategy    `json:"to"`
	By     SystemState `json:"by"`
	At     time.Time   `json:"at"` // Redis's clock
}
