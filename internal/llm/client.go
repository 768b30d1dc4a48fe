package llm

import (
	"context"
	"errors"
	"fmt"
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

// Call is one model call. Zero values of MaxTokens and Timeouts mean those of the catalog.
type Call struct {
	Model     string
	Messages  []Message
	MaxTokens int
	// JSON requests a JSON object from models that support this.
	JSON     bool
	Timeouts Timeouts
	// Labels are keys and values that identify the call in the log.
	Labels []any

	// What Prepare has determined: a change of the routing while the call waits for a slot does not concern it.
	catalog *Catalog
	body    []byte // of the request
	without fields // that the body does not have
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
	// Provider is the provider that answered, LocalProvider for the local simulator. Stub: the answer is marked as simulated.
	Provider string
	Stub     bool
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

// Prepare returns the call with its request encoded, which takes as long as the network does: a caller that waits for a slot of the
// model prepares the call before, so that the slot is not idle meanwhile.
func (c *Client) Prepare(call Call) (Call, error) {
	call.catalog = c.catalog(call.Model)
	model, ep, err := call.catalog.find(call.Model)
	if err != nil {
		return call, err
	}
	call = call.within(model)
	call.without = c.learnedOf(ep).refused() | ep.unwanted
	call.body, err = ep.encode(call)
	return call, err
}

func (c *Catalog) find(name string) (Model, endpoint, error) {
	model, ok := c.Model(name)
	if !ok {
		return model, endpoint{}, &CallError{
			Code: berth.CodeInternal, Model: name, Message: fmt.Sprintf("model %q is not in the catalog", name),
		}
	}
	ep, err := c.endpoint(name)
	return model, ep, err
}

// Stream makes the call and passes every delta to on, in order, from the calling goroutine. An error of on ends the call and
// is returned unchanged. When ctx ends, the provider's stream is closed immediately and the error wraps
// context.Cause(ctx). All other errors are *CallError.
func (c *Client) Stream(ctx context.Context, call Call, on func(Delta) error) (Result, error) {
	if call.body == nil {
		prepared, err := c.Prepare(call)
		if err != nil {
			return Result{}, err
		}
		call = prepared
	}
	_, ep, err := call.catalog.find(call.Model) // again: its key may have changed since
	if err != nil {
		return Result{}, err
	}
	ctx, end := observe(ctx, ep.servedBy, call.Model)
	s := &session{
		endpoint: ep, limits: c.limits, rest: c.rest, on: on, begun: time.Now(), http: c.http, learned: c.learnedOf(ep),
		result: Result{Provider: ep.servedBy},
	}
	err = s.run(ctx, call)
	s.finish(call.Messages)
	end(s.result, err)
	var failed *CallError
	if errors.As(err, &failed) {
		failed.Model = call.Model
		c.log.WarnContext(ctx, "model call failed", append(slices.Clip(call.Labels), "model", call.Model, "provider", ep.servedBy,
			"code", failed.Code, "kind", failed.Cause, "status", failed.Status, "retryable", failed.Retryable,
			"retryAfter", failed.RetryAfter, "cause", failed.Err)...)
	}
	return s.result, err
}

func (call Call) within(m Model) Call {
	if call.MaxTokens <= 0 || call.MaxTokens > m.MaxOutputTokens {
		call.MaxTokens = m.MaxOutputTokens
	}
	if call.Timeouts.FirstByte <= 0 {
		call.Timeouts.FirstByte = m.Timeouts.FirstByte
	}
	if call.Timeouts.Idle <= 0 {
		call.Timeouts.Idle = m.Timeouts.Idle
	}
	return call
}
