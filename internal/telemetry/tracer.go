package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// Interceptors returns the interceptors of a Temporal client that continue a caller's trace through workflows and
// activities. Work without a trace, such as that of the fleet's maintenance, does not begin one.
//
// A workflow is executed again from its history whenever it leaves a worker's cache. The span of a run or of an update is
// therefore recorded only by the process in which it completes, and its id is derived from the run, so that spans from
// before and after have the same parent. Spans have the types of errors, not their messages, which may quote a user's text.
func Interceptors() []interceptor.ClientInterceptor {
	t := &tracer{tracer: otel.Tracer("berth/temporal")}
	return []interceptor.ClientInterceptor{interceptor.NewTracingInterceptor(t), &completion{}}
}

// tracer implements the spans of the SDK's tracing interceptor.
type tracer struct {
	interceptor.BaseTracer
	tracer trace.Tracer
}

// Options returns the settings of the SDK's interceptor. The header is the one that Temporal's SDKs share.
func (t *tracer) Options() interceptor.TracerOptions {
	return interceptor.TracerOptions{
		SpanContextKey: berth.SpanKey{}, HeaderKey: "_tracer-data", DisableQueryTracing: true, AllowInvalidParentSpans: true,
	}
}

// span is a span, or a reference to one that is recorded elsewhere.
type span struct {
	trace.Span
	// pending is set while a run or an update is executed: whether it completes here is not known yet.
	pending bool
}

// Finish ends the span.
func (s *span) Finish(o *interceptor.TracerFinishSpanOptions) {
	if s.pending {
		return
	}
	if o.Error != nil {
		s.SetStatus(codes.Error, errorType(o.Error))
	}
	s.End()
}

// errorType returns the type of a failure: berth's code where there is one.
func errorType(err error) string {
	var app *temporal.ApplicationError
	switch {
	case errors.As(err, &app):
		return app.Type()
	case temporal.IsCanceledError(err):
		return "canceled"
	case temporal.IsTimeoutError(err):
		return "timeout"
	default:
		return "error"
	}
}

// UnmarshalSpan returns the span of a header; nil if it has none.
func (t *tracer) UnmarshalSpan(header map[string]string) (interceptor.TracerSpanRef, error) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(header))
	if s := trace.SpanFromContext(ctx); s.SpanContext().IsValid() {
		return &span{Span: s}, nil
	}
	return nil, nil //nolint:nilnil // the interface's way to report that there is none
}

// MarshalSpan returns the header of a span; an empty one if it is not part of a trace.
func (t *tracer) MarshalSpan(s interceptor.TracerSpan) (map[string]string, error) {
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.(*span).Span), header) //nolint:errcheck,forcetypeassert // made by StartSpan
	return header, nil
}

// SpanFromContext returns the span of an activity or of a caller.
func (t *tracer) SpanFromContext(ctx context.Context) interceptor.TracerSpan {
	if s := trace.SpanFromContext(ctx); s.SpanContext().IsValid() {
		return &span{Span: s}
	}
	return nil
}

// ContextWithSpan returns a context with the span of an activity.
func (t *tracer) ContextWithSpan(ctx context.Context, s interceptor.TracerSpan) context.Context {
	return trace.ContextWithSpan(ctx, s.(*span).Span) //nolint:errcheck,forcetypeassert // made by StartSpan
}

// StartSpan starts a span. Outside a trace, and for the request of an activity, whose execution has a span of its own, it
// returns a reference to the parent, which does nothing when it ends.
func (t *tracer) StartSpan(o *interceptor.TracerStartSpanOptions) (interceptor.TracerSpan, error) {
	ctx := context.Background()
	if parent, ok := o.Parent.(*span); ok {
		ctx = trace.ContextWithSpanContext(ctx, parent.SpanContext())
	}
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() || o.Operation == "StartActivity" || o.Operation == "ValidateUpdate" {
		return &span{Span: parent}, nil
	}
	kind := trace.SpanKindServer
	if o.ToHeader {
		kind = trace.SpanKindClient
	}
	//nolint:spancheck // ended by Finish
	_, s := t.tracer.Start(context.WithValue(ctx, idKey{}, o.IdempotencyKey), o.Operation+" "+o.Name,
		trace.WithTimestamp(o.Time), trace.WithSpanKind(kind), trace.WithAttributes(attributes(o.Tags)...))
	//nolint:spancheck // ended by Finish
	return &span{Span: s, pending: o.Operation == "RunWorkflow" || o.Operation == "HandleUpdate"}, nil
}

func attributes(tags map[string]string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(tags))
	for k, v := range tags {
		out = append(out, attribute.String(k, v))
	}
	return out
}

// GetLogger adds the ids of a span to a logger of a workflow or an activity.
func (t *tracer) GetLogger(logger sdklog.Logger, ref interceptor.TracerSpanRef) sdklog.Logger {
	s, ok := ref.(*span)
	if !ok || !s.SpanContext().IsValid() {
		return logger
	}
	return sdklog.With(logger, traceIDKey, s.SpanContext().TraceID().String(), spanIDKey, s.SpanContext().SpanID().String())
}

// completion ends the spans of runs and updates that complete in this process. It is the inner one of two interceptors: a
// run that is evicted from the cache does not return from it.
type completion struct{ interceptor.InterceptorBase }

// InterceptWorkflow intercepts a run.
func (*completion) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

// inbound intercepts one run.
type inbound struct {
	interceptor.WorkflowInboundInterceptorBase

	run   *span // nil without a trace
	cause *span // of the last signal that came with a trace
}

// Init intercepts the calls of the run, too.
func (c *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return c.Next.Init(&outbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}, c}) //nolint:wrapcheck // of an interceptor
}

// ExecuteWorkflow executes the run.
func (c *inbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	c.run, _ = ctx.Value(berth.SpanKey{}).(*span)
	out, err := c.Next.ExecuteWorkflow(ctx, in)
	complete(ctx)
	return out, err
}

// ExecuteUpdate executes an update.
func (c *inbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (any, error) {
	out, err := c.Next.ExecuteUpdate(ctx, in)
	complete(ctx)
	return out, err
}

// HandleSignal handles a signal. Its trace, such as that of a recovery, is linked to that of the run.
func (c *inbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if s, ok := ctx.Value(berth.SpanKey{}).(*span); ok && s.IsRecording() {
		c.cause = s
		if c.run != nil {
			s.AddLink(trace.Link{SpanContext: c.run.SpanContext()})
		}
	}
	return c.Next.HandleSignal(ctx, in) //nolint:wrapcheck // of an interceptor
}

// outbound adds the activities of a recovery to the trace of its signal.
type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase

	in *inbound
}

func (o *outbound) caused(ctx workflow.Context) workflow.Context {
	if o.in.cause != nil && ctx.Value(berth.RecoveryKey{}) != nil {
		return workflow.WithValue(ctx, berth.SpanKey{}, o.in.cause)
	}
	return ctx
}

// ExecuteActivity executes an activity.
func (o *outbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	return o.Next.ExecuteActivity(o.caused(ctx), name, args...)
}

// ExecuteLocalActivity executes a local activity.
func (o *outbound) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	return o.Next.ExecuteLocalActivity(o.caused(ctx), name, args...)
}

func complete(ctx workflow.Context) {
	if s, ok := ctx.Value(berth.SpanKey{}).(*span); ok && !workflow.IsReplaying(ctx) {
		s.pending = false
	}
}

// idKey is the key of a context whose value the id of a new span is derived from.
type idKey struct{}

// idGenerator makes random ids, and those of spans that are started again with the same id.
type idGenerator struct{}

// NewIDs returns the ids of a root span.
func (idGenerator) NewIDs(context.Context) (trace.TraceID, trace.SpanID) {
	var t trace.TraceID
	var s trace.SpanID
	_, _ = rand.Read(t[:]) // never fails
	_, _ = rand.Read(s[:])
	return t, s
}

// NewSpanID returns the id of a span of a trace.
func (idGenerator) NewSpanID(ctx context.Context, id trace.TraceID) trace.SpanID {
	var s trace.SpanID
	if key, _ := ctx.Value(idKey{}).(string); key != "" {
		sum := sha256.Sum256(append(id[:], key...))
		copy(s[:], sum[:])
		return s
	}
	_, _ = rand.Read(s[:]) // never fails
	return s
}
