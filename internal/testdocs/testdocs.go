// Package testdocs keeps generated parts of the documentation equal to the code that they describe.
package testdocs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// RequireBlock checks that content is what file has between the comments "<!-- generated: name -->" and "<!-- end -->". With
// update it writes the content instead.
func RequireBlock(t testing.TB, file, name, content string, update bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "%s has no block %s", file, name)
	is, after, found := strings.Cut(rest, end)
	require.True(t, found, "block %s of %s has no end", name, file)
	if update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+content+end+after), 0o600))
		return
	}
	require.Equal(t, content, is, "%s is not up to date: run the test with -update", file)
}

// Transition is an edge of a state chart. An empty From is the beginning, an empty To the end.
type Transition struct{ From, To, Label string }

// StateChart returns a state diagram in Mermaid's syntax, as a block of Markdown. States without a transition to others are
// final. A state that can follow each of the others that are not final is drawn once, after all of them.
func StateChart(transitions []Transition) string {
	var states []string
	next := map[string][]string{}
	for _, e := range transitions {
		for _, state := range []string{e.From, e.To} {
			if state != "" && !slices.Contains(states, state) {
				states = append(states, state)
			}
		}
		next[e.From] = append(next[e.From], e.To)
	}
	open := slices.DeleteFunc(slices.Clone(states), func(s string) bool { return len(next[s]) == 0 })
	afterAll := func(e Transition) bool {
		return len(open) > 1 && e.Label == "" && !slices.ContainsFunc(open, func(s string) bool { return !slices.Contains(next[s], e.To) })
	}
	grouped := slices.ContainsFunc(transitions, afterAll)

	var b strings.Builder
	indent := "    "
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range states {
		if id(s) != s {
			fmt.Fprintf(&b, "%sstate \"%s\" as %s\n", indent, s, id(s))
		}
	}
	if grouped {
		fmt.Fprintf(&b, "%sstate \"not ended\" as unfinished {\n", indent)
		indent += indent
	}
	var outside strings.Builder
	drawn := map[string]bool{}
	for _, e := range transitions {
		final := len(next[e.To]) == 0
		switch {
		case afterAll(e):
			if !drawn[e.To] {
				fmt.Fprintf(&outside, "    unfinished --> %s\n", id(e.To))
			}
			drawn[e.To] = true
		case e.From == "":
			fmt.Fprintf(&b, "%s[*] --> %s%s\n", indent, id(e.To), label(e))
		case grouped && final:
			fmt.Fprintf(&outside, "    %s --> %s%s\n", id(e.From), id(e.To), label(e))
		default:
			fmt.Fprintf(&b, "%s%s --> %s%s\n", indent, id(e.From), cmp.Or(id(e.To), "[*]"), label(e))
		}
	}
	if grouped {
		b.WriteString("    }\n")
	}
	b.WriteString(outside.String())
	for _, s := range states {
		if len(next[s]) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", id(s))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// id returns a name that Mermaid accepts for the state.
func id(state string) string {
	return strings.ReplaceAll(strings.ReplaceAll(state, "-", "_"), " ", "_")
}

func label(e Transition) string {
	if e.Label == "" {
		return ""
	}
	return ": " + e.Label
}

// CodeBlocks returns the blocks of code in a language that a section of file has, in their order. The section begins with the line heading,
// and ends with the next heading of its level or of one above.
func CodeBlocks(t testing.TB, file, heading, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	level, _, _ := strings.Cut(heading, " ")
	var blocks []string
	inside, taken, fenced := false, false, false
	for line := range strings.Lines(string(text)) {
		mark, _, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; fenced && inside && strings.TrimSpace(line) == "```"+language {
				blocks, taken = append(blocks, ""), true
				continue
			}
			taken = false
		case taken:
			blocks[len(blocks)-1] += line
		case !fenced && strings.Trim(mark, "#") == "" && mark != "" && len(mark) <= len(level):
			inside = strings.TrimSpace(line) == heading
		}
	}
	require.NotEmpty(t, blocks, "%s has no block of %s in %q", file, language, heading)
	return blocks
}
