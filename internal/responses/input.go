package responses

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"berth"
	"berth/internal/openai"
	"berth/internal/rawjson"
)

// The types of items and of the parts of their content.
const (
	itemMessage        = "message"
	itemFunction       = "function_call"
	itemFunctionOutput = "function_call_output"
	itemCustom         = "custom_tool_call"
	itemCustomOutput   = "custom_tool_call_output"
	itemReasoning      = "reasoning"
	itemReference      = "item_reference"

	partInputText     = "input_text"
	partInputImage    = "input_image"
	partInputFile     = "input_file"
	partInputAudio    = "input_audio"
	partOutputText    = "output_text"
	partRefusal       = "refusal"
	partReasoningText = "reasoning_text"
	partSummaryText   = "summary_text"
)

var prefixes = map[string]string{
	itemMessage: "msg_", itemFunction: "fc_", itemFunctionOutput: "fco_", itemCustom: "ctc_", itemCustomOutput: "ctco_", itemReasoning: "rs_",
}

// typeOf returns the type of an item. That of a message may be missing.
func typeOf(item []byte) string {
	if t := get(item, "type"); t != nil {
		s, _ := rawjson.String(t)
		return s
	}
	if get(item, "role") != nil {
		return itemMessage
	}
	return ""
}

func readInput(r *Request, v []byte) *openai.Error {
	if rawjson.IsString(v) {
		r.items = []json.RawMessage{slices.Concat([]byte(`{"type":"message","role":"user","content":`), v, []byte(`}`))}
		return nil
	}
	if !rawjson.IsList(v) {
		return openai.WrongType("a text or a list", v)
	}
	return list(v, func(_ int, item []byte) *openai.Error {
		r.items = append(r.items, item)
		return checkItem(item)
	})
}

// checkItem checks what berth reads of an item.
func checkItem(item []byte) *openai.Error {
	if err := object(item, nil); err != nil {
		return err
	}
	var names []string
	switch kind := typeOf(item); kind {
	case "":
		return required(item, "type")
	case itemMessage:
		if err := oneOf(get(item, "role"), "user", "assistant", "system", "developer"); err != nil {
			return under("role", err)
		}
		return checkContent(item, "content")
	case itemFunctionOutput, itemCustomOutput:
		if err := required(item, "call_id"); err != nil {
			return err
		}
		return checkContent(item, "output")
	case itemFunction, itemCustom:
		names = []string{"call_id", "name"}
		argument := "arguments"
		if kind == itemCustom {
			argument = "input"
		}
		if v := get(item, argument); !rawjson.IsString(v) {
			return under(argument, openai.WrongType("a text", v))
		}
	case itemReference:
		names = []string{"id"}
	case itemReasoning:
		for _, name := range []string{"summary", "content"} {
			if v := get(item, name); v != nil && !rawjson.IsList(v) {
				return under(name, openai.WrongType("a list", v))
			}
		}
	}
	for _, name := range names {
		if err := required(item, name); err != nil {
			return err
		}
	}
	return nil
}

// partTexts are the fields with the text of each type of part.
var partTexts = map[string]string{
	partInputText: "text", partOutputText: "text", partRefusal: "refusal", partInputImage: "", partInputFile: "", partInputAudio: "",
}

func checkContent(item []byte, name string) *openai.Error {
	v := get(item, name)
	if rawjson.IsString(v) {
		return nil
	}
	if !rawjson.IsList(v) {
		return under(name, openai.WrongType("a text or a list", v))
	}
	err := list(v, func(_ int, part []byte) *openai.Error {
		if err := object(part, nil); err != nil {
			return err
		}
		field, ok := partTexts[value(part, "type")]
		if !ok {
			return under("type", oneOf(get(part, "type"), partInputText, partInputImage, partInputFile, partInputAudio, partOutputText, partRefusal))
		}
		if v := get(part, field); field != "" && !rawjson.IsString(v) {
			return under(field, openai.WrongType("a text", v))
		}
		return nil
	})
	if err != nil {
		return under(name, err)
	}
	return nil
}

// Input returns the items of the request's own input as they are kept: each with a type and an id, messages with a list of parts. The ids that are
// added are the same whenever the body is read.
func (r *Request) Input() []json.RawMessage {
	out := make([]json.RawMessage, 0, len(r.items))
	for i, item := range r.items {
		out = append(out, r.kept(i, item))
	}
	return out
}

func (r *Request) kept(i int, item []byte) []byte {
	kind := typeOf(item)
	if kind == itemReference {
		if found := r.pool[value(item, "id")]; found != nil {
			return found
		}
		return compact(item)
	}
	var o builder
	o.text("type", kind)
	if get(item, "id") == nil {
		prefix := prefixes[kind]
		if prefix == "" {
			prefix = "item_"
		}
		o.text("id", berth.DerivedID(prefix, r.hash, strconv.Itoa(i)))
	}
	all := rawjson.Read(item)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch name := rawjson.Key(key); {
		case name == "type", name == "id" && rawjson.IsNull(v):
			continue
		case name == "content" && kind == itemMessage && rawjson.IsString(v):
			part := `[{"type":"input_text","text":`
			end := `}]`
			if value(item, "role") == "assistant" {
				part, end = `[{"type":"output_text","text":`, `,"annotations":[]}]`
			}
			v = slices.Concat([]byte(part), v, []byte(end))
		}
		o.raw(string(key), v)
	}
	return compact(o.end())
}

// compact returns a value on one line.
func compact(v []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v // it was checked
	}
	return b.Bytes()
}

// itemID returns the id of an output item. It has the id of its response, so that a reference to it can be resolved.
func itemID(kind, responseID string, index int) string {
	_, rest, ok := strings.Cut(responseID, "_")
	if !ok {
		rest = responseID
	}
	return prefixes[kind] + rest + "_" + strconv.Itoa(index)
}

// References returns the ids of the responses of which the input names items, each once. Some clients send these references instead of the items.
func (r *Request) References() (responses []string) {
	seen := map[string]bool{}
	for _, item := range r.items {
		if typeOf(item) != itemReference {
			continue
		}
		id := value(item, "id")
		_, rest, _ := strings.Cut(id, "_")
		if i := strings.LastIndexByte(rest, '_'); i > 0 {
			if response := "resp_" + rest[:i]; !seen[response] {
				responses, seen[response] = append(responses, response), true
			}
		}
	}
	return responses
}

// Resolve gives the request the items that its references may name.
func (r *Request) Resolve(items []json.RawMessage) {
	if r.pool == nil {
		r.pool = map[string]json.RawMessage{}
	}
	for _, item := range items {
		r.pool[value(item, "id")] = item
	}
}

// Items returns the output items of a response, as the input of one that continues it.
func Items(response json.RawMessage) (items []json.RawMessage) {
	all := rawjson.Read(get(response, "output"))
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		items = append(items, item)
	}
	return items
}
