package berth_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

func TestValidUserID_SubjectsOfProviders_AreAccepted(t *testing.T) { // X5
	t.Parallel()
	for _, id := range []string{
		"alice", "auth0|507f1f77bcf86cd799439011", "google-oauth2|103547991597142817347", "spiffe://example/ns/a/sa/b",
		"https://login.example/u/42", "cn=Zoë, ou=staff", "系统管理员", "a:b:c", "%", "...", strings.Repeat("a", berth.MaxUserID),
	} {
		require.NoError(t, berth.ValidUserID("sub", id), id)
	}
	for _, id := range []string{
		"", ".", "..", "a\x00b", "a\nb", "a\tb", "\x7f", "a\u200bb", "a\u2028b", "\xff", strings.Repeat("a", berth.MaxUserID+1),
	} {
		err := berth.ValidUserID("sub", id)
		require.Equal(t, berth.CodeInvalid, berth.CodeOf(err), "%q", id)
		require.ErrorContains(t, err, "sub")
	}
}

// The message of an id that has only permitted characters must not ask for them.
func TestValidID_DotsAlone_MessageSaysSo(t *testing.T) { // X5
	t.Parallel()
	for _, valid := range []func(field, v string) error{berth.ValidID, berth.ValidUserID} {
		for _, id := range []string{".", ".."} {
			err := valid("id", id)
			require.Equal(t, berth.CodeInvalid, berth.CodeOf(err))
			require.ErrorContains(t, err, "must not be the dots . or .. alone")
		}
		require.NoError(t, valid("id", "..."))
		require.ErrorContains(t, valid("id", ""), "must be 1 to ")
	}
}

func TestEscapeID_SpecialCharacters_AreEscaped(t *testing.T) { // X5
	t.Parallel()
	for id, want := range map[string]string{
		"alice":     "alice",
		"a.b_c@d-e": "a.b_c@d-e",
		"auth0|42":  "auth0%7C42",
		"a:b":       "a%3Ab",
		"a%3Ab":     "a%253Ab",
		"é":         "%C3%A9",
		"a b/c~d":   "a%20b%2Fc%7Ed",
		"":          "",
	} {
		require.Equal(t, want, berth.EscapeID(id))
	}
}

// Data that was written before user ids were escaped stays valid, and no user reads the keys of another.
func TestEscapeID_AnyTwoIDs_AreInjectiveAndPlain(t *testing.T) { // X5
	t.Parallel()
	id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-c%:|0-9A-F]{0,6}`), rapid.StringMatching(berth.IDPattern))
	rapid.Check(t, func(t *rapid.T) {
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		x, y := berth.EscapeID(a), berth.EscapeID(b)
		require.Equal(t, a == b, x == y, "%q %q", a, b)
		require.Regexp(t, `^[A-Za-z0-9_.@%-]*$`, x)
		if berth.ValidID("", a) == nil {
			require.Equal(t, a, x)
		}
	})
}
