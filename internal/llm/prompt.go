package llm

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"berth"
)

//go:embed prompts
var promptFiles embed.FS

// Role is the author of a message in the chat-completions protocol.
type Role string

// The roles berth uses.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a call. ImageURL is a data URL, sent as a separate part.
type Message struct {
	Role     Role
	Text     string
	ImageURL string
}

// Image is the image that a vision step reads.
type Image struct {
	MediaType string
	Data      []byte
}

// Input is the content of a prompt. All of it comes from users or models: the prompt encloses it in document lines and
// instructs the model not to follow instructions inside.
type Input struct {
	// Variables holds the texts of the task's variables by name.
	Variables map[string]string
	// Outputs holds what earlier steps of the task produced.
	Outputs map[berth.StepName]string
	// Passages and Summaries are the user's stored texts, for templates with Background.
	Passages  []string
	Summaries []string
	Image     *Image
}

// maxAnswerInRepair bounds how much of an invalid answer the repair prompt quotes, in bytes.
const maxAnswerInRepair = 32 << 10

// Prompts that are not templates of their own: parts that every prompt may use, and the request for a repair.
const (
	sharedPrompts  = "shared"
	repairPrompt   = "repair"
	continuePrompt = "continue"
)

type promptKey struct {
	name   string // of the directory
	locale berth.Locale
}

// promptData is what the prompt files refer to.
type promptData struct {
	Input
	Template berth.Template
	Schema   string
	Problem  string
	Answer   string
}

// Variable returns the text of a variable, "" when the task has none.
func (d promptData) Variable(name string) string { return d.Variables[name] }

// Output returns what an earlier step produced, "" when the task has no such step.
func (d promptData) Output(step berth.StepName) string { return d.Outputs[step] }

var prompts = parsePrompts()

// Locales returns the languages that prompts are written in.
func Locales() []berth.Locale { return []berth.Locale{berth.LocaleEN, berth.LocaleZH} }

func parsePrompts() map[promptKey]*template.Template {
	names := []string{repairPrompt, continuePrompt}
	for _, t := range berth.StepTemplates() {
		names = append(names, string(t))
	}
	all := map[promptKey]*template.Template{}
	for _, l := range Locales() {
		for _, name := range names {
			tmpl := template.New(name).Funcs(template.FuncMap{"document": document}).Option("missingkey=error")
			all[promptKey{name, l}] = template.Must(tmpl.ParseFS(promptFiles, promptPath(sharedPrompts, l), promptPath(name, l)))
		}
	}
	return all
}

func promptPath(name string, l berth.Locale) string {
	return "prompts/" + name + "/" + string(l) + ".tmpl"
}

// Prompt returns the system and the user message of a template in the given language. Its error has berth.CodeInvalid
// and names the variable when a variable that the template requires is blank.
func Prompt(t berth.Template, l berth.Locale, in Input) ([]Message, error) {
	tmpl, ok := prompts[promptKey{string(t), l}]
	if !ok || t.Spec().Name == "" {
		return nil, berth.Errorf(berth.CodeInternal, "no prompt for template %q in locale %q", t, l)
	}
	if err := checkInput(t.Spec(), in); err != nil {
		return nil, err
	}
	data := promptData{Input: in, Template: t}
	if schema, ok := Schema(t); ok {
		data.Schema = string(schema)
	}
	system, err := execute(tmpl, "system", data)
	if err != nil {
		return nil, fmt.Errorf("prompt %s.%s: %w", t, l, err)
	}
	user, err := execute(tmpl, "user", data)
	if err != nil {
		return nil, fmt.Errorf("prompt %s.%s: %w", t, l, err)
	}
	msg := Message{Role: RoleUser, Text: user}
	if t.Spec().Mode == berth.ModeVision {
		msg.ImageURL = dataURL(*in.Image)
	}
	return []Message{{Role: RoleSystem, Text: system}, msg}, nil
}

// RepairPrompt returns the message that asks for a batch answer again and names what was wrong with it. It follows the
// messages of the first call; problem is the text of ValidateOutput's error.
func RepairPrompt(t berth.Template, l berth.Locale, badOutput, problem string) Message {
	schema, _ := Schema(t)
	return followUp(repairPrompt, l, promptData{Template: t, Schema: string(schema), Problem: problem, Answer: shorten(badOutput, maxAnswerInRepair)})
}

// ContinuePrompt returns the messages that ask for the rest of a batch answer that reached its token limit. They follow the
// messages of the first call; sofar is the answer without its end.
func ContinuePrompt(l berth.Locale, sofar string) []Message {
	return []Message{{Role: RoleAssistant, Text: sofar}, followUp(continuePrompt, l, promptData{})}
}

func followUp(name string, l berth.Locale, data promptData) Message {
	if l != berth.LocaleZH {
		l = berth.LocaleEN
	}
	text, err := execute(prompts[promptKey{name, l}], "user", data)
	if err != nil {
		panic(fmt.Sprintf("prompt %s %s: %v", name, l, err)) // the binary itself is broken; every locale is tested
	}
	return Message{Role: RoleUser, Text: text}
}

func execute(tmpl *template.Template, name string, data promptData) (string, error) {
	var b bytes.Buffer
	if err := tmpl.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}

// checkInput returns an error for a required variable without content. The output of an earlier step may take the place
// of a group: a match can do with the summary of the posting.
func checkInput(spec berth.TemplateSpec, in Input) error {
	if spec.Mode == berth.ModeVision {
		if in.Image == nil || len(in.Image.Data) == 0 {
			return berth.Invalid(field(berth.VarImage), "has no content")
		}
		return nil
	}
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	for _, v := range spec.Variables {
		replaceable := v.Name == spec.ImageText && slices.ContainsFunc(slices.Collect(maps.Values(in.Outputs)),
			func(output string) bool { return !blank(output) })
		if (v.Required || v.Name == spec.ImageText) && !replaceable && blank(in.Variables[v.Name]) {
			return berth.Invalid(field(v.Name), "has no text")
		}
	}
	return nil
}

func dataURL(img Image) string {
	return "data:" + img.MediaType + ";base64," + base64.StdEncoding.EncodeToString(img.Data)
}

// Document is one text of a prompt with its name.
type Document struct {
	Name string
	Text string
}

// document encloses a text in document lines. The id is derived from the text, so that no text can contain its own closing
// line and the same input always renders the same prompt.
func document(name, text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	sum := sha256.Sum256([]byte(name + "\n" + text))
	id := hex.EncodeToString(sum[:8])
	return fmt.Sprintf("<document name=%q id=%q>\n%s\n</document id=%q>", name, id, text, id)
}

// Documents returns the documents of a prompt in order. The model simulator derives its answers from them.
func Documents(prompt string) []Document {
	var docs []Document
	for {
		_, rest, ok := strings.Cut(prompt, `<document name="`)
		if !ok {
			return docs
		}
		name, rest, ok := strings.Cut(rest, `" id="`)
		if !ok {
			return docs
		}
		id, body, ok := strings.Cut(rest, "\">\n")
		if !ok {
			return docs
		}
		text, after, ok := strings.Cut(body, "\n</document id=\""+id+"\">")
		if !ok {
			prompt = rest // not a document: continue behind its opening line
			continue
		}
		docs = append(docs, Document{Name: name, Text: text})
		prompt = after
	}
}
