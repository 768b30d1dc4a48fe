package yamlfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/yamlfile"
)

func TestParseJSON_Values_HaveTheirLines(t *testing.T) { // G1
	t.Parallel()
	n, err := yamlfile.ParseJSON([]byte("\n{\"a\":\n\t[1, \"\\ud83d\\ude00\",\n{\"b\": null}],\n\"c\": true}\n"))
	require.NoError(t, err)
	for path, line := range map[string]int{"": 2, "a": 3, "a/0": 3, "a/1": 3, "a/2": 4, "a/2/b": 4, "c": 5} {
		require.Equal(t, line, yamlfile.Line(n, strings.FieldsFunc(path, func(r rune) bool { return r == '/' })), path)
	}
}

func TestParseJSON_Mistake_HasItsLine(t *testing.T) { // G1
	t.Parallel()
	for text, want := range map[string]struct {
		line int
		text string
	}{
		"":                         {1, "the text ends too early"},
		"{\n\"a\": 1,\n":           {2, "the text ends too early"},
		"{\n\"a\": 1,\n}":          {3, "invalid character '}'"},
		"{\n\"a\": 1\n\"b\": 2\n}": {3, "invalid character '\"'"},
		"{\n'a': 1}":               {2, "invalid character '\\''"},
		"{\"a\": 1,\n\n\"a\": 2}":  {3, `"a" is written twice, first in line 1`},
		"{}\n{}":                   {2, "more follows the end"},
		"{}\n]":                    {2, "invalid character ']'"},
		"[1,\n[2,\ntru]]":          {3, "invalid character ']' in literal true"},
	} {
		_, err := yamlfile.ParseJSON([]byte(text))
		invalid, ok := errors.AsType[*yamlfile.SyntaxError](err)
		require.True(t, ok, text)
		require.Contains(t, invalid.Message, want.text, text)
		require.Equal(t, want.line, invalid.Line, text)
	}
	_, err := yamlfile.ParseJSON([]byte(strings.Repeat("[", 20_000)))
	require.Error(t, err)
}
