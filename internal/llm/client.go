package llm

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"berth"
)

// Marks of simulated answers, so that they are not mistaken for a model's.
const (
	StubHeader      = "X-Berth-Simulated"
	StubFingerprint = "berth-simulator"
)

const (
	// errorBodyBytes is how much of an error response is read.
	errorBodyBytes = 4 << 10
	// maxFinishReason is how many bytes of a finish reason are kept.
	maxFinishReason = 64
	// afterEnd bounds the wait for what may follow a known outcome: usage, the body of an error.
	afterEnd = 2 * time.Second
)

// Call is one model call, of messages or of a raw request. Zero values of MaxTokens and Timeouts mean those of the catalog.
type Call struct {
	Model string
	// Upstream serves the call; empty for the first that this process can call.
	Upstream string
	Messages []Message
	Raw      *Raw
	// MaxTokens bounds the answer; if a raw request wants several, each.
	MaxTokens int
	// JSON requests a JSON object from models that support this.
	JSON     bool
	Timeouts Timeouts
	// Labels are keys and values that identify the call in the log.
	Labels []any

	// What Prepare has determined: a change of the routing while the call waits for a slot does not concern it.
	catalog  *Catalog
	messages []byte // encoded
	body     []byte // of the request
	without  fields // that the body does not have
	assumed  bool   // MaxTokens is that of a routing file that does not bound answers, and the request has no lower one
}

// Delta is a piece of a streamed answer. Reasoning shows progress and is not part of the answer.
type Delta struct {
	Content   string
	Reasoning string
	// Withdrawn: the content before this delta was not the answer but thoughts, see answerFilter.
	Withdrawn bool
}

// Result is an answer; beside an error, the part that arrived.
type Result struct {
	// Text is the whole answer without its reasoning and without markup of the model.
	Text string
	// Usage is the provider's count; when Estimated, it is derived from the lengths of the texts.
	Usage     berth.Usage
	Estimated bool
	// PromptTruncated: by the provider's count it read only a part of the prompt.
	PromptTruncated bool
	// FinishReason is berth.FinishStop, berth.FinishLength when the answer reached MaxTokens, or berth.FinishUnknown. Beside an error it
	// is the provider's word.
	FinishReason string
	// Provider is the provider that answered, LocalProvider for the local simulator, and Upstream the upstream. Stub: the answer is marked as
	// simulated.
	Provider, Upstream string
	Stub               bool
	// FirstToken is the time to the first delta, 0 without one; Took is the duration of the call.
	FirstToken time.Duration
	Took       time.Duration
}

// Client calls models. It neither waits for capacity nor retries. It is safe for concurrent use.
type Client struct {
	catalog func(model string) *Catalog
	http    *http.Client
	log     *slog.Logger
	limits  Limits
	rest    time.Duration // restWait
	learned sync.Map      // *learned by server
}

// server is what learned is about: one model of one server.
type server struct{ baseURL, modelID string }

// Fixed returns the same catalog for calls of all models.
func Fixed(c *Catalog) func(model string) *Catalog { return func(string) *Catalog { return c } }

// NewClient returns a client. catalog returns the present catalog for calls of a model, or of any model if its name is empty. A nil httpClient
// means NewHTTPClient. Redirects are never followed: a key is sent only to the address that the operator configured.
func NewClient(catalog func(model string) *Catalog, httpClient *http.Client, logger *slog.Logger) *Client {
	if httpClient == nil {
		httpClient = NewHTTPClient()
	}
	own := *httpClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{catalog: catalog, http: &own, log: logger, limits: DefaultLimits(), rest: restWait}
}

func (c *Client) learnedOf(ep endpoint) *learned {
	v, _ := c.learned.LoadOrStore(server{ep.baseURL, ep.modelID}, &learned{})
	return v.(*learned) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// NewHTTPClient returns an HTTP client for long answers from few hosts: no overall timeout, many idle connections.
func NewHTTPClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: t}
}

// Prepare returns the call with its messages encoded, which takes as long as the network does: a caller that waits for a slot of the
// model prepares the call before, so that the slot is not idle meanwhile. The rest of the request depends on the upstream. It fails if this
// process can call no upstream of the model.
func (c *Client) Prepare(call Call) (Call, error) {
	call.catalog = c.catalog(call.Model)
	if err := call.catalog.Served(call.Model); err != nil {
		return call, err
	}
	if call.Raw != nil {
		return call, nil
	}
	var err error
	call.messages, err = encodeMessages(call)
	return call, err
}

// ServedBy returns the provider that serves a prepared call, or LocalProvider. Its error is a *CallError: this process cannot call the upstream.
func (c *Client) ServedBy(call Call) (string, error) {
	_, ep, err := c.find(call)
	return ep.servedBy, err
}

// find returns the upstream of a prepared call, by the present catalog if that of the call does not have it.
func (c *Client) find(call Call) (Upstream, endpoint, error) {
	from := call.catalog
	if m, _ := from.Model(call.Model); call.Upstream != "" {
		if _, ok := m.Upstream(call.Upstream); !ok {
			from = c.catalog(call.Model)
		}
	}
	return from.endpoint(call.Model, call.Upstream)
}

// Stream makes the call and passes every delta to on, in order, from the calling goroutine. An error of on ends the call and
// is returned unchanged. When ctx ends, the provider's stream is closed immediately and the error wraps
// context.Cause(ctx). All other errors are *CallError.
func (c *Client) Stream(ctx context.Context, call Call, on func(Delta) error) (Result, error) {
	return c.make(ctx, call, &session{limits: c.limits, on: on})
}

// Forward makes a raw call and passes the answer to on, from the calling goroutine, as JSON objects on one line: each chunk of a stream, or once
// the whole answer of a call that does not stream. An object may be read only until on returns. Its fields are those of the provider, see
// rawAnswer for the exceptions. The end mark of a stream is not passed on: the answer is complete once Forward has returned without an error.
// A request of the responses API has the events of an upstream that speaks it, see takeResponse, and the chunks of a chat of any other one.
// Errors are as those of Stream. As long as Result.FirstToken is 0, nothing was passed on. Result.Text is empty.
func (c *Client) Forward(ctx context.Context, call Call, on func(object []byte) error) (Result, error) {
	return c.make(ctx, call, &session{limits: c.limits.forwarded(call.Raw), onObject: on})
}

// make makes the call of a session.
func (c *Client) make(ctx context.Context, call Call, s *session) (Result, error) {
	call, ep, err := c.at(call)
	if err != nil {
		return Result{}, err
	}
	ctx, end := observe(ctx, ep, call)
	s.endpoint, s.rest, s.begun, s.http, s.learned = ep, c.rest, time.Now(), c.http, c.learnedOf(ep)
	s.result = Result{Provider: ep.servedBy, Upstream: ep.upstream}
	err = s.run(ctx, call)
	s.finish(call)
	end(s.result, err)
	var failed *CallError
	if errors.As(err, &failed) {
		failed.Model, failed.Upstream = call.Model, ep.upstream
		if call.assumed {
			failed.ofAssumedBound(call.MaxTokens)
		}
		c.log.WarnContext(ctx, "model call failed", append(slices.Clip(call.Labels), "model", call.Model, "upstream", ep.upstream, "provider", ep.servedBy,
			"code", failed.Code, "kind", failed.Cause, "status", failed.Status, "retryable", failed.Retryable,
			"retryAfter", failed.RetryAfter, "cause", failed.Err)...)
	}
	return s.result, err
}

// at returns the call with the request that its upstream gets.
func (c *Client) at(call Call) (Call, endpoint, error) {
	if call.catalog == nil {
		prepared, err := c.Prepare(call)
		if err != nil {
			return call, endpoint{}, err
		}
		call = prepared
	}
	upstream, ep, err := c.find(call)
	if err != nil {
		return call, ep, err
	}
	if raw := call.Raw; raw != nil && raw.Responses && !ep.responses {
		if call.Raw = raw.Chat; raw.Chat == nil {
			return call, ep, ep.cannotCarry("a request that only the responses API has")
		}
	}
	call = call.within(upstream)
	call.without = c.learnedOf(ep).refused() | ep.unwanted
	call.body, err = ep.encode(call)
	return call, ep, err
}

func (call Call) within(u Upstream) Call {
	if (call.MaxTokens <= 0 || call.MaxTokens > u.MaxOutputTokens) && (call.Raw == nil || !u.Unbounded) {
		call.MaxTokens = u.MaxOutputTokens
		call.assumed = !u.config.bounded && (call.Raw == nil || call.Raw.bound(call.MaxTokens) == call.MaxTokens)
	}
	if call.Timeouts.FirstByte <= 0 {
		call.Timeouts.FirstByte = u.Timeouts.FirstByte
	}
	if call.Timeouts.Idle <= 0 {
		call.Timeouts.Idle = u.Timeouts.Idle
	}
	if call.Timeouts.Whole <= 0 {
		call.Timeouts.Whole = u.Timeouts.Whole
	}
	if call.Raw != nil && !call.Raw.Stream {
		call.Timeouts.FirstByte = call.Timeouts.Whole
	}
	return call
}

func (call Call) operation() Operation {
	if call.Raw != nil {
		return call.Raw.Operation
	}
	return OperationChat
}
