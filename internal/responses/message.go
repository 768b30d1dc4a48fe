package responses

import (
	"encoding/json"
	"slices"
	"strconv"

	"berth/internal/openai"
	"berth/internal/rawjson"
)

// conversation makes the messages of a chat from items.
type conversation struct {
	items   []json.RawMessage
	earlier int            // of the items are from responses before this one
	answers map[int]int    // where the output of each call is, by where the call is
	out     [][]byte       // messages
	turn    *assistantTurn // that may get more
	err     *openai.Error  // of the output of a call
}

// assistantTurn is a message of an assistant. What an answer of a chat has in one message is several items: text and calls.
type assistantTurn struct {
	texts   [][]byte // as written in JSON
	parts   [][]byte // the same as parts, of which plain are only texts
	plain   bool
	refusal []byte
	further [][2][]byte // fields that are not of the protocol
	calls   [][]byte
	callsAt []int
	closed  bool // it cannot get calls: their outputs precede them
}

// place names an item of the input. Those of earlier responses are named by the parameter that brings them.
func place(i, earlier int) string {
	if i < earlier {
		return "previous_response_id"
	}
	return "input[" + strconv.Itoa(i-earlier) + "]"
}

// messages returns the messages of the chat.
func (r *Request) messages(earlier []json.RawMessage) ([]byte, error) {
	c := &conversation{items: slices.Concat(earlier, r.items), earlier: len(earlier), answers: map[int]int{}}
	for i, item := range c.items {
		if typeOf(item) == itemReference {
			found := r.pool[value(item, "id")]
			if found == nil {
				return nil, unknownReference(place(i, c.earlier), item)
			}
			c.items[i] = found
		}
	}
	if err := c.match(); err != nil {
		return nil, err
	}
	if v := r.values["instructions"]; v != nil {
		c.out = append(c.out, slices.Concat([]byte(`{"role":"system","content":`), v, []byte(`}`)))
	}
	for i, item := range c.items {
		if err := c.take(i, item); err != nil {
			return nil, c.at(i, err)
		}
		if c.err != nil {
			return nil, c.err
		}
	}
	if c.flush(); c.err != nil {
		return nil, c.err
	}
	return joined(c.out), nil
}

// match finds the output of each call: of several with its id the first one behind it. It returns an error for the first output of no call. That a call has
// no output is reported where its message is made, because an output with a wrong id is the more likely reason.
func (c *conversation) match() error {
	open := map[string][]int{} // where the calls are that have no output yet, by their ids
	for i, item := range c.items {
		id := value(item, "call_id")
		switch typeOf(item) {
		case itemFunction, itemCustom:
			open[id] = append(open[id], i)
		case itemFunctionOutput, itemCustomOutput:
			if len(open[id]) == 0 {
				return c.at(i, under("call_id", invalid("", "invalid_value", "no call with the id %.128q precedes this output, or it has an output already", id)))
			}
			c.answers[open[id][0]], open[id] = i, open[id][1:]
		}
	}
	return nil
}

// at returns an error of an item with its place.
func (c *conversation) at(i int, err *openai.Error) *openai.Error {
	err.Param = place(i, c.earlier) + err.Param
	err.Message = openai.Named(err.Param, err.Message)
	return err
}

func unknownReference(param string, item []byte) *openai.Error {
	return invalid(param, "item_not_found", "%s: the item %.128q is not known: send the item itself, or previous_response_id", param, value(item, "id"))
}

func (c *conversation) take(i int, item []byte) *openai.Error {
	switch kind := typeOf(item); kind {
	case itemReasoning: // a chat does not read that of earlier answers
		return nil
	case itemFunction, itemCustom:
		c.call(i, item, kind)
		return nil
	case itemFunctionOutput, itemCustomOutput: // in the messages behind its call
		if c.turn != nil && c.turn.calls != nil {
			c.turn.closed = true
		}
		return nil
	case itemMessage:
		if value(item, "role") == "assistant" {
			return c.assistant(item)
		}
		return c.message(item)
	default:
		return under("type", invalid("", "unsupported_value", "an item of the type %.64q cannot be sent to the upstreams of the model", kind))
	}
}

// message takes a message of any role but the assistant's.
func (c *conversation) message(item []byte) *openai.Error {
	c.flush()
	content, err := chatContent(get(item, "content"), false)
	if err != nil {
		return under("content", err)
	}
	role := value(item, "role")
	if role == "developer" { // which only OpenAI's own chats know; they read both in the same way
		role = "system"
	}
	var o builder
	o.text("role", role)
	o.raw("content", content)
	for _, f := range further(item) {
		o.raw(string(f[0]), f[1])
	}
	c.out = append(c.out, o.end())
	return nil
}

// further returns the fields of a message that are not of the protocol, such as the cache marks of a provider.
func further(item []byte) (fields [][2][]byte) {
	all := rawjson.Read(item)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		switch string(key) {
		case "type", "id", "status", "role", "content", "phase":
			continue
		}
		if !rawjson.IsNull(v) {
			fields = append(fields, [2][]byte{key, v})
		}
	}
	return fields
}

// begin begins a turn of the assistant, or continues it.
func (c *conversation) begin(more bool) {
	if c.turn != nil && (c.turn.closed || !more) {
		c.flush()
	}
	if c.turn == nil {
		c.turn = &assistantTurn{plain: true}
	}
}

func (c *conversation) assistant(item []byte) *openai.Error {
	c.begin(c.turn != nil && c.turn.calls != nil)
	t := c.turn
	t.further = append(t.further, further(item)...)
	content := get(item, "content")
	if rawjson.IsString(content) {
		t.text(content, []byte(`{"type":"text","text":`+string(content)+`}`), true)
		return nil
	}
	err := contentParts(content, func(part []byte) *openai.Error {
		switch value(part, "type") {
		case partRefusal:
			t.refusal = get(part, "refusal")
		case partInputText, partOutputText:
			converted, plain := textPart(part)
			t.text(get(part, "text"), converted, plain)
		default:
			return under("type", oneOf(nil, partOutputText, partRefusal))
		}
		return nil
	})
	if err != nil {
		return under("content", err)
	}
	return nil
}

func (t *assistantTurn) text(text, part []byte, plain bool) {
	t.texts, t.parts, t.plain = append(t.texts, text), append(t.parts, part), t.plain && plain
}

func (c *conversation) call(i int, item []byte, kind string) {
	c.begin(true)
	var call, inner builder
	call.raw("id", get(item, "call_id"))
	name, argument := "function", "arguments"
	if kind == itemCustom {
		name, argument = "custom", "input"
	}
	inner.raw("name", get(item, "name"))
	inner.raw(argument, get(item, argument))
	call.text("type", name)
	call.raw(name, inner.end())
	c.turn.calls, c.turn.callsAt = append(c.turn.calls, call.end()), append(c.turn.callsAt, i)
}

// flush ends the turn of the assistant: its message, and the outputs of its calls.
func (c *conversation) flush() {
	t := c.turn
	if c.turn = nil; t == nil {
		return
	}
	var o builder
	o.text("role", "assistant")
	switch {
	case len(t.texts) == 0:
		o.raw("content", nil)
	case len(t.texts) == 1 && t.plain:
		o.raw("content", t.texts[0])
	default:
		o.raw("content", joined(t.parts))
	}
	o.given("refusal", t.refusal)
	for _, f := range t.further {
		o.raw(string(f[0]), f[1])
	}
	if t.calls != nil {
		o.raw("tool_calls", joined(t.calls))
	}
	c.out = append(c.out, o.end())
	for _, i := range t.callsAt {
		if c.err = c.output(i); c.err != nil {
			return
		}
	}
}

// output adds the message with the output of a call.
func (c *conversation) output(call int) *openai.Error {
	id := value(c.items[call], "call_id")
	at, ok := c.answers[call]
	if !ok {
		return c.at(call, invalid("", "invalid_value", "the call with the id %.128q has no output: send an item with it", id))
	}
	content, err := chatContent(get(c.items[at], "output"), true)
	if err != nil {
		return c.at(at, under("output", err))
	}
	var o builder
	o.text("role", "tool")
	o.text("tool_call_id", id)
	o.raw("content", content)
	c.out = append(c.out, o.end())
	return nil
}

// chatContent returns the content of a message as a chat has it: a text, or parts. onlyText: the message cannot have others.
func chatContent(content []byte, onlyText bool) ([]byte, *openai.Error) {
	if rawjson.IsString(content) {
		return content, nil
	}
	var parts [][]byte
	var only []byte
	err := contentParts(content, func(part []byte) *openai.Error {
		kind := value(part, "type")
		if onlyText && kind != partInputText && kind != partOutputText {
			return under("type", invalid("", "unsupported_value", "an output has only text at the upstreams of the model, and no %s", kind))
		}
		converted, plain, err := chatPart(part, kind)
		if only = nil; plain {
			only = get(part, "text")
		}
		parts = append(parts, converted)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(parts) == 1 && only != nil:
		return only, nil
	case len(parts) == 0:
		return []byte(`""`), nil
	}
	return joined(parts), nil
}

func contentParts(content []byte, each func(part []byte) *openai.Error) *openai.Error {
	return list(content, func(_ int, part []byte) *openai.Error { return each(part) })
}

// textPart returns a part with text, which is plain if it has nothing else.
func textPart(part []byte) (out []byte, plain bool) {
	return partWith(part, "text", `"text"`, get(part, "text"), "text", "annotations", "logprobs")
}

// partWith returns a part with a field of its type, and with the fields of another part that are not known.
func partWith(part []byte, name, kind string, v []byte, known ...string) (out []byte, plain bool) {
	var o builder
	o.raw("type", []byte(kind))
	o.raw(name, v)
	plain = true
	all := rawjson.Read(part)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		if name := string(key); name == "type" || rawjson.IsNull(v) || slices.Contains(known, name) {
			continue
		}
		plain = false
		o.raw(string(key), v)
	}
	return o.end(), plain
}

func chatPart(part []byte, kind string) (out []byte, plain bool, err *openai.Error) {
	var o builder
	switch kind {
	case partInputText, partOutputText:
		out, plain = textPart(part)
		return out, plain, nil
	case partInputImage:
		url := get(part, "image_url")
		if !rawjson.IsString(url) {
			return nil, false, noFile(part, "image_url")
		}
		o.raw("url", url)
		o.given("detail", get(part, "detail"))
		out, _ = partWith(part, "image_url", `"image_url"`, o.end(), "image_url", "detail", "file_id")
	case partInputFile:
		data := get(part, "file_data")
		if !rawjson.IsString(data) {
			return nil, false, noFile(part, "file_data")
		}
		o.given("filename", get(part, "filename"))
		o.raw("file_data", data)
		o.given("detail", get(part, "detail"))
		out, _ = partWith(part, "file", `"file"`, o.end(), "file_data", "filename", "detail", "file_id", "file_url")
	case partInputAudio:
		out, _ = partWith(part, "input_audio", `"input_audio"`, get(part, "input_audio"), "input_audio")
	default:
		return nil, false, under("type", oneOf(nil, partInputText, partInputImage, partInputFile, partInputAudio))
	}
	return out, false, nil
}

// noFile returns the error for a part that has what only OpenAI can read.
func noFile(part []byte, want string) *openai.Error {
	for _, name := range []string{"file_id", "file_url"} {
		if get(part, name) != nil {
			return under(name, invalid("", "unsupported_value", "is not supported by the upstreams of the model: send %s", want))
		}
	}
	return under(want, openai.WrongType("a text", get(part, want)))
}
