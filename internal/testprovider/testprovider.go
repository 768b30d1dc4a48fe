// Package testprovider is a server of the chat completions and responses protocols that tests control: it has a limit of concurrent calls, as real ones do,
// counts what it gets, and fails on demand.
package testprovider

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Server is one provider.
type Server struct {
	// URL is the base URL for a routing file.
	URL string
	// Calls counts the requests, and Refused those above the limit.
	Calls, Refused atomic.Int64

	limit      atomic.Int64
	retryAfter atomic.Int64 // seconds
	inFlight   atomic.Int64
	peak       atomic.Int64
	answer     atomic.Pointer[http.HandlerFunc]
	fault      atomic.Pointer[http.HandlerFunc]
	cache      cache
}

// Start starts a provider without a limit, which answers each call with Text.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{}
	s.Answer(Write(0, Text))
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.URL = server.URL + "/v1"
	return s
}

// Text is the default answer.
const Text = "The answer."

// Limit permits so many concurrent calls, 0 for any number. Those above it get the status 429, with Retry-After if that is at least a second.
func (s *Server) Limit(calls int, retryAfter time.Duration) {
	s.limit.Store(int64(calls))
	s.retryAfter.Store(int64(retryAfter / time.Second))
}

// Answer sets how calls are answered. The handler gets the body of the request.
func (s *Server) Answer(h http.HandlerFunc) { s.answer.Store(&h) }

// Fail makes all calls fail from now on; nil ends it.
func (s *Server) Fail(h http.HandlerFunc) {
	if h == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&h)
}

// InFlight returns the number of calls that are being answered.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }

// Peak returns the maximum number of calls that were here at a time, with those that were refused.
func (s *Server) Peak() int { return int(s.peak.Load()) }

// ServeHTTP answers a call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // or the server does not notice that its client left
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.Calls.Add(1)
	n := s.inFlight.Add(1)
	c := &call{end: sync.OnceFunc(func() { s.inFlight.Add(-1) }), prompt: 1000}
	defer c.end()
	for peak := s.peak.Load(); n > peak && !s.peak.CompareAndSwap(peak, n); peak = s.peak.Load() {
	}
	if fault := s.fault.Load(); fault != nil {
		(*fault)(w, r)
		return
	}
	if limit := s.limit.Load(); limit > 0 && n > limit {
		s.Refused.Add(1)
		Limited(time.Duration(s.retryAfter.Load())*time.Second)(w, r)
		return
	}
	s.cache.read(c, body)
	(*s.answer.Load())(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// call is what an answer needs of its call.
type call struct {
	// end ends the call. An answer does that before its last part is sent, after which its caller may make the next call.
	end            func()
	prompt, cached int // tokens
}

type callKey struct{}

// callOf returns the call of a request, which has none when the test has no Server.
func callOf(r *http.Request) *call {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		return c
	}
	return &call{end: func() {}, prompt: 1000}
}
