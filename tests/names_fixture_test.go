package tests

import (
	"slices"
	"strings"
	"testing"

	"berth"
	"berth/internal/testnames"
)

// namesZone is the zone of the translator of namesStack.
const namesZone = "חדר (3)"

// namesStack starts a stack with nodes for a session in each language, an execution and two conferences for each name.
func namesStack(t *testing.T, rows []testnames.Row) *stack {
	t.Helper()
	s := newStack(t)
	var pairs []string
	for _, n := range rows {
		if c := berth.TranslateCapability(n.Tag, "eo"); !slices.Contains(pairs, c) {
			pairs = append(pairs, c)
		}
	}
	s.translator("polyglot", "--capabilities", strings.Join(pairs, ","), "--zone", namesZone)
	s.engine("engine-1", 2, false)
	s.media("unit-1", 2*len(rows))
	return s
}
