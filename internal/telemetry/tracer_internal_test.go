package telemetry

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/interceptor"
)

func TestTracer_WorkflowWithoutTrace_HandlersBeginNone(t *testing.T) { // X3
	t.Parallel()
	recorded := tracetest.NewSpanRecorder()
	tr := &tracer{tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorded)).Tracer("test")}
	run, err := tr.StartSpan(&interceptor.TracerStartSpanOptions{Operation: "RunWorkflow"})
	require.NoError(t, err)
	signal := interceptor.TracerStartSpanOptions{Operation: "HandleSignal", Parent: run}
	_, err = tr.StartSpan(&signal)
	require.NoError(t, err)
	require.Empty(t, recorded.Started())

	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	signal.Parent = &span{Span: trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), caller))}
	_, err = tr.StartSpan(&signal)
	require.NoError(t, err)
	require.Len(t, recorded.Started(), 1)
	require.Equal(t, caller.TraceID(), recorded.Started()[0].SpanContext().TraceID())
}
