package sim

import (
	"fmt"
	"slices"
	"strings"
)

// entry is one item of a list.
type entry struct {
	Text    string
	bullets []string // below it
	heading string   // above it
	// The following is set if there is another document to compare the entry with.
	compared bool
	OK       bool     // its words occur in the other document
	Passage  string   // the line of the other document with the most of them, if ok
	place    string   // the heading above the passage
	shared   []string // the names, or words, that occur
	Absent   []string // those that do not
}

const (
	maxEntries = 60
	maxItems   = 100
)

// compare returns the entries of the list that the wanted words name, else of the first document with lists, and looks for
// each in the documents of another kind. Without another document the entries are not compared.
//
// With strict, the wanted words name a list only if they are the heading of one.
func (s *source) compare(wanted []string, strict bool) []entry {
	key := fmt.Sprint(strict, wanted)
	if found, ok := s.compared[key]; ok || s.work <= 0 {
		return found
	}
	kinds := s.kinds()
	from, sec := s.listed(kinds, wanted, strict)
	var out []entry
	for _, d := range kinds[from] {
		if out = entriesOf(d, sec); len(out) > 0 {
			break
		}
	}
	if len(kinds) > 1 {
		others := kinds[s.reference(kinds, from, wanted)]
		for i := range out {
			s.find(&out[i], others)
		}
	}
	s.compared[key] = out
	return out
}

// kinds groups the documents whose names share a word: they are versions of one another.
func (s *source) kinds() [][]*document {
	var out [][]*document
	for _, d := range s.docs {
		i := slices.IndexFunc(out, func(kind []*document) bool { return s.overlap(kind[0].name, d.name) > 0 })
		if i < 0 {
			out = append(out, []*document{d})
		} else {
			out[i] = append(out[i], d)
		}
	}
	if len(out) > 1 {
		return out
	}
	out = nil
	for _, d := range s.docs {
		out = append(out, []*document{d})
	}
	return out
}

// listed returns the kind of documents with the list that the words name, and its section; else the first kind with a list.
func (s *source) listed(kinds [][]*document, wanted []string, strict bool) (kind int, best *section) {
	most := 0
	for k, docs := range kinds {
		for _, d := range docs {
			for _, sec := range d.sections {
				if n := s.overlap(sec.words, wanted); n > most && len(sec.lines) > 0 && (!strict || sec.shape != prose) {
					kind, best, most = k, sec, n
				}
			}
		}
	}
	if best != nil {
		return kind, best
	}
	kind = slices.IndexFunc(kinds, func(docs []*document) bool {
		return slices.ContainsFunc(docs, func(d *document) bool {
			return slices.ContainsFunc(d.sections, func(sec *section) bool { return sec.shape != prose })
		})
	})
	return max(kind, 0), nil
}

// reference returns the kind of documents that is not listed and that the words name best.
func (s *source) reference(kinds [][]*document, listed int, wanted []string) int {
	best, most := -1, -1
	for k, docs := range kinds {
		if n := s.overlap(docs[0].words, wanted); k != listed && n > most {
			best, most = k, n
		}
	}
	return best
}

// entriesOf returns the items of a section, else of all lists of a document, else its sentences.
func entriesOf(d *document, sec *section) (out []entry) {
	for _, s := range d.sections {
		switch sh := s.shape; {
		case s == sec, sec == nil && (sh == list || sh == groups):
			out = append(out, s.entries(false)...)
		}
	}
	if len(out) == 0 && sec == nil {
		for _, text := range d.said {
			out = append(out, entry{Text: text})
		}
	}
	return distinctEntries(out)
}

func distinctEntries(all []entry) (out []entry) {
	seen := map[string]bool{}
	for _, e := range all {
		if key := strings.ToLower(e.Text); !seen[key] && len(out) < maxEntries {
			seen[key] = true
			out = append(out, e)
		}
	}
	return out
}

// entries returns the items of a section. If they are nested, bullets belong to the line above them.
func (s *section) entries(nested bool) (out []entry) {
	sh := s.shape
	if sh == series {
		if nested {
			return []entry{{Text: s.heading, bullets: s.series, heading: s.heading}}
		}
		for _, name := range s.series {
			out = append(out, entry{Text: name, heading: s.heading})
		}
		return out
	}
	for _, l := range s.lines {
		switch n := len(out); {
		case nested && sh == groups && l.bullet && n > 0:
			out[n-1].bullets = append(out[n-1].bullets, l.text)
		case sh == groups && !nested && !l.bullet:
		default:
			out = append(out, entry{Text: l.text, heading: s.heading})
		}
	}
	return out
}

// find looks for an entry in the documents: all of its names must occur, or more than half of its words in one line if it has
// none. A line about a quantity must have at least as much.
func (s *source) find(e *entry, docs []*document) {
	e.compared = true
	named := s.words(strings.Join(s.names(e.Text), " "))
	all := s.words(e.Text)
	wanted := named
	if len(named) == 0 {
		wanted = all
	}
	amounts := slices.DeleteFunc(slices.Clone(s.quantities(e.Text)), func(q quantity) bool { return q.unit == "" || slices.Contains(stopWords, q.unit) })
	occurring, most := map[string]bool{}, 0
	for _, d := range docs {
		for _, sec := range d.sections {
			for _, l := range sec.lines {
				n := s.overlap(wanted, l.words)
				if n == 0 {
					continue
				}
				for _, w := range wanted {
					if slices.Contains(l.words, w) {
						occurring[w] = true
					}
				}
				if len(amounts) > 0 && !hasAmounts(s.quantities(l.text), amounts) {
					continue
				}
				if score := 1000*n + s.overlap(all, l.words); score > most {
					most, e.Passage, e.place = score, l.text, sec.heading
				}
			}
		}
	}
	for _, w := range wanted {
		switch {
		case len(named) == 0:
		case occurring[w]:
			e.shared = append(e.shared, w)
		default:
			e.Absent = append(e.Absent, w)
		}
	}
	e.OK = most > 0 && (len(named) > 0 && len(e.Absent) == 0 || len(named) == 0 && 2*(most/1000) > len(wanted))
	e.shared, e.Absent = s.written(e, e.shared), s.written(e, e.Absent)
	if !e.OK {
		e.Passage, e.place = "", ""
	}
}

// written returns the names of an entry with one of the words, as the entry writes them.
func (s *source) written(e *entry, some []string) (out []string) {
	for _, name := range s.names(e.Text) {
		if s.overlap(s.words(name), some) > 0 {
			out = append(out, name)
		}
	}
	return out
}

func hasAmounts(have, wanted []quantity) bool {
	return !slices.ContainsFunc(wanted, func(w quantity) bool {
		return !slices.ContainsFunc(have, func(h quantity) bool { return h.unit == w.unit && h.number.Cmp(w.number) >= 0 })
	})
}

// maxWork bounds how many words are compared with each other for one answer. Beyond it, nothing is found.
const maxWork = 50_000_000

// overlap counts the words of a that are in b.
func (s *source) overlap(a, b []string) (n int) {
	if s.work -= 1 + len(a)*len(b); s.work < 0 {
		return 0
	}
	for i, w := range a {
		if slices.Contains(b, w) && !slices.Contains(a[:i], w) {
			n++
		}
	}
	return n
}

// split returns the entries that were found, and those that were not.
func split(all []entry) (found, missing []entry) {
	for _, e := range all {
		if e.OK {
			found = append(found, e)
		} else {
			missing = append(missing, e)
		}
	}
	return found, missing
}

// share returns the found share of entries in percent; 0 of none.
func share(all []entry) int {
	found, _ := split(all)
	return 100 * len(found) / max(len(all), 1)
}

func textsOf(all []entry) (out []string) {
	for _, e := range all {
		out = append(out, e.Text)
	}
	return out
}
