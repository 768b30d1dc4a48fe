package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A checkout with the settings of Git for Windows has the bytes of the repository: a shell does not run a script with CRLF.
func TestCheckout_SettingsOfWindows_LineEndsStay(t *testing.T) { // FP8
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) []byte {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output() //nolint:gosec // of the test
		require.NoError(t, err, args)
		return out
	}
	git("-c", "core.autocrlf=true", "-c", "core.eol=crlf", "clone", "--quiet", "--no-hardlinks", "--config", "core.autocrlf=true", "..", dir)
	files := 0
	for name := range strings.SplitSeq(string(git("-C", dir, "ls-files", "-z")), "\x00") {
		if name == "" {
			continue
		}
		files++
		b, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // of the clone
		require.NoError(t, err)
		if bytes.Contains(b, []byte("\r\n")) {
			require.Equal(t, git("-C", dir, "show", "HEAD:"+name), b, name)
		}
	}
	require.Greater(t, files, 500)
}
