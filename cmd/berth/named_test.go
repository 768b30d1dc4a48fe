package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testnames"
)

func TestNamed_TextsThatControl_AreOneHarmlessLine(t *testing.T) {
	t.Parallel()
	for _, n := range testnames.All() {
		require.Equal(t, n.Stored(), inLine(n.Stored()), n.Language)
	}
	for text, want := range map[string]string{
		"\x1b]0;owned\aplain": "]0;ownedplain", "a\u009b31mb": "a31mb", "a\u202eevil": "aevil", "\u202aa\u202c b\u202d": "a b", "\u2067open": "open", "close\u2069\u2066": "close",
		"two\nlines\tand\u2028more\r": "two lines and more", "del\x7f": "del", "zero\u200dwidth": "zero\u200dwidth", "שלום": "שלום",
	} {
		require.Equal(t, want, named(text))
	}
}

func TestTable_CellsOfTheWorld_ColumnsAreAligned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{
			"widths", "TEMPLATE\tTITLE\tMODE\na\t工单摘要\tbatch\nlonger_name\tSummary\tstream\nb\t👍🏽\tx\n",
			"TEMPLATE     TITLE     MODE\na            工单摘要  batch\nlonger_name  Summary   stream\nb            👍🏽        x\n",
		},
		{"combining", "A\tB\ne\u0301\tx\n", "A  B\ne\u0301  x\n"},
		{"isolated", "A\tB\n\u2068שרה\u2069\tx\n", "A    B\n\u2068שרה\u2069  x\n"},
		{"hostile", "A\tB\n\x1b[31mred\u202e\tx\n", "A        B\n[31mred  x\n"},
		{"two tables", "A\tB\nlong\tx\n\nC\tD\ny\tz\n", "A     B\nlong  x\n\nC  D\ny  z\n"},
		{"empty cells", "a\tb\tc\n\t\t-> d\n", "a  b  c\n      -> d\n"},
		{"nothing", "", ""},
	} {
		var out strings.Builder
		w := newTable(&out)
		_, err := w.Write([]byte(c.in))
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		require.Equal(t, c.want, out.String(), c.name)
	}
}

func TestTable_ErrorAfterRows_RowsAreShownAndNoLoneHeading(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "A\tB\n": "", "A\tB\n1\t2\n": "A  B\n1  2\n"} {
		var out strings.Builder
		w := newTable(&out)
		_, err := w.Write([]byte(in))
		require.NoError(t, err)
		require.ErrorContains(t, w.fail(errors.New("broken")), "broken")
		require.Equal(t, want, out.String())
	}
}

func TestIsolated_NamesOfTheWorld_OnlyThoseFromTheRightOnTerminals(t *testing.T) {
	t.Parallel()
	for _, n := range testnames.All() {
		require.Equal(t, n.Stored(), isolated(n.Stored(), false), n.Language)
	}
	for name, shown := range map[string]string{
		"שרה (CTO)": "\u2068שרה (CTO)\u2069", "محمد": "\u2068محمد\u2069", "𞤀𞤤𞤫": "\u2068𞤀𞤤𞤫\u2069", "Room ١٢": "\u2068Room ١٢\u2069", "a\u200fb": "\u2068a\u200fb\u2069",
		"田中": "田中", "Zoë": "Zoë", "👍🏽": "👍🏽", "": "",
	} {
		require.Equal(t, shown, isolated(name, true))
	}
}
