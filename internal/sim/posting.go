package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"berth"
)

// posting is what plain rules find in the text, or the JSON summary, of a job posting.
type posting struct {
	title, company, location, salary, about string
	responsibilities, mustHave, niceToHave  []string
	// required decides the score; preferred is what the posting would like, or mentions among the duties.
	required, preferred []requirement
	skills              []*skill // all that are named, in the posting's order
}

// requirement is one checkable thing a posting asks for: one of some skills, years, a degree, or a plain line.
type requirement struct {
	anyOf  []*skill
	years  int
	degree int
	duty   bool   // named among the duties, not asked for
	text   string // the posting's own line
}

// name is the requirement in a locale: the skills' names, or the posting's line.
func (r requirement) name(l berth.Locale) string {
	if len(r.anyOf) == 0 {
		return r.text
	}
	names := make([]string, len(r.anyOf))
	for i, s := range r.anyOf {
		names[i] = s.name(l)
	}
	return strings.Join(names, " / ")
}

func parsePosting(text string) posting {
	d := parseDocument(text)
	p := posting{
		title:            d.label("title", "job title", "position", "职位", "岗位", "职位名称", "岗位名称", "招聘岗位"),
		company:          d.label("company", "employer", "公司", "公司名称"),
		location:         d.label("location", "place", "地点", "工作地点", "工作地址", "城市"),
		salary:           d.label("salary", "compensation", "薪资", "薪酬", "月薪"),
		responsibilities: texts(d.in(secResponsibilities)),
		mustHave:         texts(d.in(secRequirements, secExperience, secEducation)),
		niceToHave:       texts(d.in(secPreferred)),
		about:            strings.Join(texts(d.in(secAbout)), " "),
	}
	p.readHead(d)
	if p.salary == "" {
		for _, l := range d.in(secOffer, secTop) {
			if m := salaryPattern.FindString(l.text); m != "" {
				p.salary = strings.TrimSpace(m)
				break
			}
		}
	}

	candidates := slices.Concat(dictionary, p.terms(d))
	must := p.mustHave
	if len(must) == 0 {
		must = texts(d.in(secSkills))
	}
	if len(must) == 0 && len(p.responsibilities) == 0 {
		must = texts(d.in(secTop, secAbout, secOther))
	}
	seen := map[string]bool{}
	p.required = requirements(must, candidates, len(p.mustHave) > 0, seen)
	p.preferred = requirements(p.niceToHave, candidates, false, seen)
	for _, q := range requirements(p.responsibilities, candidates, false, seen) {
		q.duty = true
		p.preferred = append(p.preferred, q)
	}
	p.preferred = append(p.preferred, requirements(texts(d.in(secSkills)), candidates, false, seen)...)
	for _, m := range mentions(strings.Join(slices.Concat(
		must, p.niceToHave, texts(d.in(secSkills)), p.responsibilities), "\n"), candidates) {
		p.skills = append(p.skills, m.skill)
	}
	return p
}

// readHead takes title, company and place from the lines above the first heading, as postings lay them out:
// the title, then "company · place".
func (p *posting) readHead(d document) {
	for _, l := range d.in(secTop) {
		if l.bullet || strings.ContainsAny(l.text, ":：") || len([]rune(l.text)) > 80 {
			continue
		}
		if p.title == "" {
			p.title = strings.TrimRight(l.text, "。.,，")
			continue
		}
		parts := headSeparator.Split(l.text, 2)
		if p.company == "" {
			p.company = strings.TrimSpace(parts[0])
			if p.location == "" && len(parts) == 2 {
				p.location = strings.TrimSpace(parts[1])
			}
			continue
		}
		if p.location == "" {
			p.location = l.text
		}
		break
	}
}

var (
	headSeparator = regexp.MustCompile(`\s*[·•|｜]\s*|\s+[-–—+*]\s+|\s*，\s*`)
	salaryPattern = regexp.MustCompile(
		`(?i)(?:[€$£¥]\s*)?\d[\d,.]*\s*(?:k|K|万|千)?\s*(?:-|–|—|~|to|至|到)\s*(?:[€$£¥]\s*)?\d[\d,.]*\s*(?:k\b|万|千)?\s*(?:EUR|USD|GBP|CNY|RMB|元|人民币)?(?:\s*/\s*[月年]|·\d+薪)?`)
	alternative = regexp.MustCompile(`(?i)^\s*(?:,?\s*or|或者?|/|／)\s*$`)
)

// requirements makes the checkable things of the lines. With plain, a line in which nothing is recognised is one
// by itself. seen keeps what was asked before from being asked twice.
func requirements(lines []string, candidates []*skill, plain bool, seen map[string]bool) []requirement {
	var out []requirement
	add := func(r requirement) {
		r.text = clip(r.text, longestQuote)
		if key := r.name(berth.LocaleEN); !seen[key] {
			seen[key] = true
			out = append(out, r)
		}
	}
	for _, text := range lines {
		found := false
		if n := yearsIn(text); n > 0 {
			add(requirement{years: n, text: text})
			found = true
		}
		if level := degreeIn(text); level > 0 {
			add(requirement{degree: level, text: text})
			found = true
		}
		ms := mentions(text, candidates)
		for i := 0; i < len(ms); {
			group := []*skill{ms[i].skill}
			j := i + 1
			for j < len(ms) && ms[j-1].end <= ms[j].at && alternative.MatchString(text[ms[j-1].end:ms[j].at]) {
				group = append(group, ms[j].skill)
				j++
			}
			i = j
			found = true
			if len(group) == 1 && seen["skill "+group[0].en] {
				continue
			}
			for _, s := range group {
				seen["skill "+s.en] = true
			}
			add(requirement{anyOf: group, text: text})
		}
		if plain && !found {
			add(requirement{text: text})
		}
	}
	return out
}

var latinToken = regexp.MustCompile(`[A-Za-z][A-Za-z0-9.+#/_-]*[A-Za-z0-9+#]|[A-Z]`)

// notTerms are capitalised words that name no skill.
var notTerms = wordSet("I IT EU UK US USA EUR USD GBP CNY RMB HR CV OK Ltd Inc GmbH BSc MSc PhD MBA Bachelor Master " +
	"Bachelor's Master's Science Computer Engineering University Degree Must You We Our Your The An At In Or And Of For With To " +
	"Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August September " +
	"October November December Europe European API APIs B2B B2C SaaS KPI KPIs Senior Junior Strong Good Experience Knowledge")

// terms are the capitalised names among duties and requirements that the dictionary does not have, such as the
// name of a product. They are held against the résumé like any skill.
func (p posting) terms(d document) []*skill {
	skip := wordSet(p.company + " " + p.location)
	var out []*skill
	seen := map[string]bool{}
	for _, l := range d.in(secRequirements, secPreferred, secResponsibilities, secSkills) {
		known := mentions(l.text, dictionary)
		for _, span := range latinToken.FindAllStringIndex(l.text, -1) {
			word := l.text[span[0]:span[1]]
			if skip[word] || notTerms[word] || seen[word] || !properName(l, word, span[0]) {
				continue
			}
			inside := func(m mention) bool { return m.at < span[1] && span[0] < m.end }
			if slices.ContainsFunc(known, inside) || len(mentions(word, dictionary)) > 0 || negated(l.text[:span[0]]) {
				continue
			}
			seen[word] = true
			out = append(out, termSkill(word))
		}
	}
	return out
}

// properName tells whether a word is written like a name: capitals inside, or one at its start where English
// would not put it.
func properName(l line, word string, at int) bool {
	upper, inner := 0, false
	for i, r := range word {
		if unicode.IsUpper(r) {
			upper++
			inner = inner || i > 0
		}
	}
	if upper == 0 || len(word) < 2 {
		return false
	}
	if inner || l.section == secSkills {
		return true
	}
	before := strings.TrimRight(l.text[:at], " \"'“(（")
	return before != "" && !strings.HasSuffix(before, ".") && !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, ";")
}

func wordSet(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",，()（）", r) }) {
		out[w] = true
	}
	return out
}

var (
	yearsEN = regexp.MustCompile(`(?i)(\d{1,2}|\b(?:one|two|three|four|five|six|seven|eight|nine|ten))\s*(?:\+|plus)?\s*(?:(?:-|–|to)\s*\d{1,2}\s*)?(?:\+\s*)?(?:or more\s+)?years?\b`)
	yearsZH = regexp.MustCompile(`(\d{1,2}|[一二三四五六七八九十]{1,2})\s*(?:[-–—~至到]\s*\d{1,2}\s*)?年(?:及?以上|左右)?[^。；;\n]{0,24}?经验`)
)

var englishNumbers = map[string]int{
	"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
}

var chineseDigits = map[string]int{"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}

// yearsIn is the number of years of experience a line speaks of, 0 when none.
func yearsIn(text string) int {
	if m := yearsZH.FindStringSubmatch(text); m != nil {
		if n, ok := chineseDigits[m[1]]; ok {
			return n
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	lower := strings.ToLower(text)
	if m := yearsEN.FindStringSubmatch(text); m != nil && !strings.Contains(lower, "years old") &&
		(strings.Contains(lower, "experience") || strings.Contains(lower, "year")) {
		if n, ok := englishNumbers[strings.ToLower(m[1])]; ok {
			return n
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return 0
}

var degrees = []struct {
	level   int
	pattern *regexp.Regexp
}{
	{4, regexp.MustCompile(`(?i)\bph\.?d\b|doctorate|博士`)},
	{3, regexp.MustCompile(`(?i)\bmaster['’]s\b|\bmaster(?: degree| of (?:science|arts|engineering|business))|\bm\.?sc\b|\bmba\b|硕士|研究生`)},
	{2, regexp.MustCompile(`(?i)\bbachelor|\bb\.?sc\b|\bb\.?eng\b|本科|学士`)},
	{1, regexp.MustCompile(`(?i)\bassociate degree|\bvocational|大专|专科`)},
}

// degreeIn is the lowest degree a line names (1 college, 2 bachelor, 3 master, 4 doctor), 0 when none: "bachelor
// or master" asks for a bachelor.
func degreeIn(text string) int {
	low := 0
	for _, d := range degrees {
		if d.pattern.MatchString(text) {
			low = d.level
		}
	}
	return low
}

func texts(ls []line) []string {
	out := make([]string, 0, len(ls))
	for _, l := range ls {
		out = append(out, strings.TrimRight(l.text, "；;"))
	}
	return out
}
