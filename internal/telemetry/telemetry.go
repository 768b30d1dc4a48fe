// Package telemetry sets up the logs, traces and metrics of berth's processes, through OpenTelemetry. The standard OTEL_*
// variables select exporters: traces are recorded only where OTEL_TRACES_EXPORTER or an OTLP endpoint is set, metrics are
// always available to Prometheus.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	otelmetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"berth"
	"berth/internal/metrics"
)

// flushTime bounds the export of what is left when a process ends.
const flushTime = 3 * time.Second

// Options describe a process.
type Options struct {
	Role    string // "api", "worker", …: the service is named berth-{role}, unless OTEL_SERVICE_NAME is set
	Version string
	Logger  *slog.Logger
}

// Telemetry holds the exporters of a process.
type Telemetry struct {
	registry *prometheus.Registry
	shutdown []func(context.Context) error
}

// Start sets OpenTelemetry's global providers. It is called once, at the start of a process.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	otel.SetLogger(logr.New(otelLog{o.Logger}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("telemetry failed", "error", err) }))
	res, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("berth-"+o.Role), semconv.ServiceVersion(o.Version), semconv.ServiceInstanceID(berth.NewID(""))),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process for telemetry (OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	t := &Telemetry{registry: prometheus.NewRegistry()}
	if err := t.startMetrics(ctx, res, o.Version); err != nil {
		return nil, err
	}
	if exports("TRACES") {
		if err := t.startTraces(ctx, res); err != nil {
			return nil, errors.Join(err, t.Shutdown(ctx))
		}
	}
	return t, nil
}

// exports reports whether the environment asks to export a signal: "TRACES" or "METRICS". The variables are those that
// OpenTelemetry's exporters read themselves.
func exports(signal string) bool {
	get := os.Getenv //nolint:forbidigo // see above
	if strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if e := get("OTEL_" + signal + "_EXPORTER"); e != "" {
		return e != "none"
	}
	return get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || get("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

func (t *Telemetry) startMetrics(ctx context.Context, res *resource.Resource, version string) error {
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	prom, err := promexporter.New(promexporter.WithRegisterer(t.registry), promexporter.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("prometheus exporter: %w", err)
	}
	opts := []sdkmetric.Option{
		sdkmetric.WithResource(res), sdkmetric.WithReader(prom),
		sdkmetric.WithView(temporalView),
	}
	if exports("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return fmt.Errorf("metrics exporter: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(reader))
	}
	provider := sdkmetric.NewMeterProvider(opts...)
	t.shutdown = append(t.shutdown, provider.Shutdown)
	otel.SetMeterProvider(provider)
	info := metrics.With(attribute.String("version", version))
	metrics.Observe(func(o otelmetric.Observer) { o.ObserveInt64(metrics.BuildInfo, 1, info) }, metrics.BuildInfo)
	return nil
}

// TemporalScope is the scope of the metrics of Temporal's SDK.
const TemporalScope = "temporal-sdk-go"

// temporalView changes the Temporal SDK's own metrics. The SDK measures seconds and sets no bounds; the default ones are meant
// for milliseconds.
func temporalView(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
	if i.Scope.Name != TemporalScope {
		return sdkmetric.Stream{}, false
	}
	s := sdkmetric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit}
	if i.Kind == sdkmetric.InstrumentKindHistogram {
		s.Aggregation = sdkmetric.AggregationExplicitBucketHistogram{Boundaries: metrics.Slow}
	}
	return s, true
}

func (t *Telemetry) startTraces(ctx context.Context, res *resource.Resource) error {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return fmt.Errorf("trace exporter: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(idGenerator{}))
	t.shutdown = append(t.shutdown, provider.Shutdown)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return nil
}

// Metrics serves the metrics in Prometheus's format.
func (t *Telemetry) Metrics() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{Registry: t.registry})
}

// Shutdown exports what is left and ends the exporters.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	var errs []error
	for _, stop := range t.shutdown {
		errs = append(errs, stop(ctx))
	}
	return errors.Join(errs...)
}
