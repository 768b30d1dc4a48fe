// Package client calls berth's HTTP API: tasks and their tokens, sessions and turns, executions, conferences and their
// participants, and what operators, nodes and media units do.
//
//	c := client.New("http://127.0.0.1:8080", token)
//	accepted, err := c.Submit(ctx, client.Submission{ServiceID: "career", Template: berth.TemplateJobMatch, Variables: …}, "")
//
// A method makes one call. It returns a *Problem when the API rejects the call; Problem.Code is stable, and Problem.RetryAfter
// is the time in seconds after which a retry can succeed. A call that failed without a Problem may have been executed: retry it
// with the same id or key, which is idempotent. Methods whose names begin with Follow read event streams: they reconnect, resume
// after the last event, and end with the stream, with the context, or with an error that a retry cannot fix.
//
// A Client is safe for concurrent use. Its types have the fields of the API's description (/openapi.yaml). Fields are added,
// so use keyed literals. Signatures refer to this package, package berth and the standard library only.
//
// The module is named berth, which no module proxy serves. A program of another module requires berth v0.0.0 and replaces it
// with a copy of this repository: replace berth => ../berth.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth"
)

// Client calls one server with a bearer token.
type Client struct {
	base  string
	token func() (string, error)
	http  *http.Client
	owner string // of tasks that calls name; empty to leave that to the API
}

// New returns a client for the server at base, for instance http://127.0.0.1:8080, or https://example.com/berth where a proxy serves it under
// a path prefix.
func New(base, token string) *Client {
	return NewWithToken(base, func() (string, error) { return token, nil })
}

// NewWithToken is New for a token that changes: each call asks for it. A call fails with the error of token.
func NewWithToken(base string, token func() (string, error)) *Client {
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{CheckRedirect: checkRedirect}}
}

// OfUser returns a client whose calls for one task or execution are for that of this user. An operator needs it if several users have one
// with the same id. An empty id leaves the choice to the API.
func (c *Client) OfUser(userID string) *Client {
	of := *c
	of.owner = userID
	return &of
}

// Problem is the error for an API response with problem details (RFC 9457).
type Problem struct {
	Status     int        `json:"status"`
	Title      string     `json:"title"`
	Detail     string     `json:"detail"`
	Code       berth.Code `json:"code"`
	Field      string     `json:"field"`
	RetryAfter int        `json:"retryAfter"`
	RequestID  string     `json:"requestId"`
	// RateLimited, QueueFull and Position belong to refused submissions.
	RateLimited bool `json:"rateLimited"`
	QueueFull   bool `json:"queueFull"`
	Position    int  `json:"position"`
}

func (p *Problem) Error() string {
	s := cmp.Or(p.Detail, p.Title)
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Code == "" { // not a response of berth
		return s
	}
	if p.RetryAfter > 0 {
		s = retryText(s, p.RetryAfter)
	}
	return fmt.Sprintf("%s (%s, HTTP %d)", s, p.Code, p.Status)
}

// retryText adds to a text when to retry, in place of an advice without a time at its end.
func retryText(text string, seconds int) string {
	for _, general := range []string{"; retry later", "; retry in a few seconds", "; retry"} {
		text = strings.TrimSuffix(text, general)
	}
	if strings.Contains(text, "; retry") { // with the same id, or when something has happened
		return fmt.Sprintf("%s, in %d s", text, seconds)
	}
	return fmt.Sprintf("%s; retry in %d s", text, seconds)
}

// Submission is the body of POST /v1/tasks. A variable is a string or {"assetId": …}.
type Submission struct {
	TaskID    string         `json:"taskId,omitempty"`
	ServiceID string         `json:"serviceId"`
	Template  berth.Template `json:"template"`
	Locale    berth.Locale   `json:"locale,omitempty"`
	Variables map[string]any `json:"variables"`
}

// Acceptance is the response to a submission.
type Acceptance struct {
	TaskID      string           `json:"taskId"`
	Status      berth.TaskStatus `json:"status"`
	Queue       berth.Queue      `json:"queue,omitempty"`
	Model       string           `json:"model,omitempty"`
	Tier        berth.Tier       `json:"tier,omitempty"`
	Downgraded  bool             `json:"downgraded,omitempty" doc:"The credits did not suffice: the task uses the free queue and model"`
	PollAfterMs int              `json:"pollAfterMs,omitempty" doc:"Recommended time until the next poll, in milliseconds"`
	EventsURL   string           `json:"eventsUrl"`
	Replay      bool             `json:"replay,omitempty" doc:"The task had already been accepted; nothing was started"`
	IdemKey     string           `json:"idemKey,omitempty" doc:"What identified the replay: taskId, the Idempotency-Key or a hash of the request"`
	Waiting     `doc:"Of the current step, unless its call has begun"`
}

// Waiting estimates how long a call waits for its model.
type Waiting struct {
	Position   *int `json:"position,omitempty" doc:"Estimated number of calls that the model serves before, absent when unknown"`
	EtaSeconds *int `json:"etaSeconds,omitempty" doc:"Estimated time until the call begins, absent when unknown"`
	Paused     bool `json:"paused,omitempty" doc:"The model is paused: no call begins until it is resumed"`
}

// Task is a task as its owner sees it. Lists leave out the results.
type Task struct {
	UserID string `json:"userId" doc:"Owner of the task"`
	berth.TaskRequest
	Status    berth.TaskStatus `json:"status"`
	Steps     []TaskStep       `json:"steps" doc:"The chain of model calls, in order"`
	StepIndex int              `json:"stepIndex" doc:"Index of the current step"`
	// Waiting is where the call of the current step waits.
	Waiting    *Waiting        `json:"waiting,omitempty" doc:"The current step waits for its model, and how long; absent while its call runs, or where that is not known"`
	Downgraded bool            `json:"downgraded,omitempty" doc:"The credits did not suffice: the task uses the free queue and model"`
	Text       string          `json:"text,omitempty" doc:"The answer of a stream task"`
	Result     json.RawMessage `json:"result,omitempty" doc:"The answer of a batch task; for a match the points found"`
	Error      *TaskError      `json:"error,omitempty"`
	Simulated  bool            `json:"simulated,omitempty" doc:"The local simulator served at least one step"`
	Usage      berth.Usage     `json:"usage"`
	// FinishReason is why the model stopped.
	FinishReason    string `json:"finishReason,omitempty" doc:"Why the model stopped: stop, unknown if its provider did not say, or length when a token limit truncated the answer of any step"`
	PromptTruncated bool   `json:"promptTruncated,omitempty" doc:"The provider of a step read only a part of its prompt, by its own count of tokens"`
	// PollAfterMs shortens as the end nears: with each step, and with the estimate of the wait. Absent once the task is final.
	PollAfterMs int       `json:"pollAfterMs,omitempty" doc:"Recommended time until the next poll, in milliseconds"`
	Links       TaskLinks `json:"links"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	DeadlineAt  time.Time `json:"deadlineAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"`

	ContentErased bool `json:"contentErased,omitempty" doc:"The texts of the task were erased: it has neither text nor result any more"`
}

// TaskStep is one model call of a task.
type TaskStep struct {
	Name  berth.StepName `json:"name"`
	Mode  berth.Mode     `json:"mode"`
	Queue berth.Queue    `json:"queue"`
	Model string         `json:"model"`
	State string         `json:"state" enum:"waiting,current,done,failed,cancelled"`
	// OutputAssetID and Provider are known once the step is recorded; lists leave them out.
	OutputAssetID string `json:"outputAssetId,omitempty" doc:"Asset that the step stored, see /v1/assets/{id}; absent once it is erased"`
	Provider      string `json:"provider,omitempty" doc:"Provider that answered"`
	FinishReason  string `json:"finishReason,omitempty" doc:"Why the model stopped in this step"`
}

// TaskError is why a task failed.
type TaskError struct {
	Code    berth.Code `json:"code"`
	Message string     `json:"message"`
}

// TaskLinks are the links of a task.
type TaskLinks struct {
	Self     string `json:"self"`
	Events   string `json:"events"`
	Temporal string `json:"temporal,omitempty" doc:"The run in the Temporal UI"`
}

// AssetRef returns the value of a variable that refers to an uploaded asset.
func AssetRef(id string) map[string]string { return map[string]string{"assetId": id} }

// Alive returns nil when the API responds.
func (c *Client) Alive(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil, nil)
}

// Submit submits a task. key is the Idempotency-Key of a task without a TaskID; if it is empty, none is sent.
func (c *Client) Submit(ctx context.Context, s Submission, key string) (Acceptance, error) {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var out Acceptance
	err := c.call(ctx, http.MethodPost, "/v1/tasks", header, s, &out)
	return out, err
}

// Get returns a task's status and result.
func (c *Client) Get(ctx context.Context, taskID string) (Task, error) {
	return fetch[Task](ctx, c, http.MethodGet, c.taskPath(taskID, ""), nil)
}

// TaskQuery selects tasks. Empty fields match all; UserID is for operators, the default is the token's user.
type TaskQuery struct {
	UserID   string
	Status   berth.TaskStatus
	Template berth.Template
	From, To time.Time
	Cursor   string
	Limit    int
}

// Tasks returns a page of tasks, newest first and without results, and the cursor of the next page, empty after the last.
func (c *Client) Tasks(ctx context.Context, t TaskQuery) (tasks []Task, next string, err error) {
	q := url.Values{"limit": {strconv.Itoa(t.Limit)}}
	for name, value := range map[string]string{
		"userId": t.UserID, "status": string(t.Status), "template": string(t.Template), "cursor": t.Cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"from": t.From, "to": t.To} {
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	out, err := fetch[struct {
		Tasks      []Task `json:"tasks"`
		NextCursor string `json:"nextCursor"`
	}](ctx, c, http.MethodGet, "/v1/tasks?"+q.Encode(), nil)
	return out.Tasks, out.NextCursor, err
}

// Describe returns the JSON document of a task as the API returns it.
func (c *Client) Describe(ctx context.Context, taskID string) (json.RawMessage, error) {
	return fetch[json.RawMessage](ctx, c, http.MethodGet, c.taskPath(taskID, ""), nil)
}

// Cancel requests the cancellation of a task.
func (c *Client) Cancel(ctx context.Context, taskID string) error {
	return c.call(ctx, http.MethodDelete, c.taskPath(taskID, ""), nil, nil, nil)
}

// taskPath returns the path of a task, or with a suffix of what belongs to it.
func (c *Client) taskPath(taskID, suffix string) string {
	return c.ownedPath("/v1/tasks/" + url.PathEscape(taskID) + suffix)
}

// ownedPath returns a path that names the user of OfUser, if there is one.
func (c *Client) ownedPath(path string) string {
	if c.owner != "" {
		path += "?userId=" + url.QueryEscape(c.owner)
	}
	return path
}

// Upload stores an image or a text and returns the asset's id.
func (c *Client) Upload(ctx context.Context, name string, content []byte) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", filepath.Base(name))
	if err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	if _, err := part.Write(content); err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	if err := form.Close(); err != nil {
		return "", fmt.Errorf("build upload: %w", err)
	}
	req, err := c.request(ctx, http.MethodPost, "/v1/assets", &body)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	var out struct {
		AssetID string `json:"assetId"`
	}
	err = c.do(req, &out)
	return out.AssetID, err
}

// fetch makes a call and returns its response.
func fetch[T any](ctx context.Context, c *Client, method, path string, in any) (out T, err error) {
	err = c.call(ctx, method, path, nil, in, &out)
	return out, err
}

func (c *Client) call(ctx context.Context, method, path string, header http.Header, in, out any) error {
	var body io.Reader
	if in != nil {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // the API limits the input of executions and the metadata of conferences as they are sent
		if err := e.Encode(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = &text
	}
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.do(req, out)
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", err)
	}
	token, err := c.token()
	if err != nil {
		return nil, fmt.Errorf("bearer token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

// unreachable is the error of a call without a response. It names the server; err has the path and all steps of the connection.
type unreachable struct {
	base string
	err  error
}

func (e *unreachable) Error() string {
	cause := e.err
	if call := new(url.Error); errors.As(cause, &call) {
		cause = call.Err
	}
	if code := syscall.Errno(0); errors.As(cause, &code) {
		cause = code
	}
	return fmt.Sprintf("the API at %s is unreachable: %s", e.base, cause)
}

func (e *unreachable) Unwrap() error { return e.err }

// send makes a request.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	res, err := c.http.Do(req)
	switch {
	case err == nil:
		return res, nil
	case req.Context().Err() != nil:
		return nil, fmt.Errorf("call %s %s: %w", req.Method, req.URL.Path, req.Context().Err())
	}
	if elsewhere, ok := errors.AsType[otherServer](err); ok {
		return nil, elsewhere
	}
	return nil, &unreachable{base: c.base, err: err}
}

func (c *Client) do(req *http.Request, out any) error {
	res, err := c.send(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // an error cannot be handled
	if err := problem(res); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if mediaType(res) != "application/json" {
		return describeOther(res)
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("decode response of %s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

// mediaType returns the type of a response's body, without parameters.
func mediaType(res *http.Response) string {
	t, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // empty if it is invalid
	return t
}

// problem returns the error of a response.
func problem(res *http.Response) error {
	if res.StatusCode < http.StatusBadRequest {
		return nil
	}
	p := &Problem{Status: res.StatusCode, Title: res.Status}
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read problem: %w", err)
	}
	if err := json.Unmarshal(b, p); err != nil || p.Code == "" {
		return foreign(res)
	}
	return p
}
