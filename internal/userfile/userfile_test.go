package userfile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// stream returns the path of a pipe with a text.
func stream(t *testing.T, text string) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	_, err = w.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return fmt.Sprintf("/dev/fd/%d", r.Fd())
}

func TestRead_FilesOfEachKind_NoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		at := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		return at
	}
	huge := file("huge", "")
	require.NoError(t, os.Truncate(huge, 1<<40)) // sparse: to read it would end the test
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/dev/zero", link))
	for name, c := range map[string]struct{ path, text, refused string }{
		"empty":                    {file("empty", ""), "", ""},
		"of the limit":             {file("four", "four"), "four", ""},
		"above the limit":          {file("five5", "five5"), "", "has 5 bytes, more than the limit of 4"},
		"larger than the memory":   {huge, "", "has 1099511627776 bytes, more than the limit of 4"},
		"pipe of the limit":        {stream(t, "four"), "four", ""},
		"pipe above the limit":     {stream(t, "five5"), "", "has more bytes than the limit of 4"},
		"file of the kernel":       {"/proc/self/maps", "", "has more bytes than the limit of 4"}, // whose size is 0
		"endless device":           {"/dev/zero", "", "/dev/zero is neither a regular file nor a pipe"},
		"link to a device":         {link, "", "is neither a regular file nor a pipe"},
		"device that has nothing":  {os.DevNull, "", "is neither a regular file nor a pipe"},
		"directory":                {dir, "", "is a directory: name a file"},
		"file that does not exist": {filepath.Join(dir, "nowhere"), "", "no such file"},
	} {
		got, err := Read(c.path, 4)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.text, string(got), name)
	}
}
