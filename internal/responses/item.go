package responses

import (
	"bytes"
	"encoding/json"
	"slices"

	"berth/internal/rawjson"
)

// item is an output item.
type item struct {
	kind, id string
	index    int
	status   string
	done     bool
	// raw is the item as an upstream sent it, whole once it is done.
	raw []byte
	// Of a call: as written in JSON, and its arguments or input between the quotes.
	callID, name []byte
	argument     []byte
	// The parts of a message or of reasoning. Reasoning has two lists of them.
	content, summary []*part
	// delta is what the deltas of the item, or of its open part, have behind their number.
	delta []byte
}

// part is a part of an item.
type part struct {
	kind        *partKind
	text        []byte   // between the quotes
	logprobs    []byte   // items of a list
	annotations [][]byte // of a text
	raw         []byte   // as an upstream sent it, once it is done
	done        bool
}

// partKind is what the events of a kind of part have in common.
type partKind struct {
	kind, text, index         string
	added, delta, whole, done string // events
}

var (
	textKind    = &partKind{partOutputText, "text", "content_index", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"}
	refusalKind = &partKind{partRefusal, "refusal", "content_index", "content_part.added", "refusal.delta", "refusal.done", "content_part.done"}
	thoughtKind = &partKind{
		partReasoningText, "text", "content_index", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
	}
	summaryKind = &partKind{
		partSummaryText, "text", "summary_index", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
		"reasoning_summary_part.done",
	}
	partKinds = []*partKind{textKind, refusalKind, thoughtKind, summaryKind}
)

func kindByName(name string) *partKind {
	i := slices.IndexFunc(partKinds, func(k *partKind) bool { return k.kind == name })
	if i < 0 {
		return nil
	}
	return partKinds[i]
}

// callKind is what the events of a kind of call have in common.
type callKind struct{ argument, delta, done string }

var callKinds = map[string]callKind{
	itemFunction: {"arguments", "function_call_arguments.delta", "function_call_arguments.done"},
	itemCustom:   {"input", "custom_tool_call_input.delta", "custom_tool_call_input.done"},
}

func asText(inner []byte) []byte { return slices.Concat([]byte{'"'}, inner, []byte{'"'}) }

func asList(items []byte) []byte { return slices.Concat([]byte{'['}, items, []byte{']'}) }

// object returns the part as it is now.
func (p *part) object() []byte {
	if p.raw != nil {
		return p.raw
	}
	var o builder
	o.text("type", p.kind.kind)
	o.raw(p.kind.text, asText(p.text))
	if p.kind == textKind {
		o.raw("annotations", joined(p.annotations))
		o.raw("logprobs", asList(p.logprobs))
	}
	return o.end()
}

func partObjects(parts []*part) []byte {
	list := make([][]byte, len(parts))
	for i, p := range parts {
		list[i] = p.object()
	}
	return joined(list)
}

// object returns the item as it is now, with a status.
func (it *item) object(status string) []byte {
	if it.done && it.raw != nil {
		return it.raw
	}
	var o builder
	o.text("type", it.kind)
	o.text("id", it.id)
	o.text("status", status)
	switch it.kind {
	case itemMessage:
		o.text("role", "assistant")
		o.raw("content", partObjects(it.content))
	case itemReasoning:
		o.raw("summary", partObjects(it.summary))
		if len(it.summary) == 0 {
			o.raw("content", partObjects(it.content))
		}
	case itemFunction, itemCustom:
		o.raw("call_id", it.callID)
		o.raw("name", it.name)
		o.raw(callKinds[it.kind].argument, asText(it.argument))
	default:
		return withStatus(it.raw, status)
	}
	return o.end()
}

// withStatus returns an item of an upstream, which is not complete, with a status.
func withStatus(raw []byte, status string) []byte {
	var o builder
	all := rawjson.Read(raw)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		if string(key) == "status" {
			v = quoted(status)
		}
		o.raw(string(key), v)
	}
	return o.end()
}

// complete reports whether the arguments of a call are all there.
func (it *item) complete() bool {
	var arguments string
	if it.kind != itemFunction || json.Unmarshal(asText(it.argument), &arguments) != nil {
		return false
	}
	text := bytes.TrimSpace([]byte(arguments))
	return rawjson.IsObject(text) && json.Valid(text)
}
