package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"berth"
	"berth/internal/identity"
	"berth/lua"
)

const (
	// maxBodyBytes limits JSON bodies: a few escaped texts of maxTextBytes each.
	maxBodyBytes = 4 << 20
	// callTimeout limits the handling of a request; event streams have no limit.
	callTimeout = 20 * time.Second
	// responseTimeout limits a request with its body and the transfer of its response, or of one page of an export.
	responseTimeout = 3 * time.Minute
)

// call is the state of one request. It is in the request's context.
type call struct {
	server    *server
	began     time.Time
	requestID string
	traceID   string
	base      string // where the caller reaches the signalling proxy of this process
	user      identity.Principal
	managed   string     // the team to which its administrator is restricted, of the routes that accept one; empty for operators
	ticket    bool       // it was made with a ticket, whose user need not be one
	body      []byte     // of JSON; nil where the handler reads it
	tier      berth.Tier // of a submission, and what is left of the user's rate, once they are known
	rate      *lua.RateState
}

type callKey struct{}

// callOf returns the call of a request's context; an empty one outside a request.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// begin sets the request's ids and the headers of all responses, and logs the request. The query is never logged: it may
// contain a ticket.
func (s *server) begin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		cl := s.newCall(c)
		nameSpan(c)
		body := watchBody(c.Request())
		if err := next(c); err != nil {
			if body.unread() {
				c.Response().Header().Set(echo.HeaderConnection, "close")
			}
			s.fail(err, c)
			s.discard(c, body)
		}
		s.logCall(c, cl)
		return nil
	}
}

// nameSpan adds the route, which is not known before the router, to the request's span and metrics.
func nameSpan(c echo.Context) {
	ctx, route := c.Request().Context(), attribute.String("http.route", c.Path())
	span := trace.SpanFromContext(ctx)
	span.SetName(c.Request().Method + " " + c.Path())
	span.SetAttributes(route)
	if labels, ok := otelhttp.LabelerFromContext(ctx); ok {
		labels.Add(route)
	}
}

func (s *server) newCall(c echo.Context) *call {
	req := c.Request()
	id := req.Header.Get(echo.HeaderXRequestID)
	if berth.ValidID("", id) != nil {
		id = berth.NewID("")
	}
	cl := &call{server: s, began: time.Now(), requestID: id, traceID: traceID(req), base: baseOf(req)}
	c.SetRequest(req.WithContext(context.WithValue(req.Context(), callKey{}, cl)))
	h := c.Response().Header()
	h.Set(echo.HeaderXRequestID, id)
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	h.Set(echo.HeaderReferrerPolicy, "no-referrer")
	h.Set(echo.HeaderXFrameOptions, "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; frame-ancestors 'none'")
	h.Set(echo.HeaderCacheControl, "no-store")
	return cl
}

func (s *server) logCall(c echo.Context, cl *call) {
	s.log.DebugContext(c.Request().Context(), "request",
		"requestId", cl.requestID, "method", c.Request().Method, "route", c.Path(), "status", c.Response().Status,
		"bytes", c.Response().Size, "user", cl.user.UserID, "took", time.Since(cl.began))
}

// traceID returns the id of the request's trace: where this process records none, that of the W3C traceparent header, or a
// new one.
func traceID(req *http.Request) string {
	if span := trace.SpanContextFromContext(req.Context()); span.IsValid() {
		return span.TraceID().String()
	}
	parts := strings.Split(req.Header.Get("traceparent"), "-")
	if len(parts) >= 4 && len(parts[1]) == 32 {
		if b, err := hex.DecodeString(parts[1]); err == nil && !bytes.Equal(b, make([]byte, 16)) {
			return strings.ToLower(parts[1])
		}
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// errPanic is a handler's panic, for the log.
type errPanic struct {
	value any
	stack []byte
}

func (e *errPanic) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// rescue turns a panic into an error.
func (s *server) rescue(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			err = &errPanic{value: v, stack: debug.Stack()}
			if c.Response().Committed {
				s.log.ErrorContext(c.Request().Context(), "panic after the response began", "error", err)
			}
		}()
		return next(c)
	}
}

// bound limits the body, the time to receive it and the time to handle the request. JSON bodies are read here completely, so
// that the deadline of a slow client does not apply to the handler.
func (s *server) bound(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := s.rules[routeKey(c.Request().Method, c.Path())]
		switch {
		case r.stream:
			return next(c)
		case !r.raw:
			if err := s.readBody(c); err != nil {
				return err
			}
		}
		return limited(c, next)
	}
}

func limited(c echo.Context, next echo.HandlerFunc) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), callTimeout)
	defer cancel()
	c.SetRequest(c.Request().WithContext(ctx))
	return next(c)
}

// unescape decodes path parameters, which the router leaves escaped: ids of pools contain slashes and colons.
func unescape(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().URL.RawPath != "" {
			values := slices.Clone(c.ParamValues())
			for i, v := range values {
				if plain, err := url.PathUnescape(v); err == nil {
					values[i] = plain
				}
			}
			c.SetParamValues(values...)
		}
		return next(c)
	}
}

func (s *server) readBody(c echo.Context) error {
	req := c.Request()
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	if req.ContentLength > maxBodyBytes {
		return exceeds("body", maxBodyBytes)
	}
	rc := http.NewResponseController(c.Response())
	// only writers of tests have no deadlines
	_ = rc.SetReadDeadline(time.Now().Add(s.Config.BodyTimeout))
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBodyBytes+1))
	if err != nil {
		return bodyError(err)
	}
	if len(body) > maxBodyBytes {
		return exceeds("body", maxBodyBytes)
	}
	if !utf8.Valid(body) {
		return berth.Invalid("body", "must be UTF-8")
	}
	// after an error the deadline stays, or discard sets another one
	_ = rc.SetReadDeadline(time.Time{})
	req.Body = io.NopCloser(bytes.NewReader(body))
	callOf(req.Context()).body = body
	return nil
}

// bodyError is the error of a body that was not received: too slow, incomplete or malformed.
func bodyError(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return echo.NewHTTPError(http.StatusRequestTimeout).SetInternal(err)
	}
	return berth.Invalid("body", "could not be read").With(err)
}
