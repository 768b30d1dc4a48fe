package berth_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/testnames"
)

func TestName_NamesOfTheWorld_AreKept(t *testing.T) {
	t.Parallel()
	for _, n := range testnames.All() {
		stored, err := berth.Name("name", n.Name, berth.MaxParticipantName)
		require.NoError(t, err, n.Language)
		require.Equal(t, n.Stored(), stored, n.Language)
		again, err := berth.Name("name", stored, berth.MaxParticipantName)
		require.NoError(t, err)
		require.Equal(t, stored, again, "the stored form is stable: %s", n.Language)
	}
}

func TestName_NotAllowed_ErrorNamesFieldAndCharacter(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]string{
		"a\x00b":                      "U+0000 (a control character)",
		"a\tb":                        "U+0009 (a control character)",
		"a\nb":                        "U+000A (a line break)",
		"a\u0085b":                    "U+0085 (a line break)",
		"a\u2028b":                    "U+2028 (a line break)",
		"a\x7fb":                      "U+007F (a control character)",
		"\x1b[31mred":                 "U+001B (a control character)",
		"\u202egnp.exe":               "U+202E (overrides the direction of text)",
		"\u202dabc\u202c":             "U+202D (overrides the direction of text)",
		"abc\u2067אב":                 "text of another direction that does not end with U+2069",
		"abc\u2069":                   "U+2069 (ends text of another direction that does not begin there)",
		"\u2067א\u202bב\u2069x\u202c": "U+2069 (ends text of another direction that does not begin there)",
		"\ufeffabc":                   "U+FEFF (an invisible control)",
		"a\ufffdb":                    "U+FFFD (the mark of a damaged character)",
		"a\U0001ffffb":                "U+1FFFF (not a character)",
		"a\U000e0068\U000e0069":       "U+E0068 (an invisible tag)",
		"\u200d\u3164\u2800":          "has no visible character",
		"\xff":                        "is not valid UTF-8",
		strings.Repeat("a", 201):      "is too long: 201 characters; at most 200 are allowed",
		strings.Repeat("田", 201):      "is too long: 201 characters; at most 200 are allowed",
		strings.Repeat("a", 16*200+1): "is too long: 3201 bytes; at most 200 characters are allowed",
	} {
		_, err := berth.Name("name", name, berth.MaxParticipantName)
		require.Equal(t, "name", wrong(t, err), "%q", name)
		require.ErrorContains(t, err, message, "%q", name)
	}
}

func TestName_Lengths_CountCharactersOfTheStoredForm(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", "田", "é", "\u1112\u1161\u11ab", "\u03b1\u0313\u0300\u0345", "\u200da"} {
		n := utf8.RuneCountInString(norm.NFC.String(unit))
		longest := strings.Repeat(unit, berth.MaxParticipantName/n)
		_, err := berth.Name("name", longest, berth.MaxParticipantName)
		require.NoError(t, err, "%q", unit)
		_, err = berth.Name("name", longest+unit, berth.MaxParticipantName)
		require.Equal(t, "name", wrong(t, err), "%q", unit)
	}
}

func TestName_AnyText_IsStableAndSafe(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stored, err := berth.Name("name", rapid.String().Draw(t, "name"), berth.MaxParticipantName)
		if err != nil {
			return
		}
		again, err := berth.Name("name", stored, berth.MaxParticipantName)
		require.NoError(t, err)
		require.Equal(t, stored, again)
		require.True(t, norm.NFC.IsNormalString(stored))
		require.NotContains(t, fmt.Sprintf("%q", stored), `\n`)
	})
}

func TestCleanName_AnyText_IsAName(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]string{
		"履歴書\u3000田中.pdf": "履歴書\u3000田中.pdf", "cv\u202efdp.exe": "cvfdp.exe", "a\r\nb\x00.txt": "ab.txt", "\u2067abc.txt": "abc.txt", "\u200d": "",
	} {
		require.Equal(t, clean, berth.CleanName(name, 100), "%q", name)
	}
	rapid.Check(t, func(t *rapid.T) {
		clean := berth.CleanName(rapid.String().Draw(t, "name"), 20)
		stored, err := berth.Name("name", clean, 20)
		require.NoError(t, err)
		require.Equal(t, clean, stored)
	})
}
