package sim

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"berth"
	"berth/internal/llm"
	"berth/internal/ocr"
)

// answer is the content of a response, and the reasoning that a reasoning model would send before it.
type answer struct{ text, reasoning string }

// source is what the simulator finds in a request. The answer files refer to its exported fields.
type source struct {
	zh       bool
	posting  []line
	Profile  []line // the résumé, with its detailed version
	Subject  []line // what is to be described: the profile, else the posting, else the whole message
	Head     [2]string
	About    []string
	Duties   []string
	Required []string
	Names    []string
	Points   []point
	Matched  []point // of the required points
	Missing  []point // of the required points
	Score    int     // the matched share of the required points in percent
}

// point is one thing that is looked for in the profile.
type point struct {
	berth.MatchPoint
	Optional bool
}

func (p point) String() string { return p.Requirement }

var taskLine = regexp.MustCompile(`(?m)^Task: (\w+)$`)

// answerTo derives the answer from the request alone, so that equal requests get equal answers: the text of its images,
// JSON if its template or response format asks for JSON, else Markdown.
func answerTo(ctx context.Context, req chatRequest, read ocr.Reader) (answer, error) {
	system, user, images, _ := req.prompt()
	s := readSource(system, user)
	if len(images) > 0 {
		text, err := readImages(ctx, images, read)
		return answer{s.render("image", text), s.render("reasoning", s)}, err
	}
	task := append(taskLine.FindStringSubmatch(system), "", "")[1] // "" without such a line
	if schema := findSchema(req, task); schema != nil {
		text, err := s.fill(schema)
		return answer{text, s.render("reasoning", s)}, err
	}
	if berth.Template(task).Spec().Name == "" || answers[s.zh].Lookup(task) == nil {
		task = "other"
	}
	return answer{s.render(task, s) + "\n", s.render("reasoning", s)}, nil
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

// readSource reads the documents of a prompt by their names. The language is that of the system message.
func readSource(system, user string) *source {
	s := &source{zh: strings.ContainsFunc(system, isCJK) || system == "" && strings.ContainsFunc(user, isCJK)}
	for _, d := range llm.Documents(user) {
		switch {
		case d.Name == "job_summary" && len(s.posting) == 0: // it repeats the posting
			s.posting = readSummary(d.Text)
		case d.Name == "job_posting":
			s.posting = readLines(d.Text)
		case strings.HasSuffix(d.Name, "resume"):
			s.Profile = append(s.Profile, readLines(d.Text)...)
		}
	}
	s.Subject = firstOf(s.Profile, s.posting, readLines(user))
	copy(s.Head[:], texts(firstOf(s.posting, s.Subject), ""))
	s.About, s.Duties = texts(s.Subject, about), texts(s.posting, duties)
	s.Names = names(strings.Join(texts(s.Subject, ""), ". "))
	s.Required = firstOf(texts(s.posting, requirements), texts(s.posting, skills, duties, about, ""))
	s.compare(s.Required, false)
	s.compare(texts(s.posting, wishes), true)
	s.Score = 100 * len(s.Matched) / max(len(s.Matched)+len(s.Missing), 1)
	return s
}

// firstOf returns the first list that is not empty.
func firstOf[T any](lists ...[]T) []T {
	i := slices.IndexFunc(lists, func(l []T) bool { return len(l) > 0 })
	return lists[max(i, 0)]
}

// readSummary reads the answer to the template job_summary as if it were the posting.
func readSummary(text string) []line {
	var sum struct {
		Title, Company                         string
		Responsibilities, MustHave, NiceToHave []string
	}
	if json.Unmarshal([]byte(text), &sum) != nil {
		return readLines(text)
	}
	return readLines(fmt.Sprintf("%s\n%s\nResponsibilities\n- %s\nRequirements\n- %s\nNice to have\n- %s", sum.Title, sum.Company,
		strings.Join(sum.Responsibilities, "\n- "), strings.Join(sum.MustHave, "\n- "), strings.Join(sum.NiceToHave, "\n- ")))
}

// compare looks for every term of the wanted lines in the profile.
func (s *source) compare(wanted []string, optional bool) {
	for _, text := range wanted {
		for _, term := range terms(text) {
			if slices.ContainsFunc(s.Points, func(p point) bool { return strings.EqualFold(p.Requirement, term) }) {
				continue
			}
			found, ok := find(term, s.Profile)
			p := point{berth.MatchPoint{Requirement: term, Matched: ok, Evidence: found}, optional}
			s.Points = append(s.Points, p)
			switch {
			case optional:
			case ok:
				s.Matched = append(s.Matched, p)
			default:
				s.Missing = append(s.Missing, p)
			}
		}
	}
}

//go:embed answers
var answerFiles embed.FS

// answers are the texts of the simulator, by whether they are Chinese.
var answers = map[bool]*template.Template{false: parseAnswers("en"), true: parseAnswers("zh")}

func parseAnswers(locale string) *template.Template {
	return template.Must(template.New(locale).Funcs(template.FuncMap{
		"first": first,
		"inc":   func(i int) int { return i + 1 },
		"join":  strings.Join,
		"json":  marshal,
		"list":  list,
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

// first returns at most n elements of a slice.
func first(n int, slice any) (out []any) {
	v := reflect.ValueOf(slice)
	for i := range min(n, v.Len()) {
		out = append(out, v.Index(i).Interface())
	}
	return out
}

// list joins at most n elements of a slice, "–" if there are none.
func list(n int, slice any) string {
	var out []string
	for _, v := range first(n, slice) {
		out = append(out, fmt.Sprint(v))
	}
	return cmp.Or(strings.Join(out, ", "), "–")
}
