// Package config holds every setting of berth. kong reads them once from flags and the environment; they are validated
// and passed down as values. Nothing below main reads the environment.
package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

// Config holds the settings of one process. The names of the environment variables are part of the public interface.
type Config struct {
	Temporal Temporal `embed:"" group:"Temporal"`
	Redis    Redis    `embed:"" group:"Redis"`
	Database Database `embed:"" group:"Database"`
	API      API      `embed:"" group:"API"`
	Identity Identity `embed:"" group:"Identity"`
	Worker   Worker   `embed:"" group:"Worker"`
	Rollout  Rollout  `embed:"" group:"Upgrades (applied by workers)"`

	Retention Retention `embed:"" group:"Retention (applied by workers of the queue links)"`

	Reconcile Reconcile `embed:"" group:"Reconciliation (applied by workers of the queue links)"`

	Turn Turn `embed:"" group:"Turns (applied by API processes)"`

	Signalling Signalling `embed:"" group:"Participants of conferences (applied by API processes)"`
	Record     Record     `embed:"" group:"Detail records of conferences"`
	Webhook    Webhook    `embed:"" group:"Webhooks"`

	Conference Conference `embed:"" group:"Conferences (applied by API processes; licences by workers)"`

	Stream Stream `embed:"" group:"Streams"`
	Model  Model  `embed:"" group:"Models"`

	Telemetry Telemetry `embed:"" group:"Telemetry"`

	Production bool   `help:"Run in production mode: no debug events." name:"production" env:"BERTH_PRODUCTION"`
	LogLevel   string `help:"Minimum log level: ${enum}." name:"log-level" env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
	LogFormat  string `help:"Log format: ${enum}." name:"log-format" env:"BERTH_LOG_FORMAT" enum:"text,json" default:"text"`
}

// Telemetry holds the settings of metrics and traces. Exporters are set by OpenTelemetry's own variables, such as
// OTEL_EXPORTER_OTLP_ENDPOINT.
type Telemetry struct {
	MetricsAddr      string        `help:"Address that serves /metrics, /healthz and /readyz, host:port; off for none." name:"metrics-addr" env:"BERTH_METRICS_ADDR" default:"127.0.0.1:9464"`
	SampleEvery      time.Duration `help:"Time between two samples of the metrics of the whole system, which one API process takes." name:"sample-every" env:"BERTH_SAMPLE_EVERY" default:"15s" min:"1ms"`
	TrustTraceparent bool          `help:"Continue the traces of callers of the API; otherwise link to them. For callers that are trusted only." name:"trust-traceparent" env:"BERTH_TRUST_TRACEPARENT"`
}

// API holds the settings of the HTTP API.
type API struct {
	Addr           string        `help:"Address the HTTP API listens on, host:port." name:"http-addr" env:"BERTH_HTTP_ADDR" default:"127.0.0.1:8080"`
	CORSOrigins    []string      `help:"Origins whose pages may call the API from a browser, such as https://app.example; * for all. Default: none." name:"cors-origins" env:"BERTH_CORS_ORIGINS"`
	MaxUploadBytes int64         `help:"Maximum size of an upload in bytes." name:"max-upload-bytes" env:"BERTH_MAX_UPLOAD_BYTES" default:"10485760" min:"1" max:"67108864"`
	Heartbeat      time.Duration `help:"Interval between heartbeats on an idle event stream." name:"sse-heartbeat" env:"BERTH_SSE_HEARTBEAT" default:"15s" min:"1ms"`
	QueueMaxSize   int           `help:"Maximum number of unfinished tasks in a queue; more are refused. 0 for no limit." name:"queue-max-size" env:"QUEUE_MAX_SIZE" default:"1000" min:"0"`
	ServiceMaxSize int           `help:"Maximum number of unfinished tasks of a user in a service; more are refused. 0 for no limit." name:"service-max-size" env:"BERTH_SERVICE_MAX_SIZE" default:"500" min:"0"`
	ExecutionsMax  int           `help:"Maximum number of unfinished executions of a user; more are refused. 0 for no limit." name:"executions-max-size" env:"BERTH_EXECUTIONS_MAX_SIZE" default:"1000" min:"0"`
	PaidRate       int           `help:"Maximum number of tasks that a user of the paid tier may submit in a minute; 0 for no limit." name:"paid-rate" env:"BERTH_PAID_RATE" default:"600" min:"0"`
	FreeRate       int           `help:"Maximum number of tasks that a user of the free tier may submit in a minute; 0 for no limit." name:"free-rate" env:"BERTH_FREE_RATE" default:"600" min:"0"`
	CallWait       time.Duration `help:"Maximum time for which a call of OpenAI's protocol waits for a slot of its model; later it is refused." name:"call-wait" env:"BERTH_CALL_WAIT" default:"5m" min:"1ms"`
	CallHold       time.Duration `help:"Time for which the status of a streamed call that waits is withheld, so that an early refusal has its own; then comments with the position are sent." name:"call-hold" env:"BERTH_CALL_HOLD" default:"5s" min:"1ms"`
	CallGrace      time.Duration `help:"Time for which a chat continues after its client was lost, so that a retry of the client continues it; then it is cancelled." name:"call-grace" env:"BERTH_CALL_GRACE" default:"15s" min:"1s"`
	TaskDeadline   time.Duration `help:"Maximum time from acceptance to the end of a task; later it fails." name:"task-deadline" env:"BERTH_TASK_DEADLINE" default:"15m" min:"1ms"`
}

// Worker holds the settings of processes that poll task queues.
type Worker struct {
	Queues        []string      `help:"Task queues to poll: tasks, turns, executions, conferences, links, webhooks, models (calls of all models) or one model (model.deepseek-chat). Default: all." name:"queues" env:"BERTH_QUEUES"`
	Drain         time.Duration `help:"Time a stopping worker gives its model calls to finish before it hands them over." name:"drain" env:"BERTH_DRAIN" default:"10s" min:"1ms"`
	TimeoutMs     int64         `help:"Maximum duration of a step in ms." name:"worker-timeout-ms" env:"WORKER_TIMEOUT_MS" default:"300000" min:"1"`
	StepAnswers   int           `help:"Maximum number of answers that one step of a task buys from its provider, with repairs, continuations and calls that were cut or lost." name:"step-answers" env:"BERTH_STEP_ANSWERS" default:"3" min:"1"`
	KeepStreamed  bool          `help:"Keep the charge of a task that is cancelled after its answer has begun; otherwise it is refunded." name:"keep-streamed-charge" env:"BERTH_KEEP_STREAMED_CHARGE"`
	LockTimeoutMs int64         `help:"Maximum time one model call may hold its slot, in ms." name:"concurrency-lock-timeout-ms" env:"CONCURRENCY_LOCK_TIMEOUT_MS" default:"300000" min:"1"`
	UserSlots     int           `help:"Maximum number of concurrent model calls of one user; 0 for no limit." name:"user-concurrency" env:"BERTH_USER_CONCURRENCY" default:"5" min:"0"`
}

// Retention holds the settings of how long data of ended tasks is kept.
type Retention struct {
	Texts time.Duration `help:"Time after which the texts of ended tasks and unused assets are erased." name:"retain-texts" env:"BERTH_RETAIN_TEXTS" default:"720h" min:"1ms"`
	Rows  time.Duration `help:"Time after which rows of ended tasks, executions and conferences, sessions, usage, audit, idempotency keys and entries of accounts are removed; the sum of the entries remains." name:"retain-rows" env:"BERTH_RETAIN_ROWS" default:"9600h"`
}

// Turn holds the settings of live translation.
type Turn struct {
	TimeoutMs  int64         `help:"Time after its last segment until a turn is finalised, in ms." name:"turn-timeout-ms" env:"TURN_TIMEOUT_MS" default:"10000" min:"1"`
	JobTimeout time.Duration `help:"Maximum time one node may take for one job." name:"job-timeout" env:"BERTH_JOB_TIMEOUT" default:"30s" min:"1ms"`
}

// Timeout returns how long after its last segment a turn is finalised.
func (t Turn) Timeout() time.Duration { return time.Duration(t.TimeoutMs) * time.Millisecond }

// Stream holds the settings of event streams.
type Stream struct {
	FlushIntervalMs int64 `help:"Maximum time tokens are collected before they are published, in ms." name:"stream-flush-interval-ms" env:"STREAM_FLUSH_INTERVAL_MS" default:"400" min:"1"`
	FlushSize       int   `help:"Maximum number of tokens collected before they are published." name:"stream-flush-size" env:"STREAM_FLUSH_SIZE" default:"8" min:"1"`
	TTLSeconds      int64 `help:"Time a finished stream is kept, in seconds; usually 120 to 300." name:"stream-ttl-seconds" env:"STREAM_TTL_SECONDS" default:"300" min:"1"`
	TrimMaxLen      int64 `help:"Approximate number of events a finished stream is trimmed to." name:"stream-trim-maxlen" env:"STREAM_TRIM_MAXLEN" default:"5000" min:"1"`
}

// Model holds the settings of model providers and routing.
type Model struct {
	RoutingFile  string         `help:"YAML file with the routing table and providers; empty for the built-in one." name:"routing-file" env:"BERTH_ROUTING_FILE" type:"path"`
	TemplatesDir string         `help:"Directory with templates of your own, which is read at the start and followed; empty for none." name:"templates-dir" env:"BERTH_TEMPLATES_DIR" type:"path"`
	LocalURL     secret.Address `help:"Base URL of the model simulator, used for providers without a key; empty for none." name:"local-model-url" env:"BERTH_LOCAL_MODEL_URL"`
	DeepSeekKey  secret.Text    `help:"DeepSeek API key." name:"deepseek-api-key" env:"DEEPSEEK_API_KEY"`
	ZhipuKey     secret.Text    `help:"Zhipu (GLM) API key." name:"zhipuai-api-key" env:"ZHIPUAI_API_KEY"`
	ProviderKeys secret.Text    `help:"API keys of providers added to the routing file: OPENAI_API_KEY=…;…" name:"provider-keys" env:"BERTH_PROVIDER_KEYS"`

	DeepSeekKeyFile  string `help:"File with the DeepSeek API key, read again for every call." name:"deepseek-api-key-file" env:"DEEPSEEK_API_KEY_FILE"`
	ZhipuKeyFile     string `help:"File with the Zhipu (GLM) API key, read again for every call." name:"zhipuai-api-key-file" env:"ZHIPUAI_API_KEY_FILE"`
	ProviderKeysFile string `help:"File with API keys of providers, one OPENAI_API_KEY=… per line, read again for every call." name:"provider-keys-file" env:"BERTH_PROVIDER_KEYS_FILE"`

	Debug bool `help:"Publish debug events; ignored in production." name:"llm-debug" env:"LLM_DEBUG"`
}

// StepTimeout returns the maximum duration of a step.
func (w Worker) StepTimeout() time.Duration { return time.Duration(w.TimeoutMs) * time.Millisecond }

// LockTimeout returns the maximum time one model call may hold its slot.
func (w Worker) LockTimeout() time.Duration { return time.Duration(w.LockTimeoutMs) * time.Millisecond }

// CallTimeout returns the maximum duration of one model call: the shorter of StepTimeout and LockTimeout.
func (w Worker) CallTimeout() time.Duration { return min(w.StepTimeout(), w.LockTimeout()) }

// FlushInterval returns the maximum time tokens are collected before they are published.
func (s Stream) FlushInterval() time.Duration {
	return time.Duration(s.FlushIntervalMs) * time.Millisecond
}

// TTL returns how long a finished stream is kept.
func (s Stream) TTL() time.Duration { return time.Duration(s.TTLSeconds) * time.Second }

// knownQueues lists what selects task queues, besides single models.
var knownQueues = []string{"tasks", "turns", "executions", "conferences", "links", "webhooks", "models"}

// Validate returns an error that lists every invalid setting with its flag and environment variable.
func (c *Config) Validate() error {
	p := check(c)
	c.Temporal.validate(p)
	p.hostPort(&c.API.Addr)
	if c.Telemetry.MetricsAddr != telemetry.Off {
		p.hostPort(&c.Telemetry.MetricsAddr)
	}
	c.Redis.validate(p)
	c.Database.validate(p)
	c.Model.validate(p)
	c.Identity.validate(p, c.Production)
	validateOrigins(&c.API.CORSOrigins, p)
	for _, q := range c.Worker.Queues {
		if model, one := strings.CutPrefix(q, berth.ModelTaskQueues); !slices.Contains(knownQueues, q) && (!one || model == "") {
			p.bad(&c.Worker.Queues, "unknown task queue %q; known are %s, and one model by its name, such as %sdeepseek-chat", q, strings.Join(knownQueues, ", "), berth.ModelTaskQueues)
		}
	}
	c.Conference.validate(p)
	c.Signalling.validate(p)
	c.Record.validate(p)
	if c.Retention.Rows < c.Retention.Texts {
		p.bad(&c.Retention.Rows, "must be at least --retain-texts, %s, got %s", c.Retention.Texts, c.Retention.Rows)
	}
	c.Rollout.validate(p)
	c.Reconcile.validate(p)
	if err := p.err(); err != nil {
		return setting.Wrong(fmt.Errorf("invalid settings: %w", err))
	}
	return nil
}
