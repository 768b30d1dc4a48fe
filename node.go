package berth

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// NodeKind tells what a node's capacity is good for; each kind has its own times.
type NodeKind string

// The kinds of nodes.
const (
	NodeTranslate NodeKind = "translate" // jobs of turns
	NodeMedia     NodeKind = "media"     // conferences (a CMU)
	NodeEngine    NodeKind = "engine"    // named executors
)

// NodeKinds lists all kinds.
func NodeKinds() []NodeKind { return []NodeKind{NodeTranslate, NodeMedia, NodeEngine} }

// NodeState is a node's health, decided by the sweep alone. What the operator decided is kept apart (S11).
type NodeState string

// The states of a generation. NodeDead is final for it.
const (
	NodeReady   NodeState = "ready"
	NodeSuspect NodeState = "suspect" // silent: no new work
	NodeDead    NodeState = "dead"    // silent for too long, withdrawn, or superseded
)

// DefaultMaxConcurrentJobs is a node's capacity when it does not name one (L3).
const DefaultMaxConcurrentJobs = 4

// Incarnation tells one run of a node's process from the next (C14).
type Incarnation struct {
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	StartedAt int64  `json:"startedAt"` // Unix ms, by the node's clock; compared with that of the same host only
}

// NodeLoad is what a node reports with a heartbeat.
type NodeLoad struct {
	CPUUsage        float64 `json:"cpuUsage"`    // 0-100
	GPUUsage        float64 `json:"gpuUsage"`    // 0-100
	MemoryUsage     float64 `json:"memoryUsage"` // 0-100
	CurrentJobs     int     `json:"currentJobs"`
	ActiveWorkflows int     `json:"activeWorkflows"`
	LatencyMs       float64 `json:"latencyMs"`
}

// Validate tells the first field that is out of range, as CodeInvalid.
func (l NodeLoad) Validate() error {
	for _, p := range []struct {
		field string
		value float64
	}{{"cpuUsage", l.CPUUsage}, {"gpuUsage", l.GPUUsage}, {"memoryUsage", l.MemoryUsage}} {
		if !(p.value >= 0 && p.value <= 100) { // NaN too
			return Invalid(p.field, "must be 0 to 100")
		}
	}
	switch {
	case l.CurrentJobs < 0:
		return Invalid("currentJobs", "must not be negative")
	case l.ActiveWorkflows < 0:
		return Invalid("activeWorkflows", "must not be negative")
	case !(l.LatencyMs >= 0 && l.LatencyMs < 1e9):
		return Invalid("latencyMs", "must be milliseconds, not negative")
	}
	return nil
}

// NodeSpec is what a node says of itself when it registers.
type NodeSpec struct {
	ID                string      `json:"nodeId"`
	Kind              NodeKind    `json:"kind"`
	Incarnation       Incarnation `json:"incarnation"`
	Hostname          string      `json:"hostname,omitempty"`
	Zone              string      `json:"zone,omitempty"`
	Capabilities      []string    `json:"capabilities"`
	MaxConcurrentJobs int         `json:"maxConcurrentJobs"` // 0: DefaultMaxConcurrentJobs
}

// Bounds of a registration. What a node costs with each lease and heartbeat grows with its capabilities.
const (
	MaxCapabilities    = 64
	MaxNodeConcurrency = 100_000
	maxName            = 128
)

// Validate tells the first field that is wrong, as CodeInvalid.
func (s NodeSpec) Validate() error {
	if err := ValidID("nodeId", s.ID); err != nil {
		return err
	}
	switch s.Kind {
	case NodeTranslate, NodeMedia, NodeEngine:
	default:
		return Invalid("kind", "must be translate, media or engine")
	}
	switch {
	case s.Incarnation.Host == "" || !plainText(s.Incarnation.Host):
		return Invalid("incarnation.host", "must name the host")
	case s.Incarnation.PID <= 0:
		return Invalid("incarnation.pid", "must be a process id")
	case s.Incarnation.StartedAt <= 0:
		return Invalid("incarnation.startedAt", "must be Unix milliseconds")
	case !plainText(s.Hostname):
		return Invalid("hostname", "must be printable and at most %d bytes", maxName)
	case !plainText(s.Zone):
		return Invalid("zone", "must be printable and at most %d bytes", maxName)
	case s.MaxConcurrentJobs < 0 || s.MaxConcurrentJobs > MaxNodeConcurrency:
		return Invalid("maxConcurrentJobs", "must be 1 to %d", MaxNodeConcurrency)
	case len(s.Capabilities) > MaxCapabilities:
		return Invalid("capabilities", "must be at most %d", MaxCapabilities)
	}
	for _, c := range s.Capabilities {
		if err := ValidCapability("capabilities", c); err != nil {
			return err
		}
	}
	return nil
}

// Node is a registered node as Redis has it.
type Node struct {
	NodeSpec
	Generation int64         `json:"generation"`
	State      NodeState     `json:"state"`
	Excluded   ExcludeReason `json:"excluded,omitempty"` // why it is passed over now; empty when it can be chosen
	Cordoned   bool          `json:"cordoned"`
	DrainUntil time.Time     `json:"drainUntil,omitzero"` // set while it drains
	Pools      []string      `json:"pools"`
	Load       NodeLoad      `json:"load"`
	Leases     int           `json:"leases"` // live slots when it was read
	// Unavailable are the services that are passed over, until when by Redis's clock (L10).
	Unavailable map[string]time.Time `json:"unavailable,omitempty" doc:"Services that are passed over, and until when"`
	// RegisteredAt, HeartbeatAt and UpdatedAt are Redis's clock.
	RegisteredAt time.Time `json:"registeredAt"`
	HeartbeatAt  time.Time `json:"heartbeatAt"`
	UpdatedAt    time.Time `json:"updatedAt"`
}

// NodeTaskQueue is the Temporal task queue of one generation of a node: what is sent to a dead generation reaches
// nobody.
func NodeTaskQueue(nodeID string, generation int64) string {
	return "node." + nodeID + "." + strconv.FormatInt(generation, 10)
}

// NodeTimes are the times of one kind of node. Death - Suspect should be at least Heartbeat, so that a mass loss
// shows as a whole before the first of it is declared dead (C21).
type NodeTimes struct {
	Heartbeat time.Duration `json:"heartbeatInterval"`
	Suspect   time.Duration `json:"suspectAfter"`
	Death     time.Duration `json:"failureDetectionTimeout"`
}

// DefaultNodeTimes are the times of a kind: the documents' for engines (S6), under 5 s for media units (C21).
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

// NodeSettings are the operator's for a node, kept apart from its health and over its registrations (S11).
type NodeSettings struct {
	Cordoned   bool      `json:"cordoned"`
	DrainUntil time.Time `json:"drainUntil,omitzero"` // when it is to be empty; zero when it is not drained
}

// Departure is why a generation ended, or another reason to look after what a node was running.
type Departure string

// The departures. A generation has at most one of the first three.
const (
	DepartureUnresponsive Departure = "silent"     // no heartbeat for the death time
	DepartureSuperseded   Departure = "superseded" // another incarnation registered under the same id
	DepartureWithdrawn    Departure = "withdrawn"  // it said so, or the operator removed it
	DepartureDrained      Departure = "drained"    // the drain's deadline passed: move what is left; it lives on
	ArrivalRegistered     Departure = "registered" // a new generation that asked for reconciliation
)

// NodeNotice is an entry of the fleet's outbox: what befell a generation, kept until somebody has taken it up.
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

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ValidID tells whether v can be the id of a node, session, turn, job or request; if not, an error that names field.
func ValidID(field, v string) error {
	if !idPattern.MatchString(v) {
		return Invalid(field, "must be 1 to 128 letters, digits, dots, dashes and underscores, beginning with a letter or digit")
	}
	return nil
}

var capabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

const translatePrefix = "translate:"

// ValidCapability tells whether v can be a capability. One that begins with `translate:` has to be a language pair.
func ValidCapability(field, v string) error {
	if !capabilityPattern.MatchString(v) {
		return Invalid(field, "%q: must be 1 to 128 letters, digits and ._:/-, beginning with a letter or digit", v)
	}
	if pair, ok := strings.CutPrefix(v, translatePrefix); ok {
		src, tgt, ok := strings.Cut(pair, "-")
		if !ok || strings.Contains(tgt, "-") {
			return Invalid(field, "%q: a language pair is written translate:zh-en", v)
		}
		if err := ValidLanguage(field, src); err != nil {
			return err
		}
		return ValidLanguage(field, tgt)
	}
	return nil
}

// TranslateCapability names the language pair, for instance translate:zh-en.
func TranslateCapability(src, tgt string) string { return translatePrefix + src + "-" + tgt }

// ValidLanguage tells whether v is a language code: ISO 639-1, or one of the three-letter codes in common use that
// have none.
func ValidLanguage(field, v string) error {
	if len(v) < 2 || len(v) > 3 || !strings.Contains(languages, " "+v+" ") {
		return Invalid(field, "%q is no language code (ISO 639-1, such as en or zh)", v)
	}
	return nil
}

const languages = " aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee " +
	"el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv " +
	"ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl " +
	"nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta " +
	"te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu " +
	"ast ceb fil hsb haw hmn kab mai nan pap szl yue wuu zgh "

// ValidPlace tells whether v can be a host or a zone; empty is none.
func ValidPlace(field, v string) error {
	if !plainText(v) {
		return Invalid(field, "must be printable and at most %d bytes", maxName)
	}
	return nil
}

// plainText is what hosts and zones may be: printable, no line breaks, and short.
func plainText(s string) bool {
	if len(s) > maxName {
		return false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r > 0xff {
			return false
		}
	}
	return true
}

// String names the generation in logs.
func (n Node) String() string { return fmt.Sprintf("%s.%d", n.ID, n.Generation) }
