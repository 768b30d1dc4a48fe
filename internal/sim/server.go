// Package sim is the model simulator: an HTTP server that speaks the OpenAI chat completions protocol and derives its
// answers from the request by plain rules, with Tesseract for images. berth uses it for models without an API key, and
// tests make it misbehave. Every answer states that it is simulated.
package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/internal/ocr"
)

// Options configure the model server. The zero value answers immediately, with Tesseract from PATH.
type Options struct {
	Logger *slog.Logger
	// TokensPerSecond is the pace of every answer; 0 is as fast as possible.
	TokensPerSecond float64
	// FirstTokenDelay passes before an answer begins.
	FirstTokenDelay time.Duration
	// OCR reads images; nil: ocr.Tesseract("tesseract", time.Minute, 2).
	OCR ocr.Reader
}

const (
	// headerSimulated marks every response, fingerprint is the system_fingerprint of every answer. internal/llm reads
	// both.
	headerSimulated = "X-Berth-Simulated"
	fingerprint     = "berth-simulator"

	maxBody = 48 << 20 // a 32 MB image in base64
)

type server struct {
	opt   Options
	calls *callLog
}

// ModelServer returns the simulator's HTTP handler:
//
//	POST /v1/chat/completions   the protocol, also without /v1, only streamed; every model name is accepted
//	POST, DELETE /sim/faults    add a Fault, remove all
//	GET /sim/stats              Stats
func ModelServer(opt Options) http.Handler {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.OCR == nil {
		opt.OCR = ocr.Tesseract("tesseract", time.Minute, 2)
	}
	s := &server{opt: opt, calls: &callLog{counts: Stats{Models: map[string]Counts{}}}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chat/completions", s.chat)
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("POST /sim/faults", s.postFault)
	mux.HandleFunc("DELETE /sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.calls.locked(func() { s.calls.faults = nil })
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) {
		var out Stats
		s.calls.locked(func() { out = Stats{s.calls.counts.Total, maps.Clone(s.calls.counts.Models)} })
		writeJSON(w, http.StatusOK, out)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerSimulated, "true")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

func (s *server) postFault(w http.ResponseWriter, r *http.Request) {
	f := Fault{Times: 1}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil || !slices.Contains(faultKinds, f.Kind) {
		failure(http.StatusBadRequest, "a fault has one of the kinds %s: %v", strings.Join(faultKinds, ", "), err).write(w)
		return
	}
	f.Times = cmp.Or(f.Times, 1)
	s.calls.locked(func() { s.calls.faults = append(s.calls.faults, f) })
	writeJSON(w, http.StatusOK, f)
}

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	var req chatRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Model == "" || len(req.Messages) == 0 || !req.Stream {
		failure(http.StatusBadRequest, "a chat completion request with a model, messages and stream true is required: %v", err).write(w)
		return
	}
	number, fault := s.calls.begin(req.Model)
	ended, left := false, false
	end := func(cancelled bool) {
		if !ended {
			ended = true
			s.calls.end(req.Model, cancelled)
		}
	}
	defer func() { end(left || r.Context().Err() != nil) }()
	if refused := fault.refusal(); refused != nil {
		refused.write(w)
		return
	}
	answer, err := answerTo(r.Context(), req, s.opt.OCR)
	var known *apiError
	switch {
	case r.Context().Err() != nil:
		return
	case errors.Is(err, ocr.ErrNoTesseract), errors.Is(err, context.DeadlineExceeded):
		known = failure(http.StatusServiceUnavailable, "%s", err)
	case err != nil && !errors.As(err, &known):
		known = failure(http.StatusBadRequest, "%s", err) // a retry would fail, too
	}
	if known != nil {
		s.opt.Logger.WarnContext(r.Context(), "simulated call failed", "model", req.Model, "error", err)
		known.write(w)
		return
	}
	p := &pacer{ctx: r.Context()}
	if s.opt.TokensPerSecond > 0 {
		p.perToken = time.Duration(float64(time.Second) / s.opt.TokensPerSecond)
	}
	rep := newReply(number, req, answer, fault)
	left = !p.sleep(s.opt.FirstTokenDelay) || !rep.send(w, p, func() { end(false) })
}

// apiError is a failure in the protocol's form.
type apiError struct {
	status, retryAfter int // retryAfter in seconds, with status 429
	message            string
}

func (e *apiError) Error() string { return e.message }

func failure(status int, format string, args ...any) *apiError {
	return &apiError{status: status, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) write(w http.ResponseWriter) {
	kind, code := "invalid_request_error", "invalid_request"
	switch {
	case e.status == http.StatusUnauthorized:
		code = "invalid_api_key"
	case e.status == http.StatusTooManyRequests:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
		w.Header().Set("Retry-After", fmt.Sprint(e.retryAfter))
	case e.status >= http.StatusInternalServerError:
		kind, code = "server_error", "internal_error"
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{"message": e.message, "type": kind, "param": nil, "code": code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller has left
}
