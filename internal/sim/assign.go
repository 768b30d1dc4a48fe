package sim

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kind is what the values of a schema are made of.
type kind int

const (
	otherKind kind = iota
	textKind
	textsKind   // a list of texts
	recordsKind // a list of objects
	nestedKind  // with lists in them
	deepKind    // with lists of objects in them
)

func kindOf(schemas []*jsonschema.Schema) kind {
	var a applied
	for _, s := range schemas {
		a.add(s)
	}
	for _, c := range a.choices { // the first that is not null
		if len(c) > 0 && len(c[0]) > 0 {
			a.add(c[0][0])
		}
	}
	switch {
	case allows(a.all, "string") && !allows(a.all, "object") && !allows(a.all, "array"):
		if _, listed := listedValues(a.all); listed {
			return otherKind
		}
		return textKind
	case !allows(a.all, "array"):
		return otherKind
	}
	var item applied
	for _, s := range itemSchemas(a.all, 0) {
		item.add(s)
	}
	if !allows(item.all, "object") || len(item.all) == 0 {
		return textsKind
	}
	found := recordsKind
	for _, s := range item.all {
		for _, sub := range s.Properties {
			var inner applied
			inner.add(sub)
			if allows(inner.all, "array") && slices.ContainsFunc(inner.all, func(s *jsonschema.Schema) bool { return s.Types != nil }) {
				found = max(found, nestedKind)
				if of := itemSchemas(inner.all, 0); len(of) > 0 && len(of[0].Properties) > 0 {
					found = deepKind
				}
			}
		}
	}
	return found
}

// suits returns how well the lines of a section suit a property; 0 not at all.
func suits(p property, sec *section) int {
	k, sh, sentences := p.kind, sec.shape, sec.said
	switch {
	case k == textKind && sentences && p.prose:
		return 6
	case k == deepKind && sh == groups:
		return 5
	case k == nestedKind && sh == groups:
		return 4
	case k == textsKind && (sh == list || sh == series), k == nestedKind && sh == series:
		return 3
	case k == recordsKind && (sh == prose && !sentences || sh == list):
		return 2
	}
	return 0
}

// sectionsOf chooses for each property of an object a section that is about it: one whose heading has words of the property's
// name, or of its description. Headings in a script in which no property is described are chosen by their lines.
// For the outermost object it also chooses the document that the answer is about.
func (f *filler) sectionsOf(properties []property, at place) map[string]*section {
	if at.entry != nil {
		return nil
	}
	if found, ok := f.chosen[at.path]; ok {
		return found
	}
	best, most := map[string]*section{}, -1
	subject := f.subject
	for _, d := range f.docs {
		if at.path != "" && d != f.subject {
			continue
		}
		if found, score := f.assign(properties, d); score > most {
			best, most, subject = found, score, d
		}
	}
	f.subject = subject
	for _, d := range f.docs { // what the subject does not have may be in another document
		for _, p := range properties {
			if best[p.name] == nil && d != subject && p.kind != textKind {
				if sec := f.about(d, p.words, nil); sec != nil {
					best[p.name] = sec
				}
			}
		}
	}
	f.chosen[at.path] = best
	return best
}

func (s *source) assign(properties []property, d *document) (found map[string]*section, score int) {
	found = map[string]*section{}
	used := map[*section]bool{}
	take := func(p property, sec *section, worth int) {
		if sec == nil {
			return
		}
		found[p.name] = sec
		score += worth
		used[sec] = used[sec] || p.kind != otherKind
	}
	for _, lists := range []bool{true, false} { // a number or a choice may be about the section of a list
		for _, p := range properties {
			if lists == (p.kind >= textsKind) {
				take(p, s.about(d, p.words, used), 10)
			}
		}
	}
	for _, p := range properties {
		if found[p.name] == nil && p.kind >= textsKind && !p.special {
			take(p, s.about(d, s.words(p.about), used), 5)
		}
	}
	const best = 6
	if s.work -= best * len(properties) * len(d.sections); s.work < 0 {
		return found, score
	}
	for worth := best; worth > 0; worth-- {
		for _, p := range properties {
			if found[p.name] != nil || p.special {
				continue
			}
			i := slices.IndexFunc(d.sections, func(sec *section) bool {
				return sec.heading != "" && !used[sec] && sec.zh != p.zh && suits(p, sec) == worth
			})
			if i >= 0 {
				take(p, d.sections[i], worth)
			}
		}
	}
	return found, score
}

var adviceNames = regexp.MustCompile(`(?i)\b(?:changes|actions|suggestions|fixes|recommendations)\b|修改|建议`)

// about returns the section that is not used whose heading has the most of the words, nil for none.
func (s *source) about(d *document, wanted []string, used map[*section]bool) (best *section) {
	most := 0
	for _, sec := range d.sections {
		if n := s.overlap(sec.words, wanted); n > most && !used[sec] && len(sec.lines) > 0 {
			best, most = sec, n
		}
	}
	return best
}

func aboutOf(schemas []*jsonschema.Schema) (about string) {
	var a applied
	for _, s := range schemas {
		a.add(s)
	}
	for _, s := range a.all {
		about = cmp.Or(about, strings.TrimSpace(s.Title+" "+s.Description))
	}
	return about
}

// whole takes a section as one entry.
func (s *section) whole() *entry {
	e := &entry{heading: s.heading}
	for _, l := range s.lines {
		if e.Text == "" {
			e.Text = l.text
		} else {
			e.bullets = append(e.bullets, l.text)
		}
	}
	return e
}
