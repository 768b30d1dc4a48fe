package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"berth/internal/openai"
	"berth/internal/rawjson"
)

// Writer makes the events of one response. Each is one line of JSON with a sequence_number; the numbers begin at 0 and have no gap. The same calls give
// the same events.
type Writer struct {
	r     *Request
	h     Head
	emit  func(event []byte) error
	fixed []byte // fields of the response object
	n     int    // number of the next event
	ended bool

	items  []*item
	open   *item         // message or reasoning that gets the next text
	calls  map[int]*item // by the index that the provider uses
	last   *item         // call that was begun last
	waits  map[int]*item // calls of which the name has not arrived
	finish string
	usage  []byte
	size   int // of the output, about
	// annotations and logprobs that have arrived without a text.
	annotations [][]byte
	logprobs    []byte

	// Of an upstream that speaks responses: the items by index, and what its last event has.
	byIndex            map[int]*item
	status             string
	failed, incomplete []byte
}

// maxWaiting bounds what arrives of calls before their names, in bytes.
const maxWaiting = 64 << 10

// NewWriter returns a writer that passes each event to emit, without the end of the line. emit may keep it.
func NewWriter(r *Request, h Head, emit func(event []byte) error) *Writer {
	return &Writer{r: r, h: h, emit: emit, fixed: fixed(r, h), calls: map[int]*item{}, waits: map[int]*item{}, byIndex: map[int]*item{}}
}

// Begin makes the events of a response that was accepted.
func (w *Writer) Begin() error {
	status := statusInProgress
	if w.r.Background {
		status = statusQueued
	}
	object := w.object(status, nil, nil)
	if err := w.send("created", []byte(`,"response":`), object); err != nil || !w.r.Background {
		return err
	}
	return w.send("queued", []byte(`,"response":`), object)
}

// Started makes the event of a response whose call is made.
func (w *Writer) Started() error {
	return w.send("in_progress", []byte(`,"response":`), w.object(statusInProgress, nil, nil))
}

// send passes on an event with a type behind "response.", and with further fields.
func (w *Writer) send(kind string, fields ...[]byte) error {
	size := len(`{"type":"response.","sequence_number":}`) + len(kind) + 20
	for _, f := range fields {
		size += len(f)
	}
	out := append(append(make([]byte, 0, size), `{"type":"response.`...), kind...)
	out = strconv.AppendInt(append(out, `","sequence_number":`...), int64(w.n), 10)
	for _, f := range fields {
		out = append(out, f...)
	}
	w.n++
	w.size += len(out) / 4
	return w.emit(append(out, '}'))
}

// Chunk makes the events of a chunk of a chat, which is as internal/llm passes it on.
func (w *Writer) Chunk(chunk []byte) error {
	if !json.Valid(chunk) {
		return errors.New("a chunk is not valid JSON")
	}
	var choices []byte
	all := rawjson.Read(chunk)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch string(key) {
		case "choices":
			choices = v
		case "usage":
			if usage := usageOf(v); usage != nil {
				w.usage = usage
			}
		}
	}
	list := rawjson.Read(choices)
	for choice, ok := list.Item(); ok && rawjson.IsList(choices); choice, ok = list.Item() {
		if i := get(choice, "index"); i == nil || string(i) == "0" { // a response has one answer
			if err := w.choice(choice); err != nil {
				return err
			}
		}
	}
	return nil
}

// choice takes a choice of a chunk.
func (w *Writer) choice(choice []byte) error {
	var delta, logprobs []byte
	all := rawjson.Read(choice)
	if !rawjson.IsObject(choice) {
		return nil
	}
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch string(key) {
		case "delta":
			delta = v
		case "logprobs":
			logprobs = get(v, "content")
		case "finish_reason":
			if s, _ := rawjson.String(v); w.finish == "" {
				w.finish = s
			}
		}
	}
	if rawjson.IsList(logprobs) {
		w.logprobs = appendItems(w.logprobs, logprobs)
	}
	return w.message(delta)
}

// appendItems appends the items of a list to those of another one.
func appendItems(items, list []byte) []byte {
	list = compact(list)
	if len(list) == len("[]") {
		return items
	}
	if len(items) > 0 {
		items = append(items, ',')
	}
	return append(items, list[1:len(list)-1]...)
}

// message takes the delta of a chunk.
func (w *Writer) message(delta []byte) error {
	if !rawjson.IsObject(delta) {
		return nil
	}
	var thought, content, refusal, calls, annotations []byte
	all := rawjson.Read(delta)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch string(key) {
		case "reasoning_content", "reasoning", "thinking": // some servers send two of them with the same text
			if isText(v) && thought == nil {
				thought = v
			}
		case "content":
			content = v
		case "refusal":
			refusal = v
		case "tool_calls":
			calls = v
		case "annotations":
			annotations = v
		}
	}
	if err := w.text(w.thoughtKind(), thought); err != nil {
		return err
	}
	if err := w.content(content); err != nil {
		return err
	}
	if err := w.text(refusalKind, refusal); err != nil {
		return err
	}
	if rawjson.IsList(calls) {
		list := rawjson.Read(calls)
		for call, ok := list.Item(); ok; call, ok = list.Item() {
			if err := w.call(call); err != nil {
				return err
			}
		}
	}
	return w.annotate(annotations)
}

// isText reports whether a value is a text that is not empty.
func isText(v []byte) bool { return rawjson.IsString(v) && len(v) > len(`""`) }

func (w *Writer) thoughtKind() *partKind {
	if w.r.summary {
		return summaryKind
	}
	return thoughtKind
}

// content takes a text, or the parts that some servers send.
func (w *Writer) content(v []byte) error {
	if !rawjson.IsList(v) {
		return w.text(textKind, v)
	}
	parts := rawjson.Read(v)
	for p, ok := parts.Item(); ok; p, ok = parts.Item() {
		kind := textKind
		thoughts := get(p, "thinking")
		if thoughts == nil {
			if err := w.text(kind, get(p, "text")); err != nil {
				return err
			}
			continue
		}
		all := rawjson.Read(thoughts)
		for t, ok := all.Item(); ok && rawjson.IsList(thoughts); t, ok = all.Item() {
			if err := w.text(w.thoughtKind(), get(t, "text")); err != nil {
				return err
			}
		}
	}
	return nil
}

// text adds a text, as written in JSON, to the part of a kind that is open, or begins one.
func (w *Writer) text(kind *partKind, v []byte) error {
	if !isText(v) {
		return nil
	}
	p, err := w.part(kind)
	if err != nil {
		return err
	}
	p.text = append(p.text, v[1:len(v)-1]...)
	if kind != textKind {
		return w.send(kind.delta, w.open.delta, v)
	}
	logprobs := w.logprobs
	p.logprobs, w.logprobs = appendItems(p.logprobs, asList(logprobs)), nil
	if len(logprobs) > 0 {
		err = w.send(kind.delta, w.open.delta, v, []byte(`,"logprobs":[`), logprobs, []byte("]"))
	} else {
		err = w.send(kind.delta, w.open.delta, v, []byte(`,"logprobs":[]`))
	}
	if err != nil || w.annotations == nil {
		return err
	}
	return w.annotate(nil)
}

// part returns the part of a kind that is open, or begins one.
func (w *Writer) part(kind *partKind) (*part, error) {
	itemKind := itemMessage
	if kind == thoughtKind || kind == summaryKind {
		itemKind = itemReasoning
	}
	if w.open == nil || w.open.kind != itemKind {
		if err := w.beginItem(&item{kind: itemKind}); err != nil {
			return nil, err
		}
	}
	it := w.open
	parts := &it.content
	if kind == summaryKind {
		parts = &it.summary
	}
	if n := len(*parts); n > 0 {
		if p := (*parts)[n-1]; p.kind == kind && !p.done {
			return p, nil
		} else if err := w.endPart(it, n-1, p); err != nil {
			return nil, err
		}
	}
	p := &part{kind: kind}
	*parts = append(*parts, p)
	at := it.at(kind, len(*parts)-1)
	it.delta = append(at[:len(at):len(at)], `,"delta":`...)
	return p, w.send(kind.added, at, []byte(`,"part":`), p.object())
}

// at returns the fields that name an item, or a part of it if kind is not nil.
func (it *item) at(kind *partKind, index int) []byte {
	at := append([]byte(`,"item_id":`), quoted(it.id)...)
	at = strconv.AppendInt(append(at, `,"output_index":`...), int64(it.index), 10)
	if kind != nil {
		at = strconv.AppendInt(append(append(append(at, `,"`...), kind.index...), `":`...), int64(index), 10)
	}
	return at
}

// beginItem begins an item. What is open ends before it, but calls whose arguments are not complete: some servers mix the parts of several.
func (w *Writer) beginItem(it *item) error {
	if w.open != nil {
		if err := w.endItem(w.open, statusCompleted); err != nil {
			return err
		}
	}
	if last := w.last; last != nil && !last.done && last.complete() {
		if err := w.endItem(last, statusCompleted); err != nil {
			return err
		}
	}
	it.index, it.status = len(w.items), statusInProgress
	it.id = itemID(it.kind, w.h.ID, it.index)
	w.items = append(w.items, it)
	if _, ok := callKinds[it.kind]; ok {
		w.last = it
		it.delta = append(it.at(nil, 0), `,"delta":`...)
	} else {
		w.open = it
	}
	return w.send("output_item.added", indexField(it), []byte(`,"item":`), it.object(statusInProgress))
}

func indexField(it *item) []byte {
	return strconv.AppendInt([]byte(`,"output_index":`), int64(it.index), 10)
}

// endPart makes the events with the whole of a part.
func (w *Writer) endPart(it *item, index int, p *part) error {
	if p.done {
		return nil
	}
	p.done = true
	at := it.at(p.kind, index)
	if p.kind != textKind {
		if err := w.send(p.kind.whole, at, []byte(`,"`+p.kind.text+`":`), asText(p.text)); err != nil {
			return err
		}
	} else if err := w.send(p.kind.whole, at, []byte(`,"text":`), asText(p.text), []byte(`,"logprobs":`), asList(p.logprobs)); err != nil {
		return err
	}
	return w.send(p.kind.done, at, []byte(`,"part":`), p.object())
}

// endItem makes the events with the whole of an item.
func (w *Writer) endItem(it *item, status string) error {
	for _, parts := range [][]*part{it.summary, it.content} {
		for i, p := range parts {
			if err := w.endPart(it, i, p); err != nil {
				return err
			}
		}
	}
	if kind, ok := callKinds[it.kind]; ok {
		if it.kind == itemFunction && len(it.argument) == 0 && status == statusCompleted { // clients parse it
			if err := w.argument(it, []byte(`"{}"`)); err != nil {
				return err
			}
		}
		name := []byte(nil)
		if it.kind == itemFunction {
			name = append([]byte(`,"name":`), it.name...)
		}
		if err := w.send(kind.done, it.at(nil, 0), name, []byte(`,"`+kind.argument+`":`), asText(it.argument)); err != nil {
			return err
		}
	}
	it.done, it.status = true, status
	if w.open == it {
		w.open = nil
	}
	return w.send("output_item.done", indexField(it), []byte(`,"item":`), it.object(status))
}

// call takes a part of a call.
func (w *Writer) call(call []byte) error {
	index, err := strconv.Atoi(string(get(call, "index")))
	if err != nil {
		return fmt.Errorf("a tool call without an index: %w", err)
	}
	function, argument := get(call, "function"), "arguments"
	kind := itemFunction
	if custom := get(call, "custom"); custom != nil || value(call, "type") == "custom" {
		kind, function, argument = itemCustom, custom, "input"
	}
	it, begun := w.calls[index]
	if !begun {
		if it = w.waits[index]; it == nil {
			it = &item{kind: kind, callID: []byte(`""`), name: []byte(`""`)}
			w.waits[index] = it
		}
		if id := get(call, "id"); isText(id) {
			it.callID = id
		}
		if name := get(function, "name"); isText(name) {
			it.name = name
		}
		it.callID, it.name = append([]byte(nil), it.callID...), append([]byte(nil), it.name...)
	}
	v := get(function, argument)
	if v != nil && !rawjson.IsString(v) {
		v = quoted(string(compact(v))) // some servers send an object
	}
	if !begun && len(it.name) == len(`""`) {
		if isText(v) {
			it.argument = append(it.argument, v[1:len(v)-1]...)
		}
		if len(it.argument) > maxWaiting {
			return errors.New("a tool call without a name")
		}
		return nil
	}
	if !begun {
		if err := w.beginCall(index, it); err != nil {
			return err
		}
	}
	if !isText(v) {
		return nil
	}
	if it.done {
		if blank(v) {
			return nil
		}
		return errors.New("a tool call continues after its arguments were complete")
	}
	return w.argument(it, v)
}

// beginCall begins a call whose name is known.
func (w *Writer) beginCall(index int, it *item) error {
	before := it.argument
	it.argument = nil
	delete(w.waits, index)
	w.calls[index] = it
	if err := w.beginItem(it); err != nil || len(before) == 0 {
		return err
	}
	return w.argument(it, asText(before))
}

// argument adds a text, as written in JSON, to the arguments of a call.
func (w *Writer) argument(it *item, v []byte) error {
	it.argument = append(it.argument, v[1:len(v)-1]...)
	return w.send(callKinds[it.kind].delta, it.delta, v)
}

// blank reports whether a text has only white space.
func blank(v []byte) bool {
	s, _ := rawjson.String(v)
	for _, r := range s {
		if r != ' ' && r != '\n' && r != '\r' && r != '\t' {
			return false
		}
	}
	return true
}

// annotate makes the events of annotations of a chat. They belong to the text that is open, or else to the next one.
func (w *Writer) annotate(list []byte) error {
	all := rawjson.Read(list)
	for a, ok := all.Item(); ok && rawjson.IsList(list); a, ok = all.Item() {
		if rawjson.IsObject(a) {
			w.annotations = append(w.annotations, flat(a))
		}
	}
	if w.open == nil || len(w.open.content) == 0 || len(w.annotations) == 0 {
		return nil
	}
	index := len(w.open.content) - 1
	p := w.open.content[index]
	if p.kind != textKind {
		return nil
	}
	for _, a := range w.annotations {
		n := strconv.AppendInt([]byte(`,"annotation_index":`), int64(len(p.annotations)), 10)
		p.annotations = append(p.annotations, a)
		if err := w.send("output_text.annotation.added", w.open.at(textKind, index), n, []byte(`,"annotation":`), a); err != nil {
			return err
		}
	}
	w.annotations = nil
	return nil
}

// flat returns an annotation as a response has it. A chat has what it says in an object with the name of its type.
func flat(annotation []byte) []byte {
	var o builder
	kind := value(annotation, "type")
	inner := get(annotation, kind)
	if !rawjson.IsObject(inner) {
		return compact(annotation)
	}
	o.text("type", kind)
	all := rawjson.Read(inner)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		o.raw(string(key), v)
	}
	return compact(o.end())
}

// End makes the last events: of a response that is complete or, with an error, of one that has failed. Nothing happens if it has ended.
func (w *Writer) End(err *openai.Error) error {
	switch {
	case w.ended:
		return nil
	case err != nil:
		return w.terminal(statusFailed, failure(err), nil)
	case w.status != "": // that of the upstream
		return w.terminal(w.status, w.failed, w.incomplete)
	}
	status, details := statusCompleted, []byte(nil)
	switch w.finish {
	case "length":
		status, details = statusIncomplete, []byte(`{"reason":"max_output_tokens"}`)
	case "content_filter":
		status, details = statusIncomplete, []byte(`{"reason":"content_filter"}`)
	}
	if err := w.endItems(status); err != nil {
		return err
	}
	return w.terminal(status, nil, details)
}

// endItems ends what is open.
func (w *Writer) endItems(status string) error {
	if err := w.nameless(status); err != nil {
		return err
	}
	if len(w.items) == 0 && status == statusCompleted { // clients expect a message
		if _, err := w.part(textKind); err != nil {
			return err
		}
	}
	for _, it := range w.items {
		if it.done {
			continue
		}
		ends := status
		if it.complete() {
			ends = statusCompleted
		}
		if err := w.endItem(it, ends); err != nil {
			return err
		}
	}
	return nil
}

// nameless begins the calls whose names have not arrived. Those of an answer that was cut are left out.
func (w *Writer) nameless(status string) error {
	if status != statusCompleted {
		return nil
	}
	for _, index := range slices.Sorted(maps.Keys(w.waits)) {
		if err := w.beginCall(index, w.waits[index]); err != nil {
			return err
		}
	}
	return nil
}

// Cancel makes the event of a response that was cancelled. OpenAI's streams have no event for it, and its webhooks have response.cancelled: the stream has
// one with that name, because response.failed would be an error for clients that have cancelled it themselves.
func (w *Writer) Cancel() error {
	if w.ended {
		return nil
	}
	return w.terminal(statusCancelled, nil, nil)
}

// terminal makes the last event. Items that have not ended are incomplete.
func (w *Writer) terminal(status string, failed, incomplete []byte) error {
	w.ended = true
	for _, it := range w.items {
		if !it.done {
			it.status = statusIncomplete
		}
	}
	return w.send(status, []byte(`,"response":`), w.object(status, failed, incomplete))
}
