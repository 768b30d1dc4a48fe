package template

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// Mistake is what is wrong in a file of a template, and what to do.
type Mistake struct {
	File string `json:"file"`
	// Line is 0 where no line is meant.
	Line int `json:"line,omitempty"`
	// Column is 0 where the whole line is meant.
	Column int `json:"column,omitempty"`
	// Field is the path of a YAML value, such as steps[1].when; empty for other places.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func (m Mistake) Error() string {
	at := m.File
	if m.Line > 0 {
		at += ":" + strconv.Itoa(m.Line)
	}
	if m.Field != "" {
		at += ": " + m.Field
	}
	return at + ": " + m.Message
}

// LogValue returns what is known of the mistake: for an attribute without a name, as attributes of their own.
func (m Mistake) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("file", m.File)}
	if m.Line > 0 {
		attrs = append(attrs, slog.Int("line", m.Line))
	}
	if m.Field != "" {
		attrs = append(attrs, slog.String("field", m.Field))
	}
	return slog.GroupValue(append(attrs, slog.String("mistake", m.Message))...)
}

// Mistakes are all mistakes of a template, each on a line.
type Mistakes []Mistake

func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, one := range m {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// maxMistakes bounds what is reported.
const maxMistakes = 100

// sorted returns mistakes by file and line, each once, and no more than authors can read.
func (m Mistakes) sorted() Mistakes {
	slices.SortStableFunc(m, func(a, b Mistake) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	seen := map[Mistake]bool{}
	m = slices.DeleteFunc(m, func(one Mistake) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
	if more := len(m) - maxMistakes; more > 0 {
		m = append(m[:maxMistakes], Mistake{File: m[maxMistakes].File, Message: fmt.Sprintf("and %d more mistakes in this and other files", more)})
	}
	return m
}

// fieldOf writes a path as a field: steps[1].when.
func fieldOf(path []string) string {
	var b strings.Builder
	for i, part := range path {
		if _, err := strconv.Atoi(part); err == nil && i > 0 {
			fmt.Fprintf(&b, "[%s]", part)
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}
