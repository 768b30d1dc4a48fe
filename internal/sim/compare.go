package sim

import (
	"slices"
	"strings"
)

// entry is one item of a list.
type entry struct {
	Text    string
	below   []string // its bullets
	heading string   // above it
	// The following is set if there is another document to compare the entry with.
	Compared bool
	OK       bool     // its words occur in the other document
	Passage  string   // the line of the other document with the most of them, if OK
	place    string   // the heading above the passage
	Absent   []string // names that do not occur in the other document
}

// entries returns the items of a section. Bullets belong to the line above them, or stand alone.
func (s *section) entries(nested bool) (out []entry) {
	for _, name := range s.series {
		out = append(out, entry{Text: name, heading: s.heading})
	}
	for _, l := range s.lines {
		switch n := len(out); {
		case s.series != nil || n >= maxItems || s.shape == groups && !nested && !l.bullet:
		case s.shape == groups && nested && l.bullet && n > 0:
			out[n-1].below = append(out[n-1].below, l.text)
		default:
			out = append(out, entry{Text: l.text, heading: s.heading})
		}
	}
	return out
}

// compare returns the entries of the list that the words name, or the rules, else of the first list, else the first sentences. It looks for each
// in the other document that the words name, if there is another one.
func (s *source) compare(wanted []string) (out []entry) {
	var from, other *document
	most := -1
	for _, some := range [][]string{wanted, words(clip(s.rules, maxRead))} {
		for _, d := range s.docs {
			for _, sec := range d.sections {
				if n := overlap(some, sec.words); n > most && (sec.shape == list || sec.shape == groups) {
					from, out, most = d, sec.entries(false), n
				}
			}
		}
		if most > 0 {
			break
		}
	}
	if from == nil {
		from, out = s.docs[0], asEntries(first(5, s.docs[0].sentences()))
	}
	most = -1
	for _, d := range s.docs {
		if n := overlap(wanted, d.words); d != from && n > most {
			other, most = d, n
		}
	}
	for i := range out {
		if other != nil {
			out[i].find(other)
		}
	}
	return out
}

// find looks for an entry in a document: all of its names must occur in one line, or more than half of its words if it has none.
func (e *entry) find(d *document) {
	e.Compared = true
	named, all := names(e.Text), words(e.Text)
	wanted := words(strings.Join(named, " "))
	least := len(wanted)
	if least == 0 {
		wanted, least = all, len(all)/2+1
	}
	occurring, most := wordSet{}, 0
	for _, sec := range d.sections {
		for _, l := range sec.lines {
			for _, w := range wanted {
				occurring[w] = occurring[w] || l.words[w]
			}
			n := overlap(wanted, l.words)
			if given := numberIn(l.text); given != nil && slices.Compare(given, numberIn(e.Text)) < 0 {
				continue // less than wanted
			}
			if score := 1000*n + overlap(all, l.words); n >= least && score > most {
				most, e.OK, e.Passage, e.place = score, true, l.text, sec.heading
			}
		}
	}
	for _, name := range named {
		if of := words(name); !e.OK && overlap(of, occurring) < len(of) {
			e.Absent = append(e.Absent, name)
		}
	}
}

// split returns the texts of the entries that were found, and of those that were not.
func split(all []entry) (found, missing []string) {
	for _, e := range all {
		if e.OK {
			found = append(found, e.Text)
		} else {
			missing = append(missing, e.Text)
		}
	}
	return found, missing
}

func textsOf(all []entry) (out []string) {
	for _, e := range all {
		out = append(out, e.Text)
	}
	return out
}

func asEntries(texts []string) (out []entry) {
	for _, text := range texts {
		out = append(out, entry{Text: text})
	}
	return out
}
