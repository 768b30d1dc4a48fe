package template

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/dotprompt"
)

func builtin(t testing.TB) map[berth.Template]*Template {
	t.Helper()
	tree := Builtin()
	require.Empty(t, tree.Mistakes)
	all := map[berth.Template]*Template{}
	for _, one := range tree.Templates {
		all[one.Name] = one
	}
	return all
}

// A version is stored and sent as its files: they make the same template.
func TestBuiltin_FilesOfEachTemplate_LoadAsTheSameVersion(t *testing.T) { // G2
	t.Parallel()
	all := builtin(t)
	require.Len(t, all, 8)
	for name, one := range all {
		again, err := Load(name, one.Files())
		require.NoError(t, err)
		require.Equal(t, one.Version, again.Version)
		require.Equal(t, one.Steps, again.Steps)
		require.Len(t, one.Version, 64)
	}
}

func TestExamples_OfOtherDomains_RenderCompletely(t *testing.T) { // G1
	t.Parallel()
	all := builtin(t)
	for _, c := range []struct {
		name, step string
		texts      map[string]string
		want       []string
		role       dotprompt.Role
	}{
		{"ticket_summary", "answer", map[string]string{"ticket": "It is broken."}, []string{"It is broken.", `"urgency"`, "locale zh"}, dotprompt.RoleSystem},
		{"translate", "translate", map[string]string{"text": "Guten Tag"}, []string{"Guten Tag", "English"}, dotprompt.RoleSystem},
		{"translate", "translate", map[string]string{"text": "Guten Tag", "language": "Thai", "glossary": "Tag = day"}, []string{"Thai", "Tag = day"}, dotprompt.RoleSystem},
	} {
		msgs, err := all[berth.Template(c.name)].Messages(t.Context(), c.step, berth.LocaleZH, Input{Texts: maps.Clone(c.texts)})
		require.NoError(t, err)
		require.Len(t, msgs, 2)
		require.Equal(t, c.role, msgs[0].Role)
		for _, want := range c.want {
			require.Contains(t, msgs[0].Text()+msgs[1].Text(), want)
		}
	}
}
