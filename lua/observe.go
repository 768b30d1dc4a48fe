package lua

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"berth/internal/metrics"
)

var (
	tracer = otel.Tracer("berth/lua")
	noSpan = trace.SpanFromContext(context.Background())
)

// observed is a script's labels, which are the same for each of its calls.
type observed struct {
	name       string
	ok, failed metric.MeasurementOption
	attributes trace.SpanStartEventOption
}

func observe(name string) observed {
	system, script := attribute.String("db.system.name", "redis"), metrics.Script.String(name)
	return observed{
		name: name, ok: metrics.With(system, script), failed: metrics.With(system, script, attribute.String("error.type", "error")),
		attributes: trace.WithAttributes(system, script),
	}
}

// begin starts the measurement of a call. The call gets a span only as part of a trace: scripts that run in the background
// begin none. A span has neither the script's keys nor its arguments.
func (o observed) begin(ctx context.Context) (context.Context, func(error)) {
	began := time.Now()
	span := noSpan
	if trace.SpanFromContext(ctx).IsRecording() {
		ctx, span = tracer.Start(ctx, o.name, trace.WithSpanKind(trace.SpanKindClient), o.attributes)
	}
	return ctx, func(err error) {
		labels := o.ok
		if err != nil {
			labels = o.failed
			span.SetStatus(codes.Error, "")
		}
		metrics.ScriptDuration.Record(ctx, time.Since(began).Seconds(), labels)
		span.End()
	}
}
