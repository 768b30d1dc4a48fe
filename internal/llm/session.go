package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/eventstream"
)

// session is the state of one call.
type session struct {
	endpoint
	limits  Limits
	rest    time.Duration
	http    *http.Client
	learned *learned
	on      func(Delta) error
	begun   time.Time
	dog     *watchdog
	follow  followed
	halves  joiner
	filter  answerFilter
	// text is the answer so far; received counts the bytes of content and reasoning, thought the tokens of thoughts.
	text     strings.Builder
	content  strings.Builder // as it was received
	received int
	thought  float64
	// nothing: the response is empty. unread is the name of an event that was not read.
	nothing bool
	unread  string
	// ended: the stream has the event that streams end with. tools: the model called a tool. refusal: the model refused to answer.
	ended, tools, refusal bool
	// accepted: the provider returned status 200.
	accepted bool
	result   Result
	// raw is the answer to a raw call, nil for another one, and onObject reads it.
	raw      *rawAnswer
	onObject func([]byte) error
}

// run makes the call. A request that is refused because of an optional field is made again without it, which costs nothing.
func (s *session) run(ctx context.Context, call Call) error {
	for {
		err := s.exchange(ctx, call)
		if s.accepted {
			s.learned.succeeded(call)
		}
		failed, ok := errors.AsType[*CallError](err)
		if !ok || s.accepted {
			return err
		}
		fields := s.drop(failed, call)
		if fields == 0 {
			return err
		}
		call.without |= fields
		if call.body, err = s.encode(call); err != nil {
			return err
		}
	}
}

// exchange sends the request and reads the answer.
func (s *session) exchange(parent context.Context, call Call) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	s.dog = startWatchdog(cancel, call.Timeouts)
	defer s.dog.stop()
	if call.Raw != nil {
		s.raw = &rawAnswer{req: call.Raw, on: s.onObject}
	}

	err := s.read(ctx, call)
	var failed *CallError
	var own *readerError
	switch cause := context.Cause(ctx); {
	case errors.As(err, &own):
		return own.err
	case errors.As(err, &failed):
		return failed
	case parent.Err() != nil:
		return fmt.Errorf("call model %s: %w", call.Model, context.Cause(parent))
	case s.complete(err == nil): // what breaks afterwards does not matter
		if err := s.conclude(); !errors.As(err, &own) {
			return err
		}
		return own.err
	case cause != nil:
		return s.transportError(cause)
	case err != nil:
		return s.transportError(err)
	case s.nothing:
		return s.transportError(errNothing)
	default:
		return s.transportError(errCut)
	}
}

// complete reports whether the answer is. ended: the response has ended.
func (s *session) complete(ended bool) bool {
	switch {
	case s.raw != nil && s.raw.req.Responses:
		return s.raw.last
	case s.raw != nil:
		return s.raw.complete(ended) || ended && s.ended
	}
	return s.result.FinishReason != "" || ended && s.ended
}

// conclude processes the end of a complete answer.
func (s *session) conclude() error {
	if s.raw != nil {
		if s.raw.req.Stream && !s.raw.req.Responses {
			return s.endStream()
		}
		return nil
	}
	if err := s.deliver(s.filter.feed(s.halves.rest())); err != nil {
		return err
	}
	if err := s.deliver(s.filter.close()); err != nil {
		return err
	}
	return s.judge()
}

// readerError is an error of the answer's reader.
type readerError struct{ err error }

func (e *readerError) Error() string { return e.err.Error() }

// read makes the request and reads the response. It returns nil at the end of an answer.
func (s *session) read(ctx context.Context, call Call) error {
	req, err := s.request(ctx, http.MethodPost, call.path(), bytes.NewReader(call.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	if call.Raw != nil && !call.Raw.Stream {
		req.Header.Set("Accept", "application/json")
	}
	resp, err := s.http.Do(req) //nolint:bodyclose // closed by the guarded body
	if err != nil {
		return err
	}
	body := &guardedBody{ReadCloser: newUnzipped(resp.Body), dog: s.dog, limits: s.limits, rest: s.rest, ended: func() bool { return s.ended || s.complete(false) }}
	defer func() { _ = body.Close() }() // the answer is complete or abandoned
	s.result.Stub = resp.Header.Get(StubHeader) == "true"
	if resp.StatusCode != http.StatusOK {
		s.dog.hurry(afterEnd)
		words, _ := io.ReadAll(io.LimitReader(body, errorBodyBytes)) // a part is enough
		return s.statusError(resp, words, time.Now())
	}
	s.accepted = true
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") { // gzip is decoded and removed
		return s.failure(CauseMalformed, http.StatusOK, s.shown("", "the content encoding "+coding+", which was not requested"), nil)
	}
	in := bufio.NewReader(body)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		s.nothing = true
	}
	form, err := formOf(in, resp.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return err
	case form == formStream && s.raw != nil && !s.raw.req.Stream && !s.nothing:
		return s.failure(CauseMalformed, http.StatusOK, "a stream, although none was requested", nil)
	case form == formStream:
		return s.readStream(in)
	case form == formObject:
		return s.readObject(in, resp.Header.Get("Content-Type"))
	default:
		words, _ := io.ReadAll(io.LimitReader(in, errorBodyBytes))
		return s.notAnAnswer(resp.Header.Get("Content-Type"), words)
	}
}

// doneMark is the data of the event with which streams end.
const doneMark = "[DONE]"

func (s *session) readStream(in io.Reader) error {
	events := eventstream.NewDecoder(in, eventstream.Options{MaxLine: s.limits.LineBytes, MaxEvent: 2 * s.limits.LineBytes, KeepLast: true})
	for !s.ended {
		ev, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.takeEvent(ev); err != nil {
			return err
		}
	}
	return nil
}

// otherEvents are names of events that do not belong to an answer, whatever their data are.
var otherEvents = []string{"ping", "pong", "heartbeat", "keepalive", "comment", "debug", "trace", "log", "metadata"}

// isOther reports whether an event does not belong to the answer: by its name, or because it has one and no choices.
func (s *session) isOther(ev eventstream.Event, data []byte) bool {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return r
	}, ev.Name))
	switch {
	case name == "", name == "message":
		return false
	case slices.Contains(otherEvents, name):
		return true
	case s.raw != nil && s.raw.req.Responses: // each event has its type, also in its data
		return false
	case gjson.GetBytes(data, "choices").Exists():
		return false
	}
	if s.unread == "" && len(data) > 0 {
		s.unread = ev.Name
	}
	return true
}

// takeEvent processes an event. Events with a name are chunks only if they have choices; others keep connections open, or report an error.
// Text other than a JSON object is ignored.
func (s *session) takeEvent(ev eventstream.Event) error {
	data := bytes.TrimSpace(ev.Data)
	for again := true; again; data = bytes.TrimSpace(data) { // a proxy has framed events again
		data, again = bytes.CutPrefix(data, []byte("data:"))
	}
	switch {
	case isDone(data):
		s.ended = true
		return nil
	case ev.Name == "error" && validJSON(data):
		doc := gjson.ParseBytes(data)
		reported, ok := errorIn(doc)
		if !ok && !holds(doc) {
			return nil
		}
		return s.reportedError(reported, data)
	case ev.Name == "error" && len(data) > 0:
		return s.reportedError(reportedError{message: string(data)}, data)
	case s.isOther(ev, data), !bytes.HasPrefix(data, []byte("{")):
		return nil
	case validJSON(data):
		return s.take(data)
	}
	err := s.takeAll(data)
	if errors.Is(err, errUnreadable) && ev.Unfinished {
		return errCut
	}
	return err
}

// isDone reports whether the data of an event is the mark of the end.
func isDone(data []byte) bool {
	return len(data) <= len(doneMark)+2 && strings.EqualFold(strings.Trim(string(data), `"`), doneMark)
}

// maxQuickJSON is the size of a text that gjson checks: it calls itself for each level, which needs too much of the stack in a larger one.
const maxQuickJSON = 64 << 10

// validJSON reports whether a text of a provider is valid JSON.
func validJSON(text []byte) bool {
	if len(text) <= maxQuickJSON {
		return gjson.ValidBytes(text)
	}
	return json.Valid(text)
}

// takeAll processes chunks that follow each other without the form of an event stream: some servers end a chunk with one line end, or with
// none.
func (s *session) takeAll(data []byte) error {
	for data = bytes.TrimSpace(data); len(data) > 0 && !s.ended; data = bytes.TrimSpace(data) {
		if s.ended = bytes.HasPrefix(data, []byte(doneMark)); s.ended {
			return nil
		}
		var object json.RawMessage
		objects := json.NewDecoder(bytes.NewReader(data))
		if err := objects.Decode(&object); err != nil || object[0] != '{' {
			return errUnreadable
		}
		if err := s.take(object); err != nil {
			return err
		}
		data = data[objects.InputOffset():]
	}
	return nil
}

// readObject reads an answer in one response, or an error.
func (s *session) readObject(in io.Reader, mediaType string) error {
	limit := 2 * int64(s.limits.OutputBytes)
	if s.raw != nil {
		limit = s.limits.WireBytes
	}
	words, err := io.ReadAll(io.LimitReader(in, limit+1))
	switch {
	case err != nil:
		return err
	case int64(len(words)) > limit:
		return errTooMuch
	case s.raw != nil && s.raw.req.Operation == OperationEmbeddings && validJSON(words):
		return s.takeEmbeddings(words, mediaType)
	case s.raw != nil && s.raw.req.Responses && validJSON(words):
		return s.takeWholeResponse(words, mediaType)
	case !validJSON(words) && bytes.HasPrefix(words, []byte("{")) && bytes.Contains(words, s.answerField()):
		return s.takeAll(words)
	case !validJSON(words):
		return s.notAnAnswer(mediaType, words)
	case s.raw != nil && hasItems(rawField(words, "choices")): // large answers are not copied
	default:
		doc := gjson.ParseBytes(words)
		if e, failed := errorIn(doc); !failed && (len(choicesOf(doc)) == 0 || s.raw != nil) {
			if causeOf(http.StatusOK, e) != CauseUnknown { // only a text
				return s.reportedError(e, words)
			}
			return s.notAnAnswer(mediaType, words)
		}
	}
	if err := s.take(words); err != nil {
		return err
	}
	s.ended = true
	return nil
}

// answerField returns the field, as it is written, by which a whole answer is known.
func (s *session) answerField() []byte {
	if s.raw != nil && s.raw.req.Responses {
		return []byte(`"output"`)
	}
	return []byte(`"choices"`)
}

// take processes one chunk of a stream, or a whole answer.
func (s *session) take(data []byte) error {
	switch {
	case s.raw != nil && s.raw.req.Responses:
		return s.takeResponse(data)
	case s.raw != nil && s.raw.req.Stream:
		return s.takeChunk(data)
	case s.raw != nil:
		return s.takeWhole(data)
	}
	chunk := gjson.ParseBytes(data)
	if reported, failed := errorIn(chunk); failed {
		return s.reportedError(reported, data)
	}
	if strings.HasPrefix(chunk.Get("system_fingerprint").String(), StubFingerprint) {
		s.result.Stub = true
	}
	if u, ok := usageOf(chunk); ok {
		s.result.Usage = u
	}
	p, err := pieceOf(chunk, &s.follow, &s.halves)
	if err != nil {
		return s.failure(CauseMalformed, http.StatusOK, err.Error(), errors.New(s.quote(data)))
	}
	s.tools, s.refusal = s.tools || p.tools, s.refusal || strings.TrimSpace(p.refusal) != ""
	p.content = s.added(p)
	if s.received += len(p.content) + len(p.reasoning); s.received > s.limits.OutputBytes {
		return errTooLong
	}
	if p.reasoning != "" {
		s.filter.separate()
	}
	out := s.filter.feed(p.content)
	out.thoughts = p.reasoning + out.thoughts
	if err := s.deliver(out); err != nil {
		return err
	}
	if p.finish != "" {
		s.result.FinishReason = shorten(printable(p.finish), maxFinishReason)
		s.dog.hurry(afterEnd)
	}
	return nil
}

// added returns the content that a piece adds. Some servers send the whole text so far with each message, or with the last.
func (s *session) added(p piece) string {
	if rest, again := strings.CutPrefix(p.content, s.content.String()); p.whole && again {
		p.content = rest
	}
	s.content.WriteString(p.content)
	return p.content
}

// reportedError is an error that the provider reports within its answer. If it comes first, and says that the provider had no capacity for the
// call, nothing was bought.
func (s *session) reportedError(reported reportedError, data []byte) *CallError {
	failed := s.answerError(reported, data)
	if s.result.FirstToken == 0 && (failed.Cause == CauseLimit || failed.Cause == CauseOverload || !failed.Retryable) {
		s.accepted = false
	}
	return failed
}

func (s *session) deliver(out filtered) error {
	if out.withdrawn {
		s.thought += tokens(s.text.String())
		s.text.Reset()
	}
	s.text.WriteString(out.text)
	s.thought += tokens(out.thoughts)
	d := Delta{Content: out.text, Reasoning: out.thoughts, Withdrawn: out.withdrawn}
	if d == (Delta{}) {
		return nil
	}
	if s.result.FirstToken == 0 {
		s.result.FirstToken = time.Since(s.begun)
	}
	if s.on == nil {
		return nil
	}
	if err := s.on(d); err != nil {
		return &readerError{err}
	}
	return nil
}

// judge returns an error when a complete answer cannot be used, and otherwise sets the finish reason to one of berth's.
func (s *session) judge() error {
	reason := s.result.FinishReason
	text := strings.TrimSpace(s.text.String())
	answered := text != ""
	called := strings.HasPrefix(text, toolTags.begin) && strings.HasSuffix(text, toolTags.end) // by a server that does not separate it
	why := fmt.Errorf("finish reason %q, %d bytes of text", reason, s.text.Len())
	fail := func(cause Cause, shown string) error { return s.failure(cause, http.StatusOK, shown, why) }
	kind := finishReasons[reason]
	if reason == "" {
		kind, s.result.FinishReason = finishStop, berth.FinishUnknown
	}
	switch {
	case kind == finishFiltered, s.refusal && !answered:
		return fail(CauseRefused, "")
	case kind == finishOverload:
		return fail(CauseOverload, "")
	case kind == finishTimeout:
		return fail(CauseTimeout, "")
	case kind == finishFailed:
		return fail(CauseUnknown, "finish reason "+reason)
	case kind == finishTool, called, s.tools && !answered:
		return fail(CauseTool, "")
	case kind == finishOther:
		return fail(CauseFinish, s.shown("", reason))
	case !answered && kind == finishLength && s.thought > 0:
		return fail(CauseTokens, "only thoughts")
	case !answered && kind == finishLength:
		return fail(CauseTokens, "no text")
	case !answered && s.thought > 0:
		return fail(CauseEmpty, "only thoughts")
	case !answered && s.unread != "":
		return fail(CauseEmpty, s.shown("", fmt.Sprintf("events with the name %q are not read", shorten(s.unread, maxFinishReason))))
	case !answered:
		return fail(CauseEmpty, "")
	}
	if kind == finishLength {
		s.result.FinishReason = berth.FinishLength
	} else if reason != "" {
		s.result.FinishReason = berth.FinishStop
	}
	return nil
}

// finish completes the result. A call that was accepted may have cost something, also without an answer.
func (s *session) finish(call Call) {
	r := &s.result
	r.Text = s.text.String()
	r.Took = time.Since(s.begun)
	reported := r.Usage != (berth.Usage{})
	switch {
	case reported && call.Raw != nil:
		r.PromptTruncated = r.Usage.InputTokens < call.Raw.LeastTokens
	case reported:
		r.PromptTruncated = r.Usage.InputTokens < leastTokens(call.Messages)
	case s.accepted && s.raw != nil:
		r.Usage, r.Estimated = s.raw.estimate(), true
	case s.accepted:
		r.Usage, r.Estimated = estimate(call.Messages, r.Text, s.thought), true
	}
}
