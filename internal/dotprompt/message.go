package dotprompt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is the author of a message.
type Role string

// The roles that a prompt gives to its messages.
const (
	RoleSystem Role = "system"
	RoleUser   Role = "user"
	RoleModel  Role = "model"
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleSystem, RoleUser, RoleModel} }

// Message is one message of a prompt.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
	// History: the message was not rendered, but precedes them.
	History bool `json:"history,omitempty"`
}

// Part is a text, an image or the beginning of a section. Exactly one field is set.
type Part struct {
	Text    string `json:"text,omitempty"`
	Media   *Media `json:"media,omitempty"`
	Section string `json:"section,omitempty"`
}

// Text returns the texts of the message.
func (m Message) Text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// maxMessages bounds the messages of a prompt.
const maxMessages = 1000

var errOutput = errors.New("the rendered prompt is too long")

// assembler makes messages of what a body renders. Text that the body itself contains (literal) and values reach it separately: only the
// white space of the former is trimmed.
type assembler struct {
	messages []Message
	role     Role
	parts    []Part
	text     strings.Builder
	// blank: the text is white space of the body so far. lead and tail count that at its ends.
	blank      bool
	lead, tail int
	// trim removes the body's white space at the ends of each message.
	trim     bool
	leads    int // lead of the first text of the message
	inserted bool
	history  []Message
	size     int
	maxSize  int
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func (a *assembler) grow(n int) error {
	if a.size += n; a.size > a.maxSize {
		return fmt.Errorf("%w: more than %d bytes", errOutput, a.maxSize)
	}
	return nil
}

// literal adds text of the body.
func (a *assembler) literal(s string) error {
	if a.text.Len() == 0 {
		a.blank = true
	}
	trimmed := strings.TrimRight(s, " \t\n\r")
	if a.blank {
		front := 0
		for front < len(s) && isSpace(s[front]) {
			front++
		}
		a.lead += front
		a.blank = trimmed == ""
	}
	if trimmed == "" {
		a.tail += len(s)
	} else {
		a.tail = len(s) - len(trimmed)
	}
	a.text.WriteString(s)
	return a.grow(len(s))
}

// value adds the text of a value.
func (a *assembler) value(s string) error {
	if s != "" {
		a.blank, a.tail = false, 0
		a.text.WriteString(s)
	}
	return a.grow(len(s))
}

// endText ends a text before something else. White space between images, sections and messages is dropped.
func (a *assembler) endText() {
	if text := a.text.String(); strings.TrimSpace(text) != "" {
		if len(a.parts) == 0 {
			a.leads = a.lead
		}
		a.parts = append(a.parts, Part{Text: text})
	} else {
		a.tail = 0
	}
	a.text.Reset()
	a.lead, a.blank = 0, false
}

func (a *assembler) media(m Media) error {
	a.endText()
	a.parts = append(a.parts, Part{Media: &m})
	a.tail = 0
	return a.grow(len(m.URL))
}

func (a *assembler) section(name string) error {
	a.endText()
	a.parts = append(a.parts, Part{Section: name})
	a.tail = 0
	return a.grow(len(name))
}

// endMessage ends the message, which has a part.
func (a *assembler) endMessage() error {
	a.endText()
	if len(a.parts) > 0 {
		if a.trim {
			last := len(a.parts) - 1
			if p := &a.parts[last]; p.Text != "" {
				p.Text = p.Text[:len(p.Text)-a.tail]
			}
			if p := &a.parts[0]; p.Text != "" {
				p.Text = p.Text[a.leads:]
			}
		}
		a.messages = append(a.messages, Message{Role: a.role, Parts: a.parts})
	}
	a.parts, a.leads, a.tail = nil, 0, 0
	if len(a.messages) > maxMessages {
		return fmt.Errorf("%w: more than %d messages", errOutput, maxMessages)
	}
	return nil
}

func (a *assembler) begin(role Role) error {
	err := a.endMessage()
	a.role = role
	return err
}

// past inserts the earlier messages. A message of the model follows, unless the body names another role.
func (a *assembler) past() error {
	err := a.begin(RoleModel)
	for _, m := range a.history {
		m.History = true
		a.messages = append(a.messages, m)
	}
	a.inserted = a.inserted || len(a.history) > 0
	return err
}

// end returns the messages. A history that the body does not place comes before the last message of the user.
func (a *assembler) end() ([]Message, error) {
	if err := a.endMessage(); err != nil {
		return nil, err
	}
	if a.inserted || len(a.history) == 0 {
		return a.messages, nil
	}
	at := len(a.messages)
	if at > 0 && a.messages[at-1].Role == RoleUser {
		at--
	}
	return slices.Insert(a.messages, at, a.history...), nil
}
