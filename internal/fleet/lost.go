package fleet

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/metrics"
)

// CountLost counts a node that was lost.
func CountLost(ctx context.Context, kind berth.NodeKind, why berth.Departure) {
	metrics.NodesLost.Add(ctx, 1, lostLabels(kind, why))
}

// BeginLost exports 0 for the losses with a reason, which the process counts.
func BeginLost(why berth.Departure) {
	for _, kind := range berth.NodeKinds() {
		metrics.Begin(metrics.NodesLost, lostLabels(kind, why))
	}
}

func lostLabels(kind berth.NodeKind, why berth.Departure) metric.MeasurementOption {
	return metrics.With(metrics.Kind.String(string(kind)), metrics.Reason.String(string(why)))
}
