package sim

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth/internal/ocr"
	"berth/internal/schema"
)

// answer is the content of a response, and the reasoning that a reasoning model would send before it.
type answer struct{ text, reasoning string }

// answerTo derives the answer from the request alone, so that equal requests get equal answers: JSON if it asks for JSON,
// the text of its images if it has some, else Markdown.
func answerTo(ctx context.Context, req chatRequest, read ocr.Reader) (answer, error) {
	seen, err := readImages(ctx, req.images(), read)
	if err != nil {
		return answer{}, err
	}
	return answerWith(req, seen, maxFollowUps)
}

const maxFollowUps = 3

func answerWith(req chatRequest, seen string, followUps int) (answer, error) {
	if followUps > 0 {
		if ans, ok := again(req, seen, followUps-1); ok {
			return ans, nil
		}
	}
	s := readSource(req, seen)
	ans := answer{reasoning: s.reasoning()}
	if wanted, formal := s.wants(req); wanted != nil {
		text, err := s.fill(wanted, formal)
		ans.text = text
		return ans, err
	}
	parts := s.outline()
	switch {
	case parts == nil && len(req.images()) > 0:
		ans.text = s.render("image", seen)
	case parts == nil:
		ans.text = s.reply()
	default:
		ans.text = s.write(parts)
	}
	return ans, nil
}

// again returns the answer to a request that follows up on one whose answer it quotes: the rest of an answer that the
// assistant's message begins, or the whole answer if the last of several user messages encloses its beginning.
func again(req chatRequest, seen string, followUps int) (answer, bool) {
	n := len(req.Messages)
	if n < 2 {
		return answer{}, false
	}
	last, before := req.Messages[n-1], req.Messages[n-2]
	base := req
	switch {
	case last.Role != "user":
		return answer{}, false
	case before.Role == "assistant":
		begun := before.Content.text()
		base.Messages = req.Messages[:n-2]
		if !base.asks() || begun == "" {
			return answer{}, false
		}
		ans, err := answerWith(base, seen, followUps)
		rest, ok := strings.CutPrefix(ans.text, begun)
		return answer{rest, ans.reasoning}, ok && err == nil
	}
	_, quoted := enclosed(last.Content.text())
	base.Messages = req.Messages[:n-1]
	if len(quoted) == 0 || !base.asks() {
		return answer{}, false
	}
	ans, err := answerWith(base, seen, followUps)
	return ans, err == nil && slices.ContainsFunc(quoted, func(e enclosure) bool {
		text := strings.TrimSuffix(e.text, "…")
		return text != "" && strings.HasPrefix(strings.TrimSpace(ans.text), text)
	})
}

func readImages(ctx context.Context, urls []string, read ocr.Reader) (string, error) {
	var found []string
	for _, url := range urls {
		img, err := decodeImage(url)
		if err != nil {
			return "", invalid("image_url: %s", err)
		}
		text, err := read(ctx, img)
		if err != nil {
			return "", fmt.Errorf("read the image: %w", err)
		}
		found = append(found, text)
	}
	return strings.TrimSpace(strings.Join(found, "\n\n")), nil
}

// fill returns a value of the schema with what the source says. If no value was found for a schema, the answer states that in text.
func (s *source) fill(raw []byte, formal bool) (string, error) {
	compiled, err := schema.CompileWithFormats("schema.json", raw)
	switch {
	case err != nil && formal:
		return "", invalid("schema: %s", err)
	case err != nil:
		return s.render("unusable", oneLine(err.Error())), nil
	}
	var a applied
	a.add(compiled)
	if formal && !allows(a.all, "object") && len(a.choices) == 0 {
		return "", invalid("schema: must describe an object")
	}
	f := s.newFiller(keyRank(raw))
	v, ok := f.value(a.all[:1], place{}, 0)
	if !ok {
		return s.render("unusable", ""), nil
	}
	text := f.encode(v, "")
	if object, ok := v.(map[string]any); ok && !strings.Contains(text, s.render("notice", nil)) {
		text = f.encode(f.noted(object, a.all), "")
	}
	return text, nil
}

// noted states that the answer is simulated in the last free text of an object that may have it.
func (f *filler) noted(object map[string]any, all []*jsonschema.Schema) any {
	f.steps = maxSteps // the answer exists already
	properties, _, _ := f.properties(all)
	for _, p := range slices.Backward(properties) {
		text, ok := object[p.name].(string)
		if !ok || p.kind != textKind {
			continue
		}
		object[p.name] = strings.TrimSpace(text + " " + f.render("notice", nil))
		if f.valid(all, object) {
			break
		}
		object[p.name] = text
	}
	return object
}

func (s *source) reasoning() string {
	count := map[string]int{"Texts": len(s.docs)}
	for _, d := range s.docs {
		for _, sec := range d.sections {
			for _, l := range sec.lines {
				count["Lines"]++
				if l.bullet {
					count["Entries"]++
				}
			}
		}
	}
	return s.render("reasoning", count)
}

// reply is the answer to a message that asks for no form.
func (s *source) reply() string {
	if d := s.docs[0]; len(s.docs) == 1 && len(d.sections) == 1 && d.label == "" {
		return s.render("reply", map[string]any{
			"Lines": strings.Count(d.text, "\n") + 1, "Title": d.title, "Names": names(oneLine(clip(d.text, maxText))),
		}) + "\n"
	}
	return s.write([]part{
		{does: map[intent]bool{overview: true}},
		{does: map[intent]bool{itemising: len(s.docs) > 1, quoting: len(s.docs) == 1}},
		{does: map[intent]bool{scoring: true, concluding: true}},
	}[:min(1+len(s.docs), 3)])
}

//go:embed answers
var answerFiles embed.FS

// answers are the texts of the simulator, by whether they are Chinese.
var answers = map[bool]*template.Template{false: parseAnswers("en"), true: parseAnswers("zh")}

func parseAnswers(locale string) *template.Template {
	return template.Must(template.New(locale).Funcs(template.FuncMap{
		"inc": func(i int) int { return i + 1 },
		"list": func(n int, texts []string) string {
			return strings.Join(first(n, texts), map[string]string{"en": ", ", "zh": "、"}[locale])
		},
		"bare": func(text string) string { return strings.TrimRight(text, ".。;；") },
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
