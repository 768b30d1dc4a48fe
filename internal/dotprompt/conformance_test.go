//go:build conformance

package dotprompt

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var casesDir = flag.String("cases", "", "directory of dotprompt's cases: spec/ of google/dotprompt")

type data struct {
	Input    map[string]any `yaml:"input"`
	Context  map[string]any `yaml:"context"`
	Messages []caseMessage  `yaml:"messages"`
}

type caseMessage struct {
	Role     string           `yaml:"role"`
	Content  []map[string]any `yaml:"content"`
	Metadata map[string]any   `yaml:"metadata"`
}

type suite struct {
	Name             string               `yaml:"name"`
	Template         string               `yaml:"template"`
	Partials         map[string]string    `yaml:"partials"`
	ResolverPartials map[string]string    `yaml:"resolverPartials"`
	Schemas          map[string]yaml.Node `yaml:"schemas"`
	Data             data                 `yaml:"data"`
	Tests            []struct {
		Desc    string `yaml:"desc"`
		Data    data   `yaml:"data"`
		Options struct {
			Input struct {
				Default map[string]any `yaml:"default"`
			} `yaml:"input"`
		} `yaml:"options"`
		Expect struct {
			Messages []caseMessage  `yaml:"messages"`
			Input    map[string]any `yaml:"input"`
			Output   map[string]any `yaml:"output"`
			Raw      map[string]any `yaml:"raw"`
			Ext      map[string]any `yaml:"ext"`
		} `yaml:"expect"`
	} `yaml:"tests"`
}

// exceptions are the cases that berth does not pass, with the reason. Each has to fail.
var exceptions = map[string]string{
	"picoschema named_schema_override_description": "there is no registry of named schemas",
	"picoschema nested_named_schema":               "there is no registry of named schemas",
	"metadata raw":                                 "fields that berth does not know are errors",
	"metadata ext":                                 "fields that berth does not know are errors",
}

// assets gives the addresses of images as media: a text is refused.
func assets(file string, input map[string]any) {
	if file != "media" {
		return
	}
	input["url"] = Media{URL: input["url"].(string)}
}

func TestConformance_CasesOfDotprompt_PassButForTheExceptions(t *testing.T) { // G1
	require.NotEmpty(t, *casesDir, "name the directory with dotprompt's cases: -cases DIR")
	files, err := filepath.Glob(filepath.Join(*casesDir, "*.yaml"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(*casesDir, "helpers", "*.yaml"))
	require.NoError(t, err)
	files = slices.Concat(files, more)
	require.NotEmpty(t, files)
	passed, failed := 0, 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var suites []suite
		require.NoError(t, yaml.Unmarshal(raw, &suites), file)
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		for _, s := range suites {
			for i := range s.Tests {
				got, want := outcome(name, s, i)
				if reason, ok := exceptions[name+" "+s.Name]; ok {
					require.NotEqual(t, want, got, "%s %s passes: remove it from the exceptions", name, s.Name)
					failed++
					t.Logf("not passed: %s %s: %s", name, s.Name, reason)
					continue
				}
				require.Equal(t, want, got, "%s: %s: %s", name, s.Name, s.Tests[i].Desc)
				passed++
			}
		}
	}
	t.Logf("%d cases passed, %d did not", passed, failed)
}

// outcome returns what a case renders and what it should, as JSON.
func outcome(file string, s suite, i int) (got, want string) {
	c := s.Tests[i]
	want = toJSON(map[string]any{"messages": wanted(c.Expect.Messages), "input": schemaIn(c.Expect.Input), "output": schemaIn(c.Expect.Output), "raw": c.Expect.Raw, "ext": c.Expect.Ext})
	front, body, ok := Split(Source{file, 1, s.Template})
	result := map[string]any{"input": nil, "output": nil, "raw": nil, "ext": nil}
	if ok {
		var matter struct {
			Input, Output struct {
				Schema yaml.Node `yaml:"schema"`
			}
		}
		if err := yaml.Unmarshal([]byte(front.Text), &matter); err != nil {
			return err.Error(), want
		}
		for name, n := range map[string]yaml.Node{"input": matter.Input.Schema, "output": matter.Output.Schema} {
			if n.IsZero() {
				continue
			}
			schema, err := Schema(&n)
			if err != nil {
				return err.Error(), want
			}
			result[name] = normal(schema)
		}
	}
	values := map[string]any{}
	for _, m := range []map[string]any{c.Options.Input.Default, s.Data.Input, c.Data.Input} {
		for k, v := range m {
			values[k] = v
		}
	}
	assets(file, values)
	p, problems := Compile(body, Config{Partial: func(name string) (Source, error) {
		text, ok := s.Partials[name]
		if !ok {
			text, ok = s.ResolverPartials[name]
		}
		if !ok {
			return Source{}, fmt.Errorf("there is no partial %q", name)
		}
		return Source{name, 1, text}, nil
	}})
	if len(problems) > 0 {
		return problems[0].Error(), want
	}
	history := c.Data.Messages
	if history == nil {
		history = s.Data.Messages
	}
	var past []Message
	for _, m := range history {
		past = append(past, Message{Role: Role(m.Role), Parts: []Part{{Text: m.Content[0]["text"].(string)}}})
	}
	msgs, err := p.Render(context.Background(), Data{Values: values, Context: c.Data.Context, History: past})
	if err != nil {
		return err.Error(), want
	}
	result["messages"] = rendered(msgs)
	return toJSON(result), want
}

func wanted(messages []caseMessage) []any {
	out := []any{}
	for _, m := range messages {
		msg := map[string]any{"role": m.Role, "content": m.Content}
		if m.Metadata != nil {
			msg["metadata"] = m.Metadata
		}
		out = append(out, msg)
	}
	return out
}

func rendered(messages []Message) []any {
	out := []any{}
	for _, m := range messages {
		parts := []any{}
		for _, p := range m.Parts {
			switch {
			case p.Section != "":
				parts = append(parts, map[string]any{"metadata": map[string]any{"pending": true, "purpose": p.Section}})
			case p.Media != nil:
				parts = append(parts, map[string]any{"media": p.Media})
			default:
				parts = append(parts, map[string]any{"text": p.Text})
			}
		}
		msg := map[string]any{"role": m.Role, "content": parts}
		if m.History {
			msg["metadata"] = map[string]any{"purpose": "history"}
		}
		out = append(out, msg)
	}
	return out
}

// schemaIn returns the schema of an input or output; the order of required names is not compared.
func schemaIn(m map[string]any) any {
	if m["schema"] == nil {
		return nil
	}
	return normal([]byte(toJSON(m["schema"])))
}

func normal(raw []byte) any {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err.Error()
	}
	return v
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err == nil { // fields in the order of their names
		text, err = json.MarshalIndent(normal(text), "", " ")
	}
	if err != nil {
		return err.Error()
	}
	return string(text)
}
