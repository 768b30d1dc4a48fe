package sim

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outlineOf writes the sections of a text as heading[line|line], with * before bullets.
func outlineOf(text string) (out []string) {
	for _, s := range readSections(text, maxLines) {
		lines := []string{}
		for _, l := range s.lines {
			lines = append(lines, map[bool]string{true: "*"}[l.bullet]+l.text)
		}
		out = append(out, s.heading+"["+strings.Join(lines, "|")+"]")
	}
	return out
}

func TestReadSections_TextOfAnyKind_HeadingsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"blank lines":      {"A Title\n\nParts\n- one\n- two\n\nEnd\nIt ends.", []string{"[A Title]", "Parts[*one|*two]", "End[It ends.]"}},
		"no blank lines":   {"A Title\nParts\n• one\n• two\nEnd\nIt ends.", []string{"[A Title]", "Parts[*one|*two]", "End[It ends.]"}},
		"Markdown":         {"# A Title\n\n## Parts\n* one\n+ two\n1. three\n- [x] four\n\n**End**\nIt ends.", []string{"A Title[]", "Parts[*one|*two|*three|*four]", "End[It ends.]"}},
		"names of values":  {"From: Anna\nSubject: A lamp\n\nThe lamp is broken.", []string{"From[Anna]", "Subject[A lamp]", "[The lamp is broken.]"}},
		"colons elsewhere": {"See https://a.example/b: it is there.\nAt 12:30 it rains.", []string{"[See https://a.example/b: it is there.|At 12:30 it rains.]"}},
		"wrapped lines":    {"Text\n\nThe first sentence is wrapped at the end\nof its line. The second is not.", []string{"[Text|The first sentence is wrapped at the end of its line.|The second is not.]"}},
		"signature":        {"We met on Monday and spoke.\n\nRegards\nAnna", []string{"[We met on Monday and spoke.|Regards|Anna]"}},
		"Chinese":          {"标题\n\n【概述】设备正常。\n问题：\n1、温度过高；\n2.噪声较大。", []string{"[标题]", "概述[设备正常。]", "问题[*温度过高|*噪声较大。]"}},
		"Arabic":           {"تقرير\n\nملخص\nالجهاز يعمل بشكل جيد. هل هناك مشكلة؟ نعم۔\n\nالمشكلات:\n• حرارة عالية\n٢. ضوضاء", []string{"[تقرير]", "ملخص[الجهاز يعمل بشكل جيد.|هل هناك مشكلة؟|نعم۔]", "المشكلات[*حرارة عالية|*ضوضاء]"}},
		"Russian":          {"Отчёт\n\nИтоги\nПрибор работает.\n\nЗадачи\n- Заменить насос", []string{"[Отчёт]", "Итоги[Прибор работает.]", "Задачи[*Заменить насос]"}},
		"Japanese":         {"報告書\n\n概要\n装置は正常です。\n\n課題\n・温度が高い\n・騒音が大きい", []string{"[報告書]", "概要[装置は正常です。]", "課題[*温度が高い|*騒音が大きい]"}},
		"Hindi":            {"रिपोर्ट\n\nसार\nयंत्र ठीक है।\n\nकाम\n1. पंप बदलें", []string{"[रिपोर्ट]", "सार[यंत्र ठीक है।]", "काम[*पंप बदलें]"}},
		"emoji":            {"🚀 Launch\n\n🎯 Goals\n✅ Ship it 🎉\n✅ Rest 😴", []string{"[🚀 Launch]", "🎯 Goals[*Ship it 🎉|*Rest 😴]"}},
		"emoji alone":      {"🎉🎉🎉", []string{"[🎉🎉🎉]"}},
		"empty":            {"\n \n", []string{"[]"}},
	} {
		require.Equal(t, c.want, outlineOf(c.text), name)
	}
}

func TestReadSections_Examples_FindsTheirLists(t *testing.T) {
	t.Parallel()
	bullets := func(name string) (out []int) {
		for _, s := range readSections(string(exampleFile(t, name)), maxLines) {
			n := 0
			for _, l := range s.lines {
				if l.bullet {
					n++
				}
			}
			out = append(out, n)
		}
		return out
	}
	require.Equal(t, []int{0, 0, 5, 7, 2, 0}, bullets("posting-en.txt"))
	require.Equal(t, []int{0, 0, 5, 6, 2, 0}, bullets("posting-zh.txt"))
	require.Equal(t, []int{0, 0, 8, 0, 0, 0}, bullets("resume-en.txt"))
	require.Equal(t, []int{0, 0, 8, 0, 0}, bullets("resume-zh.txt"))
}

func TestFlatten_JSON_NamesAreHeadings(t *testing.T) {
	t.Parallel()
	text, ok := flatten(`{"title":"A lamp","dueDate":"2026-01-02","parts":["one",2,{"name":"three","ok":true}],"none":null}`)
	require.True(t, ok)
	require.Equal(t, []string{"title[A lamp]", "due date[2026-01-02]", "parts[*one|*2]", "name[three]", "ok[true]", "none[]"}, outlineOf(text))
	for _, text := range []string{"no JSON", `{"a":`, "{}", `["a"]`} {
		_, ok := flatten(text)
		require.False(t, ok, text)
	}
}

func TestFind_EntryInALine_NamesAndQuantitiesMustOccur(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry, line string
		want        bool
	}{
		{"Kafka", "Ran Kafka for a year", true},
		{"Go", "go to market with Google", false},
		{"Go", "Services in Go.", true},
		{"Java", "JavaScript only", false},
		{"C++", "C and C#", false},
		{"Node.js", "Wrote Node.js services", true},
		{"Redis and Kafka", "Ran Redis", false},
		{"Docker and Kubernetes in production", "Docker in production", false},
		{"distributed systems", "logistics systems", false},
		{"microservices", "one microservice", true},
		{"微服务架构", "将单体系统拆分为微服务架构", true},
		{"分布式系统", "将单体系统拆分为微服务", false},
		{"5+ years in sales", "6 years in sales", true},
		{"5+ years in sales", "2 years in sales", false},
		{"Payment within 30 days", "Payment is due in 30 days", true},
		{"A limit of 500,000 EUR", "The limit is 100,000 EUR", false},
		{"三年以上经验, 3年", "5年以上经验，三年以上", true},
		{"Café in Malmö", "a cafe in Malmo", true},
		{"خبرة في البرمجة", "لديه خبرة طويلة في البرمجة", true},
		{"خبرة في البرمجة", "درس التاريخ", false},
		{"опыт работы с базами", "имеет опыт работы с базами", true},
		{"分散システムの経験", "分散システムの経験が長い", true},
		{"分散システムの経験", "料理が好き", false},
	} {
		e := entry{Text: c.entry}
		readSource(chatRequest{}, "text").find(&e, []*document{readDocument(enclosure{text: c.line}, maxLines)})
		require.Equal(t, c.want, e.OK, "%s in %q", c.entry, c.line)
		require.Equal(t, c.want, e.Passage != "")
	}
}

func TestNames_Sentence_ReturnsProperNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"GitHub Actions and gRPC": {"GitHub Actions", "gRPC"}, "We need no names": {}, "Strong Go skills": {"Go"}, "Docker and Kubernetes": {"Docker", "Kubernetes"},
		"Design and run services": {}, "Redis": {"Redis"}, "Anna Berg": {"Anna Berg"}, "It works. Ask Anna.": {"Anna"}, "使用 Spring Boot 开发": {"Spring Boot"},
	} {
		require.Equal(t, want, names(text), text)
	}
}

func TestWords_AnyScript_AreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, language string
		words          int
	}{
		{"Six words stand in this line", "en", 6},
		{"设备运行正常", "zh", 3},
		{"装置は正常です", "ja", 3},
		{"장치가 정상입니다", "ko", 2},
		{"الجهاز يعمل بشكل جيد", "ar", 4},
		{"המכשיר פועל", "he", 2},
		{"Прибор работает хорошо", "ru", 3},
		{"Η συσκευή λειτουργεί", "el", 3},
		{"यंत्र ठीक है", "hi", 3},
		{"เครื่องทำงาน", "th", 6},
		{"🎉 🎉", "en", 0},
		{"", "en", 0},
	} {
		require.Equal(t, c.words, wordCount(c.text), c.text)
		require.Equal(t, c.language, languageOf(c.text), c.text)
	}
}

func TestSplitTokens_Joined_AreTheText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "Hello, world!  Two  spaces\n\nand 高级后端工程师 mixed ✅.", string(exampleFile(t, "posting-zh.txt")), string(exampleFile(t, "resume-en.txt")),
	} {
		tokens := splitTokens(text)
		require.Equal(t, text, strings.Join(tokens, ""))
		require.False(t, slices.Contains(tokens, ""))
		for _, tok := range tokens {
			wide := 0
			for _, r := range tok {
				if isUnspaced(r) {
					wide++
				}
			}
			require.LessOrEqual(t, wide, 2, tok)
		}
	}
}

func exampleFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../examples/" + name)
	require.NoError(t, err)
	return b
}
