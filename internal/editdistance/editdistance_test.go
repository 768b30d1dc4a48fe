package editdistance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/editdistance"
)

func TestOf_TwoTexts_CountsSmallestNumberOfEdits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"titel", "title", 1}, {"knid", "kind", 1}, {"ab", "ba", 1}, {"abc", "cba", 2}, {"same", "same", 0}} {
		require.Equal(t, c.want, editdistance.Of(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, editdistance.Of(c.b, c.a), "%s %s", c.b, c.a)
	}
}

func TestNearest_MisspelledName_IsTheOneThatIsMeant(t *testing.T) {
	t.Parallel()
	names := []string{"title", "kind", "models", "photo", "tone", "when", "x"}
	for misspelled, want := range map[string]string{
		"titel": "title", "knid": "kind", "model": "models", "foto": "photo", "Title": "title", "nope": "", "name": "", "y": "", "": "", "whne": "when", "something else": "",
	} {
		require.Equal(t, want, editdistance.Nearest(misspelled, names), misspelled)
	}
}
