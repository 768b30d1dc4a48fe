package berth

import "time"

// FleetConfig is the configuration of assignment that operators can change at run time.
type FleetConfig struct {
	AssignmentStrategy Strategy               `json:"assignmentStrategy,omitempty"` // for pools without their own
	MemoryWeight       float64                `json:"memoryWeight"`
	LockTimeout        time.Duration          `json:"lockTimeout"` // lifetime of an assignment by default
	MaxRetries         int                    `json:"maxRetries"`
	EnableFailover     bool                   `json:"enableFailover"`
	Times              map[NodeKind]NodeTimes `json:"times,omitempty"` // absent kinds have DefaultNodeTimes
	Dynamic            DynamicRule            `json:"dynamic"`
}

// MaxFailureDetection is the longest failureDetectionTimeout. It is less than the lifetime of a node's key in Redis, so that a
// node is declared dead before others no longer find it.
const MaxFailureDetection = 30 * time.Minute

// DynamicRule states when a pool whose strategy is dynamic switches. Each threshold has hysteresis.
type DynamicRule struct {
	LoadHigh    float64       `json:"loadHigh"`    // above it: load-balanced
	LoadLow     float64       `json:"loadLow"`     // until the load is below it
	LatencyHigh float64       `json:"latencyHigh"` // ms; above it: locality
	LatencyLow  float64       `json:"latencyLow"`  // ms; until the latency is below it
	Dwell       time.Duration `json:"dwell"`       // minimum time between two switches
}

// DefaultFleetConfig returns the configuration of a fleet that no operator has configured.
func DefaultFleetConfig() FleetConfig {
	return FleetConfig{
		MemoryWeight: 0.5, LockTimeout: 300 * time.Second, MaxRetries: 3, EnableFailover: true,
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
	case !(c.MemoryWeight >= 0 && c.MemoryWeight <= 10):
		return Invalid("memoryWeight", "must be 0 to 10")
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

// SystemState is the state of a pool by which its dynamic strategy switches.
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
