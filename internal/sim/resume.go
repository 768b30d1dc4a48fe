package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"berth"
)

// resume is what plain rules find in the text, or the JSON summary, of a résumé.
type resume struct {
	name, headline, summary string
	years                   int // as stated, else the span of years of the positions; 0 unknown
	yearsLine               string
	degree                  int
	degreeLine              string
	roles                   []role
	projects                []string
	schools                 []school
	languages               []string
	skills                  []*skill
	lines                   []line // what can be quoted
}

// role is one position.
type role struct {
	title, organisation, period string
	bullets                     []string
}

// school is one line of education.
type school struct{ institution, degree, period string }

// parseResume reads the résumé and, where there is one, its longer version: what either says counts as proof.
func parseResume(text, detailed string) resume {
	d := parseDocument(text)
	r := resume{
		name:     d.label("name", "姓名"),
		headline: d.label("title", "position", "求职意向", "应聘职位"),
		summary:  strings.Join(texts(d.in(secAbout)), " "),
		projects: texts(d.in(secProjects)),
		lines:    d.lines,
	}
	for _, l := range d.in(secLanguages) {
		r.languages = append(r.languages, strings.FieldsFunc(l.text, func(c rune) bool { return strings.ContainsRune(",;，、；", c) })...)
	}
	for _, l := range d.in(secTop) {
		if contact.MatchString(l.text) || strings.ContainsAny(l.text, ":：") || len([]rune(l.text)) > 60 {
			continue
		}
		switch {
		case r.name == "":
			r.name = l.text
		case r.headline == "":
			r.headline = l.text
		}
	}
	if strings.TrimSpace(detailed) != "" {
		r.lines = append(slices.Clone(d.lines), parseDocument(detailed).lines...)
	}
	r.readRoles(d.in(secExperience))
	r.readSchools(d.in(secEducation))
	r.readFacts()
	return r
}

var (
	contact = regexp.MustCompile(`@|https?://|\+?\d[\d \-]{7,}`)
	period  = regexp.MustCompile(`(?i)(?:(?:19|20)\d\d)(?:[./年]\d{0,2}月?|年)?\s*(?:-|–|—|~|to|至|到)\s*(?:present|now|today|current|至今|今|(?:19|20)\d\d(?:[./年]\d{0,2}月?|年)?)|(?:(?:19|20)\d\d)\s*年?\s*(?:至今|起|毕业|since)?`)
	year    = regexp.MustCompile(`(?:19|20)\d\d`)
	split   = regexp.MustCompile(`\s*[·|｜,，、]\s*|\s+[-–—@]\s+|\s+at\s+`)
	jobWord = regexp.MustCompile(`(?i)engineer|developer|manager|designer|analyst|architect|consultant|director|lead|intern|scientist|administrator|specialist|assistant|officer|teacher|工程师|开发|经理|主管|设计师|分析师|架构师|顾问|总监|实习|专员|助理|负责人|教师|科学家`)
)

// readRoles makes a position of every line of the experience part that is no bullet; bullets belong to the one above.
func (r *resume) readRoles(lines []line) {
	for i, l := range lines {
		if l.bullet {
			if len(r.roles) == 0 {
				r.roles = append(r.roles, role{title: r.headline})
			}
			last := &r.roles[len(r.roles)-1]
			last.bullets = append(last.bullets, l.text)
			continue
		}
		if i > 0 && len(r.roles) > 0 && period.FindString(l.text) == "" && !jobWord.MatchString(l.text) {
			last := &r.roles[len(r.roles)-1]
			if n := len(last.bullets); n > 0 && lines[i-1].bullet { // a wrapped bullet
				last.bullets[n-1] += " " + l.text
			} else {
				last.bullets = append(last.bullets, l.text)
			}
			continue
		}
		r.roles = append(r.roles, parseRole(l.text))
	}
}

func parseRole(text string) role {
	ro := role{period: strings.Trim(period.FindString(text), " ")}
	rest := strings.Replace(text, ro.period, "", 1)
	for _, part := range split.Split(strings.Trim(rest, " ·|,，()（）"), -1) {
		part = strings.Trim(part, " ()（）")
		switch {
		case part == "":
		case ro.title == "" && jobWord.MatchString(part):
			ro.title = part
		case ro.organisation == "":
			ro.organisation = part
		}
	}
	if ro.title == "" {
		ro.title, ro.organisation = ro.organisation, ""
	}
	if ro.title == "" {
		ro.title = text
	}
	return ro
}

func (r *resume) readSchools(lines []line) {
	for _, l := range lines {
		s := school{period: strings.Trim(year.FindString(l.text), " ")}
		rest := strings.TrimSuffix(strings.TrimSpace(period.ReplaceAllString(l.text, "")), "毕业")
		var degree []string
		for _, part := range schoolSplit.Split(rest, -1) {
			part = strings.TrimSpace(part)
			switch {
			case part == "":
			case degreeIn(part) > 0 && schoolWord.MatchString(part):
				// one line without separators, as in "X大学 Y专业 本科"
				words := strings.Fields(part)
				for _, w := range words {
					if schoolWord.MatchString(w) && s.institution == "" {
						s.institution = w
					} else {
						degree = append(degree, w)
					}
				}
			case schoolWord.MatchString(part) && s.institution == "":
				s.institution = part
			default:
				degree = append(degree, part)
			}
		}
		s.degree = strings.TrimSpace(strings.Join(degree, " "))
		if s.institution == "" {
			s.institution = l.text
		}
		r.schools = append(r.schools, s)
	}
}

var schoolSplit = regexp.MustCompile(`\s*[·|｜,，]\s*|\s{2,}`)

var schoolWord = regexp.MustCompile(`(?i)university|college|school|institute|academy|大学|学院|学校`)

// readFacts finds years, degree and skills with the lines that say them.
func (r *resume) readFacts() {
	first, last := 0, 0
	for _, l := range r.lines {
		if n := yearsIn(l.text); n > r.years && l.section != secEducation {
			r.years, r.yearsLine = n, l.text
		}
		if n := degreeHighest(l.text); n > r.degree {
			r.degree, r.degreeLine = n, l.text
		}
		if l.section != secExperience {
			continue
		}
		for _, y := range year.FindAllString(l.text, -1) {
			n, _ := strconv.Atoi(y)
			if first == 0 || n < first {
				first = n
				if r.years == 0 {
					r.yearsLine = l.text
				}
			}
			last = max(last, n)
		}
	}
	if r.years == 0 {
		r.years = last - first // the clock is not asked: the same input always gives the same answer
	}
	r.skills = r.known()
}

// known are the skills of the dictionary that the résumé proves, by the line that names them first.
func (r *resume) known() []*skill {
	whole := document{r.lines}.text()
	lower := lowerASCII(whole)
	var found []mention
	for _, s := range dictionary {
		if at, end := s.find(whole, lower); at >= 0 {
			if _, ok := r.proof(s); ok {
				found = append(found, mention{s, at, end})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b mention) int { return a.at - b.at })
	out := make([]*skill, len(found))
	for i, m := range found {
		out[i] = m.skill
	}
	return out
}

// degreeHighest is the highest degree a line names: who has a master need not name the bachelor.
func degreeHighest(text string) int {
	for _, d := range degrees {
		if d.pattern.MatchString(text) {
			return d.level
		}
	}
	return 0
}

// proofOrder prefers what somebody did over what somebody lists.
var proofOrder = []section{secExperience, secProjects, secAbout, secOther, secTop, secResponsibilities, secLanguages, secEducation, secSkills}

// proof is the line of the résumé that shows the skill best, word for word.
func (r *resume) proof(s *skill) (string, bool) {
	best, rank := "", len(proofOrder)+1
	for _, l := range r.lines {
		if i, _ := s.find(l.text, l.lower); i < 0 {
			continue
		}
		k := slices.Index(proofOrder, l.section)
		if k < 0 {
			k = len(proofOrder)
		}
		if k < rank {
			best, rank = l.text, k
		}
	}
	return best, best != ""
}

// overlap is the line of the résumé that shares most words with a requirement in which no skill is known, when
// it shares more than half of them.
func (r *resume) overlap(text string) (string, bool) {
	want := contentWords(text)
	if len(want) < 2 {
		return "", false
	}
	best, most := "", 0
	for _, l := range r.lines {
		have := contentWords(l.text)
		n := 0
		for w := range want {
			if have[w] {
				n++
			}
		}
		if n > most {
			best, most = l.text, n
		}
	}
	return best, most*2 > len(want)
}

var emptyWords = wordSet("a an and are as at be by for from good have in is of on or our strong the to we with you your " +
	"ability able excellent experience knowledge skills work working")

// contentWords are a text's words, lower case, and its pairs of Chinese characters.
func contentWords(text string) map[string]bool {
	out := map[string]bool{}
	var word []rune
	var before rune
	flush := func() {
		if w := string(word); len(w) > 1 && !emptyWords[w] {
			out[w] = true
		}
		word = word[:0]
	}
	for _, c := range text {
		switch {
		case isCJK(c):
			flush()
			if isCJK(before) {
				out[string([]rune{before, c})] = true
			}
		case unicode.IsLetter(c) || unicode.IsDigit(c):
			word = append(word, unicode.ToLower(c))
		default:
			flush()
		}
		before = c
	}
	flush()
	return out
}

func isCJK(r rune) bool {
	return unicode.Is(unicode.Han, r) || r >= 0x3040 && r <= 0x30ff || r >= 0xac00 && r <= 0xd7a3
}

func skillNames(skills []*skill, l berth.Locale) []string {
	out := make([]string, 0, len(skills))
	for _, s := range skills {
		out = append(out, s.name(l))
	}
	return out
}
