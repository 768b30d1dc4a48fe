package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestMentions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want []string
	}{
		{"Strong Go and PostgreSQL", []string{"Go", "PostgreSQL"}},
		{"We go to market with Google", nil},
		{"Go to the office", nil},
		{"C++ and C# but no plain one", []string{"C++", "C#"}},
		{"JavaScript is not Java", []string{"JavaScript"}},
		{"Java, JavaScript", []string{"Java", "JavaScript"}},
		{"MySQL only", []string{"MySQL"}},
		{"GitHub Actions", []string{"GitHub Actions"}},
		{"Node.js and Vue.js", []string{"Node.js", "Vue"}},
		{"ASP.NET Core, .NET 8", []string{".NET"}},
		{"take a rest; rust never sleeps", nil},
		{"熟悉Kafka、Docker与机器学习", []string{"Kafka", "Docker", "machine learning"}},
		{"No Kafka experience needed", nil},
		{"no experience with Kafka, but Redis", []string{"Redis"}},
		{"不熟悉 Kafka，熟悉 Redis", []string{"Redis"}},
		{"Moved to PostgreSQL without downtime", []string{"PostgreSQL"}},
		{"Redis.", []string{"Redis"}},
		{"k8s/Docker", []string{"Kubernetes", "Docker"}},
	} {
		t.Run(c.text, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, m := range mentions(c.text, dictionary) {
				got = append(got, m.skill.en)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestDictionaryIsSound(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(dictionary), 150)
	owner := map[string]string{}
	for _, s := range dictionary {
		require.NotEmpty(t, groupNames[s.group][0], "group of %s", s.en)
		require.NotEmpty(t, s.en)
		require.NotEmpty(t, s.zh)
		for _, a := range s.aliases {
			key := strings.ToLower(a.text)
			if other, taken := owner[key]; taken {
				require.Equal(t, other, s.en, "alias %q belongs to two skills", a.text)
			}
			owner[key] = s.en
			at, end := s.find(a.text, lowerASCII(a.text))
			require.Equal(t, []int{0, len(a.text)}, []int{at, end}, "alias %q does not find itself", a.text)
		}
	}
}

func TestPostingFacts(t *testing.T) {
	t.Parallel()
	en := parsePosting(string(example(t, "posting-en.txt")))
	require.Equal(t, "Senior Backend Engineer", en.title)
	require.Equal(t, "Harbourline Systems", en.company)
	require.Equal(t, "Rotterdam, Netherlands (hybrid)", en.location)
	require.Equal(t, "75,000 to 95,000 EUR", en.salary)
	require.Len(t, en.responsibilities, 5)
	require.Len(t, en.mustHave, 7)
	require.Len(t, en.niceToHave, 2)

	zh := parsePosting(string(example(t, "posting-zh.txt")))
	require.Equal(t, "高级后端工程师", zh.title)
	require.Equal(t, "澜舟数据科技有限公司", zh.company)
	require.Equal(t, "杭州", zh.location)
	require.Equal(t, "30000 至 45000 元", zh.salary)
	require.Len(t, zh.responsibilities, 5)
	require.Len(t, zh.mustHave, 6)
	require.Equal(t, "Go / Java", zh.required[2].name(berth.LocaleZH), "alternatives are one requirement")
}

func TestTermsOutsideTheDictionary(t *testing.T) {
	t.Parallel()
	p := parsePosting("Platform Engineer\n\nRequirements\n- Knowledge of Foobase and QuuxDB2\n- No Zapstore needed\n- 熟悉 Wibble 平台")
	var names []string
	for _, q := range p.required {
		names = append(names, q.name(berth.LocaleEN))
	}
	for _, want := range []string{"Foobase", "QuuxDB2", "Wibble"} {
		require.Contains(t, names, want)
	}
	require.NotContains(t, names, "Zapstore")
}

func TestResumeFacts(t *testing.T) {
	t.Parallel()
	en := parseResume(string(example(t, "resume-en.txt")), "")
	require.Equal(t, "Mara Lindqvist", en.name)
	require.Equal(t, 6, en.years)
	require.Equal(t, 2, en.degree)
	require.Equal(t, []string{"Software Engineer", "Backend Developer"}, []string{en.roles[0].title, en.roles[1].title})
	require.Equal(t, "Nordkap Pay", en.roles[0].organisation)
	require.Equal(t, "2021 - present", en.roles[0].period)
	require.Len(t, en.roles[0].bullets, 5)
	require.Equal(t, school{"Vättern University", "Bachelor of Science in Computer Science", "2018"}, en.schools[0])

	zh := parseResume(string(example(t, "resume-zh.txt")), "")
	require.Equal(t, "林予安", zh.name)
	require.Equal(t, 6, zh.years)
	require.Equal(t, "云岭软件", zh.roles[1].organisation)
	require.Equal(t, school{"澜江大学", "计算机科学与技术 本科", "2018"}, zh.schools[0])
}

func TestYearsAndDegrees(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"5+ years of experience": 5, "3-5 years in sales": 3, "at least 7 years' experience": 7, "8年以上后端开发经验": 8,
		"五年以上工作经验": 5, "3到5年相关经验": 3, "founded 2019": 0, "20 million bookings a year": 0, "2018年毕业": 0,
	} {
		require.Equal(t, want, yearsIn(text), text)
	}
	for text, want := range map[string]int{
		"Bachelor's or Master's degree": 2, "硕士及以上学历": 3, "本科": 2, "PhD in physics": 4, "Scrum master": 0, "a master of none": 0, "Master of Science": 3,
	} {
		require.Equal(t, want, degreeIn(text), text)
	}
}

func TestSummaryReadsLikeItsText(t *testing.T) {
	t.Parallel()
	for _, l := range []berth.Locale{berth.LocaleEN, berth.LocaleZH} {
		text := parsePosting(string(example(t, "posting-"+string(l)+".txt")))
		a, err := jsonAnswer(chatRequest{}, jobSummary(text, l), "")
		require.NoError(t, err)
		again := parsePosting(a.text)
		require.Equal(t, text.title, again.title)
		require.Equal(t, text.company, again.company)
		require.Equal(t, text.mustHave, again.mustHave)
		names := func(qs []requirement) (out []string) {
			for _, q := range qs {
				out = append(out, q.name(l))
			}
			return out
		}
		require.Equal(t, names(text.required), names(again.required))
		require.NotContains(t, again.about, "stand-in", "what the stand-in says of itself is no content")
	}
}

func TestTokensAreTheTextAgain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "Hello, world!  Two  spaces\n\nand 高级后端工程师 mixed ✅.", string(example(t, "posting-zh.txt")), string(example(t, "resume-en.txt")),
	} {
		tokens := cutTokens(text)
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
