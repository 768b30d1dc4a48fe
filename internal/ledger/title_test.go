package ledger

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/testnames"
)

func TestCreateTask_TitleAsset_TitleIsItsNameOrFirstWords(t *testing.T) { // T30
	family := "👩\u200d👩\u200d👧"
	cases := map[string]struct {
		asset berth.Asset
		want  string
	}{
		"a title of the client":        {berth.Asset{Kind: berth.AssetTitle, Content: []byte("Two  spaces stay")}, "Two  spaces stay"},
		"a file":                       {berth.Asset{Kind: berth.AssetText, Name: "report 2026.pdf.txt", Content: []byte("text")}, "report 2026.pdf.txt"},
		"an image":                     {berth.Asset{Kind: berth.AssetImage, Name: "screen.png", Content: []byte("\x89PNG")}, "screen.png"},
		"an image without a name":      {berth.Asset{Kind: berth.AssetImage, Content: []byte("not a text")}, ""},
		"a text":                       {berth.Asset{Kind: berth.AssetText, Content: []byte("  First line\r\n\r\n\tsecond\u2028third\u3000line ")}, "First line second third line"},
		"controls":                     {berth.Asset{Kind: berth.AssetText, Content: []byte("\x1b[31mred\u202egnp.exe\u200b \ufeffend")}, "[31mredgnp.exe\u200b end"},
		"a direction that never ends":  {berth.Asset{Kind: berth.AssetText, Content: []byte("\u2067שלום")}, "שלום"},
		"nothing that can be seen":     {berth.Asset{Kind: berth.AssetText, Content: []byte("\u200b \n\t")}, ""},
		"80 characters":                {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("字", 80))}, strings.Repeat("字", 80)},
		"more characters":              {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("字", 81))}, strings.Repeat("字", 79) + "…"},
		"words":                        {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("word ", 30))}, strings.Repeat("word ", 15) + "word…"},
		"a long word at the end":       {berth.Asset{Kind: berth.AssetText, Content: []byte("a " + strings.Repeat("b", 100))}, "a " + strings.Repeat("b", 77) + "…"},
		"a family at the limit":        {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("x", 76) + family + family)}, strings.Repeat("x", 76) + "…"},
		"accents that are decomposed":  {berth.Asset{Kind: berth.AssetText, Content: []byte("re\u0301sume\u0301")}, "résumé"},
		"a character with 5,000 marks": {berth.Asset{Kind: berth.AssetText, Content: []byte("Z" + strings.Repeat("\u0301", 2500))}, ""},
		"a character that is cut":      {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("\n", titleBytes-4) + "ab字")}, "ab"},
		"too much white space":         {berth.Asset{Kind: berth.AssetText, Content: []byte(strings.Repeat("\n", titleBytes) + "text")}, ""},
	}
	each(t, func(t *testing.T, l *Ledger) {
		for name, c := range cases {
			c.asset.UserID, c.asset.MediaType = "alice", berth.TextMediaType
			a, err := l.PutAsset(t.Context(), c.asset)
			require.NoError(t, err)
			task := chain()
			task.TitleAsset = a.ID
			require.Equal(t, c.want, create(t, l, task).Title, name)
			got, err := l.GetTask(t.Context(), task.Ref())
			require.NoError(t, err)
			require.Equal(t, c.want, got.Title, name)
			foreign := chain()
			foreign.UserID, foreign.TitleAsset = "bob", a.ID
			require.Empty(t, create(t, l, foreign).Title, "of another user's asset")
		}
	})
}

// A title is a name that a client may give, too, and never ends within a character that readers see.
func TestShorten_AnyText_IsNameOfWholeCharacters(t *testing.T) { // T30
	t.Parallel()
	pieces := []string{
		"a", "Z", " ", "\n", "\u3000", "字", "é", "e\u0301", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "🇩🇪", "각", "\u1112\u1161\u11ab", "क्\u200dषि", "\u2067", "\u2069",
		"\u202e", "\x00", "\x1b", "\ufffd", "\xff", "\u200b", "🏴\U000e0067\U000e0062\U000e007f",
	}
	for _, n := range testnames.All() {
		pieces = append(pieces, n.Name, n.Title)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 120).Draw(t, "text"), "")
		title := shorten(text)
		stored, err := berth.Name("title", title, berth.MaxTaskTitle)
		require.NoError(t, err)
		require.Equal(t, stored, title)
		require.NotContains(t, title, "\n")
		whole := berth.CleanName(strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " "), len(text))
		if !strings.HasSuffix(title, ellipsis) || title == whole {
			require.True(t, title == "" || title == whole, "%q of %q", title, whole)
			return
		}
		directions := strings.NewReplacer("\u2067", "", "\u2066", "", "\u2068", "", "\u2069", "", "\u202a", "", "\u202b", "", "\u202c", "") // removed where one does not end
		seen := func(s string) (all []string) {
			for g := uniseg.NewGraphemes(directions.Replace(s)); g.Next(); {
				all = append(all, g.Str())
			}
			return all
		}
		cut, all := seen(strings.TrimSuffix(title, ellipsis)), seen(whole)
		require.Equal(t, all[:len(cut)], cut)
		require.Greater(t, utf8.RuneCountInString(whole), berth.MaxTaskTitle)
	})
}

func TestListTasks_TitleQuery_FindsWordsInOrder(t *testing.T) { // T30
	each(t, func(t *testing.T, l *Ledger) {
		for i, title := range []string{
			"Senior Backend Engineer", "高级后端工程师（调度方向）", "100% remote_work.pdf", `C:\posting.txt`, "ΟΔΟΣ Ａcme", "Engineering, 100 users",
		} {
			for _, user := range []string{"alice", "bob"} {
				a, err := l.PutAsset(t.Context(), berth.Asset{UserID: user, Kind: berth.AssetTitle, Content: []byte(title)})
				require.NoError(t, err)
				task := chain()
				task.ID, task.UserID, task.TitleAsset = fmt.Sprint(i), user, a.ID
				create(t, l, task)
			}
		}
		for query, want := range map[string][]string{
			"engineer": {"5", "0"}, "ENGINEER": {"5", "0"}, "senior ENGINEER": {"0"}, "engineer senior": nil,
			"后端": {"1"}, "后端 调度": {"1"}, "前端": nil, "%": {"2"}, "100%": {"2"}, "e_w": {"2"}, "_": {"2"}, `\`: {"3"}, `\p`: {"3"}, `:\POST`: {"3"},
			"οδος": {"4"}, "οδοσ": {"4"}, "acme": {"4"}, "ＡＣＭＥ": {"4"}, "100": {"5", "2"}, "'": nil, "\x00": {"5", "4", "3", "2", "1", "0"},
		} {
			var got []string
			for cursor := ""; ; {
				page, next, err := l.ListTasks(t.Context(), TaskQuery{UserID: "alice", Title: query}, cursor, 1)
				require.NoError(t, err, query)
				for _, found := range page {
					require.Equal(t, "alice", found.UserID)
					got = append(got, found.ID)
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			require.ElementsMatch(t, want, got, "%q", query)
		}
	})
}

func TestErase_TaskOrAsset_TitleIsErasedToo(t *testing.T) { // T30; B11
	each(t, func(t *testing.T, l *Ledger) {
		text := put(t, l, "alice", "My secret diary")
		one, two, three := chain(), chain(), chain()
		one.TitleAsset, two.TitleAsset = text.ID, text.ID
		given, err := l.PutAsset(t.Context(), berth.Asset{UserID: "alice", Kind: berth.AssetTitle, Content: []byte("A given title")})
		require.NoError(t, err)
		three.TitleAsset = given.ID
		variables := map[string]string{"notes": text.ID}
		one, two, three = lived(t, l, one, variables), lived(t, l, two, variables), lived(t, l, three, variables)
		title := func(task berth.Task) (title, key string) {
			require.NoError(t, l.read.QueryRowContext(t.Context(), `SELECT title, title_key FROM tasks WHERE id = $1`, task.ID).Scan(&title, &key))
			return title, key
		}
		requireTitle := func(want string, task berth.Task) {
			t.Helper()
			got, key := title(task)
			require.Equal(t, [2]string{want, titleKey(want)}, [2]string{got, key})
		}
		require.NoError(t, l.EraseTask(t.Context(), one.Ref()))
		requireTitle("", one)
		requireTitle("My secret diary", two)
		_, err = l.EraseAsset(t.Context(), "alice", text.ID)
		require.NoError(t, err)
		requireTitle("", two)
		requireTitle("A given title", three)
		_, err = l.GetAsset(t.Context(), "alice", given.ID)
		require.NoError(t, err)
		require.NoError(t, l.EraseTask(t.Context(), three.Ref()))
		requireTitle("", three)
		requireErased(t, l, "alice", given.ID)

		open := chain()
		again := put(t, l, "alice", "Of a running task")
		open.TitleAsset, open.Variables = again.ID, map[string]string{"notes": again.ID}
		create(t, l, open)
		_, err = l.EraseAsset(t.Context(), "alice", again.ID)
		requireCode(t, berth.CodeConflict, err)
		requireTitle("Of a running task", open)
	})
}
