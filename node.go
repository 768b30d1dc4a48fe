package berth

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	maxName             = 128
	maxClientURL        = 512
)

// Validate returns CodeInvalid for the first invalid field.
func (s NodeSpec) Validate() error {
	if err := ValidID("nodeId", s.ID); err != nil {
		return err
	}
	if err := s.Kind.validate("kind"); err != nil {
		return err
	}
	switch {
	case s.Incarnation.Host == "" || !plainText(s.Incarnation.Host):
		return Invalid("incarnation.host", "must be the name of the host")
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
	case len(s.Capabilities) > MaxNodeCapabilities:
		return Invalid("capabilities", "exceed the limit of %d", MaxNodeCapabilities)
	}
	for _, c := range s.Capabilities {
		if err := ValidCapability("capabilities", c); err != nil {
			return err
		}
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
	case !plainText(s.KeyID):
		return Invalid("keyId", "must be printable and at most %d bytes", maxName)
	case len(s.ClientURL) > maxClientURL || err != nil || (u.Scheme != "ws" && u.Scheme != "wss") || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Invalid("clientUrl", "must be a ws or wss URL of at most %d bytes without user, query and fragment", maxClientURL)
	}
	return nil
}

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
	DepartureUnresponsive Departure = "silent"     // no heartbeat for the death time
	DepartureSuperseded   Departure = "superseded" // another incarnation registered under the same id
	DepartureWithdrawn    Departure = "withdrawn"  // on its own request, or removed by the operator
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

var capabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

const translatePrefix = "translate:"

// ValidCapability returns CodeInvalid for the field unless v can be a capability. After `translate:` a language pair is required.
func ValidCapability(field, v string) error {
	if !capabilityPattern.MatchString(v) {
		return Invalid(field, "%q: must be 1 to 128 letters, digits and ._:/-, and start with a letter or digit", v)
	}
	if pair, ok := strings.CutPrefix(v, translatePrefix); ok {
		src, tgt, ok := strings.Cut(pair, "-")
		if !ok || strings.Contains(tgt, "-") {
			return Invalid(field, "%q: must be a language pair such as translate:zh-en", v)
		}
		if err := ValidLanguage(field, src); err != nil {
			return err
		}
		return ValidLanguage(field, tgt)
	}
	return nil
}

// TranslateCapability returns the capability of a language pair, such as translate:zh-en.
func TranslateCapability(src, tgt string) string { return translatePrefix + src + "-" + tgt }

// TranslatePairs returns the capabilities of every pair of a source and a different target language. It returns CodeInvalid for
// the field and the part of it that is invalid.
func TranslatePairs(field string, sources, targets []string) ([]string, error) {
	if len(sources) == 0 {
		return nil, Invalid(field+".sources", "must name a language")
	}
	if len(targets) == 0 {
		return nil, Invalid(field+".targets", "must name a language")
	}
	for _, src := range sources {
		if err := ValidLanguage(field+".sources", src); err != nil {
			return nil, err
		}
	}
	for _, tgt := range targets {
		if err := ValidLanguage(field+".targets", tgt); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, src := range sources {
		for _, tgt := range targets {
			if c := TranslateCapability(src, tgt); src != tgt && !slices.Contains(out, c) {
				out = append(out, c)
			}
			if len(out) > MaxNodeCapabilities {
				return nil, Invalid(field, "exceed the limit of %d pairs", MaxNodeCapabilities)
			}
		}
	}
	if len(out) == 0 {
		return nil, Invalid(field, "must have a source and a different target language")
	}
	return out, nil
}

// ValidLanguage returns CodeInvalid for the field unless v is a language code: ISO 639-1, or one of the commonly used
// three-letter codes of languages without one.
func ValidLanguage(field, v string) error {
	if len(v) < 2 || len(v) > 3 || !strings.Contains(languages, " "+v+" ") {
		return Invalid(field, "invalid language code %q; use ISO 639-1, such as en or zh", v)
	}
	return nil
}

const languages = " aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee " +
	"el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv " +
	"ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl " +
	"nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta " +
	"te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu " +
	"ast ceb fil hsb haw hmn kab mai nan pap szl yue wuu zgh "

// ValidPlace returns CodeInvalid for the field unless v can be a host or a zone, which may be empty.
func ValidPlace(field, v string) error {
	if !plainText(v) {
		return Invalid(field, "must be printable and at most %d bytes", maxName)
	}
	return nil
}

// plainText reports whether s can be a host or a zone: short and printable, without line breaks.
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

// String returns the id of the generation for logs.
func (n Node) String() string { return fmt.Sprintf("%s.%d", n.ID, n.Generation) }
