package extract

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// program returns a script in place of pdftotext.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pdftotext")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // a test's program has to be executable
	return path
}

// whole is the beginning of a PDF with its end.
var whole = []byte("%PDF-1.4\nstartxref\n%%EOF")

func TestPDF_ProgramFails_ReasonIsForUsers(t *testing.T) { // FT14, FU2
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   error
	}{
		"a password":     {"echo 'Command Line Error: Incorrect password' >&2; exit 1", ErrEncrypted},
		"no permission":  {"echo 'Error: Copying of text from this document is not allowed.' >&2; exit 3", ErrEncrypted},
		"damaged":        {"echo \"Syntax Error: Couldn't read xref table\" >&2; exit 1", ErrDamaged},
		"out of memory":  {"echo 'Out of memory' >&2; exit 1", ErrTooSlow},
		"killed":         {"kill -9 $$", ErrTooSlow},
		"no CJK data":    {"echo 'Go'; echo \"Syntax Error: Missing language pack for 'Adobe-GB1' mapping\" >&2", ErrNoLanguageData},
		"no characters":  {"printf 'Go \\357\\277\\275\\357\\277\\275\\n'", ErrUnmapped},
		"a dynamic form": {"echo 'Please wait... If this message is not eventually replaced, your PDF viewer may not be able to'", ErrForm},
		"no text":        {"printf '\\n \\f\\n'", ErrNoText},
		"endless output": {"while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", ErrTooLong},
		"many errors":    {"head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", ErrDamaged},
	} {
		_, err := NewReader(program(t, c.script)).Text(t.Context(), Format{pdf: true}, whole, 1000)
		require.ErrorIs(t, err, c.want, name)
		require.Less(t, len(err.Error()), 1000, name)
	}
	_, err := NewReader("no-such-program").Text(t.Context(), Format{pdf: true}, nil, 1000)
	require.ErrorIs(t, err, ErrNoTool)
	require.ErrorContains(t, err, "apt-get install poppler-utils")
}

func TestPDF_CallerLeaves_ProgramEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(t.TempDir(), "started")
	done := make(chan error, 1)
	r := NewReader(program(t, "echo > "+started+"; exec sleep 1000"))
	go func() {
		_, err := r.Text(ctx, Format{pdf: true}, whole, 1000)
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, timeLimit, timeLimit/1000)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestPDF_Limits_AreThoseOfTheProgram(t *testing.T) { // FT14
	t.Parallel()
	text, err := NewReader(program(t, "ulimit -t; ulimit -v")).Text(t.Context(), Format{pdf: true}, whole, 1000)
	require.NoError(t, err)
	require.Equal(t, "10\n524288", text)
}

func TestPDF_FileIsCutOff_IsDamaged(t *testing.T) { // FU2
	t.Parallel()
	r := NewReader(program(t, "echo Go"))
	for name, content := range map[string]string{
		"without an end":      "%PDF-1.4\n1 0 obj\n<<>>\nendobj\n",
		"shorter than stated": "%PDF-1.4\n1 0 obj\n<</Linearized 1/L 90000>>\nendobj\nstartxref\n0\n%%EOF",
	} {
		_, err := r.Text(t.Context(), Detect([]byte(content), ""), []byte(content), 1000)
		require.ErrorIs(t, err, ErrDamaged, name)
	}
}
