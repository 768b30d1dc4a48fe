package temporalconn

import (
	"maps"

	"go.opentelemetry.io/otel"
	"go.temporal.io/sdk/client"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"

	"berth/internal/telemetry"
)

// metricsHandler returns the handler of the SDK's own metrics. They have no task queue, because that of a node has its id.
func metricsHandler() client.MetricsHandler {
	return withoutTaskQueue{temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		Meter: otel.Meter(telemetry.TemporalScope), UseMonotonicCounters: true, OnError: otel.Handle,
	})}
}

// withoutTaskQueue removes the task queue once from the tags that many measurements share. A filter of the exporter would
// remove it from each of them, at three percent of a worker's processor time.
type withoutTaskQueue struct{ client.MetricsHandler }

// WithTags returns a handler with further tags.
func (h withoutTaskQueue) WithTags(tags map[string]string) client.MetricsHandler {
	tags = maps.Clone(tags)
	delete(tags, "task_queue")
	return withoutTaskQueue{h.MetricsHandler.WithTags(tags)}
}
