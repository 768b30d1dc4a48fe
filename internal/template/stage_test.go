package template

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

const matchAnswer = `<<stage:ingest>>
# The posting
Go and Redis.

<<stage:compare>>
## Points
<<point {"requirement":"Go","matched":true,"evidence":"five years of Go >> C"}>>
- Go: met
  <<point {"requirement":"K8s","matched":false,"evidence":""}>>  ` + "\r" + `
- K8s: not met
<<stage:score>>
80
<<stage:deliver>>
Apply.`

// collect feeds an answer in pieces of the given width and joins adjacent texts.
func collect(t testing.TB, answer string, width int) []Piece {
	t.Helper()
	p := builtin(t)["job_match"].NewStageParser()
	var all pieces
	add := func(list []Piece) {
		for _, piece := range list {
			if piece.Text != "" {
				all.text(piece.Text)
			} else {
				all.list = append(all.list, piece)
			}
		}
	}
	for len(answer) > 0 {
		n := min(width, len(answer))
		add(p.Feed(answer[:n]))
		answer = answer[n:]
	}
	add(p.Close())
	return all.list
}

func TestStageParser_Markers_SeparatedFromText(t *testing.T) {
	t.Parallel()
	got := collect(t, matchAnswer, 1000)
	require.Equal(t, []Piece{
		{Stage: "ingest"},
		{Text: "# The posting\nGo and Redis.\n\n"},
		{Stage: "compare"},
		{Text: "## Points\n"},
		{Item: &berth.Item{Kind: "point", Value: []byte(`{"requirement":"Go","matched":true,"evidence":"five years of Go >> C"}`)}},
		{Text: "- Go: met\n"},
		{Item: &berth.Item{Kind: "point", Value: []byte(`{"requirement":"K8s","matched":false,"evidence":""}`)}},
		{Text: "- K8s: not met\n"},
		{Stage: "score"},
		{Text: "80\n"},
		{Stage: "deliver"},
		{Text: "Apply."},
	}, got)
}

func TestStageParser_NoMarkers_KeptAsText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "\n", "plain", "a << b\nc >> d\n", "<", "<<", "<<stage:", "<<stage:compare", "<<stage:compare>",
		"<<stage:lunch>>\n", "<<stage:compare>> and more\n", "text <<stage:compare>>\n", "<<stage: compare>>\n",
		"<<Stage:compare>>\n", "`<<stage:compare>>`\n", "          <<stage:compare>>\n",
		"<<point {}>>\n", "<<point {\"requirement\":\"\",\"matched\":true}>>\n", "<<point {\"requirement\":\"x\"}\n", "<<point [1]>>\n",
		"<<point {\"requirement\":7}>>\n", "<<point {\"requirement\":\"x\"}{}>>\n", "<<point>>\n",
		"<<point {\"requirement\":\"" + strings.Repeat("x", maxMarkLine) + "\"}>>\n",
		"<<point {\"requirement\":\"x\",\n\"matched\":true}>>\n",
	} {
		for _, width := range []int{1, 3, 1 << 20} {
			got := collect(t, text, width)
			var b strings.Builder
			for _, piece := range got {
				require.Empty(t, piece.Stage, text)
				require.Nil(t, piece.Item, text)
				b.WriteString(piece.Text)
			}
			require.Equal(t, text, b.String())
		}
	}
}

// Text is held back only while its line could become a marker.
func TestStageParser_PartialLine_TextNotDelayed(t *testing.T) {
	t.Parallel()
	p := builtin(t)["job_match"].NewStageParser()
	feed := func(s string) string {
		var b strings.Builder
		for _, piece := range p.Feed(s) {
			b.WriteString(piece.Text)
		}
		return b.String()
	}
	require.Equal(t, "H", feed("H"))
	require.Equal(t, "ello\n", feed("ello\n"))
	require.Empty(t, feed("<"))
	require.Equal(t, "<b>bold</b> <", feed("b>bold</b> <"))
	require.Equal(t, "<stage:x>\n", feed("<stage:x>\n  "))
	require.Equal(t, "  - item", feed("- item"))
	require.Equal(t, "\n", feed("\n<<stage:comp"))
	require.Equal(t, "<<stage:compo", feed("o"))
	require.Equal(t, "\n", feed("\n<<point {"))
	require.Empty(t, feed(`"requirement":`))
	require.Equal(t, "<<point {\"requirement\":\n", feed("\n"))
	require.Equal(t, "<<point x", feed("<<point x"))
}

func FuzzStageParser(f *testing.F) {
	f.Add(matchAnswer, uint8(3), uint8(7))
	f.Add("<<stage:compare>>\n<<stage:compare>>x\n<<stage:score>>", uint8(1), uint8(2))
	f.Add("<<point {\"requirement\":\"é\",\"matched\":true}>>\r\n<<point {}>>\n", uint8(1), uint8(5))
	f.Add(" \t<<stage:deliver>> \t\r\n\n<<<stage:deliver>>\n", uint8(2), uint8(9))
	f.Add("<<point {\"requirement\":\"x\"}>>", uint8(4), uint8(4))
	match := builtin(f)["job_match"]
	f.Fuzz(func(t *testing.T, answer string, a, b uint8) {
		want := collect(t, answer, len(answer)+1)
		for _, width := range []int{1, int(a) + 1, int(b) + 1} {
			require.Equal(t, want, collect(t, answer, width))
		}
		// The text must be the answer without its marker lines.
		var text, kept strings.Builder
		marks := 0
		for _, piece := range want {
			text.WriteString(piece.Text)
			if piece.Text == "" {
				marks++
			}
		}
		for line := range strings.Lines(answer) {
			if _, is := match.parseMark([]byte(line)); is {
				marks--
			} else {
				kept.WriteString(line)
			}
		}
		require.Equal(t, kept.String(), text.String())
		require.Zero(t, marks)
	})
}
