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
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/internal/ocr"
)

// Options configure the model server. The zero value answers immediately, without a cap, with Tesseract from PATH.
type Options struct {
	Logger *slog.Logger
	// TokensPerSecond is the pace of every answer; 0 is as fast as possible.
	TokensPerSecond float64
	// FirstTokenDelay passes before an answer begins.
	FirstTokenDelay time.Duration
	// Concurrency is the maximum number of concurrent calls per model; further calls get status 429. 0: no limit.
	Concurrency int
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
//	POST /v1/chat/completions   the protocol, also without /v1; every model name is accepted
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
		s.calls.clearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.calls.stats())
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		failure(http.StatusNotFound, "unknown_url", "the model simulator has no %s %s", r.Method, r.URL.Path).write(w)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerSimulated, "true")
		mux.ServeHTTP(w, r)
	})
}

func (s *server) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		invalid("read fault: %s", err).write(w)
		return
	}
	if !slices.Contains(faultKinds, f.Kind) {
		invalid("unknown fault kind %q; valid are %s", f.Kind, strings.Join(faultKinds, ", ")).write(w)
		return
	}
	s.calls.addFault(f)
	writeJSON(w, http.StatusOK, f)
}

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(w, r)
	if err != nil {
		s.fail(w, r, req.Model, err)
		return
	}
	number, ok := s.calls.begin(req.Model, s.opt.Concurrency)
	if !ok {
		rateLimited(1, "at most %d concurrent calls of model %s", s.opt.Concurrency, req.Model).write(w)
		return
	}
	ended, left := false, false
	end := func(cancelled bool) {
		if !ended {
			ended = true
			s.calls.end(req.Model, cancelled)
		}
	}
	defer func() { end(left || r.Context().Err() != nil) }()
	fault := s.calls.nextFault(req.Model)
	if refused := fault.refusal(); refused != nil {
		refused.write(w)
		return
	}
	ans, err := answerTo(r.Context(), req, s.opt.OCR)
	if err != nil {
		s.fail(w, r, req.Model, err)
		return
	}
	p := &pacer{ctx: r.Context()}
	if s.opt.TokensPerSecond > 0 {
		p.perToken = time.Duration(float64(time.Second) / s.opt.TokensPerSecond)
	}
	rep := newReply(number, req, ans, fault)
	rep.ending = func() { end(false) }
	left = !p.sleep(s.opt.FirstTokenDelay) || !rep.send(w, p)
}

// fail writes an error in the protocol's form. A caller that has left gets nothing.
func (s *server) fail(w http.ResponseWriter, r *http.Request, model string, err error) {
	var known *apiError
	switch {
	case r.Context().Err() != nil:
		return
	case errors.As(err, &known):
	case errors.Is(err, ocr.ErrNoTesseract):
		known = failure(http.StatusServiceUnavailable, "ocr_unavailable", "%s", ocr.ErrNoTesseract)
	case errors.Is(err, context.DeadlineExceeded):
		known = failure(http.StatusServiceUnavailable, "ocr_timeout", "reading the image took too long")
	default:
		known = invalid("the image could not be read") // a retry would fail, too
	}
	s.opt.Logger.WarnContext(r.Context(), "simulated call failed", "model", model, "error", err)
	known.write(w)
}

func readRequest(w http.ResponseWriter, r *http.Request) (chatRequest, error) {
	var req chatRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return req, failure(http.StatusRequestEntityTooLarge, "invalid_request", "the request exceeds the limit of %d bytes", tooLarge.Limit)
	case err != nil:
		return req, invalid("the request is not a valid chat completion request: %s", err)
	case req.Model == "" || len(req.Messages) == 0:
		return req, invalid("model and messages are required")
	}
	return req, nil
}

// apiError is a failure in the protocol's form.
type apiError struct {
	status, retryAfter int // retryAfter in seconds, with status 429
	code, message      string
}

func (e *apiError) Error() string { return e.message }

func failure(status int, code, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *apiError {
	return failure(http.StatusBadRequest, "invalid_request", format, args...)
}

func rateLimited(seconds int, format string, args ...any) *apiError {
	e := failure(http.StatusTooManyRequests, "rate_limit_exceeded", format, args...)
	e.retryAfter = seconds
	return e
}

func (e *apiError) write(w http.ResponseWriter) {
	kind := "invalid_request_error"
	switch {
	case e.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
		w.Header().Set("Retry-After", fmt.Sprint(e.retryAfter))
	case e.status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{"message": e.message, "type": kind, "param": nil, "code": e.code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller has left
}
