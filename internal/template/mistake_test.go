package template

import (
	"encoding/json"
	"fmt"
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
	require.EqualValues(t, 1, one.Credits)
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

func TestLoad_EachMistake_NamesFileLineFieldAndRemedy(t *testing.T) { // G1
	t.Parallel()
	const y = "template.yaml"
	for _, c := range []struct {
		files map[string]string
		want  string // the beginning of a mistake, and what it contains
		text  string
	}{
		{change(y, "title: {en: Reply, zh: 回复}\n", ""), y + ":1: ", "missing property 'title'"},
		{change(y, "title:", "titel: x\ntitle:"), y + ":1: titel: ", "write title"},
		{change(y, "into: facts", "intoo: facts"), y + ":17: steps[1].intoo: ", "write into"},
		{change(y, "    models:", "    model: large\n    models:"), y + ":20: steps[2].model: ", "write models"},
		{change(y, "kind: document", "knid: document"), y + ":5: variables[0].knid: ", "write kind"},
		{change(y, "kind: document", "kind: pdf"), y + ":5: variables[0].kind: ", "'document'"},
		{change(y, "kind: document", "kind: image"), y + ":15: steps[0].into: ", "is an image"},
		{change(y, "timeout: 90s", "timeout: 90"), y + ":21: steps[2].timeout: ", ""},
		{change(y, "timeout: 90s", "timeout: soon"), y + ":21: steps[2].timeout: ", "pattern"},
		{change(y, "when: photo", "when: foto"), y + ":14: steps[0].when: ", "write photo"},
		{change(y, "when: photo", "when: tone"), y + ":15: steps[0].into: ", "could be given by the user"},
		{change(y, "    when: photo\n", ""), y + ":14: steps[0].into: ", "could be given by the user"},
		{change(y, "    into: facts\n", ""), y + ":16: steps[1].into: ", "missing"},
		{change(y, "into: facts", "into: tone"), y + ":17: steps[1].into: ", "could be given by the user"},
		{change(y, "into: facts", "into: mail"), y + ":17: steps[1].into: ", "output of step read"},
		{change(y, "into: facts", "into: earlier"), y + ":17: steps[1].into: ", "list of background"},
		{change(y, "into: facts", "into: document"), y + ":17: steps[1].into: ", "meaning of its own"},
		{change(y, "    timeout: 90s", "    into: x"), y + ":21: steps[2].into: ", "no step follows"},
		{change(y, "    timeout: 90s", "    when: photo"), y + ":21: steps[2].when: ", "always runs"},
		{change(y, "  - id: facts\n", "  - id: read\n"), y + ":16: steps[1].id: ", "another step"},
		{change(y, "    timeout: 90s", "    status: COMPLETED"), y + ":21: steps[2].status: ", "every task"},
		{change(y, "    timeout: 90s", "    status: done"), y + ":21: steps[2].status: ", "pattern"},
		{change(y, "    timeout: 90s", "    truncated: continue"), y + ":21: steps[2].truncated: ", "remove it"},
		{change(y, "    timeout: 90s", "    schema: facts.json"), y + ":23: stages: ", "only a stream has stages"},
		{change(y, "    timeout: 90s", "    mode: vision"), y + ":21: steps[2].mode: ", "{{media url=…}}"},
		{change(y, "    when: photo", "    mode: stream\n    when: photo"), y + ":14: steps[0].mode: ", "only a step of mode vision"},
		{change(y, "    schema: facts.json", "    schema: facts.json\n    mode: stream"), y + ":19: steps[1].mode: ", "use batch"},
		{change(y, "schema: facts.json", "schema: facs.json"), y + ":18: steps[1].schema: ", "no file facs.json"},
		{change(y, "schema: facts.json", "schema: [a]"), y + ":18: steps[1].schema: ", ""},
		{change(y, "schema: facts.json", "schema: {a: strin}"), y + ":18: steps[1].schema: ", `unknown type "strin"`},
		{change(y, "schema: facts.json", "schema: {a?: string}"), y + ":18: ", `{"x?": string}`},
		{change(y, "schema: facts.json", "schema: string"), y + ":18: steps[1].schema: ", "must describe an object"},
		{change(y, "schema: facts.json", "schema: {type: array}"), y + ":18: steps[1].schema: ", "must describe an object"},
		{change(y, "schema: facts.json", "schema: {type: object, properties: {a: {type: text}}}"), y + ":18: steps[1].schema: ", "is not a JSON Schema: "},
		{change(y, "schema: facts.json", "schema: {type: object, $ref: 'other.json'}"), y + ":18: steps[1].schema: ", "is not a JSON Schema: "},
		{change(y, "schema: {text: string}", "schema: {text(list): string}"), y + ":27: items[0].schema: ", "use array, object or enum"},
		{change("facts.json", "", "{"), "facts.json: ", "is not a JSON Schema"},
		{change("facts.json", "", `{"type": "array"}`), "facts.json: ", "must describe an object"},
		{change(y, "default: friendly", "required: true\n    default: x"), y + ":12: variables[2].default: ", "never used"},
		{change(y, "group: source\n  - name: photo", "group: other\n  - name: photo"), y + ":6: variables[0].group: ", "alone in its group"},
		{change(y, "    group: source\n", "    group: source\n    required: true\n"), y + ":7: variables[0].required: ", "always required"},
		{change(y, "name: tone", "name: if"), y + ":10: variables[2].name: ", "meaning of its own"},
		{change(y, "name: tone", "name: mail"), y + ":10: variables[2].name: ", "another value"},
		{change(y, "name: tone", "name: 1tone"), y + ":10: variables[2].name: ", "pattern"},
		{change(y, "name: earlier", "name: mail"), y + ":29: background[0].name: ", "another value"},
		{change(y, "matching: mail", "max: 3"), y + ":29: background[0]: ", "either results"},
		{change(y, "matching: mail", "matching: male"), y + ":30: ", "no text male"},
		{change(y, "- id: body", "- id: greeting"), y + ":24: stages[1].id: ", "twice"},
		{change(y, "- id: fact\n", "- id: stage\n"), y + ":26: items[0].id: ", "stage"},
		{change(y, "locales: [en, zh]", "locales: [en, zh, fr]"), y + ":16: steps[1].prompt: ", "facts.fr.prompt"},
		{change(y, "locales: [en, zh]", "locales: [en]"), "facts.zh.prompt: ", "zh is not among locales"},
		{change(y, "locales: [en, zh]", "locales: [en, zh_CN]"), y + ":2: locales[1]: ", "write zh-CN"},
		{change(y, "locales: [en, zh]", "locales: [en, klingon]"), y + ":2: locales[1]: ", ""},
		{change(y, "zh: 回复", "zhh: 回复"), y + ":1: title.zhh: ", "not a language"},
		{change("reply.en.prompt", "", "{{mial}}"), "reply.en.prompt:1: ", "there is no variable"},
		{change("facts.en.prompt", "", "{{mail}}{{facts}}"), "facts.en.prompt:1: ", `no variable "facts"`},
		{change("reply.zh.prompt", "", "\n\n{{>rule}}"), "reply.zh.prompt:3: ", `no partial "rule"`},
		{change("_rules.prompt", "", "{{>rules}}"), "_rules.prompt:1: ", "contains itself"},
		{change("_rules.prompt", "", "---\na: b\n---\nx"), "_rules.prompt:1: ", "has no fields"},
		{change("reply.en.prompt", "<<stage:body>>", "<<stage:bodi>>"), "reply.en.prompt:3: ", "the stage bodi is not declared"},
		{change("reply.en.prompt", "<<fact ", "<<fakt "), "reply.en.prompt:4: ", "the item fakt is not declared"},
		{change("facts.en.prompt", "", "{{mail}}\n<<stage:body>>"), "facts.en.prompt:2: ", "only the last step"},
		{change("reply.en.prompt", "{{>rules}}", "---\ntitle: x\n---\n{{>rules}}"), "reply.en.prompt:2: title: ", "belongs into template.yaml"},
		{change("reply.en.prompt", "{{>rules}}", "---\nmodel: other\n---\n{{>rules}}"), "reply.en.prompt:2: model: ", "twice"},
		{change("reply.en.prompt", "{{>rules}}", "---\noutput: {format: json}\n---\n{{>rules}}"), "reply.en.prompt:2: output.format: ", "needs a schema"},
		{change("reply.en.prompt", "{{>rules}}", "---\nconfig: {temperature: 1}\n---\n{{>rules}}"), "reply.en.prompt:2: config.temperature: ", "unknown field"},
		{change("reply.en.prompt", "{{>rules}}", "---\nfoo: 1\n---\n{{>rules}}"), "reply.en.prompt:2: foo: ", "unknown field"},
		{change("facts.en.prompt", "{{>rules}}", "---\noutput: {schema: {other: string}}\n---\n"), "facts.en.prompt:2: output.schema: ", "twice"},
		{change("repyl.en.prompt", "", "x"), "repyl.en.prompt: ", "no step uses this prompt"},
		{change("../x.prompt", "", "x"), "../x.prompt: ", "no directory"},
		{change("a/x.prompt", "", "x"), "a/x.prompt: ", "no directory"},
		{change("reply.en.prompt", "", "{{#if tone}}"), "reply.en.prompt:1: ", "{{/if}}"},
		{change("reply.en.prompt", "", "x\xff"), "reply.en.prompt:1: ", "UTF-8"},
		{change("reply.en.prompt", "", strings.Repeat("x", 10<<20)), "reply.en.prompt: ", "more than 262144 bytes"},
		{change(y, "", strings.Repeat("#", 10<<20)), y + ": ", "more than 262144 bytes"},
		{change(y, "", ""), y + ":1: ", "empty file"},
		{change(y, "", "a: b\n---\nc: d\n"), y + ":1: ", "more than one document"},
		{change(y, "", "- a"), y + ":1: ", "must be fields"},
		{change(y, "", "title"), y + ":1: ", "must be fields"},
		{change(y, "  - name: mail", "\t- name: mail"), y + ":4: ", "a tab"},
		{change(y, "title:", "title: x\ntitle:"), y + ":2: title: ", "twice, first in line 1"},
		{change(y, "kind: document", "kind: document\n    kind: text"), y + ":6: variables[0].kind: ", "twice, first in line 5"},
		{change(y, "title: {en: Reply, zh: 回复}", "title: &a {en: Reply}\ndescription: *a"), y + ":1: title: ", "anchors"},
		{change(y, "default: friendly", "default: *none"), y, ""},
		{change(y, "default: friendly", "default: [a]"), y + ":11: variables[2].default: ", "want string"},
		{change(y, "default: friendly", "default: "+strings.Repeat("[", 100)+strings.Repeat("]", 100)), y + ":11: ", "nested more than 40"},
		{change(y, "", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"), y + ":1: a: ", "anchors"},
		{change(y, "", "title: x\nsteps:\n"+strings.Repeat("  - id: a\n", 15000)), y + ":1: ", "more than 20000 values"},
		{change(y, "title:", "? {a: b}\n: c\ntitle:"), y + ":1: ", "must be a word"},
		{change(y, "title:", "credits: -1\ntitle:"), y + ":1: credits: ", "minimum"},
		{change(y, "title:", "credits: 1.5\ntitle:"), y + ":1: credits: ", "want integer"},
	} {
		_, err := Load("reply", c.files)
		require.Error(t, err, "%s %s", c.want, c.text)
		var mistakes Mistakes
		require.ErrorAs(t, err, &mistakes)
		require.True(t, slices.ContainsFunc(mistakes, func(m Mistake) bool {
			return strings.HasPrefix(m.Error(), c.want) && strings.Contains(m.Error(), c.text)
		}), "want %s…%s, got\n%.2000s", c.want, c.text, err)
		require.NotContains(t, err.Error(), "schema.json", "the compiler's own name")
	}
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
	files["template.yaml"] = strings.Replace(files["template.yaml"], "into: facts", "intoo: facts", 1)
	files["template.yaml"] = strings.Replace(files["template.yaml"], "when: photo", "when: foto", 1)
	files["reply.en.prompt"] = "{{nope}}\n{{role tone}}"
	files["reply.zh.prompt"] = "{{#if tone}}"
	files["facts.json"] = "{"
	_, err := Load("reply", files)
	for _, want := range []string{
		"template.yaml:5: variables[0].kind", "template.yaml:17: steps[1].intoo", "template.yaml:14: steps[0].when", "reply.en.prompt:1: ", "reply.en.prompt:2: ", "reply.zh.prompt:1: ", "facts.json: ",
	} {
		require.ErrorContains(t, err, want)
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

	chinese, err := Load("shi", map[string]string{"shi.zh.prompt": "---\ntitle: 诗\n---\n写一首诗。"})
	require.NoError(t, err)
	require.Equal(t, []berth.Locale{"zh"}, chinese.Locales)
	require.Equal(t, Text{"zh": "诗"}, chinese.Title)
	require.Equal(t, "诗", chinese.Title.In("en"))

	for _, c := range []struct{ text, want string }{
		{"no fields", "x.prompt:1: a prompt that is a template begins with its fields"},
		{"---\nmodel: a\n---\nx", "x.prompt:2: missing property 'title'"},
		{"---\ntitle: a\nsteps: []\n---\nx", "x.prompt:3: steps: unknown field"},
		{"---\ntitle: a\ninput: {schema: {b: list}}\n---\n{{b}}", `x.prompt:3: input.schema.b: unknown type "list"`},
		{"---\ntitle: a\ninput: {schema: {b: string}}\n---\n{{c}}", `x.prompt:5: there is no variable "c"`},
		{"---\ntitle: a\ninput: {schema: {'b?': string}}\n---\nx", `x.prompt:3: input.schema.b?: no prompt and no condition uses b`},
		{"---\ntitle: a\ninput: {default: {b: c}}\n---\nx", `x.prompt:3: input.default.b: there is no variable b`},
		{"---\ntitle: a\ninput: {schema: {b: string}}\nvariables: [{name: c}]\n---\n{{b}}{{c}}", `x.prompt:3: input.schema: the variables are declared`},
		{"---\ntitle: a\nmodels: {paid: b}\nmodel: c\n---\nx", `x.prompt:4: model: is stated twice`},
		{"---\ntitle: a\nlabel: [\n---\nx", "x.prompt:4: did not find"},
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
