package yamlfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/yamlfile"
)

// The parser names the line at which a list or mapping begins, and counts it from 0 or from 1.
func TestParse_Mistake_HasItsLine(t *testing.T) { // O10
	t.Parallel()
	for text, want := range map[string]struct {
		line int
		text string
	}{
		"":                        {1, "empty file"},
		"a: 1\n---\nb: 1\n":       {1, "contains more than one document"},
		"l:\n  - a: 1\n   b: 2\n": {3, "line 3: did not find expected '-' indicator"},
		"l:\n  - a:\n      x: 1\n    b: 2\n   c: 3\nd: 4\n": {5, "line 5: did not find expected '-' indicator"},
		"l:\n  - a\n  b: 1\n":                               {3, "line 3: did not find expected '-' indicator"},
		"a: 1\nb:\n  c: 1\n d: 2\n":                         {4, "line 4: did not find expected key"},
		"a: 1\nb: {c: 1\nd: 2\n":                            {2, "line 2: did not find expected ',' or '}'"},
		"a: 1\nb: 2: 3\n":                                   {2, "line 2: mapping values are not allowed in this context"},
		"a: 1\nb: \"c\nd: 2\n":                              {2, "line 2: found unexpected end of stream"},
		"a: 1\nb: 2\nc: *\n":                                {3, "line 3: did not find expected alphabetic or numeric character"},
		"a: 1\nb: *c\n":                                     {2, "line 2: unknown anchor 'c' referenced"},
		"a: *\n":                                            {1, "line 1: did not find expected alphabetic or numeric character"},
		"a:\n\tb: 1\n":                                      {2, "line 2 is indented with a tab"},
		"a: 1\nb: \xff\n":                                   {2, "line 2 is not UTF-8"},
		strings.Repeat("a: [1,\n  2]\n", 3) + "b:\n  c\n d: [\n": {9, "line 9: mapping values are not allowed"},
	} {
		_, err := yamlfile.Parse([]byte(text))
		invalid, ok := errors.AsType[*yamlfile.SyntaxError](err)
		require.True(t, ok, text)
		require.Contains(t, invalid.Message, want.text, text)
		require.Equal(t, want.line, invalid.Line, text)
	}
}
