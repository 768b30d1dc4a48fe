package template

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"berth"
)

// A template has the languages that its prompts depend on: a user is asked for one only where it changes something.
func TestLoad_Languages_AreThoseThatPromptsDependOn(t *testing.T) { // G1, G6
	t.Parallel()
	const steps = "\nsteps:\n  - id: a\n"
	for name, c := range map[string]struct {
		files   map[string]string
		locales []berth.Locale
		title   Text
		mistake string
	}{
		"none":                          {map[string]string{"template.yaml": "title: A" + steps, "a.prompt": "x"}, []berth.Locale{}, Text{"en": "A"}, ""},
		"only titles":                   {map[string]string{"template.yaml": "title: {en: A, zh: 甲}" + steps, "a.prompt": "x"}, []berth.Locale{}, Text{"en": "A", "zh": "甲"}, ""},
		"only a title in another one":   {map[string]string{"template.yaml": "title: {fr: A}" + steps, "a.prompt": "x"}, []berth.Locale{}, Text{"fr": "A"}, ""},
		"declared":                      {map[string]string{"template.yaml": "title: A\nlocales: [zh, en]" + steps, "a.prompt": "x"}, []berth.Locale{"zh", "en"}, Text{"zh": "A"}, ""},
		"of prompts":                    {map[string]string{"template.yaml": "title: A" + steps, "a.zh.prompt": "x", "a.fr.prompt": "x"}, []berth.Locale{"fr", "zh"}, Text{"fr": "A"}, ""},
		"of a shared prompt":            {map[string]string{"template.yaml": "title: A" + steps + "    prompt: _a", "_a.zh.prompt": "x"}, []berth.Locale{"zh"}, Text{"zh": "A"}, ""},
		"named in a prompt":             {map[string]string{"template.yaml": "title: {en: A, zh: 甲}" + steps, "a.prompt": "{{@locale}}"}, []berth.Locale{"en", "zh"}, Text{"en": "A", "zh": "甲"}, ""},
		"named in a shared text":        {map[string]string{"template.yaml": "title: {en: A, zh: 甲}" + steps, "a.prompt": "{{>b}}", "_b.prompt": "{{@locale}}"}, []berth.Locale{"en", "zh"}, Text{"en": "A", "zh": "甲"}, ""},
		"of a shared text":              {map[string]string{"template.yaml": "title: {en: A, zh: 甲}" + steps, "a.prompt": "{{>b}}", "_b.en.prompt": "x", "_b.zh.prompt": "y"}, []berth.Locale{"en", "zh"}, Text{"en": "A", "zh": "甲"}, ""},
		"of one prompt":                 {map[string]string{"a.zh.prompt": "---\ntitle: 甲\n---\nx"}, []berth.Locale{"zh"}, Text{"zh": "甲"}, ""},
		"none of one prompt":            {map[string]string{"a.prompt": "---\ntitle: 甲\n---\nx"}, []berth.Locale{}, Text{"en": "甲"}, ""},
		"named, and no language":        {map[string]string{"template.yaml": "title: A" + steps, "a.prompt": "{{@locale}}"}, nil, nil, "template.yaml:1: locales: a prompt uses {{@locale}}, and the template has no language: write locales: [en, zh], for example"},
		"a shared text in languages":    {map[string]string{"template.yaml": "title: A" + steps, "a.prompt": "{{>b}}", "_b.en.prompt": "x", "_b.zh.prompt": "y"}, nil, nil, `a.prompt:1: the partial "b" exists for en, zh only: write locales: [en, zh]`},
		"a shared text that lacks one":  {map[string]string{"template.yaml": "title: A\nlocales: [en, fr]" + steps, "a.prompt": "{{>b}}", "_b.en.prompt": "x"}, nil, nil, `a.prompt:1: the partial "b" exists for en only: add _b.fr.prompt, or remove fr from locales`},
		"a title in other languages":    {map[string]string{"template.yaml": "title: {fr: A}\nlocales: [en, fr]" + steps, "a.prompt": "x"}, nil, nil, "template.yaml:1: title: has no text in en, the first language of the template: add it"},
		"a title in a near language":    {map[string]string{"template.yaml": "title: {zh: A}\nlocales: [zh-Hant]" + steps, "a.prompt": "x"}, []berth.Locale{"zh-Hant"}, Text{"zh": "A"}, ""},
		"a label in another language":   {map[string]string{"template.yaml": "title: A\nlocales: [en]" + steps + "    label: {zh: 甲}", "a.prompt": "x"}, nil, nil, "template.yaml:5: steps[0].label: has no text in en, the first language of the template: add it"},
		"a file of no language":         {map[string]string{"template.yaml": "title: A" + steps, "a.english.prompt": "x"}, nil, nil, `template.yaml:3: steps[0].prompt: "english" in the name of a prompt file is not a language: write name.en.prompt`},
		"a title of several lines":      {map[string]string{"template.yaml": "title: |\n  A\n  b\n" + steps, "a.prompt": "x"}, []berth.Locale{}, Text{"en": "A b"}, ""},
		"a title in decomposed letters": {map[string]string{"template.yaml": "title: \"e\\u0301\"" + steps, "a.prompt": "x"}, []berth.Locale{}, Text{"en": "é"}, ""},
	} {
		one, err := Load("a", c.files)
		if c.mistake != "" {
			require.EqualError(t, err, c.mistake, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.locales, one.Locales, name)
		require.Equal(t, c.title, one.Title, name)
		for _, wanted := range []berth.Locale{"", "en", "zh", "de"} {
			messages, err := one.Messages(t.Context(), one.Steps[0].ID, wanted, Input{})
			require.NoError(t, err, name)
			require.NotEmpty(t, messages, name)
		}
	}
}

// A mistake names the file in which it is corrected, once.
func TestLoadTree_InvalidName_IsOfTheFileThatHasIt(t *testing.T) { // G1
	t.Parallel()
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"template.yaml": "titel: A\nsteps: [{id: a}]", "a.prompt": "x", "Sub/template.yaml": "title: A\nsteps: [{id: a}]", "Sub/a.prompt": "x", "one/B c.prompt": "---\ntitle: x\n---\nx",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	const rule = "a template has a name such as ticket_summary, with at most 64 small letters, digits, _ and -"
	require.EqualError(t, LoadTree(tree, ".", "Incident2").Mistakes, strings.Join([]string{
		`Sub/template.yaml: invalid name "Sub": ` + rule + ": write sub",
		`one/B c.prompt: invalid name "B c": ` + rule,
		`template.yaml: invalid name "Incident2": ` + rule + ": write incident2",
		"template.yaml:1: titel: unknown field: write title",
	}, "\n"))
}
