package sim

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// facts are what the lines above the first heading say, as postings and résumés lay them out, and "name: value" lines.
type facts struct {
	head  []string
	named map[string]string
}

var (
	label      = regexp.MustCompile(`^([\pL ]{2,20})[:：]\s*(.+)$`)
	salary     = regexp.MustCompile(`(?i)\d[\d,.]*\s*(?:k|万|千)?\s*(?:-|–|~|to|至|到)\s*\d[\d,.]*\s*(?:k\b|万|千)?\s*(?:EUR|USD|GBP|CNY|元)`)
	employment = regexp.MustCompile(`(?i)full[- ]time|part[- ]time|freelance|internship|全职|兼职|实习`)
	part       = regexp.MustCompile(`\s*[·•|｜,，、]\s*|\s+[-–—@]\s+`)
)

func readFacts(lines []line) facts {
	f := facts{named: map[string]string{}}
	set := func(name, value string) {
		if f.named[name] == "" {
			f.named[name] = clip(value, maxQuote)
		}
	}
	for _, l := range lines {
		if m := label.FindStringSubmatch(l.text); m != nil && !l.bullet {
			set(strings.ToLower(m[1]), m[2])
		}
		set("salary", salary.FindString(l.text))
		set("employment", employment.FindString(l.text))
	}
	if title := f.named["title"]; title != "" { // a summary
		f.head = []string{title}
		return f
	}
	for i, text := range texts(lines, "")[:min(2, len(texts(lines, "")))] {
		parts := part.Split(text, 2)
		if i == 0 {
			parts = []string{strings.TrimRight(text, "。.")}
			set("title", parts[0])
			set("name", parts[0])
		} else {
			set("headline", text)
			set("company", parts[0])
			set("location", parts[len(parts)-1])
		}
		f.head = append(f.head, parts...)
	}
	set("headline", f.named["title"])
	return f
}

// entry is one item of a list: a line, cut into its parts, and the bullets below it.
type entry struct {
	text    string
	parts   []string
	bullets []string
	bullet  bool // the line is a bullet itself
	named   map[string]string
}

var (
	period = regexp.MustCompile(`(?i)(?:19|20)\d\d(?:[./年]\d{0,2}月?)?\s*(?:(?:-|–|—|~|to|至|到)\s*(?:present|now|today|今|(?:19|20)\d\d(?:[./年]\d{0,2}月?)?)|年?毕业)?`)
	// shapes match the part of an entry that a property means.
	shapes = map[string]*regexp.Regexp{
		"title":       regexp.MustCompile(`(?i)engineer|developer|manager|designer|analyst|architect|consultant|director|lead|intern|scientist|officer|assistant|工程师|开发|经理|设计师|分析师|架构师|顾问|总监|实习|专员|助理`),
		"institution": regexp.MustCompile(`(?i)university|college|school|institute|academy|大学|学院|学校`),
	}
)

func newEntry(l line) *entry {
	text := l.text
	e := &entry{text: text, bullet: l.bullet, named: map[string]string{"period": period.FindString(text)}}
	rest := strings.Trim(strings.Replace(text, e.named["period"], "", 1), " ,，·()（）")
	e.parts = part.Split(rest, -1)
	if len(e.parts) == 1 && strings.ContainsFunc(rest, isCJK) {
		e.parts = strings.Fields(rest)
	}
	return e
}

// take returns the part that a property means, once: the one of its shape, else all that are left.
func (e *entry) take(name string) string {
	if v, ok := e.named[name]; ok {
		return v
	}
	if shape := shapes[name]; shape != nil && len(e.parts) > 0 {
		i := max(slices.IndexFunc(e.parts, shape.MatchString), 0)
		v := e.parts[i]
		e.parts = slices.Delete(e.parts, i, i+1)
		return v
	}
	v := strings.Join(e.parts, " · ")
	e.parts = nil
	return v
}

// entries returns the items of a list about a topic, within an entry or of the whole source. A flat list has a line per
// item; else bullets belong to the line above them.
func (f *filler) entries(t topic, e *entry, flat bool) (out []*entry) {
	var plain []string
	switch {
	case e != nil && t == skills && len(e.bullets) == 0:
		plain = names(e.text)
	case e != nil:
		plain = e.bullets
	case t == strengths:
		for _, p := range f.where(true) {
			plain = append(plain, f.say("%s: “%s”", "%s：“%s”", p.term, p.found.text))
		}
	case t == gaps:
		for _, p := range f.where(false) {
			plain = append(plain, p.term)
		}
	case t == changes:
		for _, p := range f.where(true) {
			out = append(out, &entry{text: p.term, named: map[string]string{
				"section": cmp.Or(p.found.heading, p.term),
				"change":  f.say("Move up: “%s”", "前移：“%s”", p.found.text), "reason": f.say("The posting asks for %s.", "招聘信息要求 %s。", p.term),
			}})
		}
		return out
	case t == skills && !flat:
		return []*entry{{text: string(t), parts: []string{f.say("Skills", "技能")}, bullets: f.listed(t)}}
	case t == skills || t == languages:
		plain = f.listed(t)
	case t == "": // an unknown property
		plain = names(strings.Join(texts(f.subject, ""), ". "))
	default:
		for _, l := range f.subject {
			switch n := len(out); {
			case l.topic != t:
			case l.bullet && n > 0 && !flat && !out[0].bullet:
				out[n-1].bullets = append(out[n-1].bullets, l.text)
			default:
				out = append(out, newEntry(l))
			}
		}
		return out
	}
	for _, text := range plain {
		out = append(out, &entry{text: text, parts: []string{text}})
	}
	return out
}

// listed returns what the lines about a topic list, what the posting names first; for a posting without a list, the names
// in it.
func (f *filler) listed(t topic) []string {
	out := []string{}
	for _, text := range texts(f.subject, t) {
		out = append(out, part.Split(strings.TrimRight(text, "。."), -1)...)
	}
	if len(out) == 0 && t == skills {
		for _, text := range texts(f.subject, requirements, wishes) {
			out = append(out, slices.DeleteFunc(terms(text), func(s string) bool { return yearsIn(s) > 0 || len(s) > maxHeading })...)
		}
		for _, text := range texts(f.subject, duties) {
			out = append(out, names(text)...)
		}
		if len(out) == 0 {
			out = names(strings.Join(texts(f.subject, ""), " "))
		}
	}
	seen := map[string]bool{}
	out = slices.DeleteFunc(out, func(s string) bool { defer func() { seen[s] = true }(); return s == "" || seen[s] })
	wanted := strings.Join(texts(f.posting, requirements, wishes), " | ")
	slices.SortStableFunc(out, func(a, b string) int {
		return strings.Count(wanted, b)*min(len(f.profile), 1) - strings.Count(wanted, a)*min(len(f.profile), 1)
	})
	return out
}
