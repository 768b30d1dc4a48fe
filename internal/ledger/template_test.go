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
			added, err := l.OfferTemplates(t.Context(), versions, false)
			require.NoError(t, err)
			require.Equal(t, want, added)
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
			g.Go(func() (err error) {
				added[i], err = l.OfferTemplates(t.Context(), versions, false)
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
