package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTerms_Requirement_SplitsIntoWhatCanBeLookedFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Strong knowledge of Go and PostgreSQL": {"Go", "PostgreSQL"},
		"精通 Go 或 Java，熟悉 MySQL、Redis":           {"Go", "Java", "MySQL", "Redis"},
		"Docker and Kubernetes in production":   {"Docker", "Kubernetes in production"},
		"具备良好的沟通能力和团队协作精神。":                     {"沟通能力", "团队协作精神"},
		"5+ years of experience in sales":       {"5+ years of experience in sales"},
		"C++ or C#":                             {"C++", "C#"},
		"...":                                   nil,
	} {
		require.Equal(t, want, terms(text), text)
	}
}

func TestBest_LinesOfAResume_NamesMustOccur(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		term, line string
		want       bool
	}{
		{"Kafka", "Ran Kafka for a year", true},
		{"Go", "go to market with Google", false},
		{"Go", "Services in Go.", true},
		{"Java", "JavaScript only", false},
		{"C++", "C and C#", false},
		{"Node.js", "Wrote Node.js services", true},
		{"Kubernetes in production", "Services in production", false},
		{"distributed systems", "logistics systems", false},
		{"microservices", "one microservice", true},
		{"微服务架构", "将单体系统拆分为微服务", true},
		{"分布式系统", "将单体系统拆分为微服务", false},
	} {
		_, ok := best(words(c.term), []line{{text: c.line}})
		require.Equal(t, c.want, ok, "%s in %q", c.term, c.line)
	}
}

func TestReadLines_Examples_FindsTheirSections(t *testing.T) {
	t.Parallel()
	en := readLines(string(example(t, "posting-en.txt")))
	require.Len(t, texts(en, duties), 5)
	require.Len(t, texts(en, requirements), 7)
	require.Len(t, texts(en, wishes), 2)
	require.Equal(t, []string{"Senior Backend Engineer", "Harbourline Systems", "Rotterdam, Netherlands (hybrid)"}, readFacts(en).head)
	require.Equal(t, "75,000 to 95,000 EUR", readFacts(en).named["salary"])
	zh := readLines(string(example(t, "posting-zh.txt")))
	require.Len(t, texts(zh, duties), 5)
	require.Len(t, texts(zh, requirements), 6)
	require.Len(t, texts(zh, wishes), 2)
	require.Equal(t, "30000 至 45000 元", readFacts(zh).named["salary"])
	require.Empty(t, readLines(notices[0]+"\n_"+notices[1]+"_"), "notices are not content")
}

func TestNewEntry_PositionOrSchool_PartsAreRecognised(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"Software Engineer, Nordkap Pay, 2021 - present":                    {"title": "Software Engineer", "organisation": "Nordkap Pay", "period": "2021 - present"},
		"青禾支付 · 后端工程师 · 2021年至今":                                            {"title": "后端工程师", "organisation": "青禾支付", "period": "2021年至今"},
		"Bachelor of Science in Computer Science, Vättern University, 2018": {"institution": "Vättern University", "degree": "Bachelor of Science in Computer Science", "period": "2018"},
	} {
		e := newEntry(line{text: text})
		for _, name := range []string{"title", "institution", "organisation", "degree", "period"} {
			if v, ok := want[name]; ok {
				require.Equal(t, v, e.take(name), "%s of %s", name, text)
			}
		}
	}
}

func TestNames_Sentence_ReturnsProperNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Built Go services": {"Go"}, "GitHub Actions and gRPC": {"GitHub Actions", "gRPC"}, "We need no names": {},
		"使用 Spring Boot 开发": {"Spring Boot"},
	} {
		require.Equal(t, want, names(text), text)
	}
}

func TestSplitTokens_Joined_AreTheText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "Hello, world!  Two  spaces\n\nand 高级后端工程师 mixed ✅.", string(example(t, "posting-zh.txt")), string(example(t, "resume-en.txt")),
	} {
		tokens := splitTokens(text)
		require.Equal(t, text, strings.Join(tokens, ""))
		require.False(t, slices.Contains(tokens, ""))
		for _, tok := range tokens {
			wide := 0
			for _, r := range tok {
				if isCJK(r) {
					wide++
				}
			}
			require.LessOrEqual(t, wide, 2, tok)
		}
	}
}
