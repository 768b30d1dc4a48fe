package catalog

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
)

const prompt = "---\ntitle: T\nmodels: m\nvariables: [{name: x}]\n---\n"

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	at := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
}

// follow returns a catalog that follows a directory, and what it logs once it has ended.
func follow(t *testing.T, l *ledger.Ledger, dir string) (c *Catalog, end func() string) {
	t.Helper()
	var log bytes.Buffer
	c = New(l, slog.New(slog.NewTextHandler(&log, nil)))
	d, err := c.OfferDirectory(t.Context(), dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	return c, func() string { cancel(); <-ended; return log.String() }
}

func requireActive(t *testing.T, c *Catalog, name berth.Template, version string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := c.Template(name)
		return err == nil && got.Version == version
	}, 20*time.Second, 10*time.Millisecond, "%s %s", name, version)
}

// G2: a change of the files is used; a mistake keeps the former version, and what operators decide remains.
func TestDirectory_FilesChange_FollowedWithoutHarm(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		dir := t.TempDir()
		one, two, three := load(t, "a", "one"), load(t, "a", "two"), load(t, "a", "three")
		file := func(version string) { write(t, dir, "a.prompt", prompt+version+" {{x}}\n") }
		file("one")
		write(t, dir, "broken.prompt", "---\ntitel: T\n---\n{{nope}}")
		c, end := follow(t, l, dir)
		requireActive(t, c, "a", one.Version)

		file("two")
		requireActive(t, c, "a", two.Version)
		write(t, dir, "a.prompt", "---\ntitle: T\n---\n{{half") // half-written
		write(t, dir, "b.prompt", prompt+"new {{x}}\n")
		require.Eventually(t, func() bool { _, err := c.Template("b"); return err == nil }, 20*time.Second, 10*time.Millisecond)
		requireActive(t, c, "a", two.Version)
		file("one")
		requireActive(t, c, "a", one.Version) // the author has returned to it

		require.NoError(t, l.ActivateTemplate(t.Context(), "a", two.Version, "olga"))
		require.NoError(t, c.Refresh(t.Context()))
		requireActive(t, c, "a", two.Version)
		file("three")
		requireActive(t, c, "a", three.Version)
		require.NoError(t, l.ActivateTemplate(t.Context(), "a", two.Version, "olga"))
		file("one") // known: it does not replace what an operator has activated
		write(t, dir, "c.prompt", prompt+"new {{x}}\n")
		require.Eventually(t, func() bool { _, err := c.Template("c"); return err == nil }, 20*time.Second, 10*time.Millisecond)
		requireActive(t, c, "a", two.Version)

		require.NoError(t, os.RemoveAll(dir)) // it is gone
		log := end()
		require.Contains(t, log, "mistake in a template")
		require.Contains(t, log, "broken.prompt line=2 field=titel")
		require.Contains(t, log, "template of the directory not used")
		requireActive(t, c, "a", two.Version)
	})
}

// G2: two releases with different directories do not alternate, whichever starts last.
func TestOfferDirectory_KnownContent_IsNotActivatedAgain(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		older, newer := t.TempDir(), t.TempDir()
		write(t, older, "a.prompt", prompt+"one {{x}}\n")
		write(t, newer, "a.prompt", prompt+"two {{x}}\n")
		for i, dir := range []string{older, newer, older, newer, older} {
			c := New(l, slog.New(slog.DiscardHandler))
			_, err := c.OfferDirectory(t.Context(), dir)
			require.NoError(t, err)
			want := load(t, "a", "two").Version
			if i == 0 {
				want = load(t, "a", "one").Version
			}
			got, err := c.Template("a")
			require.NoError(t, err)
			require.Equal(t, want, got.Version, i)
		}
		c := open(t, l, ledger.TemplateBuiltIn, load(t, "a", "three"))
		requireVersion(t, c, load(t, "a", "two")) // the binary does not replace a template of a directory
		_, err := c.OfferDirectory(t.Context(), filepath.Join(older, "nowhere"))
		require.ErrorContains(t, err, "BERTH_TEMPLATES_DIR")
	})
}
