package telemetry_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"berth/internal/telemetry"
)

func TestLogger_ContextWithSpan_RecordHasItsIDs(t *testing.T) { // X3
	t.Parallel()
	var out bytes.Buffer
	logger, err := telemetry.Logger(&out, "info", "json")
	require.NoError(t, err)
	logger.InfoContext(t.Context(), "outside")
	require.NotContains(t, out.String(), "trace_id")
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	logger.With("part", "a").InfoContext(ctx, "inside")
	require.Contains(t, out.String(), `"part":"a","trace_id":"01000000000000000000000000000000","span_id":"0200000000000000"`)
}
