package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"
	"github.com/tidwall/gjson"

	"berth"
)

// Marks of simulated answers, so that they are not mistaken for a model's.
const (
	StubHeader      = "X-Berth-Stand-In"
	StubFingerprint = "berth-stand-in"
)

const (
	// errorBodyBytes is how much of an error response is read.
	errorBodyBytes = 4 << 10
	// maxFinishReason is how many characters of a finish reason are kept.
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

	body []byte // of the request, see Prepare
}

// Delta is a piece of a streamed answer. Reasoning shows progress and is not part of the answer.
type Delta struct {
	Content   string
	Reasoning string
}

// Result is an answer; beside an error, the part that arrived.
type Result struct {
	// Text is the whole answer without its reasoning.
	Text string
	// Usage is the provider's count; when Estimated, it is derived from the lengths of the texts.
	Usage     berth.Usage
	Estimated bool
	// FinishReason is the provider's: berth.FinishStop, or berth.FinishLength when the answer reached MaxTokens.
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
	catalog *Catalog
	http    *http.Client
	log     *slog.Logger
	limits  Limits
}

// NewClient returns a client; a nil httpClient means NewHTTPClient. Redirects are never followed: a key is sent only to the
// address that the operator configured.
func NewClient(catalog *Catalog, httpClient *http.Client, logger *slog.Logger) *Client {
	if httpClient == nil {
		httpClient = NewHTTPClient()
	}
	own := *httpClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{catalog: catalog, http: &own, log: logger, limits: DefaultLimits()}
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
	model, ep, err := c.find(call.Model)
	if err != nil {
		return call, err
	}
	call = call.within(model)
	if call.body, err = json.Marshal(ep.params(call)); err != nil {
		return call, &CallError{Code: berth.CodeInternal, Model: call.Model, Message: "the request to the model cannot be encoded", Err: err}
	}
	return call, nil
}

func (c *Client) find(name string) (Model, endpoint, error) {
	model, ok := c.catalog.Model(name)
	if !ok {
		return model, endpoint{}, &CallError{
			Code: berth.CodeInternal, Model: name, Message: fmt.Sprintf("model %q is not in the catalog", name),
		}
	}
	ep, err := c.catalog.endpoint(name)
	return model, ep, err
}

// Stream makes the call and passes every delta to on, in order, from the calling goroutine. An error of on ends the call and
// is returned unchanged. When ctx ends, the provider's stream is closed immediately and the error wraps
// context.Cause(ctx). All other errors are *CallError.
func (c *Client) Stream(ctx context.Context, call Call, on func(Delta) error) (Result, error) {
	_, ep, err := c.find(call.Model)
	if err == nil && call.body == nil {
		call, err = c.Prepare(call)
	}
	if err != nil {
		return Result{}, err
	}
	ctx, end := observe(ctx, ep.servedBy, call.Model)
	s := &session{
		endpoint: ep, limits: c.limits, on: on, begun: time.Now(),
		result: Result{Provider: ep.servedBy},
	}
	err = s.run(ctx, c.http, call)
	s.finish(call.Messages)
	end(s.result, err)
	var failed *CallError
	if errors.As(err, &failed) {
		failed.Model = call.Model
		c.log.WarnContext(ctx, "model call failed", "model", call.Model, "provider", ep.servedBy,
			"code", failed.Code, "status", failed.Status, "retryable", failed.Retryable,
			"retryAfter", failed.RetryAfter, "cause", failed.Err)
	}
	return s.result, err
}

func (call Call) within(m Model) Call {
	if call.MaxTokens <= 0 {
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

// session is the state of one call.
type session struct {
	endpoint
	limits    Limits
	on        func(Delta) error
	begun     time.Time
	dog       *watchdog
	body      *guardedBody
	refused   *CallError
	text      strings.Builder
	reasoning int // bytes
	thought   float64
	result    Result
}

func (s *session) run(parent context.Context, client *http.Client, call Call) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	s.dog = startWatchdog(cancel, call.Timeouts)
	defer s.dog.stop()

	opts := []option.RequestOption{
		option.WithBaseURL(strings.TrimSuffix(s.baseURL, "/") + "/"), option.WithHTTPClient(client),
		option.WithMaxRetries(0), option.WithMiddleware(s.middleware), option.WithHeader("User-Agent", "berth"),
	}
	if s.key != "" {
		opts = append(opts, option.WithAPIKey(s.key))
	}
	// openai.NewClient would read keys and addresses from the environment.
	service := openai.NewChatCompletionService(opts...)
	stream := service.NewStreaming(ctx, openai.ChatCompletionNewParams{}, option.WithRequestBody("application/json", call.body))
	defer func() { _ = stream.Close() }() // the answer is complete or abandoned

	for stream.Next() {
		if err := s.take(stream.Current()); err != nil {
			return err
		}
	}
	switch cause := context.Cause(ctx); {
	case s.refused != nil:
		return s.refused
	case parent.Err() != nil:
		return fmt.Errorf("call model %s: %w", call.Model, context.Cause(parent))
	case s.result.FinishReason != "":
		return s.judge()
	case cause != nil:
		return s.transportError(cause)
	case stream.Err() != nil:
		var inStream *ssestream.StreamError
		if errors.As(stream.Err(), &inStream) {
			return s.streamError(inStream.Event.Data)
		}
		if s.body != nil && s.body.err == nil && !s.body.broken {
			return s.transportError(fmt.Errorf("%w: %w", errUnreadable, stream.Err()))
		}
		return s.transportError(stream.Err())
	case s.body != nil && s.body.done:
		return s.unusable("%s ended the answer without a finish reason")
	default:
		return s.transportError(fmt.Errorf("the stream ended without a finish reason: %w", io.ErrUnexpectedEOF))
	}
}

// middleware handles the HTTP response before the library, which would read an error body of any length and lose the
// status of one that is not JSON.
func (s *session) middleware(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err != nil {
		return nil, err
	}
	body := &guardedBody{
		ReadCloser: resp.Body, dog: s.dog, limits: s.limits, ended: func() bool { return s.result.FinishReason != "" },
	}
	resp.Body, s.body = body, body
	s.result.Stub = resp.Header.Get(StubHeader) == "true"
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	streams := err != nil || media == "text/event-stream"
	if resp.StatusCode == http.StatusOK && streams {
		return resp, nil
	}
	var words []byte
	if resp.StatusCode == http.StatusOK && media == "application/json" {
		if words, err = io.ReadAll(io.LimitReader(body, 2*int64(s.limits.OutputBytes))); err != nil {
			return nil, err
		}
		if event := inOnePiece(words); event != nil {
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(event))
			resp.Header.Set("Content-Type", "text/event-stream")
			return resp, nil
		}
	} else {
		s.dog.hurry(afterEnd)
		words, _ = io.ReadAll(io.LimitReader(body, errorBodyBytes)) // a part is enough for the log
	}
	_ = resp.Body.Close()
	s.refused = s.statusError(resp, words, time.Now())
	if resp.StatusCode == http.StatusOK {
		s.refused.Message = fmt.Sprintf("%s returned %s instead of an event stream", s.servedBy, media)
	}
	return nil, s.refused
}

// inOnePiece converts a response without streaming, from servers that do not support it, into one event; nil when it is not
// an answer.
func inOnePiece(answer []byte) []byte {
	var whole map[string]any
	if json.Unmarshal(answer, &whole) != nil {
		return nil
	}
	choices, _ := whole["choices"].([]any)
	for _, c := range choices {
		choice, ok := c.(map[string]any)
		if !ok {
			return nil
		}
		choice["delta"] = choice["message"]
		delete(choice, "message")
	}
	event, err := json.Marshal(whole)
	if err != nil || len(choices) == 0 {
		return nil
	}
	return slices.Concat([]byte("data: "), event, []byte("\n\n"))
}

func (ep endpoint) params(call Call) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:         ep.modelID,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if ep.maxTokensField == maxCompletionTokens {
		p.MaxCompletionTokens = openai.Int(int64(call.MaxTokens))
	} else {
		p.MaxTokens = openai.Int(int64(call.MaxTokens))
	}
	if call.JSON && ep.jsonMode {
		p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	}
	for _, m := range call.Messages {
		p.Messages = append(p.Messages, m.param())
	}
	return p
}

func (m Message) param() openai.ChatCompletionMessageParamUnion {
	switch {
	case m.Role == RoleSystem:
		return openai.SystemMessage(m.Text)
	case m.Role == RoleAssistant:
		return openai.AssistantMessage(m.Text)
	case m.ImageURL == "":
		return openai.UserMessage(m.Text)
	default:
		return openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: m.ImageURL}),
			openai.TextContentPart(m.Text),
		})
	}
}

// take processes one chunk of the stream.
func (s *session) take(chunk openai.ChatCompletionChunk) error {
	if strings.HasPrefix(chunk.SystemFingerprint, StubFingerprint) { //nolint:staticcheck // deprecated by one provider, sent by the others
		s.result.Stub = true
	}
	if u, ok := reported(chunk.Usage); ok {
		s.result.Usage = u
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		d := Delta{Content: choice.Delta.Content, Reasoning: reasoning(choice.Delta)}
		if d != (Delta{}) {
			if err := s.deliver(d); err != nil {
				return err
			}
		}
		if choice.FinishReason != "" {
			s.result.FinishReason = shorten(choice.FinishReason, maxFinishReason)
			s.dog.hurry(afterEnd)
		}
	}
	return nil
}

// maxReported bounds the numbers of tokens that a provider may report for one call: it is more than the context of any model, and sums
// of such numbers can be stored.
const maxReported = 1 << 30

// reported returns the usage that the provider reports; false when it reports none or numbers that cannot be true.
func reported(u openai.CompletionUsage) (berth.Usage, bool) {
	in, out := u.PromptTokens, u.CompletionTokens
	if min(in, out) < 0 || max(in, out) > maxReported || in+out == 0 {
		return berth.Usage{}, false
	}
	cached := u.PromptTokensDetails.CachedTokens
	if hits, ok := u.JSON.ExtraFields["prompt_cache_hit_tokens"]; ok && cached == 0 { // of DeepSeek
		cached = gjson.Parse(hits.Raw()).Int()
	}
	return berth.Usage{
		InputTokens: in, OutputTokens: out,
		CachedTokens: min(max(cached, 0), in), ReasoningTokens: min(max(u.CompletionTokensDetails.ReasoningTokens, 0), out),
	}, true
}

func (s *session) deliver(d Delta) error {
	if s.result.FirstToken == 0 {
		s.result.FirstToken = time.Since(s.begun)
	}
	s.text.WriteString(d.Content)
	s.reasoning += len(d.Reasoning)
	s.thought += tokens(d.Reasoning)
	if s.text.Len()+s.reasoning > s.limits.OutputBytes {
		return s.transportError(errTooLong)
	}
	if s.on == nil {
		return nil
	}
	return s.on(d)
}

// reasoning returns the field that DeepSeek and GLM call reasoning_content and others reasoning.
func reasoning(d openai.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		f, ok := d.JSON.ExtraFields[name]
		if !ok {
			continue
		}
		var s string
		if json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// judge returns an error when a complete answer cannot be used. It handles OpenAI's finish reasons, DeepSeek's
// insufficient_system_resource, and GLM's network_error and sensitive.
func (s *session) judge() error {
	switch reason := s.result.FinishReason; {
	case reason == "insufficient_system_resource" || reason == "network_error":
		return s.transportError(fmt.Errorf("finish reason %s", reason))
	case reason == "content_filter" || reason == "sensitive":
		return &CallError{
			Code: berth.CodeProviderRejected, Status: http.StatusOK, Provider: s.servedBy,
			Message: fmt.Sprintf("the content filter of %s stopped the answer", s.servedBy),
		}
	case strings.TrimSpace(s.text.String()) != "":
		return nil
	case reason == berth.FinishLength:
		return s.unusable("%s reached the token limit before it answered")
	default:
		return s.unusable("%s returned an empty answer")
	}
}

func (s *session) unusable(format string) *CallError {
	return &CallError{
		Code: berth.CodeInvalidOutput, Unusable: true, Status: http.StatusOK, Provider: s.servedBy,
		Message: fmt.Sprintf(format, s.servedBy), Err: fmt.Errorf("finish reason %q, %d bytes of text", s.result.FinishReason, s.text.Len()),
	}
}

func (s *session) finish(asked []Message) {
	r := &s.result
	r.Text = s.text.String()
	r.Took = time.Since(s.begun)
	if r.Usage == (berth.Usage{}) && r.FirstToken > 0 {
		r.Usage, r.Estimated = estimate(asked, r.Text, s.thought), true
	}
}
