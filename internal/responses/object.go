package responses

import (
	"encoding/json"
	"strconv"

	"berth/internal/openai"
	"berth/internal/rawjson"
)

// Head is what the events of a response have in common.
type Head struct {
	// Model and ServiceTier are what the client reads.
	ID, Model, ServiceTier string
	Created                int64 // Unix time
	// Replaces is the response that this one replaces, and ReplacedBy the one that replaces it; empty for none.
	Replaces, ReplacedBy string
}

// The statuses of responses and items.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// fixed returns the fields of the response object that do not change, without the braces.
func fixed(r *Request, h Head) []byte {
	var o builder
	o.text("id", h.ID)
	o.text("object", "response")
	o.number("created_at", h.Created)
	o.text("model", h.Model)
	o.raw("background", strconv.AppendBool(nil, r.Background))
	o.raw("store", strconv.AppendBool(nil, r.Store))
	previous, tier := []byte(nil), []byte(nil)
	if r.PreviousID != "" {
		previous = quoted(r.PreviousID)
	}
	if h.ServiceTier != "" {
		tier = quoted(h.ServiceTier)
	}
	if h.Replaces != "" {
		o.text("replaces", h.Replaces)
	}
	o.raw("previous_response_id", previous)
	o.raw("service_tier", tier)
	for _, f := range [...]struct{ name, missing string }{
		{"instructions", "null"},
		{"max_output_tokens", "null"},
		{"max_tool_calls", "null"},
		{"metadata", "{}"},
		{"parallel_tool_calls", "true"},
		{"prompt_cache_key", "null"},
		{"reasoning", `{"effort":null,"summary":null}`},
		{"safety_identifier", "null"},
		{"temperature", "null"},
		{"text", `{"format":{"type":"text"}}`},
		{"tool_choice", `"auto"`},
		{"tools", "[]"},
		{"top_logprobs", "0"},
		{"top_p", "null"},
		{"truncation", `"disabled"`},
		{"user", "null"},
	} {
		v := r.values[f.name]
		switch {
		case v == nil:
			v = []byte(f.missing)
		case f.name == "tools":
			v = mapped(v, shownTool)
		}
		o.raw(f.name, compact(v))
	}
	return o.b[1:]
}

// shownTool returns a tool as it is in a response: what is required of a function is there.
func shownTool(tool []byte) []byte {
	if value(tool, "type") != "function" {
		return tool
	}
	var o builder
	all := rawjson.Read(tool)
	for key, v, ok := all.Field(); ok; key, v, ok = all.Field() {
		if name := string(key); rawjson.IsNull(v) && (name == "parameters" || name == "strict") {
			continue
		}
		o.raw(string(key), v)
	}
	for _, name := range []string{"parameters", "strict"} {
		if get(tool, name) == nil {
			o.raw(name, nil)
		}
	}
	return o.end()
}

// object returns the response object with a status.
func (w *Writer) object(status string, failed, incomplete []byte) []byte {
	var o builder
	o.b = append(make([]byte, 0, len(w.fixed)+w.size+512), '{')
	o.b = append(o.b, w.fixed...)
	o.text("status", status)
	o.raw("error", failed)
	if failed != nil && w.h.ReplacedBy != "" { // the events before the end are as they were read
		o.text("replaced_by", w.h.ReplacedBy)
	}
	o.raw("incomplete_details", incomplete)
	output := make([][]byte, len(w.items))
	for i, it := range w.items {
		output[i] = it.object(it.status)
	}
	o.raw("output", joined(output))
	o.raw("usage", w.usage)
	return o.end()
}

// failure returns the error of a response. Errors of the protocol that have no code of their own get one of OpenAI's.
func failure(err *openai.Error) []byte {
	code := err.Code
	if code == "" {
		code = "server_error"
		if err.Status < 500 {
			code = "invalid_prompt"
		}
	}
	var o builder
	o.text("code", code)
	o.text("message", err.Message)
	return o.end()
}

// usageOf returns the usage of a chat, or of another response, as a response has it; nil if it has none.
func usageOf(usage []byte) []byte {
	type input struct {
		Cached     float64 `json:"cached_tokens"`
		CacheWrite float64 `json:"cache_write_tokens"`
	}
	type output struct {
		Reasoning float64 `json:"reasoning_tokens"`
	}
	var u struct {
		Prompt         float64  `json:"prompt_tokens"`
		Completion     float64  `json:"completion_tokens"`
		Total          *float64 `json:"total_tokens"`
		CacheHit       float64  `json:"prompt_cache_hit_tokens"` // of DeepSeek
		Input          input    `json:"prompt_tokens_details"`
		Output         output   `json:"completion_tokens_details"`
		ResponseInput  *float64 `json:"input_tokens"`
		ResponseOutput float64  `json:"output_tokens"`
		InputDetails   input    `json:"input_tokens_details"`
		OutputDetails  output   `json:"output_tokens_details"`
	}
	if !rawjson.IsObject(usage) || json.Unmarshal(usage, &u) != nil {
		return nil
	}
	if u.ResponseInput != nil {
		u.Prompt, u.Completion, u.Input, u.Output = *u.ResponseInput, u.ResponseOutput, u.InputDetails, u.OutputDetails
	}
	total := u.Prompt + u.Completion
	if u.Total != nil {
		total = *u.Total
	}
	var o, in, out builder
	in.number("cache_write_tokens", int64(u.Input.CacheWrite))
	in.number("cached_tokens", int64(max(u.Input.Cached, u.CacheHit)))
	out.number("reasoning_tokens", int64(u.Output.Reasoning))
	o.number("input_tokens", int64(u.Prompt))
	o.raw("input_tokens_details", in.end())
	o.number("output_tokens", int64(u.Completion))
	o.raw("output_tokens_details", out.end())
	o.number("total_tokens", int64(total))
	return o.end()
}

// Final returns the response object of the last event of a log, nil if that has none.
func Final(log []byte) json.RawMessage {
	for len(log) > 0 && log[len(log)-1] == '\n' {
		log = log[:len(log)-1]
	}
	at := len(log)
	for at > 0 && log[at-1] != '\n' {
		at--
	}
	if line := log[at:]; json.Valid(line) {
		return get(line, "response")
	}
	return nil
}
