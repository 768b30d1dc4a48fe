package template

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/templates"
)

// valid is a template of two steps whose parts the tests change.
var valid = map[string]string{
	"template.yaml": `title: {en: Reply, zh: 回复}
locales: [en, zh]
variables:
  - name: mail
    kind: document
    group: source
  - name: photo
    kind: image
    group: source
  - name: tone
    default: friendly
steps:
  - id: read
    when: photo
    into: mail
  - id: facts
    into: facts
    schema: facts.json
  - id: reply
    models: {paid: large, free: small}
    timeout: 90s
stages:
  - id: greeting
  - id: body
items:
  - id: fact
    schema: {text: string}
background:
  - name: earlier
    matching: mail
`,
	"read.prompt":     "{{role \"system\"}}Read.{{role \"user\"}}{{media url=photo}}",
	"facts.en.prompt": "{{>rules}}{{document \"mail\" mail}}",
	"facts.zh.prompt": "{{>rules}}{{document \"mail\" mail}}",
	"reply.en.prompt": "{{>rules}}\n<<stage:greeting>>\n<<stage:body>>\n<<fact {\"text\":\"x\"}>>\n{{facts}} {{mail}} {{tone}} {{#each earlier}}{{this}}{{/each}}",
	"reply.zh.prompt": "{{>rules}}{{facts}} {{mail}} {{tone}} {{#each earlier}}{{this}}{{/each}}",
	"_rules.prompt":   "Be kind.\n",
	"facts.json":      `{"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}`,
}

// change returns the valid files with a text replaced in one.
func change(file, from, to string) map[string]string {
	files := maps.Clone(valid)
	if from == "" {
		files[file] = to
	} else {
		files[file] = strings.Replace(files[file], from, to, 1)
	}
	return files
}

func TestLoad_ValidTemplate_IsCompleted(t *testing.T) { // G1, G4, G5
	t.Parallel()
	one, err := Load("reply", valid)
	require.NoError(t, err)
	require.Equal(t, Text{"en": "Reply", "zh": "回复"}, one.Title)
	require.Equal(t, Price{Credits: berth.Credit}, one.Price)
	require.Equal(t, []berth.Locale{"en", "zh"}, one.Locales)
	require.Equal(t, Text{"en": "mail"}, one.Variables[0].Label)
	require.Equal(t, KindText, one.Variables[2].Kind)
	require.Equal(t, berth.ModeVision, one.Steps[0].Mode)
	require.Equal(t, berth.ModeBatch, one.Steps[1].Mode)
	require.Equal(t, berth.ModeStream, one.Steps[2].Mode)
	require.Equal(t, berth.TaskStatus("FACTS_PENDING"), one.Steps[1].Status)
	require.Equal(t, []string{"earlier", "facts", "mail", "tone"}, one.Steps[2].Reads)
	require.Equal(t, []string{"photo"}, one.Steps[0].Images)
	require.Equal(t, 5, one.Background[0].Max)
	require.JSONEq(t, `{"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":false,"required":["text"]}`, string(one.Items[0].Schema))
	require.NoError(t, one.Output("facts").Validate(map[string]any{"names": []any{"x"}}))
	require.Error(t, one.Output("facts").Validate(map[string]any{"names": "x"}))
	require.Nil(t, one.Output("reply"))
	require.NoError(t, one.Item("fact").Validate(map[string]any{"text": "x"}))
	require.Error(t, one.Item("fact").Validate(map[string]any{}))
	require.Len(t, one.Plan(map[string]berth.VariableKind{"mail": berth.KindText}), 2)
	require.Len(t, one.Plan(map[string]berth.VariableKind{"photo": berth.KindImageAsset}), 3)
	msgs, err := one.Messages(t.Context(), "facts", "fr", Input{Texts: map[string]string{"mail": "M"}})
	require.NoError(t, err)
	require.Contains(t, msgs[0].Text(), "JSON Schema", "a prompt that does not show its schema gets it")
	require.Contains(t, msgs[0].Text(), `"names"`)
	_, err = one.Messages(t.Context(), "reply", "en", Input{Texts: map[string]string{"mail": " "}})
	require.Equal(t, berth.Invalid("variables.mail", "has no text"), err)
	raw, err := json.Marshal(one)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"timeout":"1m30s"`)
	plan, err := json.Marshal(one.Plan(map[string]berth.VariableKind{"photo": berth.KindImageAsset}))
	require.NoError(t, err)
	require.Less(t, len(plan), 400, "it is a part of the workflow's input")
}

func TestLoad_NothingUsesIt_IsAMistake(t *testing.T) { // G1
	t.Parallel()
	for _, c := range []struct{ from, to, want string }{
		{" {{tone}}", "", "variables[2].name: no prompt and no condition uses tone"},
		{"{{facts}}", "", "steps[1].into: no prompt uses facts"},
		{"{{#each earlier}}{{this}}{{/each}}", "", "background[0].name: no prompt uses earlier"},
	} {
		files := maps.Clone(valid)
		for _, file := range []string{"reply.en.prompt", "reply.zh.prompt"} {
			files[file] = strings.Replace(files[file], c.from, c.to, 1)
		}
		_, err := Load("reply", files)
		require.ErrorContains(t, err, c.want)
	}
}

func TestLoad_SeveralMistakes_AreAllReportedInOneGo(t *testing.T) { // G1
	t.Parallel()
	files := change("template.yaml", "kind: document", "kind: pdf")
	for from, to := range map[string]string{
		"into: facts": "intoo: facts", "when: photo": "when: foto", "timeout: 90s": "timeout: 90", "title: {en: Reply, zh: 回复}": "titel: {en: Reply, zh: 回复}\ncredits: many",
		"default: friendly": "default: friendly\n  - name: spare", "schema: {text: string}": "schema: {type: object, properties: {text: {type: strin}}}",
	} {
		files["template.yaml"] = strings.Replace(files["template.yaml"], from, to, 1)
	}
	files["reply.en.prompt"] = "{{nope}}\n{{role tone}}\n{{>rules}}{{facts}}{{mail}}{{#each earlier}}{{this}}{{/each}}"
	files["facts.zh.prompt"] = "{{mail]}}\n{{mial}}"
	files["facts.en.prompt"] = "{{mail}}{{>ruels}}"
	files["facts.json"] = "{\n\"type\": \"object\",\n\"required\": true}"
	delete(files, "read.prompt")
	_, err := Load("reply", files)
	require.EqualError(t, err, strings.Join([]string{
		`facts.en.prompt:1: there is no partial "ruels": write rules`,
		`facts.json:3: required: must be a list of names, each once, beside properties, not true: write "required": ["name"] there`,
		`facts.zh.prompt:1: unexpected ']' in a tag: expected a name`,
		`facts.zh.prompt:2: there is no variable "mial": write mail`,
		`reply.en.prompt:1: there is no variable "nope": declare it under variables, or use one of earlier, facts, mail, photo, spare, tone`,
		`reply.en.prompt:2: the role is one of "system", "user" and "model", between quotation marks`,
		`template.yaml:1: titel: unknown field: write title`,
		`template.yaml:2: credits: must be a number of credits from 0 to 1000000000, with at most three decimals, or metered`,
		`template.yaml:6: variables[0].kind: must be one of text, document, image`,
		`template.yaml:15: steps[0].prompt: there is no file read.en.prompt or read.zh.prompt, nor read.prompt for all languages: use one of facts, reply`,
		`template.yaml:16: steps[0].when: there is no variable foto: write photo`,
		`template.yaml:19: steps[1].intoo: unknown field: write into`,
		`template.yaml:23: steps[2].timeout: must be a duration from 1s to 24h, such as 90s, 5m or 1h30m, not a number: write 90s`,
		`template.yaml:29: items[0].schema.properties.text.type: "strin" is not a type: write string`,
	}, "\n"))

	// What nothing uses is reported beside other mistakes, as long as all prompts can be read.
	files = change("template.yaml", "default: friendly", "default: friendly\n  - name: spare\n    kind: pdf")
	_, err = Load("reply", files)
	require.EqualError(t, err, "template.yaml:12: variables[3].name: no prompt and no condition uses spare: remove it, or write {{spare}} in a prompt\n"+
		"template.yaml:13: variables[3].kind: must be one of text, document, image")
}

func TestMistake_Logged_HasOnlyWhatIsKnown(t *testing.T) { // G2
	t.Parallel()
	for want, m := range map[string]Mistake{
		"level=INFO msg=x file=a/b.prompt mistake=m\n":                            {File: "a/b.prompt", Message: "m"},
		"level=INFO msg=x file=a.yaml line=3 field=steps[0].id mistake=\"m n\"\n": {File: "a.yaml", Line: 3, Column: 2, Field: "steps[0].id", Message: "m n"},
	} {
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("", m))
		_, text, _ := strings.Cut(out.String(), " ")
		require.Equal(t, want, text)
	}
}

func TestLoad_OnePrompt_IsATemplate(t *testing.T) { // G1
	t.Parallel()
	const dotpromptStyle = `---
title: Haiku
model: small
config: {maxOutputTokens: 100}
input:
  schema:
    topic: string, what it is about
    mood?: string
    language?: string
  default: {mood: calm, language: 3}
output:
  format: json
  schema:
    lines(array): string
---
{{role "system"}}{{schema}}{{role "user"}}{{topic}} {{mood}} {{language}}
`
	one, err := Load("haiku", map[string]string{"haiku.prompt": dotpromptStyle})
	require.NoError(t, err)
	require.Equal(t, []Variable{
		{Name: "topic", Kind: KindText, Required: true, Label: Text{"en": "topic"}, Help: Text{"en": "what it is about"}},
		{Name: "mood", Kind: KindText, Label: Text{"en": "mood"}, Default: "calm"},
		{Name: "language", Kind: KindText, Label: Text{"en": "language"}, Default: "3"},
	}, one.Variables)
	require.Equal(t, Models{"small", "small"}, one.Steps[0].Models)
	require.Equal(t, 100, one.Steps[0].MaxOutputTokens)
	require.Equal(t, berth.ModeBatch, one.Mode())
	msgs, err := one.Messages(t.Context(), onlyStep, "en", Input{Texts: map[string]string{"topic": "rain"}})
	require.NoError(t, err)
	require.Equal(t, "rain calm 3", msgs[1].Text())
	require.Contains(t, msgs[0].Text(), `"lines"`)

	one, err = Load("rule", map[string]string{"template.yaml": "title: Rule\nsteps: [{id: say}]\n", "say.prompt": "{{! text}}---\n{{>rule}}", "_rule.prompt": "---\nBe kind."})
	require.NoError(t, err)
	msgs, err = one.Messages(t.Context(), "say", "en", Input{})
	require.NoError(t, err)
	require.Equal(t, "---\n---\nBe kind.", msgs[0].Text(), "texts that begin with a line ---")

	chinese, err := Load("shi", map[string]string{"shi.zh.prompt": "---\ntitle: 诗\n---\n写一首诗。"})
	require.NoError(t, err)
	require.Equal(t, []berth.Locale{"zh"}, chinese.Locales)
	require.Equal(t, Text{"zh": "诗"}, chinese.Title)
	require.Equal(t, "诗", chinese.Title.In("en"))

	for _, c := range []struct{ text, want string }{
		{"no fields", "x.prompt:1: a prompt that is a template begins with its fields"},
		{"---\nmodel: a\n---\nx", "x.prompt:2: title is missing: add it"},
		{"---\ntitle: a\nsteps: []\n---\nx", "x.prompt:3: steps: unknown field"},
		{"---\ntitle: a\ninput: {schema: {b: list}}\n---\n{{b}}", `x.prompt:3: input.schema.b: unknown type "list"`},
		{"---\ntitle: a\ninput: {schema: {b: string}}\n---\n{{c}}", `x.prompt:5: there is no variable "c"`},
		{"---\ntitle: a\ninput: {schema: {'b?': string}}\n---\nx", `x.prompt:3: input.schema.b?: no prompt and no condition uses b`},
		{"---\ntitle: a\ninput: {schema: {9x: string, b: strnig}}\n---\nx", `x.prompt:3: input.schema.9x: must be a name of letters, digits and _, with ? at its end if it is optional`},
		{"---\ntitle: a\ninput: {schema: {9x: string, b: strnig}}\n---\nx", `x.prompt:3: input.schema.b: unknown type "strnig"`},
		{"---\ntitle: a\ninput: {schema: {mood: string}, default: {mod: x}}\n---\n{{mood}}", `x.prompt:3: input.default.mod: there is no variable mod: write mood`},
		{"---\ntitle: a\ncredits: '2'\n---\nx", `x.prompt:3: credits: must be a number of credits from 0 to 1000000000, with at most three decimals, or metered`},
		{"---\ntitle: a\n---\n{{#iff b}}x{{/iff}}", "x.prompt:4: there is no block {{#iff}}: write {{#if}}"},
		{"---\ntitle: a\n---\n{{docment b}}", `x.prompt:4: there is no helper "docment": write document`},
		{"---\ntitle: a\noutput: {schema: {'b(aray)': string}}\n---\nx", `x.prompt:3: output.schema: unknown type "aray" in parentheses: write array`},
		{"---\ntitle: a\ninput: {default: {b: c}}\n---\nx", `x.prompt:3: input.default.b: there is no variable b`},
		{"---\ntitle: a\ninput: {schema: {b: string}}\nvariables: [{name: c}]\n---\n{{b}}{{c}}", `x.prompt:3: input.schema: the variables are declared`},
		{"---\ntitle: a\nmodels: {paid: b}\nmodel: c\n---\nx", `x.prompt:4: model: is stated twice`},
		{"---\ntitle: a\nlabel: [\n---\nx", "x.prompt:3: did not find"},
		{"---\ntitle: A\n{{x}}", "x.prompt:1: the line --- at the start has no end: close it with ---"},
		{"\n---\ntitle: A\n--\n{{x}}", "x.prompt:2: the line --- at the start has no end: close it with ---"},
		{"---\ntitle: A\n---\n", "x.prompt: the prompt has no text: write what the model shall do, below the line --- that ends its fields"},
		{"---\ntitle: A\nmode: vision\noutput: {schema: {a: string}}\ninput: {schema: {b: string}}\n---", "x.prompt: the prompt has no text"},
	} {
		_, err := Load("x", map[string]string{"x.prompt": c.text})
		require.ErrorContains(t, err, c.want, c.text)
	}
	_, err = Load("x", map[string]string{"a.prompt": "x", "b.prompt": "y"})
	require.ErrorContains(t, err, "several prompts (a.prompt, b.prompt) and no template.yaml")
	_, err = Load("x", nil)
	require.ErrorContains(t, err, "has no template.yaml and no file *.prompt")
	for _, name := range []berth.Template{"", "X", "a b", "../x", "a/b", "é", berth.Template(strings.Repeat("x", 65)), "_x", "x-"} {
		_, err = Load(name, valid)
		require.ErrorContains(t, err, "invalid name", name)
	}
}

func TestMessages_PromptWithoutText_IsAnError(t *testing.T) { // G1, G6
	t.Parallel()
	for body, values := range map[string]map[string]string{
		"{{#if x}}hi {{x}}{{/if}}": nil,
		"{{x}}\n{{role \"system\"}}{{#each list}}{{this}}{{/each}}{{section \"s\"}}": {"x": " \n"},
		"{{#unless x}}Hello{{/unless}}{{#each list}}{{/each}}":                       {"x": "given"},
		"{{#ifEquals @locale \"zh\"}}Hello {{x}}{{/ifEquals}}":                       {"x": "given"},
	} {
		for _, schema := range []string{"", "output: {schema: {a: string}}\n"} {
			one, err := Load("x", map[string]string{
				"template.yaml": "title: X\nlocales: [en, zh]\nvariables: [{name: x}]\nsteps: [{id: say}]\nbackground: [{name: list, results: x}]\n",
				"say.prompt":    "---\nmodel: m\n" + schema + "---\n" + body + "{{#each list}}{{/each}}",
			})
			require.NoError(t, err, body)
			_, err = one.Messages(t.Context(), "say", "en", Input{Texts: values})
			require.Equal(t, berth.Invalid("variables", "the prompt of step say has no text with these values of list, x"), err, body)
			msgs, err := one.Messages(t.Context(), "say", "en", Input{Texts: values, Lists: map[string][]string{"list": {"a"}}})
			if strings.Contains(body, "{{this}}") {
				require.NoError(t, err, body)
				require.NotEmpty(t, msgs, body)
			}
		}
	}
}

// Windows and macOS change nothing about a version, and a file that is not used does not belong to it.
func TestLoad_SameContent_IsTheSameVersion(t *testing.T) { // G2
	t.Parallel()
	one, err := Load("reply", valid)
	require.NoError(t, err)
	other := map[string]string{"README.md": "not a part"}
	for name, text := range valid {
		other[name] = "\ufeff" + strings.ReplaceAll(text, "\n", "\r\n")
	}
	same, err := Load("reply", other)
	require.NoError(t, err)
	require.Equal(t, one.Version, same.Version)
	require.Equal(t, one.Files(), same.Files())
	for name := range valid {
		changed, err := Load("reply", change(name, "", valid[name]+"\n"))
		require.NoError(t, err)
		require.NotEqual(t, one.Version, changed.Version, name)
	}
}

func TestLoadTree_DirectoriesAndLeftovers_OnlyTemplatesAreRead(t *testing.T) { // G2
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const haiku = "---\ntitle: Haiku\n---\n{{>rules}}Write a haiku."
	tree := fstest.MapFS{
		"_rules.prompt": file("All: "), "group/_rules.prompt": file("Group: "), "group/inner/haiku.prompt": file(haiku), "poem.prompt": file(haiku),
		".hidden/x.prompt": file("x"), "group/.x.prompt.swp": file("x"), "group/x.prompt~": file("x"), "group/#x.prompt#": file("x"), "group/README.md": file("x"),
		"group/x.prompt.bak": file("x"),
	}
	for name, text := range valid {
		tree["group/reply/"+name] = file(text)
	}
	delete(tree, "group/reply/_rules.prompt")
	got := LoadTree(tree, ".", "")
	require.Empty(t, got.Mistakes)
	require.Equal(t, map[berth.Template]string{"haiku": "group/inner/haiku.prompt", "poem": "poem.prompt", "reply": "group/reply"}, got.Paths)
	require.Equal(t, "Group: ", got.Templates[0].Files()["_rules.prompt"], "the nearest one")
	require.Equal(t, "All: ", got.Templates[1].Files()["_rules.prompt"])
	for _, one := range got.Templates {
		again, err := Load(one.Name, one.Files())
		require.NoError(t, err)
		require.Equal(t, one.Version, again.Version)
	}

	tree["other/haiku.prompt"] = file(haiku)
	tree["other/Bad Name.prompt"] = file(haiku)
	tree["other/template.yml"] = file("title: x")
	tree["a/b/c/d/e/f/g/h/deep.prompt"] = file(haiku)
	tree["big.prompt"] = file("---\ntitle: x\n---\n" + strings.Repeat("x", 10<<20))
	got = LoadTree(tree, ".", "")
	require.Len(t, got.Templates, 3, "the others are not affected")
	for _, want := range []string{
		"other/haiku.prompt: the template haiku is in group/inner/haiku.prompt already", `invalid name "Bad Name"`, "other/template.yml: is ignored: name it template.yaml", "nested more than 6 deep",
		"big.prompt: has more than 262144 bytes",
	} {
		require.ErrorContains(t, got.Mistakes, want)
	}
}

func TestLoad_AnyChange_ReturnsTemplateOrMistakes(t *testing.T) { // G1
	t.Parallel()
	pieces := []string{"{", "}", "[", "]", ":", "- ", "\n", "  ", "\t", "&a", "*a", "!!binary x", "!!python/object x", "null", "~", "1e999", "0x10", "2001-01-01", "|", ">", "\"", "'", "#", "%", "@", "`", "\x00", "\xff", "\u2028", "{{", "}}", "<<: x", "? x", "\x1b[2J", "\u0085"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(valid))).Draw(t, "file")
		text := valid[name]
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			at := rapid.IntRange(0, len(text)).Draw(t, "at")
			end := min(len(text), at+rapid.IntRange(0, 20).Draw(t, "cut"))
			text = text[:at] + rapid.SampledFrom(pieces).Draw(t, "piece") + text[end:]
		}
		one, err := Load("reply", change(name, "", text))
		require.Equal(t, one == nil, err != nil)
		var mistakes Mistakes
		if err != nil {
			require.ErrorAs(t, err, &mistakes)
			require.NotEmpty(t, mistakes)
			for _, m := range mistakes {
				require.NotEmpty(t, m.File)
				require.NotEmpty(t, m.Message)
				require.False(t, strings.ContainsFunc(m.Error(), unicode.IsControl), "%q", m.Error())
			}
		}
	})
}

// fields returns the names of a struct's fields in YAML.
func fields(kind reflect.Type) (names []string) {
	for i := range kind.NumField() {
		f := kind.Field(i)
		tag, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		switch {
		case inline:
			names = append(names, fields(f.Type)...)
		case tag != "" && tag != "-":
			names = append(names, tag)
		}
	}
	return names
}

func TestSchema_Fields_AreThoseOfTheStructs(t *testing.T) { // G1
	t.Parallel()
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Defs       map[string]json.RawMessage `json:"$defs"`
	}
	parse := func(raw []byte) (o object) {
		require.NoError(t, json.Unmarshal(raw, &o))
		return o
	}
	root := parse(templates.Schema)
	prompt := parse(root.Defs["prompt"])
	for name, c := range map[string]struct {
		schema object
		of     any
	}{
		"template.yaml": {root, spec{}}, "variable": {parse(root.Defs["variable"]), Variable{}}, "step": {parse(root.Defs["step"]), stepSpec{}},
		"stage": {parse(root.Defs["stage"]), Stage{}}, "item": {parse(root.Defs["item"]), itemSpec{}}, "background": {parse(root.Defs["background"]), Background{}},
		"models": {parse(root.Defs["models"]), Models{}}, "prompt": {prompt, matter{}}, "config": {parse(prompt.Properties["config"]), configSpec{}},
		"input": {parse(prompt.Properties["input"]), inputSpec{}}, "output": {parse(prompt.Properties["output"]), outputSpec{}},
	} {
		require.ElementsMatch(t, fields(reflect.TypeOf(c.of)), slices.Collect(maps.Keys(c.schema.Properties)), name)
	}
}

func TestLoadTree_ThousandTemplates_AreReadInTime(t *testing.T) { // G2
	t.Parallel()
	tree := fstest.MapFS{}
	for i := range 1000 {
		for name, text := range valid {
			tree[fmt.Sprintf("t%d/%s", i, name)] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	got := LoadTree(tree, ".", "")
	require.Empty(t, got.Mistakes)
	require.Len(t, got.Templates, 1000)
}

func TestLoadTree_PartOfATree_HasTheSharedFilesAbove(t *testing.T) { // G8
	t.Parallel()
	tree := fstest.MapFS{"_rules.prompt": &fstest.MapFile{Data: []byte("All: ")}, "group/broken.prompt": &fstest.MapFile{Data: []byte("x")}}
	for name, text := range valid {
		if name != "_rules.prompt" {
			tree["group/reply/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	tree["group/other/haiku.prompt"] = &fstest.MapFile{Data: []byte("---\ntitle: x\n---\n{{>rules}}")}
	for at, want := range map[string]string{"group/reply": "reply", "group/reply/reply.en.prompt": "reply", "group/other": "haiku", "group/other/haiku.prompt": "haiku"} {
		got := LoadTree(tree, at, "")
		require.Empty(t, got.Mistakes, at)
		require.Len(t, got.Templates, 1, at)
		require.Equal(t, berth.Template(want), got.Templates[0].Name, at)
	}
	require.Len(t, LoadTree(tree, "group", "").Mistakes, 1)
	require.ErrorContains(t, LoadTree(tree, "nowhere", "").Mistakes, "nowhere: cannot be read: ")
}

// What a library does not survive is a mistake as well.
func TestLoad_HostileSchemas_AreMistakes(t *testing.T) { // G1
	t.Parallel()
	for _, schema := range []string{
		`{"$ref": "#"}`, `{"type": "object", "$ref": "#"}`, `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`,
		`{"type": "object", "minProperties": 1e1000001}`, `{"type": "object", "properties": {"a": {"minimum": 1e1000001}}}`, `{"type": "object", "properties": {"a": {"const": 1e1000001}}}`,
		`{"type": "object", "multipleOf": 0}`, `{"type": "object", "properties": {"a": {"pattern": "(((("}}}`, `{"type": "object", "properties": {"a": {"pattern": "(a{1000}){1000}"}}}`,
		`{"$ref": "https://example.com/schema.json"}`, `{"$ref": "file:///etc/passwd"}`, `{"$schema": "https://example.com/meta", "type": "object"}`,
		`{"$id": "x", "type": "object", "$ref": "y"}`, `true`, `[]`, `null`, `"x"`, `{"type": "object"} {}`, strings.Repeat("[", 20_000), `{"a":` + strings.Repeat(`{"a":`, 20_000),
		`{"type": "object", "properties": ` + strings.Repeat(`{"a": {"properties": `, 29) + `{}` + strings.Repeat(`}}`, 29) + `}`,
		`{"type": "object", "properties": ` + strings.Repeat(`{"a": {"properties": `, 2000) + `{}` + strings.Repeat(`}}`, 2000) + `}`,
	} {
		one, err := Load("reply", change("facts.json", "", schema))
		if err == nil { // such as a reference to itself beside a type
			require.Contains(t, schema, `"type": "object"`)
			require.NotNil(t, one)
			continue
		}
		var mistakes Mistakes
		require.ErrorAs(t, err, &mistakes, "%.100s", schema)
	}
	for _, number := range []string{".inf", "-.inf", ".nan", "1e400", "0x7fffffffffffffff", "99999999999999999999999", "!!float x", "!!int 1.5"} {
		_, err := Load("reply", change("template.yaml", "title:", "credits: "+number+"\ntitle:"))
		require.Error(t, err, number)
	}
}

func TestLoad_VeryManyMistakes_AreBounded(t *testing.T) { // G1
	t.Parallel()
	for _, files := range []map[string]string{
		change("reply.en.prompt", "", strings.Repeat("{{nope}}\n", 20_000)), change("reply.en.prompt", "", strings.Repeat("{{a b]}}\n", 20_000)),
		change("template.yaml", "title:", strings.Repeat("a: b\n", 5000)+"title:"), change("template.yaml", "title:", strings.Repeat("x", 100_000)+": b\ntitle:"),
	} {
		_, err := Load("reply", files)
		require.Less(t, len(err.Error()), 100_000)
	}
}
