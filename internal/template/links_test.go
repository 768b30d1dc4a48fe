package template

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kubernetes mounts files as links within the directory; a link out of it could show any file of the host.
func TestLoadTree_Links_AreFollowedWithinTheDirectoryOnly(t *testing.T) { // G2
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	const haiku = "---\ntitle: Haiku\n---\nWrite a haiku."
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret.prompt"), []byte(haiku), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "..2026", "group"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2026", "haiku.prompt"), []byte(haiku), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "..2026", "group", "poem.prompt"), []byte(haiku), 0o600))
	for link, target := range map[string]string{
		"..data": "..2026", "haiku.prompt": "..data/haiku.prompt", "group": "..data/group", "secret.prompt": filepath.Join(outside, "secret.prompt"), "out": outside,
		".#haiku.prompt": "user@host.1", "loop": ".", "dangling.prompt": "nowhere", "README.md": "nowhere",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	got := LoadTree(root.FS(), ".", "")
	require.Len(t, got.Templates, 2)
	for _, link := range []string{"secret.prompt", "out", "dangling.prompt"} {
		require.ErrorContains(t, got.Mistakes, link+": is a link that cannot be followed within the directory")
	}
	require.NotContains(t, got.Mistakes.Error(), "README.md")
	require.NotContains(t, got.Paths, "secret")

	one := LoadTree(root.FS(), "haiku.prompt", "")
	require.Len(t, one.Templates, 1)
	require.Empty(t, one.Mistakes, "of files that are not asked for")
	require.ErrorContains(t, LoadTree(root.FS(), "secret.prompt", "").Mistakes, "secret.prompt: is a link that cannot be followed within the directory")
}
