package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"berth/internal/rawjson"
)

// Replay continues a log of events that was cut, each on a line: End and Cancel then make the last event, with the next number and the items so far.
// A log that has its last event stays as it is.
func (w *Writer) Replay(log []byte) error {
	for line := range bytes.Lines(log) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			return errors.New("an event of the log is not valid JSON")
		}
		n, err := strconv.Atoi(string(get(line, "sequence_number")))
		if err != nil || n != w.n {
			return fmt.Errorf("the event %d of the log has the number %.20q", w.n, get(line, "sequence_number"))
		}
		w.n++
		w.take(value(line, "type"), line)
	}
	w.ended = w.status != ""
	return nil
}

// take notes what an event says of the response.
func (w *Writer) take(kind string, event []byte) {
	switch kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		w.takeLast(kind, event)
		return
	case "error":
		w.status = statusFailed
		w.failed = failureOf(event)
		return
	case "response.output_item.added", "response.output_item.done":
		w.takeItem(kind == "response.output_item.done", event)
		return
	}
	it := w.byIndex[number64(get(event, "output_index"))]
	if it == nil {
		return
	}
	if call, ok := callKinds[it.kind]; ok {
		switch kind {
		case "response." + call.delta:
			it.argument = appendInner(it.argument, get(event, "delta"))
		case "response." + call.done:
			it.argument = appendInner(nil, get(event, call.argument))
		}
		return
	}
	parts, i := &it.content, number64(get(event, "content_index"))
	if v := get(event, "summary_index"); v != nil {
		parts, i = &it.summary, number64(v)
	}
	takePart(parts, i, kind, event)
}

// takePart notes what an event says of a part.
func takePart(parts *[]*part, i int, kind string, event []byte) {
	switch kind {
	case "response.content_part.added", "response.reasoning_summary_part.added":
		if k := kindByName(value(get(event, "part"), "type")); k != nil && i == len(*parts) {
			*parts = append(*parts, &part{kind: k})
		}
		return
	}
	if i < 0 || i >= len(*parts) {
		return
	}
	p := (*parts)[i]
	switch kind {
	case "response.content_part.done", "response.reasoning_summary_part.done":
		p.raw, p.done = compact(get(event, "part")), true
	case "response." + p.kind.delta:
		p.text = appendInner(p.text, get(event, "delta"))
		if v := get(event, "logprobs"); rawjson.IsList(v) {
			p.logprobs = appendItems(p.logprobs, v)
		}
	case "response." + p.kind.whole:
		p.text = appendInner(nil, get(event, p.kind.text))
	case "response.output_text.annotation.added":
		if v := get(event, "annotation"); v != nil {
			p.annotations = append(p.annotations, compact(v))
		}
	}
}

// appendInner appends what a text, as written in JSON, has between its quotes.
func appendInner(inner, v []byte) []byte {
	if !rawjson.IsString(v) {
		return inner
	}
	return append(inner, v[1:len(v)-1]...)
}

func number64(v []byte) int {
	n, err := strconv.Atoi(string(v))
	if err != nil {
		return -1
	}
	return n
}

func (w *Writer) takeItem(done bool, event []byte) {
	raw, index := compact(get(event, "item")), number64(get(event, "output_index"))
	if !rawjson.IsObject(raw) || index < 0 {
		return
	}
	it := w.byIndex[index]
	if it == nil {
		it = &item{kind: typeOf(raw), id: value(raw, "id"), index: index, status: statusInProgress}
		it.callID, it.name = get(raw, "call_id"), get(raw, "name")
		w.byIndex[index] = it
		w.items = append(w.items, it)
	}
	if it.raw, it.done = raw, done; done {
		it.status = value(raw, "status")
	}
}

// takeLast notes what the last event of a response has.
func (w *Writer) takeLast(kind string, event []byte) {
	w.status = kind[len("response."):]
	response := get(event, "response")
	if usage := usageOf(get(response, "usage")); usage != nil {
		w.usage = usage
	}
	if v := get(response, "error"); v != nil {
		w.failed = compact(v)
	}
	if v := get(response, "incomplete_details"); v != nil {
		w.incomplete = compact(v)
	}
}

// failureOf returns the error of an event of that type.
func failureOf(event []byte) []byte {
	if inner := get(event, "error"); rawjson.IsObject(inner) {
		event = inner
	}
	var o builder
	code := get(event, "code")
	if !rawjson.IsString(code) {
		code = []byte(`"server_error"`)
	}
	o.raw("code", code)
	message := get(event, "message")
	if !rawjson.IsString(message) {
		message = []byte(`"the provider reports an error"`)
	}
	o.raw("message", message)
	return o.end()
}
