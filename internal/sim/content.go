package sim

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What a property is for, by words of any subject in its name.
var (
	proseNames = regexp.MustCompile(`(?i)summary|description|overview|abstract|answer|message|reply|text|content|body|translation|摘要|概述|总结|内容|回答|描述|正文|译文`)
	whyNames   = regexp.MustCompile(`(?i)reason|why|comment|rationale|理由|原因`)
	whereNames = regexp.MustCompile(`(?i)section|category|group|topic|chapter|类别|章节|分类|栏目`)
	listNames  = regexp.MustCompile(`(?i)\b(?:names|tags|keywords|terms|topics|labels)\b|名称|标签|关键词|话题`)
	lacking    = regexp.MustCompile(`(?i)missing|\bgaps?\b|\black|缺少|缺失|不足|薄弱`)
	judging    = regexp.MustCompile(`(?i)missing|gap|lack|change|suggest|recommend|strength|缺|不足|修改|建议`)
)

// sectionsOf chooses for each property of an object a section that is about it. For the outermost object it also chooses the document that the
// answer is about: the one with the most of them.
func (f *filler) sectionsOf(properties []property, at place) map[string]*section {
	if at.entry != nil {
		return nil
	}
	var best map[string]*section
	docs, most := f.docs, -1
	if at.path != "" {
		docs = []*document{f.subject}
	}
	for _, d := range docs {
		if found := assign(properties, d); len(found) >= most {
			best, most, f.subject = found, len(found), d
		}
	}
	return best
}

// assign chooses sections whose headings have words of a property's name, then of its description. Headings in a script in which no property is
// described are chosen by their lines.
func assign(properties []property, d *document) map[string]*section {
	properties = slices.DeleteFunc(slices.Clone(properties), func(p property) bool { return p.depth < 0 || judging.MatchString(p.name) })
	found, used := map[string]*section{}, map[*section]bool{}
	for _, text := range []func(property) string{func(p property) string { return spaced(p.name) }, func(p property) string { return p.about }} {
		for _, p := range properties {
			most := 0
			for _, sec := range d.sections {
				if n := overlap(words(text(p)), sec.words); n > most && !used[sec] && len(sec.lines) > 0 && (most > 0 || found[p.name] == nil) {
					found[p.name], most = sec, n
				}
			}
			if most > 0 {
				used[found[p.name]] = true
			}
		}
	}
	for _, sec := range d.sections {
		var best property
		for _, p := range properties {
			suits := map[shape]bool{prose: p.depth == 0 && proseNames.MatchString(p.name), list: p.depth == 1 || p.depth > 2, rows: p.depth == 2, groups: p.depth > 2}
			if suits[sec.shape] && found[p.name] == nil && !used[sec] && isChinese(sec.heading) != isChinese(p.name+p.about) && (best.name == "" || p.depth > best.depth) {
				best = p
			}
		}
		if best.name != "" && sec.heading != "" {
			found[best.name] = sec
		}
	}
	return found
}

// text returns what the source says for a text; false if it says nothing.
func (f *filler) text(at place) (string, bool) {
	if e := at.entry; e != nil {
		where := cmp.Or(e.place, e.heading)
		switch {
		case whereNames.MatchString(at.name) && where != "":
			return where, true
		case e.Compared && (whyNames.MatchString(at.name) || at.nth == 2):
			return f.render("reason", e), true
		case at.nth == 0:
			return e.Text, true
		case e.Compared && at.nth == 1:
			return e.Passage, e.Passage != ""
		}
		return "", false
	}
	switch {
	case at.section != nil:
		return strings.Join(first(5, at.section.texts()), " "), true
	case proseNames.MatchString(at.name):
		return strings.Join(first(5, f.subject.sentences()), " "), true
	}
	if head := f.subject.head(); f.heads[at.path] == "" && len(f.heads) < len(head) {
		f.heads[at.path] = head[len(f.heads)]
	}
	return f.heads[at.path], f.heads[at.path] != ""
}

// title returns a text for a place that has to have one.
func (f *filler) title(at place) string {
	if at.entry != nil {
		return at.entry.Text
	}
	return f.subject.title()
}

// entriesFor returns the items that the source has for a list.
func (f *filler) entriesFor(all schemas, at place) (out []entry) {
	what, depth := spaced(at.name)+" "+at.about, listDepth(all, 0)
	switch {
	case at.entry != nil:
		return asEntries(at.entry.below)
	case at.section != nil && at.section.shape == list && depth > 2:
		return []entry{{Text: at.section.heading, below: textsOf(at.section.entries(false))}}
	case at.section != nil:
		return at.section.entries(true)
	case lacking.MatchString(what) && len(f.docs) > 1:
		_, missing := split(f.compare(words(what)))
		return asEntries(missing)
	case listNames.MatchString(what):
		return asEntries(f.subject.names())
	case len(f.docs) > 1 && depth == 2:
		return slices.DeleteFunc(f.compare(words(what)), func(e entry) bool { return !e.OK })
	}
	return nil
}

// names returns the names in the lists of a text, else in all lines.
func (d *document) names() (out []string) {
	for _, lists := range []bool{true, false} {
		for _, sec := range d.sections {
			for _, l := range sec.lines {
				for _, name := range names(l.text) {
					if (l.bullet || !lists) && len(out) < maxItems && !slices.Contains(out, name) {
						out = append(out, name)
					}
				}
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

var number = regexp.MustCompile(`\d{1,15}(?:[.]\d{1,6})?`)

// numberIn returns the first number in a text; nil for none.
func numberIn(text string) []float64 {
	n, err := strconv.ParseFloat(number.FindString(strings.ReplaceAll(text, ",", "")), 64)
	if err != nil {
		return nil
	}
	return []float64{n}
}

// number returns the number in a line that is about a place; nil for none.
func (f *filler) number(at place) []float64 {
	if at.entry != nil {
		return numberIn(at.entry.Text)
	}
	wanted := words(spaced(at.name))
	for _, sec := range f.subject.sections {
		for _, l := range sec.lines {
			if n := numberIn(l.text); n != nil && overlap(wanted, l.words) > 0 {
				return n
			}
		}
	}
	return nil
}
