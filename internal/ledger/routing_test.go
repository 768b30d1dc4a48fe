package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
)

// content returns a content of a file with models.
func content(text string, models ...string) RoutingRevision {
	return RoutingRevision{Hash: "h-" + text, Source: RoutingFile, Origin: "host:/routing.yaml", Content: text, Models: models}
}

// G10, G15: which content is in use after processes and operators have published theirs, one after the other.
func TestRouting_ContentsOfProcessesAndOperators_OneInUse(t *testing.T) {
	builtin := content("builtin")
	builtin.Source = RoutingBuiltIn
	nextBuiltin := content("builtin of the next release")
	nextBuiltin.Source = RoutingBuiltIn
	for name, c := range map[string]struct {
		offered []string // "start", "change" or "apply", and a content
		want    []string // the contents of revision 1, 2, …
	}{
		"a file":                                 {[]string{"start a"}, []string{"a"}},
		"the same file of two processes":         {[]string{"start a", "start a"}, []string{"a"}},
		"a new file":                             {[]string{"start a", "start b"}, []string{"a", "b"}},
		"an old file at a start":                 {[]string{"start a", "start b", "start a", "start a"}, []string{"a", "b"}},
		"a file changed":                         {[]string{"start a", "change b"}, []string{"a", "b"}},
		"a file changed on two hosts":            {[]string{"start a", "change b", "change b"}, []string{"a", "b"}},
		"a file changed back":                    {[]string{"start a", "change b", "change a"}, []string{"a", "b", "a"}},
		"a start after a file was changed back":  {[]string{"start a", "change b", "change a", "start b"}, []string{"a", "b", "a"}},
		"an operator":                            {[]string{"start a", "apply b", "apply b"}, []string{"a", "b"}},
		"an operator returns":                    {[]string{"start a", "apply b", "apply a", "start b"}, []string{"a", "b", "a"}},
		"a known file changed after an operator": {[]string{"start a", "change b", "apply a", "change b"}, []string{"a", "b", "a"}},
		"a new file changed after an operator":   {[]string{"start a", "apply b", "change c"}, []string{"a", "b", "c"}},
		"the program":                            {[]string{"start builtin"}, []string{"builtin"}},
		"the program of the next release":        {[]string{"start builtin", "start next", "start builtin"}, []string{"builtin", "next"}},
		"a file instead of the program's":        {[]string{"start builtin", "start a", "start next", "start builtin"}, []string{"builtin", "a"}},
		"an operator and the next release":       {[]string{"start builtin", "apply builtin", "apply a", "apply builtin", "start next"}, []string{"builtin", "a", "builtin"}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				for _, o := range c.offered {
					var how, text string
					_, err := fmt.Sscan(o, &how, &text)
					require.NoError(t, err)
					r := content(text)
					switch text {
					case "builtin":
						r = builtin
					case "next":
						r = nextBuiltin
						r.Content = "next"
					}
					before, err := l.NewestRouting(t.Context())
					require.NoError(t, err)
					var out OfferedRouting
					if how == "apply" {
						r.CreatedBy, r.Source = "olga", RoutingAPI
						out, err = l.PutRouting(t.Context(), r)
					} else {
						out, err = l.OfferRouting(t.Context(), r, how == "change")
					}
					require.NoError(t, err, o)
					newest, err := l.NewestRouting(t.Context())
					require.NoError(t, err)
					require.Equal(t, newest, out.Newest.Revision, o)
					require.Equal(t, newest > before, out.Published, o)
					known, err := l.KnownRouting(t.Context(), r.Hash)
					require.NoError(t, err)
					require.Equal(t, known, out.Own, o)
				}
				var got []string
				for revision := range len(c.want) {
					r, err := l.Routing(t.Context(), int64(revision)+1)
					require.NoError(t, err)
					got = append(got, r.Content)
				}
				require.Equal(t, c.want, got)
				_, err := l.Routing(t.Context(), int64(len(c.want))+1)
				requireCode(t, berth.CodeNotFound, err)
			})
		})
	}
}

// Many processes start with two contents that were never seen: each has one revision, and all know the same one as the newest.
func TestOfferRouting_ManyProcessesAtOnce_EachContentOnce(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		var g errgroup.Group
		for i := range 20 {
			g.Go(func() error {
				_, err := l.OfferRouting(t.Context(), content(fmt.Sprint(i%2), "m"), false)
				return err
			})
		}
		require.NoError(t, g.Wait())
		all, next, err := l.RoutingRevisions(t.Context(), "", 10)
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, all, 2)
		require.NotEqual(t, all[0].Hash, all[1].Hash)
		require.EqualValues(t, 2, all[0].Revision, "the newest first")
	})
}

func TestRoutingModels_Removed_LastRevisionThatHadThem(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for _, r := range []RoutingRevision{content("1", "a", "b"), content("2", "a", "c"), content("3", "a")} {
			_, err := l.OfferRouting(t.Context(), r, false)
			require.NoError(t, err)
		}
		models, err := l.RoutingModels(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a": 3, "b": 1, "c": 2}, models)
		_, err = l.PutRouting(t.Context(), content("1", "a", "b"))
		require.NoError(t, err)
		models, err = l.RoutingModels(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a": 4, "b": 4, "c": 2}, models)
	})
}

// G15: the models of steps that are to come, or in progress.
func TestOpenModels_StepsDoneAndTasksEnded_NotCounted(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		models := func() map[string]int {
			found, err := l.OpenModels(t.Context())
			require.NoError(t, err)
			return found
		}
		require.Empty(t, models())
		first, second := chain(), chain()
		create(t, l, first)
		create(t, l, second)
		require.Equal(t, map[string]int{"model-of-ocr": 2, "model-of-summary": 2, "model-of-match": 2}, models())
		for step := range first.Steps {
			a := begin(t, l, first, step)
			startCall(t, l, first, step, a.Fence)
			_, err := l.FinishStep(t.Context(), result(first, step, a.Fence, "text"))
			require.NoError(t, err)
			if step == 0 {
				begin(t, l, first, 1)
				require.Equal(t, map[string]int{"model-of-ocr": 1, "model-of-summary": 2, "model-of-match": 2}, models())
			}
		}
		require.Equal(t, map[string]int{"model-of-ocr": 1, "model-of-summary": 1, "model-of-match": 2}, models(), "its last call may be repeated")
		_, _, err := l.FinishTask(t.Context(), End{TaskRef: second.Ref(), Status: berth.TaskCancelled})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"model-of-match": 1}, models())
	})
}
