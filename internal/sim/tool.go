package sim

import (
	"encoding/json"
	"slices"

	"berth/internal/schema"
)

// tool is a function that the model may call.
type tool struct {
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolChoice is auto, none or required, or the name of the tool that has to be called.
type toolChoice struct{ mode, name string }

func (c *toolChoice) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return json.Unmarshal(b, &c.mode)
	}
	var named tool
	err := json.Unmarshal(b, &named)
	c.name = named.Function.Name
	return err
}

// checkTools returns an error for a choice that no tool satisfies.
func (r chatRequest) checkTools() *apiError {
	known := func(t tool) bool { return t.Function.Name == r.ToolChoice.name }
	switch c := r.ToolChoice; {
	case slices.ContainsFunc(r.Tools, func(t tool) bool { return t.Function.Name == "" }):
		return invalid("tools", "each tool must be a function with a name")
	case !slices.Contains([]string{"", "auto", "none", "required"}, c.mode):
		return invalid("tool_choice", "must be auto, none, required or a function with its name")
	case c.mode == "required" && len(r.Tools) == 0, c.name != "" && !slices.ContainsFunc(r.Tools, known):
		return invalid("tool_choice", "is not among the tools of the request")
	}
	return nil
}

// called returns the tools that the answer calls: the one that the request names. Else those whose names share at least half of their words with
// the last message, if a user says it: get_weather with "How is the weather?". If a call is required, it is at least the first tool. The results
// of tools are answered with a text.
func (r chatRequest) called() (out []tool) {
	last := r.Messages[len(r.Messages)-1]
	if last.Role == "tool" || r.ToolChoice.mode == "none" {
		return nil
	}
	said := setOf(words(clip(last.Content.text(), maxRead)))
	for _, t := range r.Tools {
		named := words(spaced(t.Function.Name))
		if r.ToolChoice.name == t.Function.Name || r.ToolChoice.name == "" && last.Role == "user" && len(named) > 0 && 2*overlap(named, said) >= len(named) {
			out = append(out, t)
		}
	}
	if len(out) == 0 && r.ToolChoice.mode == "required" {
		out = r.Tools
	}
	if r.ToolChoice.mode == "required" || r.ParallelToolCalls != nil && !*r.ParallelToolCalls {
		out = first(min(1, len(out)), out)
	}
	return out
}

// arguments returns arguments for a tool with what the source says. If no value was found, there are none.
func (s *source) arguments(t tool) string {
	compiled, err := schema.CompileWithFormats("schema.json", t.Function.Parameters)
	if err != nil {
		return "{}"
	}
	f := s.newFiller(t.Function.Parameters)
	v, ok := f.value(schemas{compiled}, place{})
	if !ok {
		return "{}"
	}
	return f.encode(v)
}
