package catalog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
	"berth/internal/template"
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
		require.Equal(t, 1, strings.Count(log, "field=titel"), "once")
		line(t, log, "level=WARN", `msg="template not used"`, `of="the directory" reason="an operator has activated another version"`, "by=olga",
			fmt.Sprintf("berth template activate a %.12s", one.Version))
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

// line returns the only line of a log that has all of these texts.
func line(t *testing.T, log string, texts ...string) string {
	t.Helper()
	var found []string
	for one := range strings.Lines(log) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(one, text)
		}
		if has {
			found = append(found, one)
		}
	}
	require.Len(t, found, 1, "%q in\n%s", texts, log)
	return found[0]
}

func requireDeleted(t *testing.T, c *Catalog, name berth.Template) {
	t.Helper()
	require.Eventually(t, func() bool {
		require.NoError(t, c.Refresh(t.Context()))
		state, err := c.State(name)
		return err == nil && state.Deleted
	}, 20*time.Second, 10*time.Millisecond, name)
}

// G2: each change of the files is logged with what happened, and removed files delete their template, until they return.
func TestDirectory_FilesAddedChangedRemoved_EachIsLoggedWithItsVersion(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		dir := t.TempDir()
		one, two := load(t, "a", "one"), load(t, "a", "two")
		write(t, dir, "in/a.prompt", prompt+"one {{x}}\n")
		write(t, dir, "tree/template.yaml", "title: T\nsteps: [{id: s, models: m}]\n")
		write(t, dir, "tree/s.prompt", "Hello.\n")
		write(t, dir, "shared/_rules.prompt", "Be kind.\n")
		write(t, dir, "shared/b.prompt", prompt+"{{>rules}} {{x}}\n")
		program := load(t, "b", "of the program")
		var log bytes.Buffer
		c := New(l, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, c.Offer(t.Context(), ledger.TemplateBuiltIn, []*template.Template{program}, false))
		d, err := c.OfferDirectory(t.Context(), dir)
		require.NoError(t, err)
		offer := func() string {
			t.Helper()
			log.Reset()
			require.NoError(t, d.offer(t.Context(), 0))
			return log.String()
		}
		started := log.String()
		require.Contains(t, line(t, started, "level=WARN", "template replaces that of another source"),
			"template=b version="+d.seen["b"].version+" source=directory file="+filepath.Join(dir, "shared/b.prompt")+" formerVersion="+program.Version+" formerSource=builtin")
		require.Contains(t, line(t, started, "template added\"", "template=a"), "version="+one.Version+" source=directory file="+filepath.Join(dir, "in/a.prompt"))
		line(t, started, "template added\"", "template=tree", filepath.Join(dir, "tree"))
		state, err := c.State("b")
		require.NoError(t, err)
		require.Equal(t, []ledger.TemplateSource{ledger.TemplateBuiltIn}, c.Replaces(state))
		require.Empty(t, offer(), "nothing has changed")

		write(t, dir, "in/a.prompt", prompt+"two {{x}}\n")
		line(t, offer(), "template changed", "template=a", "version="+two.Version, "a.prompt", "formerVersion="+one.Version)
		write(t, dir, "in/a.prompt", "---\ntitle: T\n---\n{{half")
		line(t, offer(), "mistake in a template", "in/a.prompt", "template=a", "remains="+two.Version)
		require.NoError(t, os.Rename(filepath.Join(dir, "in"), filepath.Join(dir, "out")))
		write(t, dir, "out/a.prompt", prompt+"two {{x}}\n")
		line(t, offer(), "level=INFO", "mistakes in a template are gone", "template=a", "version="+two.Version, "out/a.prompt") // and moved
		require.Empty(t, offer(), "once")
		requireVersion(t, c, two)

		require.NoError(t, os.Remove(filepath.Join(dir, "shared/_rules.prompt")))
		line(t, offer(), "mistake in a template", "template=b")
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "shared")))
		line(t, offer(), "level=WARN", "that of the program is used again", "template=b", "active="+program.Version)
		requireVersion(t, c, program)
		state, err = c.State("b")
		require.NoError(t, err)
		require.Empty(t, c.Replaces(state))

		require.NoError(t, os.Remove(filepath.Join(dir, "tree/template.yaml")))
		log.Reset()
		require.NoError(t, os.Remove(filepath.Join(dir, "tree/s.prompt")))
		require.NoError(t, os.Remove(filepath.Join(dir, "out/a.prompt")))
		removed := offer()
		line(t, removed, "level=WARN", "template deleted with its files", "template=tree")
		line(t, removed, "level=WARN", "template deleted with its files", "template=a", "version="+two.Version, "out/a.prompt")
		_, err = c.Template("a")
		require.ErrorContains(t, err, "deleted")
		kept, err := c.Version(t.Context(), "a", two.Version)
		require.NoError(t, err, "of accepted tasks")
		require.Equal(t, two.Version, kept.Version)

		write(t, dir, "a.prompt", prompt+"two {{x}}\n")
		line(t, offer(), "template added again", "template=a", "version="+two.Version)
		requireVersion(t, c, two)

		require.NoError(t, l.ActivateTemplate(t.Context(), "a", one.Version, "olga"))
		require.NoError(t, os.Remove(filepath.Join(dir, "a.prompt")))
		line(t, offer(), "files of a template removed that was not in use", "template=a", "active="+one.Version, "by=olga")
		requireVersion(t, c, one)

		write(t, dir, "a.prompt", prompt+"two {{x}}\n")
		line(t, offer(), "level=WARN", `reason="an operator has activated another version"`, "template=a", fmt.Sprintf("berth template activate a %.12s", two.Version))
		require.NoError(t, l.ActivateTemplate(t.Context(), "a", two.Version, "olga"))
		require.NoError(t, os.Remove(filepath.Join(dir, "a.prompt")))
		line(t, offer(), "level=WARN", "stays active, because an operator activated it", "template=a", "version="+two.Version, "by=olga")
		requireVersion(t, c, two)

		require.NoError(t, l.DeleteTemplate(t.Context(), "a", "olga"))
		write(t, dir, "a.prompt", prompt+"never seen {{x}}\n")
		line(t, offer(), "level=WARN", `reason="an operator has deleted it"`, "template=a", "by=olga",
			fmt.Sprintf("berth template activate a %.12s", load(t, "a", "never seen").Version))
		write(t, dir, "template.yml", "title: T\n") // a file of no template
		line(t, offer(), "level=ERROR", "template.yml")
		require.NoError(t, os.Remove(filepath.Join(dir, "template.yml")))
		line(t, offer(), "level=INFO", "mistakes in a file are gone", "template.yml")
	})
}

// G2: what cannot be read is not removed, and a start removes nothing: another host may have it.
func TestDirectory_FilesNotReadable_TemplatesRemain(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		dir, other := t.TempDir(), t.TempDir()
		one := load(t, "a", "one")
		write(t, dir, "in/a.prompt", prompt+"one {{x}}\n")
		write(t, other, "c.prompt", prompt+"one {{x}}\n")
		c, end := follow(t, l, dir)
		requireActive(t, c, "a", one.Version)
		loop := filepath.Join(dir, "in/a.prompt")
		require.NoError(t, os.Remove(loop))
		require.NoError(t, os.Symlink("a.prompt", loop)) // a link to itself cannot be followed
		write(t, dir, "c.prompt", prompt+"one {{x}}\n")
		requireActive(t, c, "c", load(t, "c", "one").Version)
		requireActive(t, c, "a", one.Version)
		line(t, end(), "level=WARN", "cannot be read any more", "template=a", "version="+one.Version)

		var log bytes.Buffer
		c = New(l, slog.New(slog.NewTextHandler(&log, nil)))
		_, err := c.OfferDirectory(t.Context(), other)
		require.NoError(t, err)
		requireActive(t, c, "a", one.Version)
		line(t, log.String(), "level=WARN", "are not in this one", "count=1", "templates=a")
	})
}

// G2: the files of a running process are followed, whichever process looks first.
func TestDirectory_FileRemovedUnderTwoProcesses_DeletedThenBack(t *testing.T) {
	each(t, func(t *testing.T, l *ledger.Ledger) {
		dir := t.TempDir()
		one := load(t, "a", "one")
		write(t, dir, "a.prompt", prompt+"one {{x}}\n")
		first, end := follow(t, l, dir)
		defer end()
		second, endSecond := follow(t, l, dir)
		defer endSecond()
		requireActive(t, second, "a", one.Version)
		require.NoError(t, os.Remove(filepath.Join(dir, "a.prompt")))
		requireDeleted(t, first, "a")
		requireDeleted(t, second, "a")
		write(t, dir, "a.prompt", prompt+"one {{x}}\n")
		requireActive(t, first, "a", one.Version)
		require.Eventually(t, func() bool {
			require.NoError(t, second.Refresh(t.Context()))
			got, err := second.Template("a")
			return err == nil && got.Version == one.Version
		}, 20*time.Second, 10*time.Millisecond)
	})
}
