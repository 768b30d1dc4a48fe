// Package sim is the model simulator: an HTTP server that speaks OpenAI's protocol, chats and embeddings, and derives its
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

// ModelServer returns the simulator's HTTP handler. Paths of the protocol also exist without /v1, and every model name is accepted.
//
//	POST /v1/chat/completions   answers, see answerTo; with the tools of called; image_url must be a data URL
//	POST /v1/embeddings         vectors that are similar if the texts have words in common
//	GET /v1/models              one model, as an example of a name
//	POST, DELETE /sim/faults    add a Fault, remove all
//	GET /sim/stats              Stats
func ModelServer(opt Options) http.Handler {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	if opt.OCR == nil {
		opt.OCR = ocr.Tesseract("tesseract", time.Minute, 2)
	}
	s := &server{opt: opt, calls: &callLog{counts: Stats{Models: map[string]Counts{}}}}
	mux := http.NewServeMux()
	for _, prefix := range []string{"", "/v1"} {
		mux.HandleFunc("POST "+prefix+"/chat/completions", s.chat)
		mux.HandleFunc("POST "+prefix+"/embeddings", s.embed)
		mux.HandleFunc("GET "+prefix+"/models", models)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		failure(http.StatusNotFound, "unknown path: %s %s", r.Method, r.URL.Path).write(w)
	})
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

// models lists one model. has_more: others are accepted, too.
func models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list", "has_more": true, "data": []any{map[string]any{"id": "simulator", "object": "model", "created": 0, "owned_by": "simulator"}},
	})
}

// call is a counted call of a model, with the fault that applies to it.
type call struct {
	number int
	fault  Fault
	ended  bool
	end    func(cancelled bool) // counts the end, once
}

func (s *server) begin(model string) *call {
	c := &call{}
	c.number, c.fault = s.calls.begin(model)
	c.end = func(cancelled bool) {
		if !c.ended {
			c.ended = true
			s.calls.end(model, cancelled)
		}
	}
	return c
}

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	req, failed := readChat(r)
	if failed != nil {
		failed.write(w)
		return
	}
	c, left := s.begin(req.Model), false
	defer func() { c.end(left || r.Context().Err() != nil) }()
	if refused := c.fault.refusal(); refused != nil {
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
	rep := newReply(c.number, req, answer, c.fault)
	left = !p.sleep(s.opt.FirstTokenDelay) || !rep.send(w, p, func() { c.end(false) })
}

// apiError is a failure in the protocol's form.
type apiError struct {
	status, retryAfter int // retryAfter in seconds, with status 429
	param              string
	message            string
}

func (e *apiError) Error() string { return e.message }

func failure(status int, format string, args ...any) *apiError {
	return &apiError{status: status, message: fmt.Sprintf(format, args...)}
}

// invalid returns the error of a field of a request.
func invalid(param, format string, args ...any) *apiError {
	e := failure(http.StatusBadRequest, format, args...)
	e.param = param
	return e
}

func (e *apiError) write(w http.ResponseWriter) {
	kind, code := "invalid_request_error", "invalid_request"
	switch {
	case e.status == http.StatusUnauthorized:
		code = "invalid_api_key"
	case e.status == http.StatusNotFound:
		code = "not_found"
	case e.status == http.StatusTooManyRequests:
		kind, code = "rate_limit_error", "rate_limit_exceeded"
		w.Header().Set("Retry-After", fmt.Sprint(e.retryAfter))
	case e.status >= http.StatusInternalServerError:
		kind, code = "server_error", "internal_error"
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{"message": e.message, "type": kind, "param": param, "code": code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the caller has left
}
