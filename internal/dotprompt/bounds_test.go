package dotprompt

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRender_WithoutEnd_IsStopped(t *testing.T) { // G1
	t.Parallel()
	many := make([]string, 2000)
	for i := range many {
		many[i] = strings.Repeat("x", 1000)
	}
	nested := func(inner string) string {
		return "{{#each list}}{{#each @root.list}}{{#each @root.list}}" + inner + "{{/each}}{{/each}}{{/each}}"
	}
	for name, c := range map[string]struct {
		body, want string
		cancelled  bool
	}{
		"nested lists, no output":        {nested(""), "steps", false},
		"nested lists, much output":      {nested("{{this}}"), "too long", false},
		"a constant in nested lists":     {nested("constant"), "", false},
		"many messages":                  {`{{#each list}}{{role "user"}}{{this}}{{role "model"}}{{this}}{{/each}}`, "more than 1000 messages", false},
		"work without output":            {nested(`{{#if (document "d" @root.big)}}{{/if}}`), "steps", false},
		"JSON without output":            {nested(`{{#if (json @root.list)}}{{/if}}`), "steps", false},
		"the caller gives up meanwhile":  {nested(""), "context canceled", true},
		"a text of ten million bytes":    {`{{big}}{{big}}{{big}}{{big}}`, "too long", false},
		"the same in document lines":     {`{{#each list}}{{document "d" @root.big}}{{/each}}`, "too long", false},
		"the same as JSON, many times":   {`{{#each list}}{{json @root.big}}{{/each}}`, "too long", false},
		"an image of ten million bytes":  {`{{#each list}}{{media url=@root.photo}}{{/each}}`, "too long", false},
		"a section in each of many":      {nested(`{{section "s"}}`), "", false},
		"comparisons of very long texts": {nested(`{{#ifEquals @root.big @root.big}}{{/ifEquals}}`), "steps", false},
	} {
		cfg := Config{Names: map[string]Kind{"list": KindList, "big": KindText, "photo": KindImage}}
		p, problems := Compile(Source{"t.prompt", 1, c.body}, cfg)
		require.Empty(t, problems, name)
		ctx, cancel := context.WithCancel(t.Context())
		if c.cancelled {
			cancel()
		}
		_, err := p.Render(ctx, Data{Values: map[string]any{
			"list": many, "big": strings.Repeat("0123456789", 1<<20), "photo": Media{URL: strings.Repeat("i", 10<<20)},
		}})
		cancel()
		if err == nil || !strings.Contains(err.Error(), "takes more than "+MaxTime.String()) { // on a busy machine
			require.ErrorContains(t, err, c.want, name)
		}
		require.ErrorContains(t, err, "t.prompt:1: ", name)
		require.Equal(t, c.cancelled, errors.Is(err, context.Canceled), name)
	}
}

func TestCompile_AnyText_ReturnsPromptOrProblems(t *testing.T) { // G1
	t.Parallel()
	pieces := rapid.SampledFrom([]string{
		"{{", "}}", "{{{", "}}}", "{{{{", "#if ", "#each ", "/if", "/each", "else", "^", "a", "list", "photo", " ", "\n", "~", "(", ")", "|", "as", "=", "@", "..", ".", "/",
		"[", "]", "\"", "'", "\\", "!", "!--", "--", ">", ">p", "&", "role \"system\"", "media url=", "document ", "json ", "1", "-", "true", "null", "x", "\r\n", "\xff", "é", "---\n",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(pieces, 0, 40).Draw(t, "pieces"), "")
		front, body, ok := Split(Source{"t.prompt", 1, text})
		if !ok {
			require.Empty(t, front)
		}
		p, problems := Compile(body, testConfig(map[string]string{"p": text}))
		_, err := p.Render(t.Context(), Data{Values: testValues, Schema: "{}"})
		switch {
		case len(problems) > 0:
			require.Error(t, err)
		case err != nil:
			require.ErrorContains(t, err, ".prompt:")
		}
	})
}

func TestPrompt_ManyGoroutines_RenderTheirOwnValues(t *testing.T) { // G1
	t.Parallel()
	p, problems := Compile(Source{"t.prompt", 1, `{{role "system"}}{{>p}}{{#each list}}{{this}}{{@index}}{{/each}}{{document "d" a}}`}, testConfig(map[string]string{"p": "{{a}}"}))
	require.Empty(t, problems)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat("x", i+1)
			for range 50 {
				msgs, err := p.Render(t.Context(), Data{Values: map[string]any{"a": text, "list": []string{text}}, Trim: true})
				if err != nil || flat(msgs) != "[system]"+text+text+"0"+Document("d", text) {
					t.Errorf("rendered %v, %v", msgs, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSplit_FrontMatter_LinesAreThoseOfTheFile(t *testing.T) { // G1
	t.Parallel()
	for _, c := range []struct {
		text, front, body string
		line              int
	}{
		{"no front matter", "", "no front matter", 1},
		{"---\na: 1\n---\nbody", "a: 1\n", "body", 4},
		{"\ufeff---\r\na: 1\r\n--- \r\n\r\n\r\nbody\r\n", "a: 1\n", "body", 6},
		{"# licence\n\n---\na: 1\n---\n  body  \n", "a: 1\n", "body", 6},
		{"---\n---\nbody", "", "body", 3},
		{"---\na: 1\n---", "a: 1\n", "", 4},
		{"---\na: 1\n", "", "---\na: 1\n", 1},
		{"---\n", "", "---\n", 1},
		{"# heading\ntext", "", "# heading\ntext", 1},
		{"----\na\n----\n", "", "----\na\n----\n", 1},
	} {
		front, body, ok := Split(Source{"f", 1, c.text})
		require.Equal(t, c.front, front.Text, "%q", c.text)
		require.Equal(t, Source{"f", c.line, c.body}, body, "%q", c.text)
		require.Equal(t, c.line > 1, ok, "%q", c.text)
	}
}

func TestUnclosed_FrontMatterWithoutEnd_LineIsFound(t *testing.T) { // G1
	t.Parallel()
	for text, want := range map[string]int{
		"---\nmodel: a\ntext": 1, "---": 1, "\n---\n": 2, "---\ntext": 1, "--- \r\na: 1\r\n": 1, "\ufeff---\na: 1\n----\ntext": 1,
		"\n\n---\ntext": 3, "# licence\n---\n$schema: x\ntext": 2, "#a\n\n---\n\"model\": x": 3, "---\na: 1\n...\ntext": 1,
		"---\na: 1\n---": 0, "---\n---\n": 0, "----\na: 1": 0, "text\n---\na: 1": 0, "# Heading\n---\ntext": 0, "# Heading\n\n---\n\nmodel: is a text": 0,
		" ---\na: 1": 0, "": 0, "{{! text}}---\na: 1": 0, "# only": 0, "--": 0,
	} {
		line, ok := Unclosed(Source{"f", 1, text})
		require.Equal(t, want, line, "%q", text)
		require.Equal(t, want > 0, ok, "%q", text)
	}
}
