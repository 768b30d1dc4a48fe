package berth

// Keys of workflow contexts by which workflows decide which trace their activities belong to.
type (
	// SpanKey is the key of telemetry's current span.
	SpanKey struct{}
	// RecoveryKey marks a context in which a conference is recovered: its activities belong to the trace of the unit's loss
	// instead of that of the conference's creation.
	RecoveryKey struct{}
)
