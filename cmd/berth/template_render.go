package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth"
	"berth/internal/extract"
	"berth/internal/setting"
	"berth/internal/template"
	"berth/internal/userfile"
	"berth/internal/yamlfile"
)

type templateRender struct {
	templateName
	templateSource
	Var    []string     `help:"Set a variable, or the output of an earlier step: NAME=TEXT, or NAME=@FILE. Repeat it for the texts of a list." short:"v" placeholder:"NAME=VALUE" sep:"none"`
	Locale berth.Locale `help:"Render the prompt of this language." default:"en"`
	Step   string       `help:"Render this step; the last one by default."`
	JSON   bool         `help:"Print the messages as JSON, exactly as they are sent." name:"json"`
}

// Run prints the messages.
func (c *templateRender) Run(ctx context.Context) error { return c.run(ctx, os.Stdout) }

func (c *templateRender) run(ctx context.Context, out io.Writer) error {
	t, err := c.find(ctx, c.Name)
	if err != nil {
		return err
	}
	step := t.Steps[len(t.Steps)-1]
	if c.Step != "" {
		var ok bool
		if step, ok = t.Step(c.Step); !ok {
			var ids []string
			for _, s := range t.Steps {
				ids = append(ids, s.ID)
			}
			return setting.Wrong(fmt.Errorf("--step: step %q of %s not found: use one of %s", c.Step, t.Name, strings.Join(ids, ", ")))
		}
	}
	in, err := c.input(t, step)
	if err != nil {
		return setting.Wrong(err)
	}
	_, in = t.Assume(in)
	messages, err := t.Messages(ctx, step.ID, c.Locale, in)
	if invalid, ok := errors.AsType[*berth.Error](err); ok && strings.HasPrefix(invalid.Field, "variables.") {
		name := strings.TrimPrefix(invalid.Field, "variables.")
		return setting.Wrong(fmt.Errorf("step %s needs %s: add --var %s=…", step.ID, name, name))
	}
	if err != nil {
		return setting.Wrong(err)
	}
	if c.JSON {
		return writeJSON(out, messages)
	}
	return writeMessages(out, messages)
}

// writeMessages prints messages for a reader. Whatever a text contains, it stays within its message: each of its lines is indented by four spaces,
// and characters that a terminal would execute, or that change how their surroundings are displayed, are shown as in Go. JSON is exact.
func writeMessages(out io.Writer, messages []template.Message) error {
	w := bufio.NewWriter(out)
	for i, m := range messages {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s:\n", m.Role)
		text := ""
		flush := func() {
			if text != "" {
				for line := range strings.SplitSeq(text, "\n") {
					fmt.Fprintf(w, "    %s\n", visible(line))
				}
			}
			text = ""
		}
		for _, p := range m.Parts {
			if text += p.Text; p.Media != nil {
				flush()
				fmt.Fprintf(w, "  [%s, %d bytes as a URL]\n", visible(p.Media.ContentType), len(p.Media.URL))
			}
		}
		flush()
	}
	return w.Flush()
}

// visible returns a line with escapes in place of the characters that a terminal would execute, or that change how others are displayed.
func visible(line string) string {
	var b strings.Builder
	for len(line) > 0 {
		r, size := utf8.DecodeRuneInString(line)
		if r != '\t' && yamlfile.Unsafe(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.QuoteToASCII(line[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
		line = line[size:]
	}
	return b.String()
}

// input reads the values of --var.
func (c *templateRender) input(t *template.Template, step template.Step) (template.Input, error) {
	in := template.Input{Texts: map[string]string{}, Images: map[string]template.Image{}, Lists: map[string][]string{}}
	for _, given := range c.Var {
		name, value, ok := strings.Cut(given, "=")
		if !ok {
			return in, fmt.Errorf("--var %.40s: write NAME=TEXT or NAME=@FILE", given)
		}
		content := []byte(value)
		file, isFile := strings.CutPrefix(value, "@")
		if isFile {
			var err error
			if content, err = userfile.Read(file, berth.MaxUploadBytes); err != nil {
				return in, fmt.Errorf("--var %s: %w", name, err)
			}
		}
		known := slices.ContainsFunc(t.Variables, func(v template.Variable) bool { return v.Name == name })
		image := slices.ContainsFunc(t.Variables, func(v template.Variable) bool { return v.Name == name && v.Kind == template.KindImage })
		list := slices.ContainsFunc(t.Background, func(b template.Background) bool { return b.Name == name })
		switch {
		case !known && !list && !slices.Contains(step.Reads, name):
			return in, fmt.Errorf("--var %s: step %s uses %s", name, step.ID, strings.Join(step.Reads, ", "))
		case image:
			kind := extract.Detect(content, file).Image
			if !isFile || kind == "" {
				return in, fmt.Errorf("--var %s: is an image: write %s=@FILE with the name of a JPEG, PNG, WebP or GIF file", name, name)
			}
			in.Images[name] = template.Image{MediaType: kind, Data: content}
		case !utf8.Valid(content):
			return in, fmt.Errorf("--var %s: %s is not a text in UTF-8", name, file)
		case list:
			in.Lists[name] = append(in.Lists[name], string(content))
		default:
			in.Texts[name] = string(content)
		}
	}
	return in, nil
}
