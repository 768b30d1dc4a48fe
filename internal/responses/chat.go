package responses

import (
	"encoding/json"
	"slices"

	"berth/internal/openai"
	"berth/internal/rawjson"
)

// chat returns the body of the chat completion that makes the answer at an upstream that speaks only chat completions. It is streamed. earlier are the
// items of the responses before this one, inputs and outputs, oldest first. Its error is an *openai.Error that names what a chat cannot carry.
func (r *Request) chat(earlier []json.RawMessage) ([]byte, error) {
	if err := r.chatRefuses(); err != nil {
		return nil, err
	}
	messages, err := r.messages(earlier)
	if err != nil {
		return nil, err
	}
	var o builder
	o.b = make([]byte, 0, len(messages)+len(r.values["tools"])+1024)
	o.raw("model", r.values["model"])
	o.raw("messages", messages)
	o.raw("stream", []byte("true"))
	o.raw("stream_options", []byte(`{"include_usage":true}`))
	tools := r.has("tools")
	for _, name := range r.order {
		v, f := r.values[name], fieldByName[name]
		switch name {
		case "model":
		case "tools", "tool_choice", "parallel_tool_calls": // which a chat has only together
			if !tools {
				continue
			}
			switch name {
			case "tools":
				v = mapped(v, chatTool)
			case "tool_choice":
				v = chatToolChoice(v)
			}
			o.raw(name, v)
		case "max_output_tokens":
			o.raw(f.chat, v)
		case "reasoning":
			o.given("reasoning_effort", get(v, "effort"))
		case "text":
			o.given("response_format", chatFormat(get(v, "format")))
			o.given("verbosity", get(v, "verbosity"))
		default:
			if f.use == forwarded {
				o.raw(string(quotedKey(name)), v)
			}
		}
	}
	if top := r.values["top_logprobs"]; r.logprobs() {
		o.raw("logprobs", []byte("true"))
		if top != nil && string(top) != "0" {
			o.raw("top_logprobs", top)
		}
	}
	return o.end(), nil
}

// logprobs reports whether the client wants the probabilities of tokens.
func (r *Request) logprobs() bool {
	top := r.values["top_logprobs"]
	return slices.Contains(r.include, includeLogprobs) || top != nil && string(top) != "0"
}

// quotedKey returns a name as it is written between quotes.
func quotedKey(name string) []byte {
	b := quoted(name)
	return b[1 : len(b)-1]
}

// chatRefuses returns an error if the request wants something that no chat has.
func (r *Request) chatRefuses() error {
	reasoning := r.values["reasoning"]
	param, why := "", ""
	switch {
	case string(r.values["truncation"]) == `"auto"`:
		param, why = "truncation", "auto is not supported, because nothing is left out of a conversation: use disabled"
	case get(reasoning, "context") != nil && value(reasoning, "context") != "auto":
		param, why = "reasoning.context", "only auto is supported by the upstreams of the model"
	case get(reasoning, "mode") != nil && value(reasoning, "mode") != "standard":
		param, why = "reasoning.mode", "only standard is supported by the upstreams of the model"
	}
	if param != "" {
		return unsupported(param, why)
	}
	tools := r.values["tools"]
	if tools == nil {
		return nil
	}
	if err := list(tools, func(_ int, tool []byte) *openai.Error { return chatRefusesTool(tool) }); err != nil {
		return unsupported("tools"+err.Param, err.Message)
	}
	return nil
}

// chatRefusesTool returns an error if a tool has what only responses have.
func chatRefusesTool(tool []byte) *openai.Error {
	return object(tool, func(name string, v []byte) *openai.Error {
		switch name {
		case "defer_loading":
			if string(v) == "false" {
				return nil
			}
		case "allowed_callers":
			if string(compact(v)) == `["direct"]` {
				return nil
			}
		case "output_schema":
		default:
			return nil
		}
		return invalid("", "unsupported_value", "is not supported by the upstreams of the model: omit it")
	})
}

func unsupported(param, why string) *openai.Error {
	return invalid(param, "unsupported_value", "%s", openai.Named(param, why))
}

// mapped returns a list with each of its items changed.
func mapped(v []byte, change func([]byte) []byte) []byte {
	var out [][]byte
	all := rawjson.Read(v)
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		out = append(out, change(item))
	}
	return joined(out)
}

// chatTool returns a tool as a chat has it: what describes it is in an object of its own. Fields that are not of the protocol, such as the cache marks of
// a provider, stay where they are.
func chatTool(tool []byte) []byte {
	kind := value(tool, "type")
	var inner, outer builder
	outer.text("type", kind)
	all := rawjson.Read(tool)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		if rawjson.IsNull(v) {
			continue
		}
		switch string(key) {
		case "type", "defer_loading", "allowed_callers":
		case "name", "description", "parameters", "strict":
			inner.raw(string(key), v)
		case "format":
			inner.raw("format", chatGrammar(v))
		default:
			outer.raw(string(key), v)
		}
	}
	outer.raw(kind, inner.end())
	return outer.end()
}

// chatGrammar returns the format of a custom tool.
func chatGrammar(format []byte) []byte {
	if value(format, "type") != "grammar" {
		return format
	}
	var inner, outer builder
	outer.text("type", "grammar")
	inner.given("syntax", get(format, "syntax"))
	inner.given("definition", get(format, "definition"))
	if inner.b == nil {
		return format
	}
	outer.raw("grammar", inner.end())
	return outer.end()
}

func chatToolChoice(v []byte) []byte {
	if rawjson.IsString(v) {
		return v
	}
	var o builder
	kind := value(v, "type")
	o.text("type", kind)
	if kind == "allowed_tools" {
		var allowed builder
		allowed.raw("mode", get(v, "mode"))
		allowed.raw("tools", mapped(get(v, "tools"), chatTool))
		o.raw(kind, allowed.end())
		return o.end()
	}
	var inner builder
	inner.raw("name", get(v, "name"))
	o.raw(kind, inner.end())
	return o.end()
}

// chatFormat returns the format of the answer, nil for text.
func chatFormat(format []byte) []byte {
	var inner, outer builder
	switch value(format, "type") {
	case "json_object":
		return []byte(`{"type":"json_object"}`)
	case "json_schema":
	default:
		return nil
	}
	for _, name := range []string{"name", "description", "schema", "strict"} {
		inner.given(name, get(format, name))
	}
	outer.text("type", "json_schema")
	outer.raw("json_schema", inner.end())
	return outer.end()
}
