package llm

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"text/template"

	"berth"
)

//go:embed prompts
var promptFiles embed.FS

// Role is who speaks a message of the chat-completions protocol.
type Role string

// The roles berth uses.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a call. ImageURL is a data URL, sent beside the text as a part of its own.
type Message struct {
	Role     Role
	Text     string
	ImageURL string
}

// Image is the picture a vision step reads.
type Image struct {
	MediaType string
	Data      []byte
}

// Input is what a prompt can be filled with. Everything in it is data of people or models: in the prompt it stands
// between document lines and the model is told not to obey it. Passages and Summaries are what a match
// gathers beforehand (T22).
type Input struct {
	Resume         string
	JobText        string
	JobSummary     string // the JSON of a job_summary
	DetailedResume string
	Notes          string
	Passages       []string
	Summaries      []string
	Image          *Image
}

// maxAnswerInRepair bounds how much of a bad answer is shown to the model again, in bytes.
const maxAnswerInRepair = 32 << 10

type promptKey struct {
	template berth.Template
	locale   berth.Locale
}

type promptData struct {
	Input
	Template berth.Template
	Schema   string
	Problem  string
	Answer   string
}

const templateRepair berth.Template = "repair"

var prompts = parsePrompts()

// Locales lists the languages there are prompts in (T23).
func Locales() []berth.Locale { return []berth.Locale{berth.LocaleEN, berth.LocaleZH} }

func parsePrompts() map[promptKey]*template.Template {
	all := map[promptKey]*template.Template{}
	for _, l := range Locales() {
		for _, t := range append(stepTemplates(), templateRepair) {
			dir := "prompts/" + string(l) + "/"
			tmpl := template.New(string(t)).
				Funcs(template.FuncMap{"document": document}).
				Option("missingkey=error")
			all[promptKey{t, l}] = template.Must(tmpl.ParseFS(promptFiles, dir+"shared.tmpl", dir+string(t)+".tmpl"))
		}
	}
	return all
}

// Prompt fills the template's prompt in the given language (T23): a system and a user message. It answers with
// berth.CodeInvalid naming the variable when what the template cannot do without is blank.
func Prompt(t berth.Template, l berth.Locale, in Input) ([]Message, error) {
	tmpl, ok := prompts[promptKey{t, l}]
	if !ok || t == templateRepair {
		return nil, berth.Errorf(berth.CodeInternal, "no prompt for template %q in locale %q", t, l)
	}
	if err := checkInput(t, in); err != nil {
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
	if t == berth.TemplateJobVision {
		msg.ImageURL = dataURL(*in.Image)
	}
	return []Message{{Role: RoleSystem, Text: system}, msg}, nil
}

// RepairPrompt asks the model to give a batch answer again, told what was wrong with it (T9). It follows the
// messages of the first call; problem is the text of ValidateOutput's error.
func RepairPrompt(t berth.Template, l berth.Locale, badOutput, problem string) Message {
	if l != berth.LocaleZH {
		l = berth.LocaleEN
	}
	schema, _ := Schema(t)
	data := promptData{Template: t, Schema: string(schema), Problem: problem, Answer: shorten(badOutput, maxAnswerInRepair)}
	text, err := execute(prompts[promptKey{templateRepair, l}], "user", data)
	if err != nil {
		panic(fmt.Sprintf("repair prompt %s: %v", l, err)) // the binary itself is broken; every locale is tested
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

func checkInput(t berth.Template, in Input) error {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	switch t {
	case berth.TemplateJobVision:
		if in.Image == nil || len(in.Image.Data) == 0 {
			return berth.Invalid(field(berth.VarImage), "has no content")
		}
	case berth.TemplateJobSummary:
		if blank(in.JobText) {
			return berth.Invalid(field(berth.VarJobText), "has no text")
		}
	case berth.TemplateResumeSummary, berth.TemplateDetailedResumeSummary:
		if blank(in.Resume) {
			return berth.Invalid(field(berth.VarResume), "has no text")
		}
	default:
		if blank(in.Resume) {
			return berth.Invalid(field(berth.VarResume), "has no text")
		}
		if blank(in.JobText) && blank(in.JobSummary) {
			return berth.Invalid(field(berth.VarJobText), "has no text")
		}
	}
	return nil
}

func dataURL(img Image) string {
	return "data:" + img.MediaType + ";base64," + base64.StdEncoding.EncodeToString(img.Data)
}

// Document is one text of a prompt, with the name it was given there.
type Document struct {
	Name string
	Text string
}

// document sets a text apart from the prompt around it. The id is made from the text, so that no text can
// contain its own closing line, and the same input always makes the same prompt.
func document(name, text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	sum := sha256.Sum256([]byte(name + "\n" + text))
	id := hex.EncodeToString(sum[:8])
	return fmt.Sprintf("<document name=%q id=%q>\n%s\n</document id=%q>", name, id, text, id)
}

// Documents reads back the documents of a prompt in their order; the local model server answers from them (T27).
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
			prompt = rest // not a document after all: look further on
			continue
		}
		docs = append(docs, Document{Name: name, Text: text})
		prompt = after
	}
}
