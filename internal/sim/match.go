package sim

import (
	"math"

	"berth"
)

// finding is one requirement held against a résumé.
type finding struct {
	requirement requirement
	matched     bool
	met         []*skill // of the alternatives, those the résumé proves
	evidence    string   // the résumé's line, word for word; empty when not matched
	hint        string   // a stored text of the same person that speaks of it, which is no proof
}

// match is a posting held against a résumé.
type match struct {
	posting   posting
	resume    resume
	required  []finding
	preferred []finding
}

// comparePosting finds the proof of every requirement. stored are further texts of the same person: what only they
// say counts as missing, with a hint. Lines that stand in the posting itself are no hint.
func comparePosting(p posting, r resume, jobText string, stored []string) match {
	m := match{posting: p, resume: r}
	own := map[string]bool{}
	for _, l := range parseDocument(jobText).lines {
		own[l.text] = true
	}
	var hints []line
	for _, s := range stored {
		for _, l := range parseDocument(s).lines {
			if !own[l.text] {
				hints = append(hints, l)
			}
		}
	}
	for _, q := range p.required {
		m.required = append(m.required, check(q, r, hints))
	}
	for _, q := range p.preferred {
		m.preferred = append(m.preferred, check(q, r, hints))
	}
	return m
}

func check(q requirement, r resume, hints []line) finding {
	f := finding{requirement: q}
	switch {
	case len(q.anyOf) > 0:
		for _, s := range q.anyOf {
			if text, ok := r.proof(s); ok {
				f.met = append(f.met, s)
				if f.evidence == "" {
					f.evidence = text
				}
			}
		}
		f.matched = len(f.met) > 0
		if !f.matched {
			f.hint = hint(q.anyOf, hints)
		}
	case q.years > 0:
		if f.matched = r.years >= q.years; f.matched {
			f.evidence = r.yearsLine
		}
	case q.degree > 0:
		if f.matched = r.degree >= q.degree; f.matched {
			f.evidence = r.degreeLine
		}
	default:
		f.evidence, f.matched = r.overlap(q.text)
		if !f.matched {
			f.evidence = ""
		}
	}
	f.evidence = clip(f.evidence, longestQuote)
	f.hint = clip(f.hint, longestQuote)
	return f
}

const longestQuote = 600 // characters; a marker line has a limit of its own

func hint(skills []*skill, hints []line) string {
	for _, l := range hints {
		for _, s := range skills {
			if i, _ := s.find(l.text, l.lower); i >= 0 {
				return l.text
			}
		}
	}
	return ""
}

// score is matched of required in per cent, 0-100; without anything required, 0.
func score(fs []finding) int {
	if len(fs) == 0 {
		return 0
	}
	return int(math.Round(100 * float64(len(matchedOf(fs))) / float64(len(fs))))
}

func matchedOf(fs []finding) []finding { return pick(fs, true) }
func missingOf(fs []finding) []finding { return pick(fs, false) }

func pick(fs []finding, matched bool) []finding {
	var out []finding
	for _, f := range fs {
		if f.matched == matched {
			out = append(out, f)
		}
	}
	return out
}

// name is the requirement as it is told: of alternatives that are met, those that are.
func (f finding) name(l berth.Locale) string {
	if f.matched && len(f.met) > 0 {
		return requirement{anyOf: f.met}.name(l)
	}
	return f.requirement.name(l)
}

// soft tells whether a requirement is of the soft or language kind.
func (f finding) soft() bool {
	for _, s := range f.requirement.anyOf {
		if s.group == "soft" || s.group == "speech" {
			return true
		}
	}
	return false
}

// hard tells whether a requirement is about other skills.
func (f finding) hard() bool { return len(f.requirement.anyOf) > 0 && !f.soft() }
