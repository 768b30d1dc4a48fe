package berth_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// wrong tells the field an error names, empty for none.
func wrong(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *berth.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, berth.CodeInvalid, e.Code)
	return e.Field
}

func TestNodeSpec_Normalize_InvalidFieldNamed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		set   func(s *berth.NodeSpec)
		field string
	}{
		"good":                    {func(*berth.NodeSpec) {}, ""},
		"no id":                   {func(s *berth.NodeSpec) { s.ID = "" }, "nodeId"},
		"an id with a colon":      {func(s *berth.NodeSpec) { s.ID = "a:b" }, "nodeId"},
		"another kind":            {func(s *berth.NodeSpec) { s.Kind = "gpu" }, "kind"},
		"no host":                 {func(s *berth.NodeSpec) { s.Incarnation.Host = "" }, "incarnation.host"},
		"no process":              {func(s *berth.NodeSpec) { s.Incarnation.PID = 0 }, "incarnation.pid"},
		"no start":                {func(s *berth.NodeSpec) { s.Incarnation.StartedAt = 0 }, "incarnation.startedAt"},
		"a zone of two lines":     {func(s *berth.NodeSpec) { s.Zone = "a\nb" }, "zone"},
		"a hostname with a \\x01": {func(s *berth.NodeSpec) { s.Hostname = "a\x01b" }, "hostname"},
		"negative slots":          {func(s *berth.NodeSpec) { s.MaxConcurrentJobs = -1 }, "maxConcurrentJobs"},
		"too many slots":          {func(s *berth.NodeSpec) { s.MaxConcurrentJobs = 1 << 20 }, "maxConcurrentJobs"},
		"too many capabilities":   {func(s *berth.NodeSpec) { s.Capabilities = make([]string, 1001) }, "capabilities"},
		"a capability of lines":   {func(s *berth.NodeSpec) { s.Capabilities = []string{"a\nb"} }, "capabilities"},
		"a wrong language":        {func(s *berth.NodeSpec) { s.Capabilities = []string{"translate:en-xx"} }, "capabilities"},
		"half a pair":             {func(s *berth.NodeSpec) { s.Capabilities = []string{"translate:en"} }, "capabilities"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := berth.NodeSpec{
				ID: "n-1.a_b", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
				Hostname: "h", Zone: "z", Capabilities: []string{"translate:en-es", "fetchOldCalendarMappings", "gpu/a100"},
			}
			c.set(&s)
			require.Equal(t, c.field, wrong(t, s.Normalize()))
		})
	}
}

func TestNodeLoad_Validate_InvalidFieldNamed(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]berth.NodeLoad{
		"":                {CPUUsage: 100, GPUUsage: new(0.0), MemoryUsage: 50, LatencyMs: 3},
		"cpuUsage":        {CPUUsage: math.NaN()},
		"gpuUsage":        {GPUUsage: new(-1.0)},
		"memoryUsage":     {MemoryUsage: 100.5},
		"currentJobs":     {CurrentJobs: -1},
		"activeWorkflows": {ActiveWorkflows: -1},
		"latencyMs":       {LatencyMs: math.Inf(1)},
	} {
		require.Equal(t, field, wrong(t, l.Validate()))
	}
}

func TestPool_Normalize_InvalidFieldNamed(t *testing.T) {
	t.Parallel()
	p := berth.CapabilityPool("b", "a", "b")
	require.Equal(t, berth.Pool{ID: "a+b", Capabilities: []string{"a", "b"}, Strategy: berth.StrategyCapability}, p)
	require.NoError(t, p.Normalize())
	require.True(t, p.Serves("a"))
	require.False(t, p.Serves("c"))
	for field, p := range map[string]berth.Pool{
		"":             {ID: "translate:en-es", Kind: berth.NodeTranslate, Strategy: berth.StrategyDynamic},
		"poolId":       {ID: "a b"},
		"kind":         {ID: "a", Kind: "x"},
		"capabilities": {ID: "a", Capabilities: []string{"translate:en-xx"}},
		"zone":         {ID: "a", Zone: "a\nb"},
		"strategy":     {ID: "a", Strategy: "random"},
	} {
		require.Equal(t, field, wrong(t, p.Normalize()))
	}
	require.Equal(t, "poolId", wrong(t, berth.ValidPoolID("poolId", "a+")))
}

func TestFleetConfig_Validate_InvalidFieldNamed(t *testing.T) {
	t.Parallel()
	good := berth.DefaultFleetConfig()
	require.NoError(t, good.Validate())
	for _, k := range berth.NodeKinds() {
		times := good.TimesOf(k)
		require.GreaterOrEqual(t, times.Death-times.Suspect, times.Heartbeat, "%s: a mass loss has to show before the first death", k)
	}
	for field, set := range map[string]func(c *berth.FleetConfig){
		"assignmentStrategy": func(c *berth.FleetConfig) { c.AssignmentStrategy = "x" },
		"memoryWeight":       func(c *berth.FleetConfig) { c.MemoryWeight = -1 },
		"lockTimeout":        func(c *berth.FleetConfig) { c.LockTimeout = 0 },
		"maxRetries":         func(c *berth.FleetConfig) { c.MaxRetries = -1 },
		"dynamic.loadLow":    func(c *berth.FleetConfig) { c.Dynamic.LoadLow = 0.9 },
		"dynamic.latencyLow": func(c *berth.FleetConfig) { c.Dynamic.LatencyLow = 200 },
		"dynamic.dwell":      func(c *berth.FleetConfig) { c.Dynamic.Dwell = -1 },
		"times":              func(c *berth.FleetConfig) { c.Times = map[berth.NodeKind]berth.NodeTimes{berth.NodeMedia: {}} },
	} {
		c := good
		set(&c)
		require.Equal(t, field, wrong(t, c.Validate()))
	}
	long := good
	long.Times = map[berth.NodeKind]berth.NodeTimes{berth.NodeEngine: {Heartbeat: time.Second, Suspect: time.Minute, Death: berth.MaxFailureDetection}}
	require.NoError(t, long.Validate())
	long.Times[berth.NodeEngine] = berth.NodeTimes{Heartbeat: time.Second, Suspect: time.Minute, Death: berth.MaxFailureDetection + 1}
	require.ErrorContains(t, long.Validate(), "engine: failureDetectionTimeout must be at most 30m0s")
	require.Equal(t, "node.n1.7", berth.Assignment{NodeRef: berth.NodeRef{NodeID: "n1", Generation: 7}}.TaskQueue())
}

// A node gets the fields that docs/nodes.md lists and no others, such as whose job it is.
func TestActivityInputs_AsJSON_HaveTheDocumentedFields(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("docs/nodes.md")
	require.NoError(t, err)
	for name, in := range map[string]any{
		berth.ActivityTranslate: berth.JobInput{Job: berth.Job{SpeakerID: "anna"}},
		berth.ActivityExecute:   berth.ExecuteInput{Input: json.RawMessage("1")},
	} {
		row := regexp.MustCompile("\\| `" + name + "`[^|]*\\| `({[^`]*})` \\|").FindSubmatch(docs)
		require.NotNil(t, row, name)
		var want []string
		for _, field := range regexp.MustCompile(`"(\w+)"`).FindAllSubmatch(row[1], -1) {
			want = append(want, string(field[1]))
		}
		b, err := json.Marshal(in)
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, json.Unmarshal(b, &got))
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(got)), name)
	}
}
