// Package client calls berth's HTTP API: tasks and their tokens, sessions and turns, executions, conferences and their
// participants, and what operators, nodes and media units do.
//
//	c := client.New("http://127.0.0.1:8080", token)
//	accepted, err := c.Submit(ctx, client.Submission{ServiceID: "support", Template: "ticket_summary", Variables: …}, "")
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
	"net/http"
	"net/url"
	"strings"
	"syscall"

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

// Alive returns nil when the API responds.
func (c *Client) Alive(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil, nil)
}

// ownedPath returns a path that names the user of OfUser, if there is one.
func (c *Client) ownedPath(path string) string {
	if c.owner != "" {
		path += "?userId=" + url.QueryEscape(c.owner)
	}
	return path
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
