package llm

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/template"
)

// Role is the author of a message in the chat-completions protocol.
type Role string

// The roles berth uses.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a call.
type Message struct {
	Role  Role
	Parts []Part
}

// Part is a text or an image. Exactly one field is set.
type Part struct {
	Text     string
	ImageURL string // a data URL
}

// TextMessage returns a message of one text.
func TextMessage(role Role, text string) Message {
	return Message{Role: role, Parts: []Part{{Text: text}}}
}

// Text returns the texts of the message.
func (m Message) Text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// MessagesOf returns the rendered messages of a template as those of a call.
func MessagesOf(rendered []template.Message) []Message {
	messages := make([]Message, len(rendered))
	for i, m := range rendered {
		role := Role(m.Role)
		if m.Role == dotprompt.RoleModel {
			role = RoleAssistant
		}
		messages[i].Role = role
		for _, p := range m.Parts {
			part := Part{Text: p.Text}
			if p.Media != nil {
				part = Part{ImageURL: p.Media.URL}
			}
			messages[i].Parts = append(messages[i].Parts, part)
		}
	}
	return messages
}

// maxAnswerInRepair bounds how much of an invalid answer the repair prompt quotes, in bytes.
const maxAnswerInRepair = 32 << 10

//go:embed prompts
var promptFiles embed.FS

// The prompts that follow an answer, by name and language.
var followUps = func() map[string]*dotprompt.Prompt {
	all := map[string]*dotprompt.Prompt{}
	for _, name := range []string{"repair.en", "repair.zh", "continue.en", "continue.zh"} {
		text, err := promptFiles.ReadFile("prompts/" + name + ".prompt")
		if err != nil {
			panic(err) // the binary itself is broken
		}
		p, problems := dotprompt.Compile(dotprompt.Source{File: name, Line: 1, Text: string(text)}, dotprompt.Config{
			Names: map[string]dotprompt.Kind{"problem": dotprompt.KindText, "answer": dotprompt.KindText}, Schema: true,
		})
		if p == nil {
			panic(fmt.Sprint(problems))
		}
		all[name] = p
	}
	return all
}()

// RepairPrompt returns the message that asks for a JSON answer again and names what was wrong with it. It follows the messages of the first
// call; problem is the text of ValidateOutput's error.
func RepairPrompt(ctx context.Context, l berth.Locale, schema, badOutput, problem string) (Message, error) {
	return followUp(ctx, "repair", l, dotprompt.Data{
		Values: map[string]any{"problem": problem, "answer": shorten(badOutput, maxAnswerInRepair)}, Schema: schema, Trim: true,
	})
}

// ContinuePrompt returns the messages that ask for the rest of a JSON answer that reached its token limit. They follow the messages of the
// first call; sofar is the answer without its end.
func ContinuePrompt(ctx context.Context, l berth.Locale, sofar string) ([]Message, error) {
	m, err := followUp(ctx, "continue", l, dotprompt.Data{Trim: true})
	return []Message{TextMessage(RoleAssistant, sofar), m}, err
}

func followUp(ctx context.Context, name string, l berth.Locale, data dotprompt.Data) (Message, error) {
	language := ".en"
	if strings.HasPrefix(string(l), "zh") {
		language = ".zh"
	}
	rendered, err := followUps[name+language].Render(ctx, data)
	if err != nil {
		return Message{}, err
	}
	return MessagesOf(rendered)[0], nil
}
