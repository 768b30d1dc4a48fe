package sim

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"text/template"

	"berth/internal/ocr"
)

// answer is a text, or calls of tools.
type answer struct {
	text  string
	calls []toolCall
}

type toolCall struct{ name, arguments string }

// answerTo derives the answer from the request alone, so that equal requests get equal answers: calls of tools if it asks for them, JSON if it
// has a schema, the text of its images if it has some, else Markdown.
func answerTo(ctx context.Context, req chatRequest, read ocr.Reader) (out answer, err error) {
	var seen []string
	for _, url := range req.images() {
		img, err := decodeImage(url)
		if err != nil {
			return out, err
		}
		text, err := read(ctx, img)
		if err != nil {
			return out, fmt.Errorf("read the image: %w", err)
		}
		seen = append(seen, strings.TrimSpace(text))
	}
	for _, t := range req.called() {
		out.calls = append(out.calls, toolCall{t.Function.Name, readSource(req.Messages, seen).arguments(t)})
	}
	if out.calls == nil {
		out.text = derive(req.Messages, seen, req.ResponseFormat, maxFollowUps)
	}
	for _, stop := range req.Stop {
		if stop != "" {
			out.text, _, _ = strings.Cut(out.text, stop)
		}
	}
	return out, nil
}

const maxFollowUps = 3

// derive returns the answer to messages, by the schema of the response format or one that they quote. If they end with the beginning of an
// answer and a request for more, the answer is the rest.
func derive(messages []message, seen []string, format responseFormat, followUps int) string {
	if n := len(messages); n > 2 && followUps > 0 && messages[n-1].Role == "user" && messages[n-2].Role == "assistant" {
		begun := messages[n-2].Content.text()
		rest, ok := strings.CutPrefix(derive(messages[:n-2], seen, format, followUps-1), begun)
		if ok && begun != "" {
			return rest
		}
	}
	s := readSource(messages, seen)
	s.schema = format.schema(s.schema)
	marked := !format.json() && mark.MatchString(s.rules)
	switch {
	case s.schema != nil && !marked:
		return s.fill(s.schema)
	case len(seen) > 0 && !marked:
		return s.render("image", strings.Join(seen, "\n\n"))
	default:
		return s.write()
	}
}

//go:embed answers
var answerFiles embed.FS

// answers are the texts of the simulator, by whether they are Chinese.
var answers = map[bool]*template.Template{false: parseAnswers("en"), true: parseAnswers("zh")}

func parseAnswers(locale string) *template.Template {
	const end = ".。;；" // of a text that is quoted within a sentence
	return template.Must(template.New(locale).Funcs(template.FuncMap{
		"inc":  func(i int) int { return i + 1 },
		"bare": func(text string) string { return strings.TrimRight(text, end) },
		"list": func(n int, comma string, texts []string) string {
			out := ""
			for _, text := range first(n, texts) {
				out += strings.TrimRight(text, end) + comma
			}
			return strings.TrimSuffix(out, comma)
		},
	}).ParseFS(answerFiles, "answers/"+locale+".tmpl"))
}

// render executes an answer file's template.
func (s *source) render(name string, data any) string {
	var b strings.Builder
	if err := answers[s.zh].ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("answer %s: %v", name, err)) // the embedded file is broken; tests execute all
	}
	return strings.TrimSpace(b.String())
}
