package telemetry

import (
	"go.opentelemetry.io/otel"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
)

const temporalScope = "temporal-sdk-go"

// TemporalMetrics returns the handler of the SDK's own metrics.
func TemporalMetrics() temporalotel.MetricsHandler {
	return temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		Meter: otel.Meter(temporalScope), UseMonotonicCounters: true, OnError: otel.Handle,
	})
}
