package responses

import (
	"cmp"
	"encoding/json"
	"errors"

	"berth/internal/rawjson"
)

// Take makes the events of an object of an answer as internal/llm passes it on: a chunk of a chat, or an event of an upstream that speaks responses.
func (w *Writer) Take(object []byte) error {
	if value(object, "object") == "chat.completion.chunk" {
		return w.Chunk(object)
	}
	return w.Event(object)
}

// Event makes the event for one of an upstream that speaks responses. Those with which a response begins and ends are made by Begin, Started and End;
// End has what the last one of the upstream has. Items have the ids that berth gives them, by which they can be referred to.
func (w *Writer) Event(event []byte) error {
	if !json.Valid(event) || !rawjson.IsObject(event) {
		return errors.New("an event is not a JSON object")
	}
	kind := value(event, "type")
	switch {
	case w.status != "": // it has ended
		return nil
	case kind == "", kind == "keepalive", kind == "response.created", kind == "response.queued", kind == "response.in_progress":
		return nil
	case kind == "error", terminal(kind):
		return w.takeEnd(kind, event)
	}
	index := number64(get(event, "output_index"))
	var o builder
	o.text("type", kind)
	o.number("sequence_number", int64(w.n))
	all := rawjson.Read(event)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch string(key) {
		case "type", "sequence_number", "obfuscation":
			continue
		case "item":
			v = w.named(v, index)
		case "item_id":
			if it := w.byIndex[index]; it != nil {
				v = quoted(it.id)
			}
		}
		o.raw(string(key), v)
	}
	event = compact(o.end())
	w.take(kind, event)
	w.n++
	return w.emit(event)
}

// terminal reports whether an event ends a response.
func terminal(kind string) bool {
	switch kind {
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return true
	}
	return false
}

// named returns an item with the id that berth gives it. One of a kind that berth does not know has that of its upstream.
func (w *Writer) named(item []byte, index int) []byte {
	kind := typeOf(item)
	if prefixes[kind] == "" || index < 0 {
		return item
	}
	id := quoted(itemID(kind, w.h.ID, index))
	var o builder
	all := rawjson.Read(item)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		if string(key) == "id" {
			v, id = id, nil
		}
		o.raw(string(key), v)
	}
	o.given("id", id)
	return o.end()
}

// takeEnd takes the last event of an upstream, and makes the events of what only that has.
func (w *Writer) takeEnd(kind string, event []byte) error {
	output := get(get(event, "response"), "output")
	all := rawjson.Read(output)
	ended := kind == "response.completed" || kind == "response.incomplete"
	for i := 0; ended && rawjson.IsList(output); i++ {
		item, ok := all.Item()
		if !ok {
			break
		}
		raw := compact(w.named(item, i))
		if it := w.byIndex[i]; it != nil {
			it.raw, it.done = raw, true
		} else if err := w.wholeItem(raw); err != nil {
			return err
		}
	}
	if kind == "response.completed" && len(w.items) == 0 {
		if err := w.endItems(statusCompleted); err != nil {
			return err
		}
	}
	w.take(kind, event)
	return nil
}

// wholeItem makes the events of an item that has come whole, as those of a stream.
func (w *Writer) wholeItem(raw []byte) error {
	it := &item{kind: typeOf(raw), callID: get(raw, "call_id"), name: get(raw, "name"), raw: raw}
	if err := w.beginItem(it); err != nil {
		return err
	}
	w.byIndex[it.index] = it
	for _, name := range []string{"summary", "content"} {
		parts := rawjson.Read(get(raw, name))
		for p, ok := parts.Item(); ok && rawjson.IsObject(p); p, ok = parts.Item() {
			if err := w.wholePart(it, p); err != nil {
				return err
			}
		}
	}
	if v := get(raw, callKinds[it.kind].argument); isText(v) {
		if err := w.argument(it, v); err != nil {
			return err
		}
	}
	return w.endItem(it, cmp.Or(value(raw, "status"), statusCompleted))
}

// wholePart makes the events of a part of such an item.
func (w *Writer) wholePart(it *item, raw []byte) error {
	kind := kindByName(value(raw, "type"))
	if kind == nil {
		return nil
	}
	p, err := w.part(kind)
	if err != nil {
		return err
	}
	if v := get(raw, "logprobs"); rawjson.IsList(v) {
		w.logprobs = appendItems(nil, v)
	}
	if err := w.text(kind, get(raw, kind.text)); err != nil {
		return err
	}
	if err := w.annotate(get(raw, "annotations")); err != nil {
		return err
	}
	parts := it.content
	if kind == summaryKind {
		parts = it.summary
	}
	return w.endPart(it, len(parts)-1, p)
}
