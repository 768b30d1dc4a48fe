package ocr

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestTesseract_ExamplePostings_ReadsTheirTexts(t *testing.T) {
	t.Parallel()
	read := Tesseract("tesseract", 2*time.Minute, 2)
	for _, name := range []string{"posting-en", "posting-zh"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read(t.Context(), example(t, name+".png"))
			require.NoError(t, err)
			alike := similarity(string(example(t, name+".txt")), got)
			t.Logf("%s: similarity %.3f", name, alike)
			require.Greater(t, alike, 0.9, got)
		})
	}
}

func TestSimilarity_DifferentTexts_IsLow(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1.0, similarity("a b", "ab"), 1e-9)
	require.Less(t, similarity(string(example(t, "posting-en.txt")), string(example(t, "resume-en.txt"))), 0.6)
}

func TestTesseract_NotInstalled_ErrorNamesThePackages(t *testing.T) {
	t.Parallel()
	_, err := Tesseract("tesseract-that-is-not-there", time.Second, 1)(t.Context(), example(t, "posting-en.png"))
	require.ErrorIs(t, err, ErrNoTesseract)
	require.ErrorContains(t, err, "apt-get install tesseract-ocr")
}

func TestTesseract_TimeoutOrCancelled_ReturnsTheCause(t *testing.T) {
	t.Parallel()
	_, err := Tesseract("tesseract", time.Nanosecond, 1)(t.Context(), example(t, "posting-en.png"))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Tesseract("tesseract", time.Minute, 0)(gone, nil) // no slot ever becomes free
	require.ErrorIs(t, err, context.Canceled)
}

func TestTidy_RawOutput_BecomesPlainLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"spaces between Chinese", "高 级 后 端 工程 师\n", "高级后端工程师"},
		{"a word between Chinese keeps its spaces", "使 用 Go 建设 服务", "使用 Go 建设服务"},
		{"misread bullets", "¢ Go\n* Redis\n« Kafka\n- Rust\ne Docker", "• Go\n• Redis\n• Kafka\n• Rust\n• Docker"},
		{"an English word e stays", "e-commerce", "e-commerce"},
		{"blank lines and form feeds", "a\n\n \n\fb\f", "a\nb"},
		{"nothing", " \n\f", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, tidy(c.in))
		})
	}
}

func example(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../examples/" + name)
	require.NoError(t, err)
	return b
}

// similarity returns 1 minus the edit distance of two texts relative to the longer one, without white space.
func similarity(a, b string) float64 {
	strip := func(s string) []rune {
		return []rune(strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, s))
	}
	x, y := strip(a), strip(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return 1 - float64(row[len(y)])/float64(max(len(x), len(y), 1))
}
