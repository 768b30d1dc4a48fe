package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

func version(name berth.Template, content string) TemplateVersion {
	return TemplateVersion{
		Template: name, Version: "v-" + content, Source: TemplateBuiltIn, Files: map[string]string{"template.yaml": content},
	}
}

// created returns how many versions were new.
func created(offered []OfferedTemplate) (n int) {
	for _, o := range offered {
		if o.Created {
			n++
		}
	}
	return n
}

// active returns the versions that new tasks use, by template.
func active(t *testing.T, l *Ledger) map[berth.Template]string {
	t.Helper()
	states, err := l.Templates(t.Context())
	require.NoError(t, err)
	found := map[berth.Template]string{}
	for _, s := range states {
		found[s.Template] = s.Version
		if s.Deleted {
			found[s.Template] += " deleted"
		}
	}
	return found
}

// G2: what a process brings becomes active once; what operators decide remains.
func TestOfferTemplates_ProcessesOfTwoReleases_NewestStaysActive(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		offer := func(want int, versions ...TemplateVersion) {
			t.Helper()
			offered, err := l.OfferTemplates(t.Context(), versions, false)
			require.NoError(t, err)
			require.Equal(t, want, created(offered))
		}
		offer(2, version("a", "1"), version("b", "1"))
		offer(0, version("a", "1"), version("b", "1"))
		require.Equal(t, map[berth.Template]string{"a": "v-1", "b": "v-1"}, active(t, l))

		offer(1, version("a", "2"), version("b", "1"))
		offer(0, version("a", "1"), version("b", "1")) // a process of the earlier release starts again
		require.Equal(t, map[berth.Template]string{"a": "v-2", "b": "v-1"}, active(t, l))

		require.NoError(t, l.ActivateTemplate(t.Context(), "a", "v-1", "olga"))
		offer(0, version("a", "2"))
		require.Equal(t, "v-1", active(t, l)["a"])

		require.NoError(t, l.DeleteTemplate(t.Context(), "b", "olga"))
		offer(1, version("b", "3"))
		require.Equal(t, "v-1 deleted", active(t, l)["b"])
		require.NoError(t, l.ActivateTemplate(t.Context(), "b", "v-3", "olga"))
		require.Equal(t, "v-3", active(t, l)["b"])
	})
}

func TestOfferTemplates_ManyProcessesAtOnce_EachVersionOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var versions []TemplateVersion
		for i := range 20 {
			versions = append(versions, version(berth.Template(fmt.Sprintf("t%d", i)), "1"))
		}
		var g errgroup.Group
		added := make([]int, 8)
		for i := range added {
			g.Go(func() error {
				offered, err := l.OfferTemplates(t.Context(), versions, false)
				added[i] = created(offered)
				return err
			})
		}
		require.NoError(t, g.Wait())
		sum := 0
		for _, n := range added {
			sum += n
		}
		require.Equal(t, 20, sum)
		require.Len(t, active(t, l), 20)
	})
}

// G2: versions never change, each change is seen, and a version can be activated again.
func TestPutTemplate_Changes_AreCountedAndKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		changes := func() int64 {
			t.Helper()
			n, err := l.TemplateChanges(t.Context())
			require.NoError(t, err)
			return n
		}
		require.Zero(t, changes())
		put := func(want bool, v TemplateVersion) {
			t.Helper()
			created, err := l.PutTemplate(t.Context(), v, true)
			require.NoError(t, err)
			require.Equal(t, want, created)
		}
		put(true, version("a", "1"))
		first := changes()
		put(true, version("a", "2"))
		second := changes()
		require.Greater(t, second, first)
		put(false, version("a", "2"))
		require.Equal(t, second, changes(), "nothing has changed")
		other := version("a", "1")
		other.Files = map[string]string{"template.yaml": "another content"}
		put(false, other)
		require.Greater(t, changes(), second)
		require.Equal(t, "v-1", active(t, l)["a"])

		stored, err := l.TemplateVersion(t.Context(), "a", "v-1")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"template.yaml": "1"}, stored.Files)
		for _, id := range [][2]string{{"a", "v-3"}, {"b", "v-1"}, {"a", ""}, {"a\x00", "v-1"}} {
			_, err = l.TemplateVersion(t.Context(), berth.Template(id[0]), id[1])
			requireCode(t, berth.CodeNotFound, err)
			requireCode(t, berth.CodeNotFound, l.ActivateTemplate(t.Context(), berth.Template(id[0]), id[1], "olga"))
		}
		requireCode(t, berth.CodeNotFound, l.DeleteTemplate(t.Context(), "b", "olga"))
		require.NoError(t, l.DeleteTemplate(t.Context(), "a", "olga"))
		requireCode(t, berth.CodeConflict, l.DeleteTemplate(t.Context(), "a", "otto"))
		require.NoError(t, l.ActivateTemplate(t.Context(), "a", "v-1", "olga"))

		versions, next, err := l.TemplateVersions(t.Context(), "a", "", 1)
		require.NoError(t, err)
		require.Len(t, versions, 1)
		more, last, err := l.TemplateVersions(t.Context(), "a", next, 1)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"v-1", "v-2"}, []string{versions[0].Version, more[0].Version})
		require.Empty(t, last)
	})
}

// G3: a version is kept while a task refers to it.
func TestExpiries_TemplateVersions_KeptWhileUsed(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for _, content := range []string{"1", "2", "3"} {
			_, err := l.PutTemplate(t.Context(), version("a", content), true)
			require.NoError(t, err)
		}
		task := chain()
		task.Template, task.TemplateVersion = "a", "v-1"
		task = create(t, l, task)
		got, err := l.GetTask(t.Context(), task.Ref())
		require.NoError(t, err)
		require.Equal(t, "v-1", got.TemplateVersion)

		expire := func(before time.Time) {
			t.Helper()
			for _, e := range l.Expiries() {
				if e.Name == "template versions" {
					_, _, err := e.Remove(t.Context(), before, 100)
					require.NoError(t, err)
				}
			}
		}
		left := func() (names []string) {
			t.Helper()
			versions, _, err := l.TemplateVersions(t.Context(), "a", "", 100)
			require.NoError(t, err)
			for _, v := range versions {
				names = append(names, v.Version)
			}
			return names
		}
		expire(time.Now().Add(-time.Hour))
		require.ElementsMatch(t, []string{"v-1", "v-2", "v-3"}, left(), "replaced a moment ago")
		expire(time.Now().Add(time.Hour))
		require.ElementsMatch(t, []string{"v-1", "v-3"}, left(), "of a task, and active")
	})
}

// G2: one order of the sources. Each row is what happens after v-1 of the program is active, and what new tasks use then.
func TestTemplates_VersionsOfSeveralSources_OneOrderDecides(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		of := func(source TemplateSource, name berth.Template, content string) TemplateVersion {
			v := version(name, content)
			v.Source = source
			return v
		}
		type step func(t *testing.T, name berth.Template)
		offer := func(source TemplateSource, content string, changed bool) step {
			return func(t *testing.T, name berth.Template) {
				_, err := l.OfferTemplates(t.Context(), []TemplateVersion{of(source, name, content)}, changed)
				require.NoError(t, err)
			}
		}
		release := func(content string) step { return offer(TemplateBuiltIn, content, false) }
		start := func(content string) step { return offer(TemplateDirectory, content, false) }
		file := func(content string) step { return offer(TemplateDirectory, content, true) }
		withdraw := func(content, builtin string, want bool) step {
			return func(t *testing.T, name berth.Template) {
				_, withdrawn, err := l.WithdrawTemplate(t.Context(), name, "v-"+content, builtin)
				require.NoError(t, err)
				require.Equal(t, want, withdrawn)
			}
		}
		apply := func(content string) step {
			return func(t *testing.T, name berth.Template) {
				v := of(TemplateAPI, name, content)
				v.CreatedBy = "olga"
				_, err := l.PutTemplate(t.Context(), v, true)
				require.NoError(t, err)
			}
		}
		activated := func(content string) step {
			return func(t *testing.T, name berth.Template) {
				require.NoError(t, l.ActivateTemplate(t.Context(), name, "v-"+content, "olga"))
			}
		}
		deleted := func(t *testing.T, name berth.Template) {
			require.NoError(t, l.DeleteTemplate(t.Context(), name, "olga"))
		}
		for i, c := range []struct {
			name  string
			steps []step
			want  string
		}{
			{"a release replaces a release", []step{release("2")}, "v-2"},
			{"a directory replaces the program", []step{start("d")}, "v-d"},
			{"a release does not replace a directory", []step{start("d"), release("2")}, "v-d"},
			{"an operator replaces the program", []step{apply("o")}, "v-o"},
			{"an operator replaces a directory", []step{start("d"), apply("o")}, "v-o"},
			{"a release does not replace an operator's", []step{apply("o"), release("2")}, "v-o"},
			{"a directory's new content replaces an operator's", []step{apply("o"), file("d")}, "v-d"},
			{"a known one does not, at a start", []step{start("d"), apply("o"), start("d")}, "v-o"},
			{"a known one does not, after a change", []step{start("d"), apply("o"), file("d")}, "v-o"},
			{"an author returns to a known content", []step{start("d"), file("e"), file("d")}, "v-d"},
			{"a start does not", []step{start("d"), start("e"), start("d")}, "v-e"},
			{"an operator's deletion stays", []step{start("d"), deleted, file("e"), release("2")}, "v-d deleted"},
			{"until a version is activated", []step{start("d"), deleted, activated("d")}, "v-d"},
			{"removed files delete", []step{start("d"), withdraw("d", "", true)}, "v-d deleted"},
			{"removed files return to the program's", []step{start("d"), withdraw("d", "v-1", true)}, "v-1"},
			{"an unknown one of the program is not returned to", []step{start("d"), withdraw("d", "v-9", true)}, "v-d deleted"},
			{"removed files are removed once", []step{start("d"), withdraw("d", "", true), withdraw("d", "", false)}, "v-d deleted"},
			{"a release does not return what was removed", []step{start("d"), withdraw("d", "", true), release("1"), release("2")}, "v-d deleted"},
			{"files that return at a start", []step{start("d"), withdraw("d", "", true), start("d")}, "v-d"},
			{"files that return", []step{start("d"), withdraw("d", "", true), file("d")}, "v-d"},
			{"files that return with another content", []step{start("d"), withdraw("d", "", true), file("e")}, "v-e"},
			{"removed files of another version", []step{start("d"), file("e"), withdraw("d", "", false)}, "v-e"},
			{"removed files do not withdraw an operator's", []step{start("d"), apply("o"), withdraw("d", "", false)}, "v-o"},
			{"nor what an operator has activated", []step{start("d"), start("e"), activated("d"), withdraw("d", "", false)}, "v-d"},
			{"an operator confirms that removed files stay removed", []step{start("d"), withdraw("d", "", true), deleted, file("d")}, "v-d deleted"},
		} {
			name := berth.Template(fmt.Sprintf("t%d", i))
			release("1")(t, name)
			for _, step := range c.steps {
				step(t, name)
			}
			require.Equal(t, c.want, active(t, l)[name], c.name)
		}
	})
}

// G2: what a process has is not new again at its next start, however long ago an operator has replaced it.
func TestExpiries_VersionThatAProcessHas_IsKept(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		offer := func() {
			t.Helper()
			v := version("a", "file")
			v.Source = TemplateDirectory
			_, err := l.OfferTemplates(t.Context(), []TemplateVersion{v}, false)
			require.NoError(t, err)
		}
		offer()
		_, err := l.PutTemplate(t.Context(), version("a", "operator"), true)
		require.NoError(t, err)
		require.NoError(t, l.ActivateTemplate(t.Context(), "a", "v-operator", "olga"))
		_, err = l.exec(t.Context(), "age", `UPDATE template_versions SET used_at = 1`)
		require.NoError(t, err)
		offer()
		for _, e := range l.Expiries() {
			if e.Name == "template versions" {
				_, _, err := e.Remove(t.Context(), time.Now().Add(-time.Hour), 100)
				require.NoError(t, err)
			}
		}
		offer()
		require.Equal(t, "v-operator", active(t, l)["a"])
	})
}
