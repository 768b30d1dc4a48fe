package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"berth"
	"berth/internal/llm"
	"berth/internal/secret"
	"berth/internal/webhook"
)

// ActivityHeader is the request header that names the activity to an endpoint of the http driver.
const ActivityHeader = "Berth-Activity"

// HTTP is a driver that posts the activity's input as JSON to an endpoint, which returns the activity's output. Status 400,
// 413, 415 or 422 is an invalid input; 429, and 503 with Retry-After, mean that the endpoint is busy; any other status except 200 and 204 is a
// failure. The job's context bounds the call.
type HTTP struct {
	url    string
	key    secret.Secret
	signer *webhook.Signer // of calls; nil to sign none
	http   *http.Client
}

// HTTPFlags configure the http driver.
type HTTPFlags struct {
	HTTPURL        secret.Address `help:"http: endpoint that jobs are posted to; with --http-openai the server's base URL." name:"http-url"`
	HTTPKey        secret.Text    `help:"http: bearer token or API key for the endpoint." name:"http-key" env:"BERTH_NODE_HTTP_KEY"`
	HTTPKeyFile    string         `help:"http: file with that token or key, read again for every call." name:"http-key-file" env:"BERTH_NODE_HTTP_KEY_FILE"`
	HTTPSecrets    []secret.Text  `help:"http: secrets that sign each call as Standard Webhooks specifies, separated by commas: whsec_ and 24 to 64 bytes in base64." name:"http-secret" env:"BERTH_NODE_HTTP_SECRET"`
	HTTPSecretFile string         `help:"http: file with such secrets, one per line, which is read for each call." name:"http-secret-file" env:"BERTH_NODE_HTTP_SECRET_FILE" type:"path"`
	HTTPOpenAI     bool           `help:"http: the endpoint speaks the OpenAI chat completions protocol." name:"http-openai"`
	Model          string         `help:"http: model that translates; required with --http-openai."`
	MaxTokensField string         `help:"http: request field that limits the answer's tokens: ${enum}." enum:"max_tokens,max_completion_tokens" default:"max_tokens"`
}

func newHTTPDriver(c driverContext) (Driver, error) {
	signer, err := c.newSigner()
	if err != nil {
		return nil, err
	}
	if c.HTTPOpenAI {
		if signer != nil {
			return nil, errors.New("--http-secret, --http-secret-file: servers of the chat completions protocol check no signature; remove it, or --http-openai")
		}
		return newOpenAIDriver(c)
	}
	d, err := newHTTP(string(c.HTTPURL), c.httpKey(), c.spec.MaxConcurrentJobs)
	if secret.Named(err) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("--http-url: %w", err)
	}
	d.signer = signer
	return d, nil
}

// NewHTTP returns the driver. key, if not empty, is sent as bearer token. Redirects are not followed, so that the key
// reaches only the configured address.
func NewHTTP(endpoint, key string, slots int) (*HTTP, error) {
	return newHTTP(endpoint, secret.New("BERTH_NODE_HTTP_KEY", key, ""), slots)
}

// httpKey is the setting of the key.
func (f HTTPFlags) httpKey() secret.Secret {
	return secret.New("BERTH_NODE_HTTP_KEY", string(f.HTTPKey), f.HTTPKeyFile)
}

func newHTTP(endpoint string, key secret.Secret, slots int) (*HTTP, error) {
	if err := checkURL(endpoint); err != nil {
		return nil, err
	}
	if err := key.Validate(); err != nil {
		return nil, err
	}
	return &HTTP{url: endpoint, key: key, http: httpClient(slots)}, nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("invalid http or https URL %s", secret.Address(s))
	}
	return nil
}

// httpClient returns a client that keeps a connection per slot. It has no timeout: the job's context bounds a call.
func httpClient(slots int) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.MaxIdleConnsPerHost = max(slots, 1)
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (h *HTTP) Close() { h.http.CloseIdleConnections() }

// Translate posts a berth.JobInput and reads a berth.JobOutput.
func (h *HTTP) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	var out struct {
		Text *string `json:"text"`
	}
	id := messageID(in.JobID, in.Dispatch)
	if err := h.post(ctx, berth.ActivityTranslate, id, in, &out, berth.MaxTranslationBytes); err != nil {
		return berth.JobOutput{}, err
	}
	if out.Text == nil {
		return berth.JobOutput{}, berth.Errorf(berth.CodeNodeFailed, "the endpoint's response has no text; an empty translation is {\"text\": \"\"}")
	}
	return berth.JobOutput{Text: *out.Text}, nil
}

// Execute posts a berth.ExecuteInput and reads a berth.ExecuteOutput.
func (h *HTTP) Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	var out berth.ExecuteOutput
	id := messageID(in.ExecutionID, in.Attempt)
	err := h.post(ctx, berth.ActivityExecute, id, in, &out, berth.MaxExecutionBytes)
	return out, err
}

const (
	escapeFactor = 6       // maximum growth of a text as JSON
	envelope     = 4 << 10 // bytes of a response besides the text
)

func (h *HTTP) post(ctx context.Context, activity, id string, in, out any, maxText int) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", activity, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the endpoint: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set(ActivityHeader, activity)
	if h.key.IsSet() {
		key, err := h.key.Read()
		if err != nil {
			return berth.Errorf(berth.CodeNodeFailed, "the key of the endpoint cannot be read").With(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if err := h.sign(req, id, body); err != nil {
		return err
	}
	res, err := h.http.Do(req)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer func() { _ = res.Body.Close() }() // the response was read, or is discarded
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent {
		return refusal(res)
	}
	limit := int64(escapeFactor*maxText + envelope)
	body, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return unreachable(ctx, err)
	case int64(len(body)) > limit:
		return berth.Errorf(berth.CodeTooLarge, "the endpoint's response exceeds the limit of %d bytes", limit)
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return berth.Errorf(berth.CodeNodeFailed, "the endpoint's response is not valid JSON of the expected form").With(err)
	}
	return nil
}

// unreachable converts the error of a call without a complete response.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("call the endpoint: %w", ctx.Err())
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address
	}
	return berth.Errorf(berth.CodeNodeFailed, "the endpoint is unreachable or closed the connection").With(err)
}

func refusal(res *http.Response) error {
	detail, _ := io.ReadAll(io.LimitReader(res.Body, messageBytes)) // a partial body is enough for a message
	code := berth.CodeNodeFailed
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		code = berth.CodeInvalid
	}
	e := berth.Errorf(code, "the endpoint returned status %d", res.StatusCode)
	if s := printable(string(detail)); s != "" {
		e.Message += ": " + s
	}
	if after := llm.RetryAfter(res.Header, time.Now()); isBusy(res.StatusCode, after) {
		return &busy{e.Message, after}
	}
	return e
}
