package ledger

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

func TestTerms_EachScript_ExpectedTerms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "",
		"Go, Redis & Kubernetes!":        "go redis kubernetes",
		"C++ and C# (or C)":              "c++ c# c",
		"C#/C++, c++11, C#10, F#.":       "c# c++ c++ 11 c# 10 f#",
		"Node.js. ASP.NET, .NET":         "node.js node js asp.net asp net net",
		"React/TypeScript full-stack":    "react typescript full stack",
		"a+b google+ x++y":               "b google+ x++ y",
		"3.5 years at 10.000":            "3.5 years 10.000 10 000",
		"负责微服务":                          "负责 责微 微服 服务",
		"3年Go经验":                         "3 年 go 经验",
		"猫":                              "猫",
		"ＡＩ工程师（Ｃ＋＋）":                     "ai 工程 程师 c++",
		"カタカナ 한국어":                       "カタ タカ カナ 한국 국어",
		"Zürich naïve ÉCOLE":             "zürich naïve école",
		"' OR \"x\" : * ( ) NEAR \\ | &": "x near",
		"user_name@example.com":          "user name example.com example com",
		"it is the of":                   "",
	} {
		require.Equal(t, want, strings.Join(terms(text), " "), text)
	}
	require.Len(t, terms(strings.Repeat("x", 1000))[0], maxTermRunes)
}

func TestTerms_RandomText_NoQuerySyntax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, term := range terms(rapid.String().Draw(t, "text")) {
			require.NotEmpty(t, term)
			require.True(t, utf8.ValidString(term))
			require.NotContains(t, term, "\x00")
			require.False(t, strings.ContainsAny(term, "'\"\\:*()|&!<> \t\n"), term)
		}
	})
}

func TestCut_LongText_EndsAtSentences(t *testing.T) {
	t.Parallel()
	require.Empty(t, cut(" \n\n "))
	require.Equal(t, []string{"One.\nTwo."}, cut("One.\n\nTwo.\n"))
	sentence := "Built a scheduler in Go that hands scarce slots to waiting jobs. " // 65 characters
	long := cut(strings.Repeat(sentence, 20))
	require.Len(t, long, 4)
	for _, p := range long {
		require.True(t, strings.HasSuffix(p, "jobs."), p)
	}
	paragraph := strings.TrimSpace(strings.Repeat(sentence, 4))
	require.Equal(t, []string{paragraph, paragraph}, cut(paragraph+"\n\n"+paragraph), "paragraphs are not joined")
	for _, p := range cut(strings.Repeat("负责后端微服务的设计与开发。", 100)) {
		require.True(t, strings.HasSuffix(p, "。"))
	}
	require.Len(t, cut(strings.Repeat("x", 1000)), 3)
	for _, p := range cut(strings.Repeat("word ", 200)) {
		require.False(t, strings.HasPrefix(p, "ord"))
	}
}

func TestCut_RandomText_AllTextWithinLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(
			[]string{"word", " ", ". ", "\n", "\n\n", "字", "。", "a long stretch without any end ", strings.Repeat("x", 150)})).Draw(t, "text"), "")
		passages := cut(text)
		require.Equal(t, strings.Join(strings.Fields(text), ""), strings.Join(strings.Fields(strings.Join(passages, "")), ""))
		for _, p := range passages {
			require.LessOrEqual(t, utf8.RuneCountInString(p), passageRunes)
		}
	})
}

// putText stores a text as the résumé of an accepted task.
func putText(t *testing.T, l *Ledger, user, text string) string {
	t.Helper()
	a, err := l.PutAsset(t.Context(), berth.Asset{UserID: user, Kind: berth.AssetText, Content: []byte(text)})
	require.NoError(t, err)
	require.NoError(t, l.ClaimAssets(t.Context(), user, map[string]string{"resume": a.ID}, evidence))
	return a.ID
}

func search(t *testing.T, l *Ledger, user, query string) []Passage {
	t.Helper()
	found, err := l.SearchPassages(t.Context(), user, query, 10)
	require.NoError(t, err)
	return found
}

func TestSearchPassages_EachQuery_OwnBestPassageFirst(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		golang := putText(t, l, "alice", "Six years of Go: Redis, PostgreSQL and Kubernetes in production.")
		cpp := putText(t, l, "alice", "Wrote renderers in C++ and tools with Node.js.")
		chinese := putText(t, l, "alice", "负责后端微服务的设计与开发，熟悉消息队列。")
		putText(t, l, "bob", "Go, Redis, C++, 微服务: all of it, and more Redis.")

		for query, want := range map[string]string{
			"redis":                  golang,
			"REDIS or kafka":         golang,
			"c++":                    cpp,
			"node":                   cpp,
			"需要微服务经验":                chinese,
			"'; DROP TABLE tasks --": "",
			`" OR owner : "x`:        "",
			"NOT redis*":             golang,
			"terms : (redis) AND x":  golang,
			"go | !redis <-> (":      golang,
			"c":                      "",
			"":                       "",
			"the of":                 "",
		} {
			found := search(t, l, "alice", query)
			if want == "" {
				require.Empty(t, found, query)
				continue
			}
			require.Len(t, found, 1, query)
			require.Equal(t, want, found[0].AssetID, query)
			require.NotEmpty(t, found[0].Text)
		}
		both := search(t, l, "alice", "We want Go, Redis and Kubernetes; C++ is a plus")
		require.Len(t, both, 2)
		require.Equal(t, golang, both[0].AssetID, "the passage with more common terms comes first")
		require.Greater(t, both[0].Score, both[1].Score)
		require.Empty(t, search(t, l, "carol", "redis"))
		require.Empty(t, search(t, l, "", "redis"))
		require.Len(t, search(t, l, "alice", strings.Repeat("padding words everywhere ", 1000)+"redis"), 1)
	})
}

func TestSearchPassages_RandomQuery_NoError(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		putText(t, l, "al:\"ice'*", "Go and Redis")
		require.Len(t, search(t, l, "al:\"ice'*", "redis"), 1)
		rapid.Check(t, func(rt *rapid.T) {
			_, err := l.SearchPassages(t.Context(), "al:\"ice'*", rapid.String().Draw(rt, "query"), 5)
			require.NoError(rt, err)
			a, err := l.PutAsset(t.Context(), berth.Asset{
				UserID: "fuzz", Kind: berth.AssetText, Content: []byte(rapid.String().Draw(rt, "text")),
			})
			require.NoError(rt, err)
			require.NoError(rt, l.ClaimAssets(t.Context(), "fuzz", map[string]string{"resume": a.ID}, evidence))
		})
	})
}

func TestClaimAssets_LongText_PassagesBounded(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		id := putText(t, l, "alice", strings.Repeat(strings.Repeat("wort ", 60)+".\n\n", maxPassages+50)+" zuletzt")
		var n int
		require.NoError(t, l.read.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM passages WHERE asset_id = $1`, id).Scan(&n))
		require.Equal(t, maxPassages, n)
		require.Empty(t, search(t, l, "alice", "zuletzt"))
		_, err := l.write.ExecContext(t.Context(), `DELETE FROM assets WHERE id = $1`, id)
		require.NoError(t, err)
		require.Empty(t, search(t, l, "alice", "wort"), "the index entries are deleted with the asset")
	})
}
