package llm

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/rawjson"
)

// The types of events of the responses API that are not passed on as they are.
const (
	eventError      = "error"
	eventCreated    = "response.created"
	eventQueued     = "response.queued"
	eventInProgress = "response.in_progress"
	eventCompleted  = "response.completed"
	eventIncomplete = "response.incomplete"
	eventFailed     = "response.failed"
	eventCancelled  = "response.cancelled"
)

// takeResponse processes an event of an upstream that speaks the responses API. Events are passed on as the provider sent them, but
//
//   - those with which a response begins are not;
//   - the one that ends it has only what the answer is: output, usage, incomplete_details;
//   - encrypted content says which account can read it;
//   - that of a failure is an error of the call.
func (s *session) takeResponse(event []byte) error {
	a := s.raw
	kind, _ := rawjson.String(rawField(event, "type"))
	switch kind {
	case "":
		return s.takeUntyped(event)
	case eventCreated, eventQueued, eventInProgress:
		return nil
	case eventError, eventFailed, eventCancelled:
		return s.failedResponse(kind, event)
	case eventCompleted, eventIncomplete:
		return s.endResponse(kind, rawField(event, "response"))
	}
	if slices.Contains(otherEvents, kind) {
		return nil
	}
	if delta := rawField(event, "delta"); rawjson.IsString(delta) {
		a.tokens += rawTokens(delta)
		if s.received += len(delta); s.received > s.limits.OutputBytes {
			return errTooLong
		}
	}
	if kind == "response.output_item.added" {
		a.takeCall(rawField(event, "item"))
	}
	if bytes.Contains(event, []byte(encryptedField)) {
		event = s.shownEvent(event)
	}
	something := strings.HasSuffix(kind, ".delta") || strings.HasSuffix(kind, ".done")
	if !something && !a.begun && len(a.held) < maxHeld {
		a.hold(event)
		return nil
	}
	return s.pass(event)
}

// takeCall counts an item that calls a tool.
func (a *rawAnswer) takeCall(item []byte) {
	if kind, _ := rawjson.String(rawField(item, "type")); !strings.HasSuffix(kind, "_call") {
		return
	}
	a.called = true
	a.tokens += rawTokens(rawField(item, "name"))
}

// shownEvent returns an event of an item as clients get it.
func (s *session) shownEvent(event []byte) []byte {
	var out []byte
	all := rawjson.Read(event)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if string(key) == "item" && rawjson.IsObject(value) {
			value = s.shownItem(value)
		}
		out = appendField(out, key, value)
	}
	return append(out, '}')
}

// takeUntyped processes an object that is not an event: a whole response, or an error.
func (s *session) takeUntyped(object []byte) error {
	if rawField(object, "output") != nil {
		return s.takeWholeResponse(object, "")
	}
	if rawField(object, "choices") != nil {
		return s.failure(CauseMalformed, http.StatusOK, "a chat, although a response was requested", errors.New(s.quote(object)))
	}
	if reported, failed := errorIn(gjson.ParseBytes(object)); failed {
		return s.reportedError(reported, object)
	}
	return nil
}

// takeWholeResponse processes the answer of a provider that does not stream, or an error.
func (s *session) takeWholeResponse(response []byte, mediaType string) error {
	if e, failed := errorIn(gjson.ParseBytes(response)); failed {
		return s.reportedError(e, response)
	}
	output := rawField(response, "output")
	if !rawjson.IsList(output) {
		return s.notAnAnswer(mediaType, response)
	}
	if s.received += len(output); s.received > s.limits.OutputBytes {
		return errTooLong
	}
	items := rawjson.Read(output)
	for item, ok := items.Item(); ok; item, ok = items.Item() {
		s.raw.takeCall(item)
		s.raw.tokens += itemTokens(item)
	}
	switch status, _ := rawjson.String(rawField(response, "status")); status {
	case "completed", "":
		return s.endResponse(eventCompleted, response)
	case "incomplete":
		return s.endResponse(eventIncomplete, response)
	default:
		return s.failure(CauseMalformed, http.StatusOK, s.shown("", "a response with the status "+status), errors.New(s.quote(response)))
	}
}

// itemTokens estimates the tokens of a whole item.
func itemTokens(item []byte) (n float64) {
	n = rawTokens(rawField(item, "arguments")) + rawTokens(rawField(item, "input"))
	for _, name := range []string{"content", "summary"} {
		list := rawField(item, name)
		parts := rawjson.Read(list)
		for part, ok := parts.Item(); ok && rawjson.IsList(list); part, ok = parts.Item() {
			n += rawTokens(rawField(part, "text")) + rawTokens(rawField(part, "refusal"))
		}
	}
	return n
}

// failedResponse returns the error that an event reports.
func (s *session) failedResponse(kind string, event []byte) error {
	from := event
	if kind != eventError {
		if from = rawField(event, "response"); !rawjson.IsObject(from) {
			from = []byte("{}")
		}
		s.takeUsage(rawField(from, "usage"))
	}
	reported, ok := errorIn(gjson.ParseBytes(from))
	if !ok && reported.message == "" {
		reported.message = "the response ended with " + kind
	}
	return s.reportedError(reported, event)
}

// endResponse passes on how a response has ended.
func (s *session) endResponse(kind string, response []byte) error {
	a := s.raw
	if !rawjson.IsObject(response) {
		return s.failure(CauseMalformed, http.StatusOK, "a last event without its response", nil)
	}
	s.takeUsage(rawField(response, "usage"))
	details := rawField(response, "incomplete_details")
	switch reason, _ := rawjson.String(rawField(details, "reason")); {
	case kind == eventIncomplete && reason == berth.FinishFiltered:
		s.result.FinishReason = berth.FinishFiltered
	case kind == eventIncomplete: // by its bound, or for a reason that is not known
		s.result.FinishReason = berth.FinishLength
	case a.called:
		s.result.FinishReason = finishToolCalls
	default:
		s.result.FinishReason = berth.FinishStop
	}
	a.last, s.ended = true, true
	out := appendField(nil, []byte("output"), s.shownItems(rawField(response, "output")))
	out = appendField(out, []byte("usage"), s.shownUsage())
	if rawjson.IsObject(details) {
		out = appendField(out, []byte("incomplete_details"), details)
	}
	return s.pass(append(append([]byte(`{"type":"`+kind+`","response":`), append(out, '}')...), '}'))
}
