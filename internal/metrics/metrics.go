// Package metrics has the instruments of berth's own metrics. They are in one place because their names and labels are part
// of the public interface: docs/telemetry.md lists them. Labels have few values: no label holds the id of a user, task,
// conference or node. Instruments record nothing until the process has set a meter provider.
package metrics

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Labels.
const (
	Model      = attribute.Key("model")
	Upstream   = attribute.Key("upstream")
	Queue      = attribute.Key("queue")
	Outcome    = attribute.Key("outcome") // "ok", or the code of the error
	Code       = attribute.Key("code")
	Kind       = attribute.Key("kind")
	State      = attribute.Key("state")
	Dependency = attribute.Key("dependency")
	Rule       = attribute.Key("rule")
	Status     = attribute.Key("status")
	TaskQueue  = attribute.Key("task_queue") // of Temporal; those of single nodes are not observed
	Pool       = attribute.Key("pool")
	Team       = attribute.Key("team") // of those that operators have defined, a bounded number
	App        = attribute.Key("app")  // of spans only
	Budget     = attribute.Key("id")   // of the key or team of a budget, of a bounded number
	Reason     = attribute.Key("reason")
	Setting    = attribute.Key("setting")
	Script     = attribute.Key("db.stored_procedure.name")
)

// The kinds of pauses of a model.
const (
	PauseRequested = "requested" // by its provider
	PauseFailures  = "failures"  // of its calls
)

// OK is the outcome of what succeeded.
const OK = "ok"

var meter = otel.Meter("berth")

// Bounds of histograms in seconds: of scripts, and of everything up to a model call.
var (
	fast = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}
	Slow = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
)

// Counters.
var (
	Refusals    = counter("berth.submissions.refused", "Submissions refused before their task existed, by code and queue")
	Steps       = counter("berth.steps", "Attempts at a step of a task, by queue, model and outcome")
	Publishes   = counter("berth.publishes", "Batches of events appended to streams, by outcome")
	Jobs        = counter("berth.jobs", "Jobs and commands run by this node, by outcome")
	ModelPauses = counter("berth.model.pauses", "Pauses of a model for all callers, by model and kind")
	Sweeps      = counter("berth.sweeps", "Passes of fleet maintenance, by outcome")
	NodesLost   = counter("berth.nodes.lost", "Nodes that were lost, by kind and reason: unresponsive, or service_lost")

	SignallingMoves   = counter("berth.signalling.moves", "Participants that the signalling proxy made to connect again, by kind: moved to another unit, or resumed on theirs")
	SignallingRefused = counter("berth.signalling.refused", "Connections that the signalling proxy refused or ended, by kind")
	Records           = counter("berth.records", "Attempts to send a detail record by webhook, by outcome: ok, pending when it is retried, failed when it is given up")
	WebhookEvents     = counter("berth.webhook.events", "Attempts to send an event to a webhook, by outcome: ok, pending when it is retried, failed when it is given up")
	ForeignRooms      = counter("berth.media.foreign_rooms", "Rooms that this agent removed because no unit had created them")

	WebhooksRejected = counter("berth.media.webhooks.rejected", "Events of the media server that this agent rejected, by kind")

	ReconcilePasses   = counter("berth.reconcile.passes", "Passes of the reconciliation, by kind and outcome")
	ReconcileFindings = counter("berth.reconcile.findings", "Differences that the reconciliation found, by rule and outcome")
)

// Histograms.
var (
	StepDuration      = histogram("berth.step.duration", "Duration of an attempt at a step, with its wait for a slot", Slow)
	SlotWait          = histogram("berth.slot.wait", "Time a model call waited for its slot", Slow)
	SlotHandOver      = histogram("berth.slot.handover", "Time from the grant of a slot in Redis to its use by a waiting call", fast)
	JobDuration       = histogram("berth.job.duration", "Duration of a job or command on this node", Slow)
	ScriptDuration    = histogram("db.client.operation.duration", "Duration of a Redis script, by name", fast)
	ModelDuration     = histogram("gen_ai.client.operation.duration", "Duration of a call of a model's provider", Slow)
	ModelFirstToken   = histogram("gen_ai.server.time_to_first_token", "Time from a call of a model's provider to its first token", Slow)
	ReconcileDuration = histogram("berth.reconcile.duration", "Duration of a pass of the reconciliation, by kind and outcome", Slow)

	ModelTokens = tokens("gen_ai.client.token.usage", "Tokens of a call of a model's provider, by type")
)

// Gauges are observed by Observe.
var (
	SlotsInUse            = gauge("berth.slots.in_use", "Model slots held by this process")
	SlotsWaiting          = gauge("berth.slots.waiting", "Calls of this process that wait for a slot of their model")
	SlotsLimit            = gauge("berth.slots.limit", "Current slots of an upstream of a model in all processes")
	SlotsMax              = gauge("berth.slots.max", "Configured slots of an upstream of a model in all processes; of a learned limit the maximum")
	UpstreamPaused        = gauge("berth.upstream.paused", "1 while an upstream of a model is paused, by its provider or an operator, or probed after failures; else 0")
	StreamLag             = seconds("berth.stream.lag", "Longest time since the last collection that a live event waited in this process for a reader to take it")
	StreamReaders         = gauge("berth.stream.readers", "Event streams open to readers")
	SignallingConnections = gauge("berth.signalling.connections", "Participants connected through this process")
	SignallingParked      = gauge("berth.signalling.parked", "Participants whose connection this process parks until a unit has their conference")
	Nodes                 = gauge("berth.nodes", "Registered nodes by kind and state, the same in every process")
	DependencyState       = gauge("berth.dependency.up", "1 while a dependency of this process works, else 0")
	DependencyReason      = gauge("berth.dependency.reason", "1 while a dependency of this process has a known problem, by reason and setting")
	BuildInfo             = gauge("berth.build.info", "1, labelled with the version")
)

// Gauges of the whole system, which one process samples for all.
var (
	RedisMemoryUsed  = bytes("berth.redis.memory.used", "Memory in use of the Redis that has the keys")
	RedisMemoryMax   = bytes("berth.redis.memory.max", "Limit of that memory")
	ModelWaiting     = gauge("berth.model.waiting", "Tasks and calls that wait for a slot of a model, in Redis")
	TeamInUse        = gauge("berth.team.in_use", "Model slots that a team uses")
	TeamWaiting      = gauge("berth.team.waiting", "Calls of a team that wait for a slot of a model")
	BudgetUsed       = ratio("berth.budget.used", "Part of a budget that is used in its present period, of the fullest budgets")
	TaskQueuePollers = gauge("berth.task_queue.pollers", "Processes that poll a Temporal task queue")
	TaskQueueBacklog = gauge("berth.task_queue.backlog", "Work in a Temporal task queue that no process has taken")
	Conferences      = gauge("berth.conferences", "Conferences that have not ended, by status")
	PoolFreeSlots    = gauge("berth.pool.free_slots", "Free slots of the nodes of a pool that can be chosen")
	RowsPastDeadline = gauge("berth.rows.past_deadline", "Rows that are open two minutes past their deadline, by the reconciliation's rule for them")
)

// Observe calls f at every collection until stop is called. The observer takes values of the given gauges only.
func Observe(f func(metric.Observer), gauges ...metric.Observable) (stop func()) {
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error { f(o); return nil }, gauges...)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() { _ = registration.Unregister() } // has no error that a caller could handle
}

// With returns the measurement option of a set of labels. Callers on a hot path keep it.
func With(labels ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(labels...))
}

// Begin exports 0 for each set of labels, so that the first event is an increase to Prometheus.
func Begin(c metric.Int64Counter, labels ...metric.MeasurementOption) {
	for _, l := range labels {
		c.Add(context.Background(), 0, l)
	}
}

func counter(name, description string) metric.Int64Counter {
	c, err := meter.Int64Counter(name, metric.WithDescription(description))
	handle(err)
	return c
}

func histogram(name, description string, bounds []float64) metric.Float64Histogram {
	h, err := meter.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
	handle(err)
	return h
}

func tokens(name, description string) metric.Int64Histogram {
	h, err := meter.Int64Histogram(name, metric.WithDescription(description), metric.WithUnit("{token}"),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144))
	handle(err)
	return h
}

func gauge(name, description string) metric.Int64ObservableGauge {
	g, err := meter.Int64ObservableGauge(name, metric.WithDescription(description))
	handle(err)
	return g
}

func bytes(name, description string) metric.Int64ObservableGauge {
	g, err := meter.Int64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit("By"))
	handle(err)
	return g
}

func seconds(name, description string) metric.Float64ObservableGauge {
	g, err := meter.Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit("s"))
	handle(err)
	return g
}

func ratio(name, description string) metric.Float64ObservableGauge {
	g, err := meter.Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit("1"))
	handle(err)
	return g
}

// handle reports an invalid name, which only a change of this file can cause.
func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}
