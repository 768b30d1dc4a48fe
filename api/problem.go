package api

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/redisconn"
	"berth/internal/template"
)

// problemType is the media type of every error body (RFC 9457).
const problemType = "application/problem+json"

// Problem is the body of every error response (RFC 9457). Clients switch on Code.
type Problem struct {
	Type       string     `json:"type" doc:"Always about:blank; use code instead" example:"about:blank"`
	Title      string     `json:"title" doc:"Text of the status"`
	Status     int        `json:"status" doc:"The HTTP status"`
	Detail     string     `json:"detail" doc:"What is wrong, for users"`
	Code       berth.Code `json:"code" doc:"What is wrong, for programs"`
	Field      string     `json:"field,omitempty" doc:"The invalid field of the request" example:"variables.photo.assetId"`
	RequestID  string     `json:"requestId,omitempty" doc:"Also in the X-Request-Id header and in the server log"`
	RetryAfter int        `json:"retryAfter,omitempty" doc:"Seconds to wait before a retry; also in the Retry-After header"`
	// RateLimited, QueueFull and Position belong to refused submissions.
	RateLimited bool `json:"rateLimited,omitempty" doc:"The user has submitted too many tasks"`
	QueueFull   bool `json:"queueFull,omitempty" doc:"The queue, or the user's share of it, is full"`
	Position    int  `json:"position,omitempty" doc:"With queue_full: the number of unfinished tasks ahead"`

	Missing []string                    `json:"missing,omitempty" doc:"Required capabilities that no registered node has, or that the closest node lacks; on /readyz the unavailable dependencies"`
	Errors  []FieldError                `json:"errors,omitempty" doc:"All invalid fields when there is more than one, and the mistakes in files"`
	Reasons map[berth.ExcludeReason]int `json:"reasons,omitempty" doc:"With node_full and no_node: how many nodes were excluded, by reason"`
}

// FieldError is one invalid field of a request.
type FieldError struct {
	Field   string `json:"field" doc:"Empty for a mistake that is not in a field"`
	Message string `json:"message"`
	// File, Line and Column are of files in a request.
	File   string `json:"file,omitempty" doc:"File of the request that has the mistake"`
	Line   int    `json:"line,omitempty" doc:"Its line from 1, absent for the whole file"`
	Column int    `json:"column,omitempty" doc:"Its column from 1, absent for the whole line"`
}

// Error returns the detail. With GetStatus it makes a Problem a huma.StatusError.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the media type that huma sends a problem with.
func (p *Problem) ContentType(string) string { return problemType }

// RetryError states when a retry can succeed; the response carries it as Retry-After.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// problemOf is the only place where an error becomes a response. The messages of berth.Error and berth.Refusal are shown;
// what they wrap and all other errors are not.
func problemOf(err error, requestID string) *Problem {
	p := describe(err)
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), requestID
	after := p.Code.Info().RetryAfter
	var retry *RetryError
	var refusal *berth.Refusal
	switch {
	case errors.As(err, &retry):
		after = retry.After
	case errors.As(err, &refusal) && refusal.RetryAfter > 0:
		after = refusal.RetryAfter
	}
	if p.RetryAfter == 0 && after > 0 {
		p.RetryAfter = max(1, seconds(after))
	}
	return p
}

func describe(err error) *Problem {
	var p *Problem
	var r *berth.Refusal
	var e *berth.Error
	var he *echo.HTTPError
	var sub *refusedSubmission
	var mistakes template.Mistakes
	switch {
	case errors.As(err, &mistakes):
		return mistaken(mistakes)
	case errors.As(err, &sub):
		c := sub.problem
		return &c
	case errors.As(err, &p):
		c := *p
		return &c
	case errors.As(err, &r):
		return &Problem{Status: r.Code.Info().Status, Detail: r.Error(), Code: r.Code, Reasons: r.Reasons, Missing: r.Missing}
	case errors.As(err, &e):
		info := e.Code.Info()
		if info.Status == 0 || e.Code == berth.CodeInternal {
			return internalProblem()
		}
		return &Problem{Status: info.Status, Detail: e.Message, Code: e.Code, Field: e.Field}
	case errors.As(err, &he):
		text := strings.ToLower(http.StatusText(he.Code))
		if own, ok := he.Message.(string); ok && he.Code == http.StatusMethodNotAllowed {
			text = own
		}
		return statusProblem(he.Code, text)
	case unreachable(err):
		return &Problem{
			Status: http.StatusServiceUnavailable, Code: berth.CodeUnavailable, Detail: "a dependency is unavailable; retry later",
		}
	default:
		return internalProblem()
	}
}

func internalProblem() *Problem {
	return &Problem{
		Status: http.StatusInternalServerError, Code: berth.CodeInternal,
		Detail: "internal error; see the server log for this request id",
	}
}

// statusProblem returns the problem of an error that the router or huma reports as a status only.
func statusProblem(status int, detail string) *Problem {
	p := &Problem{Status: status, Detail: detail, Code: berth.CodeInvalid}
	switch {
	case status == http.StatusNotFound:
		p.Code = berth.CodeNotFound
	case status == http.StatusRequestEntityTooLarge:
		p.Code = berth.CodeTooLarge
	case status == http.StatusUnsupportedMediaType:
		p.Code = berth.CodeUnsupportedMedia
	case status == http.StatusUnprocessableEntity: // of huma's validation
		p.Status = http.StatusBadRequest
	case status >= http.StatusInternalServerError:
		return internalProblem()
	}
	return p
}

// unreachable reports whether err means that a dependency is unavailable or did not respond in time.
func unreachable(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.As(err, &ne) || redisconn.Unavailable(err)
}

// unavailable returns CodeUnavailable for the named dependency.
func unavailable(what string, err error) error {
	return berth.Errorf(berth.CodeUnavailable, "%s is unavailable; retry later", what).With(err)
}

// fail is the router's error handler: for raw handlers, middleware, 404 and 405.
func (s *server) fail(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	if path := c.Request().URL.Path; ofOpenAI(path) || meantForOpenAI(path) {
		s.failOpenAI(err, c)
		return
	}
	p := problemOf(err, callOf(c.Request().Context()).requestID)
	s.logProblem(c.Request().Context(), p, err)
	body, merr := json.Marshal(p)
	if merr != nil {
		s.log.ErrorContext(c.Request().Context(), "problem not encoded", "error", merr)
		return
	}
	if p.RetryAfter > 0 {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
	}
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body))) // complete, also if it is sent before the request is
	if werr := c.Blob(p.Status, problemType, body); werr != nil {
		s.log.DebugContext(c.Request().Context(), "problem not sent", "error", werr)
	}
}

func (s *server) logProblem(ctx context.Context, p *Problem, err error) {
	s.log.Log(ctx, levelOf(p.Code, err), "request failed", "requestId", p.RequestID, "code", p.Code, "error", err)
}

// levelOf returns the level of the code, except where nothing is wrong: the client has left, or the request was rejected on
// purpose while Redis is known to be unavailable.
func levelOf(code berth.Code, err error) slog.Level {
	var e *berth.Error
	var r *berth.Refusal
	switch {
	case errors.Is(err, context.Canceled):
		return slog.LevelDebug
	case code == berth.CodeUnavailable && (errors.As(err, &r) || errors.As(err, &e) && e.Err == nil):
		return slog.LevelDebug
	default:
		return code.Info().Level
	}
}

// huma's error constructors are package variables; only this package uses huma.
func init() {
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return humaProblem(status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		call := callOf(ctx.Context())
		var p *Problem
		if status == http.StatusInternalServerError && len(errs) == 1 { // what a handler returned
			p = problemOf(errs[0], call.requestID)
			if call.server != nil {
				call.server.logProblem(ctx.Context(), p, errs[0])
			}
		} else {
			p = problemOf(humaProblem(status, msg, errs), call.requestID)
		}
		if p.RetryAfter > 0 {
			ctx.SetHeader(echo.HeaderRetryAfter, strconv.Itoa(p.RetryAfter))
		}
		return p
	}
}

// describeCodes lists the codes of problems.
func describeCodes() string {
	var b strings.Builder
	b.WriteString("\n\nErrors are problem details with a `code`:\n")
	for _, c := range berth.Codes() {
		if c.Status == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n- `%s` (%d): %s", c.Code, c.Status, c.Description)
		if c.RetryAfter > 0 {
			b.WriteString("; retry later")
		}
	}
	return b.String()
}

// maxFieldErrors limits how many invalid fields a response lists.
const maxFieldErrors = 20

// humaProblem lists the fields that huma rejected under the client's names, without their values.
func humaProblem(status int, msg string, errs []error) *Problem {
	p := statusProblem(status, msg)
	if msg == "request body is required" {
		p.Field, p.Detail = "body", "must not be empty"
	}
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) || len(p.Errors) == maxFieldErrors {
			continue
		}
		detail := d.ErrorDetail()
		fe := fieldError(detail.Location, detail.Message)
		p.Errors = append(p.Errors, fe)
		if p.Field == "" {
			p.Field, p.Detail = fe.Field, fe.Message
		}
	}
	if len(p.Errors) == 1 {
		p.Errors = nil
	}
	return p
}
