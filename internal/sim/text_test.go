package sim

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTerms_Requirement_SplitsIntoWhatCanBeLookedFor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Strong knowledge of Go and PostgreSQL": {"Strong knowledge of Go", "PostgreSQL"},
		"精通 Go 或 Java，熟悉 MySQL、Redis":           {"精通 Go", "Java", "熟悉 MySQL", "Redis"},
		"Docker and Kubernetes in production":   {"Docker", "Kubernetes in production"},
		"5+ years of experience in sales":       {"5+ years of experience in sales"},
		"C++ or C#":                             {"C++", "C#"},
		"...":                                   {},
	} {
		require.Equal(t, want, terms(text), text)
	}
}

func TestFind_LinesOfAResume_NamesMustOccur(t *testing.T) {
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
		{"5+ years of experience in sales", "6 years in sales", true},
		{"5+ years of experience in sales", "2 years in sales", false},
	} {
		_, ok := find(c.term, readLines(c.line))
		require.Equal(t, c.want, ok, "%s in %q", c.term, c.line)
	}
}

func TestReadLines_Examples_FindsTheirSections(t *testing.T) {
	t.Parallel()
	en := readLines(string(example(t, "posting-en.txt")))
	require.Len(t, texts(en, duties), 5)
	require.Len(t, texts(en, requirements), 7)
	require.Len(t, texts(en, wishes), 2)
	require.Equal(t, []string{"Senior Backend Engineer", "Harbourline Systems · Rotterdam, Netherlands (hybrid)"}, texts(en, ""))
	zh := readLines(string(example(t, "posting-zh.txt")))
	require.Len(t, texts(zh, duties), 5)
	require.Len(t, texts(zh, requirements), 6)
	require.Len(t, texts(zh, wishes), 2)
}

func TestNames_Sentence_ReturnsProperNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"GitHub Actions and gRPC": {"GitHub Actions", "gRPC"}, "We need no names": {}, "Strong Go skills": {"Go"},
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

func example(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../examples/" + name)
	require.NoError(t, err)
	return b
}
