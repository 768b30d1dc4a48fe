// Package config is every setting of berth: read once from flags and the environment by kong, validated, and
// handed down. Nothing below main reads the environment.
package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"berth"
)

// Config is one process's settings. The names of the environment variables are part of the interface; those
// without the BERTH_ prefix are the documents' own (T28).
type Config struct {
	Temporal Temporal `embed:"" group:"Temporal"`
	Redis    Redis    `embed:"" group:"Redis"`
	Database string   `help:"Database: sqlite:FILE or postgres://…" name:"database" env:"BERTH_DATABASE" default:"sqlite:.berth/berth.db"`
	API      API      `embed:"" group:"API"`
	Worker   Worker   `embed:"" group:"Worker"`
	Turn     Turn     `embed:"" group:"Turns (of API processes)"`

	Conference Conference `embed:"" group:"Conferences (of API processes, licences of workers)"`

	Stream Stream `embed:"" group:"Streams"`
	Model  Model  `embed:"" group:"Models"`

	Production bool   `help:"Production: no debug events, a secret must be set." name:"production" env:"BERTH_PRODUCTION"`
	LogLevel   string `help:"Least log level: ${enum}." name:"log-level" env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
	LogFormat  string `help:"Log format: ${enum}." name:"log-format" env:"BERTH_LOG_FORMAT" enum:"text,json" default:"text"`
}

// Temporal is where workflows run.
type Temporal struct {
	Addr      string `help:"Temporal frontend, host:port." name:"temporal-addr" env:"BERTH_TEMPORAL_ADDR" default:"127.0.0.1:7233"`
	Namespace string `help:"Temporal namespace." name:"temporal-namespace" env:"BERTH_TEMPORAL_NAMESPACE" default:"default"`
	UIURL     string `help:"Base URL of the Temporal UI, for links; empty for none." name:"temporal-ui-url" env:"BERTH_TEMPORAL_UI_URL" default:"http://127.0.0.1:8233"`
}

// Redis is where leases and streams live.
type Redis struct {
	Addr     string `help:"Redis, host:port or redis:// URL." name:"redis-addr" env:"BERTH_REDIS_ADDR" default:"127.0.0.1:6379"`
	Password string `help:"Redis password." name:"redis-password" env:"BERTH_REDIS_PASSWORD" secret:"true"`
	Cell     string `help:"Hash tag that puts all keys of this cell in one Redis Cluster slot; empty for none." name:"cell" env:"BERTH_CELL"`
}

// API is the HTTP side.
type API struct {
	Addr           string        `help:"Address the HTTP API listens on." name:"http-addr" env:"BERTH_HTTP_ADDR" default:"127.0.0.1:8080"`
	AuthSecret     string        `help:"HS256 secret of bearer tokens, 32 bytes or more." name:"auth-secret" env:"BERTH_AUTH_SECRET" secret:"true"`
	MaxUploadBytes int64         `help:"Largest upload in bytes." name:"max-upload-bytes" env:"BERTH_MAX_UPLOAD_BYTES" default:"10485760"`
	Heartbeat      time.Duration `help:"Pause between heartbeats of an idle event stream." name:"sse-heartbeat" env:"BERTH_SSE_HEARTBEAT" default:"15s"`
	TaskDeadline   time.Duration `help:"Time from acceptance after which a task ends with an error." name:"task-deadline" env:"BERTH_TASK_DEADLINE" default:"15m"`
}

// Worker is what polls task queues.
type Worker struct {
	Queues        []string      `help:"Task queues to poll: tasks, turns, executions, conferences, links, a queue (q_paid_stream) or one model's (q_paid_stream.deepseek-chat). Default: all." name:"queues" env:"BERTH_QUEUES"`
	Drain         time.Duration `help:"Time a stopping worker lets its model calls finish before it hands them over." name:"drain" env:"BERTH_DRAIN" default:"10s"`
	TimeoutMs     int64         `help:"Longest a step may take from its start, in ms." name:"worker-timeout-ms" env:"WORKER_TIMEOUT_MS" default:"300000"`
	LockTimeoutMs int64         `help:"Longest one model call may hold its slot, in ms." name:"concurrency-lock-timeout-ms" env:"CONCURRENCY_LOCK_TIMEOUT_MS" default:"300000"`
	QueueMaxSize  int           `help:"Bound of waiting tasks per queue." name:"queue-max-size" env:"QUEUE_MAX_SIZE" default:"1000"`
}

// Turn is live translation (A1).
type Turn struct {
	TimeoutMs       int64         `help:"A turn is finalised this many ms after its last segment." name:"turn-timeout-ms" env:"TURN_TIMEOUT_MS" default:"10000"`
	JobTimeout      time.Duration `help:"Longest one node may take for one job." name:"job-timeout" env:"BERTH_JOB_TIMEOUT" default:"30s"`
	SessionAffinity bool          `help:"Spread sessions over the eligible pools by a stable hash of their routing key; otherwise the first takes all." name:"session-affinity" env:"BERTH_SESSION_AFFINITY" default:"true" negatable:""`
}

// Timeout is how long after its last segment a turn is finalised.
func (t Turn) Timeout() time.Duration { return time.Duration(t.TimeoutMs) * time.Millisecond }

// Stream is how tokens reach the person who waits (T11, T13).
type Stream struct {
	FlushIntervalMs int64 `help:"Tokens are merged for at most this many ms." name:"stream-flush-interval-ms" env:"STREAM_FLUSH_INTERVAL_MS" default:"400"`
	FlushSize       int   `help:"… or until this many are waiting." name:"stream-flush-size" env:"STREAM_FLUSH_SIZE" default:"8"`
	TTLSeconds      int64 `help:"Seconds a finished stream is kept, 120-300 is usual." name:"stream-ttl-seconds" env:"STREAM_TTL_SECONDS" default:"300"`
	TrimMaxLen      int64 `help:"Events a finished stream is trimmed to, about." name:"stream-trim-maxlen" env:"STREAM_TRIM_MAXLEN" default:"5000"`
}

// Model is where models are and how they are routed (T2, T27).
type Model struct {
	RoutingFile  string            `help:"Routing table and providers (YAML); empty for the built-in one." name:"routing-file" env:"BERTH_ROUTING_FILE" type:"path"`
	LocalURL     string            `help:"Base URL of the local stand-in model server for providers without a key; empty for none." name:"local-model-url" env:"BERTH_LOCAL_MODEL_URL"`
	DeepSeekKey  string            `help:"DeepSeek API key." name:"deepseek-api-key" env:"DEEPSEEK_API_KEY" secret:"true"`
	ZhipuKey     string            `help:"Zhipu (GLM) API key." name:"zhipuai-api-key" env:"ZHIPUAI_API_KEY" secret:"true"`
	ProviderKeys map[string]string `help:"Keys of providers you added to the routing file: OPENAI_API_KEY=…;…" name:"provider-keys" env:"BERTH_PROVIDER_KEYS" mapsep:";" secret:"true"`
	Debug        bool              `help:"Publish debug events outside production." name:"llm-debug" env:"LLM_DEBUG"`
}

// StepTimeout is the longest a step may take from its start (T20).
func (w Worker) StepTimeout() time.Duration { return time.Duration(w.TimeoutMs) * time.Millisecond }

// LockTimeout is the longest one model call may hold its slot (L7).
func (w Worker) LockTimeout() time.Duration { return time.Duration(w.LockTimeoutMs) * time.Millisecond }

// CallTimeout is the longest one model call may take: the shorter of the step's timeout and the lock's.
func (w Worker) CallTimeout() time.Duration { return min(w.StepTimeout(), w.LockTimeout()) }

// FlushInterval is the merge window.
func (s Stream) FlushInterval() time.Duration {
	return time.Duration(s.FlushIntervalMs) * time.Millisecond
}

// TTL is how long a finished stream is kept.
func (s Stream) TTL() time.Duration { return time.Duration(s.TTLSeconds) * time.Second }

// workflowQueues are the task queues of workflows; those of model calls come from the routing table.
var workflowQueues = []string{"tasks", "turns", "executions", "conferences", "links"}

func knownQueues() string {
	known := slices.Clone(workflowQueues)
	for _, q := range berth.Queues() {
		known = append(known, string(q))
	}
	return strings.Join(known, ", ")
}

// minSecretBytes is what HS256 needs to be as strong as its hash.
const minSecretBytes = 32

// Validate says what is wrong with a setting, naming its flag and its variable.
func (c *Config) Validate() error {
	var problems []string
	bad := func(flag, env, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("--%s (%s): %s", flag, env, fmt.Sprintf(format, args...)))
	}
	addr := func(flag, env, v string) {
		if _, _, err := net.SplitHostPort(v); err != nil {
			bad(flag, env, "%q is not host:port", v)
		}
	}
	positive := func(flag, env string, v int64) {
		if v <= 0 {
			bad(flag, env, "must be above 0, is %d", v)
		}
	}
	lasting := func(flag, env string, d time.Duration) {
		if d <= 0 {
			bad(flag, env, "must be above 0, is %s", d)
		}
	}
	addr("temporal-addr", "BERTH_TEMPORAL_ADDR", c.Temporal.Addr)
	addr("http-addr", "BERTH_HTTP_ADDR", c.API.Addr)
	if !strings.Contains(c.Redis.Addr, "://") {
		addr("redis-addr", "BERTH_REDIS_ADDR", c.Redis.Addr)
	}
	if strings.ContainsAny(c.Redis.Cell, "{} \t\n") {
		bad("cell", "BERTH_CELL", "must not hold braces or spaces")
	}
	if !strings.HasPrefix(c.Database, "sqlite:") && !strings.HasPrefix(c.Database, "postgres://") && !strings.HasPrefix(c.Database, "postgresql://") {
		bad("database", "BERTH_DATABASE", "must begin with sqlite: or postgres://")
	}
	if u := c.Model.LocalURL; u != "" {
		if p, err := url.Parse(u); err != nil || p.Host == "" {
			bad("local-model-url", "BERTH_LOCAL_MODEL_URL", "%q is no URL", u)
		}
	}
	if u := c.Temporal.UIURL; u != "" {
		if p, err := url.Parse(u); err != nil || p.Host == "" {
			bad("temporal-ui-url", "BERTH_TEMPORAL_UI_URL", "%q is no URL", u)
		}
	}
	if s := c.API.AuthSecret; s != "" && len(s) < minSecretBytes {
		bad("auth-secret", "BERTH_AUTH_SECRET", "needs %d bytes, has %d", minSecretBytes, len(s))
	}
	for _, q := range c.Worker.Queues {
		queue, _, _ := strings.Cut(q, ".")
		if !slices.Contains(workflowQueues, q) && !slices.Contains(berth.Queues(), berth.Queue(queue)) {
			bad("queues", "BERTH_QUEUES", "%q is no queue; known: %s", q, knownQueues())
		}
	}
	positive("max-upload-bytes", "BERTH_MAX_UPLOAD_BYTES", c.API.MaxUploadBytes)
	positive("worker-timeout-ms", "WORKER_TIMEOUT_MS", c.Worker.TimeoutMs)
	positive("concurrency-lock-timeout-ms", "CONCURRENCY_LOCK_TIMEOUT_MS", c.Worker.LockTimeoutMs)
	positive("queue-max-size", "QUEUE_MAX_SIZE", int64(c.Worker.QueueMaxSize))
	positive("stream-flush-interval-ms", "STREAM_FLUSH_INTERVAL_MS", c.Stream.FlushIntervalMs)
	positive("stream-flush-size", "STREAM_FLUSH_SIZE", int64(c.Stream.FlushSize))
	positive("stream-ttl-seconds", "STREAM_TTL_SECONDS", c.Stream.TTLSeconds)
	positive("stream-trim-maxlen", "STREAM_TRIM_MAXLEN", c.Stream.TrimMaxLen)
	positive("turn-timeout-ms", "TURN_TIMEOUT_MS", c.Turn.TimeoutMs)
	c.Conference.validate(bad, lasting)
	lasting("job-timeout", "BERTH_JOB_TIMEOUT", c.Turn.JobTimeout)
	lasting("sse-heartbeat", "BERTH_SSE_HEARTBEAT", c.API.Heartbeat)
	lasting("task-deadline", "BERTH_TASK_DEADLINE", c.API.TaskDeadline)
	lasting("drain", "BERTH_DRAIN", c.Worker.Drain)
	if len(problems) > 0 {
		return fmt.Errorf("settings: %s", strings.Join(problems, "; "))
	}
	return nil
}

// NeedSecret is an error when no token could be verified or made.
func (c *Config) NeedSecret() error {
	if n := len(c.API.AuthSecret); n > 0 && n < minSecretBytes {
		return fmt.Errorf("--auth-secret (BERTH_AUTH_SECRET): needs %d bytes, has %d", minSecretBytes, n)
	}
	if c.API.AuthSecret == "" {
		return fmt.Errorf("--auth-secret (BERTH_AUTH_SECRET) is not set: choose %d random bytes, the same for every process", minSecretBytes)
	}
	return nil
}

// ReadSecretFile sets the secret from a file when none is set, as the development server keeps it.
func (c *Config) ReadSecretFile(path string) error {
	if c.API.AuthSecret != "" {
		return nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own path
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read secret: %w", err)
	}
	c.API.AuthSecret = strings.TrimSpace(string(b))
	return nil
}
