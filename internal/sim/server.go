// Package sim holds the stand-ins with which berth runs without the outside world: here a model server that speaks
// the OpenAI chat-completions protocol and derives its answers from its input by plain rules, with Tesseract for
// pictures (T27). It is named for what it is in every answer.
package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options of the model server. The zero value answers at once, without a cap, with tesseract from PATH.
type Options struct {
	Logger *slog.Logger
	// TokensPerSecond paces every answer; 0 is as fast as possible.
	TokensPerSecond float64
	// FirstTokenDelay passes before an answer begins.
	FirstTokenDelay time.Duration
	// Concurrency is how many calls of one model are answered at once; one more is 429. 0: no cap.
	Concurrency int
	// RetryAfter is what a refused call is told, in whole seconds; 1 s when 0.
	RetryAfter time.Duration
	// OCR reads pictures; nil: Tesseract(TesseractPath or "tesseract", OCRTimeout or 60 s, 2 at once).
	OCR           OCR
	TesseractPath string
	OCRTimeout    time.Duration
	// Models is what GET /v1/models lists. Any model name is answered.
	Models []string
	// Faults are there from the beginning; POST /sim/faults adds more.
	Faults []Fault
}

const maxBody = 48 << 20 // a 32 MB picture in base64

type server struct {
	opt   Options
	board *board
}

// ModelServer is the stand-in's HTTP handler (T27):
//
//	POST /v1/chat/completions, GET /v1/models (also without /v1)   the protocol
//	POST, GET, DELETE /sim/faults                                  misbehave on demand; the header
//	                                                               "X-Berth-Fault: cut; after=5" does it for one call
//	GET /sim/stats                                                 calls, in flight, peak, cancelled
func ModelServer(opt Options) http.Handler {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.OCR == nil {
		path, limit := opt.TesseractPath, opt.OCRTimeout
		if path == "" {
			path = "tesseract"
		}
		if limit <= 0 {
			limit = time.Minute
		}
		opt.OCR = Tesseract(path, limit, 2)
	}
	if len(opt.Models) == 0 {
		opt.Models = []string{"deepseek-chat", "deepseek-reasoner", "glm-4.5-flash", "glm-4.1v-thinking-flash"}
	}
	s := &server{opt: opt, board: newBoard(opt.Faults)}
	mux := http.NewServeMux()
	for _, prefix := range []string{"", "/v1"} {
		mux.HandleFunc("POST "+prefix+"/chat/completions", s.chat)
		mux.HandleFunc("GET "+prefix+"/models", s.models)
	}
	mux.HandleFunc("POST /sim/faults", s.postFault)
	mux.HandleFunc("GET /sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"faults": s.board.listFaults()})
	})
	mux.HandleFunc("DELETE /sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.board.clearFaults()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /sim/stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.board.stats())
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&apiError{
			status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
			Message: fmt.Sprintf("berth's local stand-in model has no %s %s", r.Method, r.URL.Path),
		}).write(w)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(headerStandIn, "true")
		mux.ServeHTTP(w, r)
	})
}

func (s *server) models(w http.ResponseWriter, _ *http.Request) {
	data := []map[string]any{}
	for _, m := range s.opt.Models {
		data = append(data, map[string]any{"id": m, "object": "model", "created": 0, "owned_by": fingerprint})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

func (s *server) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		invalidRequest("", "read fault: %s", err).write(w)
		return
	}
	if !slices.Contains(FaultKinds(), f.Kind) {
		invalidRequest("kind", "unknown kind %q; there are %s", f.Kind, strings.Join(FaultKinds(), ", ")).write(w)
		return
	}
	s.board.addFault(f)
	writeJSON(w, http.StatusOK, map[string]any{"faults": s.board.listFaults()})
}

// chat answers one call: read, count in, refuse or misbehave, derive the answer, send it.
func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	req, apiErr := readRequest(w, r)
	if apiErr != nil {
		apiErr.write(w)
		return
	}
	number, ok := s.board.begin(req.Model, s.opt.Concurrency)
	if !ok {
		rateLimited(max(1, int(s.opt.RetryAfter.Seconds())), fmt.Sprintf(
			"%s answers %d calls at once at most", req.Model, s.opt.Concurrency)).write(w)
		return
	}
	out := failed
	defer func() {
		if r.Context().Err() != nil && out == failed {
			out = left
		}
		s.board.end(req.Model, out)
	}()

	fault, faulty, err := s.fault(r, req.Model)
	if err != nil {
		invalidRequest(headerFault, "%s", err).write(w)
		return
	}
	if faulty {
		s.board.played(req.Model)
		if refused := refusal(fault); refused != nil {
			refused.write(w)
			return
		}
	}
	ans, err := answerTo(r.Context(), req, s.opt.OCR)
	if err != nil {
		s.answerError(w, r, req.Model, err)
		return
	}
	rep := newReply(number, req, ans, fault)
	rep.perToken = s.pace(fault)
	rep.firstDelay = s.opt.FirstTokenDelay
	out = rep.send(w, r)
}

// pace is how long a token takes.
func (s *server) pace(f Fault) time.Duration {
	if f.Kind == FaultSlow {
		return f.delay()
	}
	if s.opt.TokensPerSecond <= 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / s.opt.TokensPerSecond)
}

func (s *server) answerError(w http.ResponseWriter, r *http.Request, model string, err error) {
	var apiErr *apiError
	switch {
	case r.Context().Err() != nil:
		return // nobody is there
	case errors.As(err, &apiErr):
		apiErr.write(w)
	case errors.Is(err, ErrNoTesseract):
		s.opt.Logger.WarnContext(r.Context(), "stand-in cannot read pictures", "model", model, "error", err)
		(&apiError{status: http.StatusServiceUnavailable, Type: "server_error", Code: "ocr_unavailable", Message: ErrNoTesseract.Error()}).write(w)
	case errors.Is(err, context.DeadlineExceeded):
		(&apiError{status: http.StatusServiceUnavailable, Type: "server_error", Code: "ocr_timeout", Message: "reading the picture took too long"}).write(w)
	default:
		// What Tesseract cannot read it will not read the next time either.
		s.opt.Logger.WarnContext(r.Context(), "stand-in failed", "model", model, "error", err)
		invalidRequest("messages", "the picture could not be read").write(w)
	}
}

func readRequest(w http.ResponseWriter, r *http.Request) (chatRequest, *apiError) {
	var req chatRequest
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			e := invalidRequest("", "the request is larger than %d bytes", tooLarge.Limit)
			e.status = http.StatusRequestEntityTooLarge
			return req, e
		}
		return req, invalidRequest("", "read request: %s", err)
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return req, invalidRequest("", "the request is not the JSON expected: %s", err)
	}
	switch {
	case req.Model == "":
		return req, invalidRequest("model", "model is missing")
	case len(req.Messages) == 0:
		return req, invalidRequest("messages", "messages is empty")
	}
	return req, nil
}

func rateLimited(seconds int, message string) *apiError {
	return &apiError{
		status: http.StatusTooManyRequests, retryAfter: seconds, Message: message,
		Type: "rate_limit_error", Code: "rate_limit_exceeded",
	}
}

const headerFault = "X-Berth-Fault"

// fault is what this call has to play: what its own header says, else the next of the board.
func (s *server) fault(r *http.Request, model string) (Fault, bool, error) {
	h := r.Header.Get(headerFault)
	if h == "" {
		f, ok := s.board.take(model)
		return f, ok, nil
	}
	kind, params, _ := strings.Cut(h, ";")
	f := Fault{Kind: strings.TrimSpace(kind)}
	if !slices.Contains(FaultKinds(), f.Kind) {
		return f, false, fmt.Errorf("unknown kind %q; there are %s", f.Kind, strings.Join(FaultKinds(), ", "))
	}
	for p := range strings.SplitSeq(params, ";") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		name, value, _ := strings.Cut(p, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return f, false, fmt.Errorf("parameter %q is not name=number", p)
		}
		switch name {
		case "after":
			f.After = n
		case "delayMs":
			f.DelayMs = n
		case "retryAfterSec":
			f.RetryAfterSec = n
		default:
			return f, false, fmt.Errorf("unknown parameter %q", name)
		}
	}
	return f.withDefaults(), true, nil
}

// refusal is the error of a fault that refuses the call, nil for the others.
func refusal(f Fault) *apiError {
	switch f.Kind {
	case Fault429:
		return rateLimited(f.RetryAfterSec, "rate limit reached (fault on demand)")
	case Fault500:
		return &apiError{status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error", Message: "internal error (fault on demand)"}
	case Fault401:
		return &apiError{status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key", Message: "the API key is not valid (fault on demand)"}
	default:
		return nil
	}
}
