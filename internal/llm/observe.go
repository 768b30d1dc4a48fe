package llm

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"berth"
	"berth/internal/metrics"
)

var tracer = otel.Tracer("berth/llm")

// localLabel is the provider name of the local model simulator in metrics and spans.
const localLabel = "simulator"

// observe starts the measurement of a provider call; the names are those of OpenTelemetry's conventions for generative AI.
// Neither prompts nor answers are recorded, and the trace is not propagated to the provider.
func observe(ctx context.Context, ep endpoint, call Call) (observed context.Context, end func(Result, error)) {
	provider, operation := ep.servedBy, string(call.operation())
	if provider == LocalProvider {
		provider = localLabel
	}
	labels := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", operation), attribute.String("gen_ai.provider.name", provider),
		attribute.String("gen_ai.request.model", call.Model), metrics.Upstream.String(ep.upstream),
	}
	//nolint:spancheck // ended by end
	ctx, span := tracer.Start(ctx, operation+" "+call.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(labels...))
	return ctx, func(r Result, err error) { //nolint:spancheck // ended by end
		outcome := slices.Clone(labels)
		if err != nil {
			code := string(berth.CodeOf(err))
			outcome = append(outcome, attribute.String("error.type", code))
			span.SetStatus(codes.Error, code)
			span.SetAttributes(attribute.String("error.type", code))
		}
		span.SetAttributes(
			attribute.Int64("gen_ai.usage.input_tokens", r.Usage.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", r.Usage.OutputTokens),
			attribute.StringSlice("gen_ai.response.finish_reasons", []string{r.FinishReason}))
		span.End()
		metrics.ModelDuration.Record(ctx, r.Took.Seconds(), metrics.With(outcome...))
		if r.FirstToken > 0 {
			metrics.ModelFirstToken.Record(ctx, r.FirstToken.Seconds(), metrics.With(labels...))
		}
		metrics.ModelTokens.Record(ctx, r.Usage.InputTokens, metrics.With(append(labels, attribute.String("gen_ai.token.type", "input"))...))
		metrics.ModelTokens.Record(ctx, r.Usage.OutputTokens, metrics.With(append(labels, attribute.String("gen_ai.token.type", "output"))...))
	}
}
