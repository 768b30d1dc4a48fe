package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth"
)

// The answers of the batch templates, in the shape of their schemas.

type jobSummaryAnswer struct {
	Title            string   `json:"title"`
	Company          *string  `json:"company"`
	Location         *string  `json:"location"`
	Employment       *string  `json:"employment"`
	Salary           *string  `json:"salary"`
	Summary          string   `json:"summary"`
	Responsibilities []string `json:"responsibilities"`
	MustHave         []string `json:"mustHave"`
	NiceToHave       []string `json:"niceToHave"`
	Skills           []string `json:"skills"`
}

type resumeSummaryAnswer struct {
	Name       *string          `json:"name"`
	Headline   string           `json:"headline"`
	Years      *int             `json:"yearsOfExperience"`
	Summary    string           `json:"summary"`
	Skills     []string         `json:"skills"`
	Experience []positionAnswer `json:"experience"`
	Education  []schoolAnswer   `json:"education"`
	Languages  []string         `json:"languages"`
}

// positionAnswer serves three schemas: a nil list is left out, an empty one is written.
type positionAnswer struct {
	Title        string              `json:"title"`
	Organisation *string             `json:"organisation"`
	Period       *string             `json:"period"`
	Highlights   []string            `json:"highlights,omitzero"`
	Bullets      []string            `json:"bullets,omitzero"`
	Achievements []achievementAnswer `json:"achievements,omitzero"`
}

type achievementAnswer struct {
	What   string   `json:"what"`
	Skills []string `json:"skills"`
}

type schoolAnswer struct {
	Institution string  `json:"institution"`
	Degree      *string `json:"degree"`
	Period      *string `json:"period"`
}

type skillGroupAnswer struct {
	Group  string   `json:"group"`
	Skills []string `json:"skills"`
}

type projectAnswer struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Skills      []string `json:"skills"`
}

var employmentPattern = regexp.MustCompile(`(?i)full[- ]time|part[- ]time|freelance|contract position|internship|全职|兼职|实习`)

func jobSummary(p posting, l berth.Locale) jobSummaryAnswer {
	a := jobSummaryAnswer{
		Title: clip(p.title, 300), Company: orNull(p.company), Location: orNull(p.location), Salary: orNull(p.salary),
		Responsibilities: list(p.responsibilities, 60), MustHave: list(p.mustHave, 60),
		NiceToHave: list(p.niceToHave, 60), Skills: list(skillNames(p.skills, l), 60),
	}
	a.Employment = orNull(employmentPattern.FindString(p.about + " " + p.location + " " + strings.Join(p.mustHave, " ")))
	if a.Title == "" {
		a.Title = say(l, "Position not named", "未写明职位")
	}
	if len(a.MustHave) == 0 {
		for _, q := range p.required {
			a.MustHave = append(a.MustHave, clip(q.name(l), 1000))
		}
		a.MustHave = list(a.MustHave, 60)
	}
	where := a.Title
	if p.company != "" {
		where = fmt.Sprintf(say(l, "%s at %s", "%[2]s招聘%[1]s"), a.Title, p.company)
	}
	if p.location != "" {
		where += say(l, ", ", "，工作地点：") + p.location
	}
	parts := []string{where + say(l, ".", "。")}
	if p.about != "" {
		parts = append(parts, clip(p.about, 1500))
	}
	parts = append(parts, fmt.Sprintf(say(l, "The posting lists %d requirements, %d wishes and %d duties.",
		"共列出 %d 条硬性要求、%d 条加分项和 %d 条职责。"), len(a.MustHave), len(a.NiceToHave), len(a.Responsibilities)), notice(l))
	a.Summary = strings.Join(parts, say(l, " ", ""))
	return a
}

func resumeSummary(r resume, l berth.Locale) resumeSummaryAnswer {
	a := resumeSummaryAnswer{
		Name: orNull(clip(r.name, 200)), Headline: headline(r, l), Summary: resumeText(r, l),
		Skills: list(skillNames(r.skills, l), 80), Education: schools(r), Languages: list(r.languages, 80),
		Experience: []positionAnswer{},
	}
	if r.years > 0 {
		n := min(r.years, 80)
		a.Years = &n
	}
	for _, ro := range r.roles[:min(len(r.roles), 40)] {
		p := position(ro)
		p.Highlights = list(ro.bullets, 4)
		a.Experience = append(a.Experience, p)
	}
	return a
}

func headline(r resume, l berth.Locale) string {
	h := r.headline
	if h == "" && len(r.roles) > 0 {
		h = r.roles[0].title
	}
	if h == "" {
		h = say(l, "Professional", "求职者")
	}
	if names := skillNames(r.skills[:min(len(r.skills), 4)], l); len(names) > 0 {
		h += say(l, ": ", "：") + strings.Join(names, say(l, ", ", "、"))
	}
	return clip(h, 300)
}

func resumeText(r resume, l berth.Locale) string {
	var parts []string
	if r.summary != "" {
		parts = append(parts, clip(r.summary, 1500))
	}
	if len(r.roles) > 0 {
		latest := r.roles[0]
		s := latest.title
		if latest.organisation != "" {
			s += say(l, " at ", "，") + latest.organisation
		}
		parts = append(parts, fmt.Sprintf(say(l, "%d positions, the first named: %s.", "共 %d 段经历，首先列出：%s。"), len(r.roles), clip(s, 400)))
	}
	if r.years > 0 {
		parts = append(parts, fmt.Sprintf(say(l, "About %d years of experience.", "约 %d 年经验。"), r.years))
	}
	return strings.Join(append(parts, notice(l)), say(l, " ", ""))
}

func schools(r resume) []schoolAnswer {
	out := []schoolAnswer{}
	for _, s := range r.schools[:min(len(r.schools), 20)] {
		out = append(out, schoolAnswer{clip(s.institution, 300), orNull(clip(s.degree, 300)), orNull(clip(s.period, 100))})
	}
	return out
}

func position(ro role) positionAnswer {
	return positionAnswer{
		Title: clip(ro.title, 300), Organisation: orNull(clip(ro.organisation, 300)), Period: orNull(clip(ro.period, 100)),
	}
}

var groupNames = map[string][2]string{
	"language": {"Programming languages", "编程语言"}, "framework": {"Frameworks", "框架"}, "data": {"Data", "数据"},
	"operations": {"Operations", "运维与云"}, "practice": {"Engineering practice", "工程实践"}, "ai": {"AI", "人工智能"},
	"business": {"Business", "业务"}, "soft": {"Soft skills", "软技能"}, "speech": {"Languages", "语言"},
}

type detailedAnswer struct {
	Name        *string            `json:"name"`
	Headline    string             `json:"headline"`
	Years       *int               `json:"yearsOfExperience"`
	Summary     string             `json:"summary"`
	SkillGroups []skillGroupAnswer `json:"skillGroups"`
	Experience  []positionAnswer   `json:"experience"`
	Projects    []projectAnswer    `json:"projects"`
	Education   []schoolAnswer     `json:"education"`
	Strengths   []string           `json:"strengths"`
	Gaps        []string           `json:"gaps"`
}

func detailedSummary(r resume, l berth.Locale) detailedAnswer {
	short := resumeSummary(r, l)
	a := detailedAnswer{
		Name: short.Name, Headline: short.Headline, Years: short.Years, Summary: short.Summary, Education: short.Education,
		SkillGroups: []skillGroupAnswer{}, Experience: []positionAnswer{}, Projects: []projectAnswer{},
		Strengths: []string{}, Gaps: []string{},
	}
	for _, s := range r.skills {
		name := say(l, groupNames[s.group][0], groupNames[s.group][1])
		i := slices.IndexFunc(a.SkillGroups, func(g skillGroupAnswer) bool { return g.Group == name })
		if i < 0 {
			a.SkillGroups = append(a.SkillGroups, skillGroupAnswer{Group: name})
			i = len(a.SkillGroups) - 1
		}
		a.SkillGroups[i].Skills = append(a.SkillGroups[i].Skills, s.name(l))
	}
	for _, ro := range r.roles[:min(len(r.roles), 40)] {
		p := position(ro)
		p.Achievements = []achievementAnswer{}
		for _, b := range list(ro.bullets, 30) {
			p.Achievements = append(p.Achievements, achievementAnswer{b, found(b, dictionary, l)})
		}
		if len(ro.bullets) == 0 {
			a.Gaps = append(a.Gaps, clip(fmt.Sprintf(say(l, "%s: no result is told.", "%s：没有写明成果。"), ro.title), 1000))
		}
		a.Experience = append(a.Experience, p)
	}
	for _, b := range list(r.projects, 30) {
		name, _, _ := strings.Cut(b, say(l, ":", "："))
		a.Projects = append(a.Projects, projectAnswer{clip(name, 300), b, found(b, dictionary, l)})
	}
	for _, s := range r.skills {
		text, _ := r.proof(s)
		if i := slices.IndexFunc(r.lines, func(ln line) bool { return ln.text == text }); i >= 0 && r.lines[i].section == secSkills {
			a.Gaps = append(a.Gaps, fmt.Sprintf(say(l, "%s is listed, but no position shows it.", "%s 只列在技能中，没有经历佐证。"), s.name(l)))
			continue
		}
		a.Strengths = append(a.Strengths, clip(fmt.Sprintf(say(l, "%s: “%s”", "%s：“%s”"), s.name(l), text), 1000))
	}
	a.Strengths, a.Gaps = list(a.Strengths, 20), list(a.Gaps, 20)
	return a
}

func found(text string, among []*skill, l berth.Locale) []string {
	out := []string{}
	for _, m := range mentions(text, among) {
		out = append(out, m.skill.name(l))
	}
	return out
}

type customizedAnswer struct {
	Headline   string           `json:"headline"`
	Summary    string           `json:"summary"`
	Skills     []string         `json:"skills"`
	Experience []positionAnswer `json:"experience"`
	Changes    []changeAnswer   `json:"changes"`
	Missing    []string         `json:"missing"`
}

type changeAnswer struct {
	Section string `json:"section"`
	Change  string `json:"change"`
	Reason  string `json:"reason"`
}

// customized reorders what the résumé says so that what the posting asks for comes first; it adds nothing.
func customized(m match, l berth.Locale) customizedAnswer {
	var wanted []*skill
	for _, f := range append(matchedOf(m.required), matchedOf(m.preferred)...) {
		wanted = append(wanted, f.met...)
	}
	first := func(s *skill) bool { return slices.Contains(wanted, s) }
	skills := slices.Clone(wanted)
	for _, s := range m.resume.skills {
		if !first(s) {
			skills = append(skills, s)
		}
	}
	names := skillNames(skills, l)
	a := customizedAnswer{
		Skills: list(names, 80), Experience: []positionAnswer{}, Changes: []changeAnswer{}, Missing: []string{},
	}
	target := m.posting.title
	if target == "" {
		target = say(l, "the position", "该职位")
	}
	r := m.resume
	r.skills = skills
	a.Headline = headline(r, l)
	a.Summary = clip(fmt.Sprintf(say(l, "For %s. ", "应聘：%s。"), target), 300) + resumeText(r, l)
	for _, ro := range m.resume.roles[:min(len(m.resume.roles), 40)] {
		p := position(ro)
		bullets := slices.Clone(ro.bullets)
		slices.SortStableFunc(bullets, func(x, y string) int { return len(mentions(y, wanted)) - len(mentions(x, wanted)) })
		p.Bullets = list(bullets, 80)
		if !slices.Equal(bullets, ro.bullets) {
			a.Changes = append(a.Changes, changeAnswer{
				Section: clip(ro.title, 300),
				Change:  say(l, "Put the points that show required skills first.", "把能证明所需技能的要点放在前面。"),
				Reason:  clip(say(l, "The posting asks for ", "招聘信息要求：")+strings.Join(found(bullets[0], wanted, l), say(l, ", ", "、")), 1000),
			})
		}
		a.Experience = append(a.Experience, p)
	}
	if len(wanted) > 0 {
		a.Changes = append(a.Changes, changeAnswer{
			Section: say(l, "Skills", "技能"),
			Change:  clip(say(l, "Named first: ", "优先列出：")+strings.Join(skillNames(wanted, l), say(l, ", ", "、")), 2000),
			Reason:  say(l, "Both the posting and the résumé name them.", "招聘信息与简历都提到。"),
		})
	}
	for _, f := range missingOf(m.required) {
		a.Missing = append(a.Missing, clip(f.name(l), 1000))
	}
	a.Missing = list(a.Missing, 80)
	a.Changes = a.Changes[:min(len(a.Changes), 60)]
	return a
}

// list is at most n of the texts that are not blank, each at most 1,000 characters; never nil.
func list(in []string, n int) []string {
	out := []string{}
	for _, s := range in {
		if s = strings.TrimSpace(s); s != "" && len(out) < n {
			out = append(out, clip(s, 1000))
		}
	}
	return out
}

func orNull(s string) *string {
	if s = strings.TrimSpace(s); s == "" {
		return nil
	}
	s = clip(s, 300)
	return &s
}
