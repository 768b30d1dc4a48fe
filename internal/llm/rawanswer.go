package llm

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/rawjson"
)

// rawAnswer is the answer to a raw call as far as it was read. Chunks are passed on as the provider sent them, but
//
//   - id, created and model are the same in all of them;
//   - the usage is in one last chunk, if the client wants it;
//   - fields of a chunk without choices, which clients do not expect, come with the next one that has some;
//   - calls of tools have an index and an id of their own, and an answer with some does not end with the reason stop;
//   - fields that clients require are added: object, the index of a choice, its delta, and a last finish reason.
type rawAnswer struct {
	req *Raw
	on  func([]byte) error
	// prefix is the beginning of each chunk: the object with the fields that are the same in all of them.
	prefix  []byte
	choices []rawChoice // by index
	// pending are fields of chunks without choices, as the end of an object. held are chunks without anything that a client could read: as
	// long as there is no other one, the call can be made elsewhere.
	pending []byte
	held    [][]byte
	begun   bool // something was passed on
	// Of the responses API: last, the event that ends a response was passed on, and called, the response calls a tool.
	last, called bool
	usage        []byte
	tokens       float64 // of the answers, as an estimate
	// Buffers that are used again for each chunk.
	rest, list, out []byte
}

// rawParts are the fields of a chunk, or of a whole answer, that berth reads. The others are in rawAnswer.rest.
type rawParts struct {
	id, created, model, tier, choices, usage, failed []byte
}

const (
	// maxHeld is how many chunks are held back at the beginning of an answer.
	maxHeld = 4
	// maxPending bounds the fields that wait for a chunk with choices, in bytes.
	maxPending = 64 << 10
)

// split reads a chunk or a whole answer.
func (a *rawAnswer) split(object []byte) (p rawParts) {
	a.rest = a.rest[:0]
	all := rawjson.Read(object)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch string(key) {
		case "id":
			p.id = value
		case "created":
			p.created = value
		case "model":
			p.model = value
		case "object":
		case "choices":
			p.choices = value
		case "usage":
			p.usage = value
		case "error": // some servers send an empty one with each chunk, which clients take for a fault
			p.failed = value
		case "service_tier":
			if p.tier = value; a.req.Shown.ServiceTier == "" {
				a.rest = appendRest(a.rest, key, value)
			}
		default:
			if string(key) == "x_groq" && !rawjson.IsObject(p.usage) {
				p.usage = rawField(value, "usage")
			}
			a.rest = appendRest(a.rest, key, value)
		}
	}
	return p
}

// appendRest appends a field that is not the first one of its object.
func appendRest(rest, key, value []byte) []byte {
	rest = append(append(append(rest, ',', '"'), key...), '"', ':')
	return append(rest, value...)
}

// rawField returns a field of an object, nil if there is none.
func rawField(object []byte, name string) []byte {
	all := rawjson.Read(object)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// begin determines the fields that are the same in all chunks.
func (a *rawAnswer) begin(object string, p rawParts) {
	if a.prefix != nil {
		return
	}
	shown, id := a.req.Shown, p.id
	if text, _ := rawjson.String(id); shown.ID != "" || text == "" {
		if shown.ID == "" {
			shown.ID = "chatcmpl-" + rand.Text()
		}
		id = quotedText(shown.ID)
	}
	created := p.created
	if n, err := strconv.ParseInt(string(created), 10, 64); shown.Created != 0 || err != nil || n <= 0 {
		if shown.Created == 0 {
			shown.Created = time.Now().Unix()
		}
		created = strconv.AppendInt(nil, shown.Created, 10)
	}
	a.prefix = appendField(nil, []byte("id"), id)
	a.prefix = appendRest(a.prefix, []byte("object"), quotedText(object))
	a.prefix = appendRest(a.prefix, []byte("created"), created)
	a.prefix = appendRest(a.prefix, []byte("model"), a.shownModel(p))
	if shown.ServiceTier != "" {
		a.prefix = appendRest(a.prefix, []byte("service_tier"), quotedText(shown.ServiceTier))
	}
}

func (a *rawAnswer) shownModel(p rawParts) []byte {
	if a.req.Shown.Model != "" || !rawjson.IsString(p.model) {
		return quotedText(a.req.Shown.Model)
	}
	return p.model
}

// quotedText returns a text in JSON.
func quotedText(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		return []byte(`""`) // no text fails
	}
	return b
}

// takeChunk processes one chunk of a stream.
func (s *session) takeChunk(data []byte) error {
	a := s.raw
	p := a.split(data)
	if err := s.rawFault(p, data); err != nil {
		return err
	}
	s.markStub()
	s.takeUsage(p.usage)
	list, something, err := []byte(nil), false, error(nil)
	if hasItems(p.choices) {
		a.begin("chat.completion.chunk", p)
		list, something, err = s.takeChoices(p.choices, data)
	}
	if err != nil {
		return err
	}
	if len(list) <= len("[]") {
		if len(a.pending)+len(a.rest) <= maxPending {
			a.pending = append(a.pending, a.rest...)
		}
		return nil
	}
	a.out = append(append(a.out[:0], a.prefix...), `,"choices":`...)
	a.out = append(append(append(a.out, list...), a.pending...), a.rest...)
	if a.req.IncludeUsage {
		a.out = append(a.out, `,"usage":null`...)
	}
	a.out, a.pending = append(a.out, '}'), a.pending[:0]
	if something || a.begun || len(a.held) == maxHeld {
		return s.pass(a.out)
	}
	a.hold(a.out)
	return nil
}

// hold keeps a chunk or an event that begins an answer without anything of it.
func (a *rawAnswer) hold(object []byte) { a.held = append(a.held, bytes.Clone(object)) }

// rawFault returns the error that a chunk or an answer reports.
func (s *session) rawFault(p rawParts, data []byte) error {
	if rawjson.IsNull(p.failed) && hasItems(p.choices) {
		return nil
	}
	if reported, failed := errorIn(gjson.ParseBytes(data)); failed {
		return s.reportedError(reported, data)
	}
	return nil
}

// markStub notes that an answer is marked as simulated.
func (s *session) markStub() {
	if !s.result.Stub && bytes.Contains(s.raw.rest, []byte(`"system_fingerprint":"`+StubFingerprint)) {
		s.result.Stub = true
	}
}

// takeUsage notes the usage that a provider reports.
func (s *session) takeUsage(usage []byte) {
	if !rawjson.IsObject(usage) {
		return
	}
	if u, ok := reported(gjson.ParseBytes(usage)); ok {
		s.result.Usage = u
		s.raw.usage = append(s.raw.usage[:0], usage...)
	}
}

// hasItems reports whether a list has an item.
func hasItems(list []byte) bool {
	all := rawjson.Read(list)
	_, ok := all.Item()
	return ok && rawjson.IsList(list)
}

// pass passes an object on, with those that were held back before it.
func (s *session) pass(object []byte) error {
	a := s.raw
	if !a.begun {
		a.begun = true
		s.result.FirstToken = time.Since(s.begun)
		for _, chunk := range a.held {
			if err := s.pass(chunk); err != nil {
				return err
			}
		}
		a.held = nil
	}
	if !utf8.Valid(object) {
		object = bytes.ToValidUTF8(object, []byte(string(utf8.RuneError)))
	}
	if bytes.IndexByte(object, '\n') >= 0 || bytes.IndexByte(object, '\r') >= 0 { // between the values
		var line bytes.Buffer
		if err := json.Compact(&line, object); err != nil {
			return errUnreadable
		}
		object = line.Bytes()
	}
	if err := a.on(object); err != nil {
		return &readerError{err}
	}
	return nil
}

// complete reports whether all that was asked for has arrived. Not all servers know several choices: then a stream that ends is complete when
// those have ended that it has.
func (a *rawAnswer) complete(ended bool) bool {
	finished, seen := 0, 0
	for _, c := range a.choices {
		if c.seen {
			seen++
		}
		if c.finished {
			finished++
		}
	}
	return seen > 0 && finished == seen && (ended || seen >= a.req.Choices)
}

// endStream passes on what the end of a stream lacks.
func (s *session) endStream() error {
	a := s.raw
	if !a.begun { // and no finish reason
		return s.failure(CauseEmpty, http.StatusOK, "", errors.New("a stream without anything of an answer"))
	}
	if err := s.finishChoices(); err != nil {
		return err
	}
	if !a.req.IncludeUsage {
		return nil
	}
	out := append(append(a.out[:0], a.prefix...), `,"choices":[],"usage":`...)
	out = append(append(append(out, s.shownUsage()...), a.pending...), '}')
	return s.pass(out)
}

// finishChoices passes on the finish reasons that a stream with its end mark lacks.
func (s *session) finishChoices() error {
	a := s.raw
	out := append(append(a.out[:0], a.prefix...), `,"choices":[`...)
	before := len(out)
	for i, c := range a.choices {
		if !c.seen || c.finished {
			continue
		}
		if len(out) > before {
			out = append(out, ',')
		}
		reason := berth.FinishStop
		if c.tools {
			reason = finishToolCalls
		}
		if s.result.FinishReason == "" {
			s.result.FinishReason = reason
		}
		out = append(strconv.AppendInt(append(out, `{"index":`...), int64(i), 10), `,"delta":{},"finish_reason":"`+reason+`"}`...)
	}
	if len(out) == before {
		return nil
	}
	return s.pass(append(out, "]}"...))
}

// takeWhole processes a whole answer to a chat.
func (s *session) takeWhole(data []byte) error {
	a := s.raw
	p := a.split(data)
	if err := s.rawFault(p, data); err != nil {
		return err
	}
	s.markStub()
	s.takeUsage(p.usage)
	a.begin("chat.completion", p)
	list, _, err := s.takeChoices(p.choices, data)
	if err != nil {
		return err
	}
	out := make([]byte, 0, len(a.prefix)+len(list)+len(a.rest)+256)
	out = append(append(append(out, a.prefix...), `,"choices":`...), list...)
	out = append(append(append(out, a.rest...), `,"usage":`...), s.shownUsage()...)
	s.ended = true
	return s.pass(append(out, '}'))
}

// shownUsage returns the usage as clients read it: the object of the provider, if it has the names of the protocol.
func (s *session) shownUsage() []byte {
	if u := s.raw.usage; u != nil && (s.raw.req.Responses || rawField(u, "prompt_tokens") != nil) {
		return u
	}
	u := s.result.Usage
	if u == (berth.Usage{}) {
		u = s.raw.estimate()
	}
	type details struct {
		Cached    int64 `json:"cached_tokens,omitempty"`
		Reasoning int64 `json:"reasoning_tokens,omitempty"`
	}
	shown := struct {
		Prompt     int64    `json:"prompt_tokens"`
		Completion *int64   `json:"completion_tokens,omitempty"`
		Total      int64    `json:"total_tokens"`
		Input      *details `json:"prompt_tokens_details,omitempty"`
		Output     *details `json:"completion_tokens_details,omitempty"`
	}{Prompt: u.InputTokens, Total: u.InputTokens + u.OutputTokens}
	if s.raw.req.Operation == OperationChat {
		shown.Completion = &u.OutputTokens
	}
	if u.CachedTokens > 0 {
		shown.Input = &details{Cached: u.CachedTokens}
	}
	if u.ReasoningTokens > 0 {
		shown.Output = &details{Reasoning: u.ReasoningTokens}
	}
	b, err := json.Marshal(shown)
	if err != nil {
		return []byte("null") // numbers do not fail
	}
	return b
}
