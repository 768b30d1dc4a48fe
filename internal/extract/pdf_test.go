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

func TestPDF_ProgramFails_ReasonIsForUsers(t *testing.T) { // FT14
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
		"no text":        {"printf '\\n \\f\\n'", ErrNoText},
		"endless output": {"while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", ErrTooLong},
		"many errors":    {"head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", ErrDamaged},
	} {
		_, err := NewReader(program(t, c.script)).PDF(t.Context(), []byte("%PDF"), 1000)
		require.ErrorIs(t, err, c.want, name)
		require.Less(t, len(err.Error()), 1000, name)
	}
	_, err := NewReader("no-such-program").PDF(t.Context(), nil, 1000)
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
		_, err := r.PDF(ctx, []byte("%PDF"), 1000)
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, timeLimit, timeLimit/1000)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestPDF_Limits_AreThoseOfTheProgram(t *testing.T) { // FT14
	t.Parallel()
	text, err := NewReader(program(t, "ulimit -t; ulimit -v")).PDF(t.Context(), nil, 1000)
	require.NoError(t, err)
	require.Equal(t, "10\n524288", text)
}
