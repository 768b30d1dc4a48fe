package tests

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// traces receives the spans of a stack's processes, in the OpenTelemetry protocol over HTTP.
type traces struct {
	*httptest.Server

	mu    sync.Mutex
	spans []recorded
}

// recorded is a span with the service that recorded it.
type recorded struct {
	*otlp.Span
	service string
}

func newTraces(t *testing.T) *traces {
	t.Helper()
	c := &traces{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &batch) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range batch.GetResourceSpans() {
			service := ""
			for _, a := range resource.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					service = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, recorded{s, service})
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// settings are those of processes that export to c.
func (c *traces) settings() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=50", "BERTH_METRICS_ADDR=127.0.0.1:0",
	}
}

// all returns the spans that have been received.
func (c *traces) all() []recorded {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// traceOf returns the spans of the trace that has a span of this name; nil if there is none.
func (c *traces) traceOf(name string) (trace []recorded) {
	all := c.all()
	i := slices.IndexFunc(all, func(s recorded) bool { return s.GetName() == name })
	if i < 0 {
		return nil
	}
	for _, s := range all {
		if string(s.GetTraceId()) == string(all[i].GetTraceId()) {
			trace = append(trace, s)
		}
	}
	slices.SortFunc(trace, func(a, b recorded) int { return int(a.GetStartTimeUnixNano()) - int(b.GetStartTimeUnixNano()) }) //nolint:gosec // nanoseconds since 1970
	return trace
}

// has reports whether a trace has a span whose service and name begin so, for each of the wanted ones.
func has(trace []recorded, wanted ...string) bool {
	for _, w := range wanted {
		if !slices.ContainsFunc(trace, func(s recorded) bool { return strings.HasPrefix(s.service+" "+s.GetName(), w) }) {
			return false
		}
	}
	return true
}

// tree returns a trace as indented lines.
func tree(trace []recorded) string {
	children, known := map[string][]recorded{}, map[string]bool{}
	for _, s := range trace {
		known[string(s.GetSpanId())] = true
	}
	for _, s := range trace {
		parent := string(s.GetParentSpanId())
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	var out strings.Builder
	var write func(parent string, depth int)
	write = func(parent string, depth int) {
		for _, s := range children[parent] {
			missing := ""
			if depth == 0 && len(s.GetParentSpanId()) > 0 {
				missing = " (parent " + hex.EncodeToString(s.GetParentSpanId()) + " missing)"
			}
			fmt.Fprintf(&out, "%s%s [%s] %.1f ms%s\n", strings.Repeat("  ", depth), s.GetName(), s.service,
				float64(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano())/1e6, missing)
			write(string(s.GetSpanId()), depth+1)
		}
	}
	write("", 0)
	return out.String()
}

// connected requires that a trace has one root, that every parent exists, and that no span was recorded twice.
func connected(t *testing.T, trace []recorded) {
	t.Helper()
	ids, roots := map[string]bool{}, 0
	for _, s := range trace {
		require.False(t, ids[string(s.GetSpanId())], "%s was recorded twice:\n%s", s.GetName(), tree(trace))
		ids[string(s.GetSpanId())] = true
	}
	for _, s := range trace {
		if len(s.GetParentSpanId()) == 0 {
			roots++
		} else {
			require.True(t, ids[string(s.GetParentSpanId())], "the parent of %s is missing:\n%s", s.GetName(), tree(trace))
		}
	}
	require.Equal(t, 1, roots, tree(trace))
}
