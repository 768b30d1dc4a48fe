package sim

import (
	"cmp"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// What a property is for, by words of any subject in its name.
var (
	titleNames  = regexp.MustCompile(`(?i)\b(?:title|name|subject|headline|heading)\b|标题|名称|姓名|主题`)
	localeNames = regexp.MustCompile(`(?i)^(?:language|lang|locale)$|^语言$`)
	proseNames  = regexp.MustCompile(`(?i)\b(?:summary|description|overview|abstract|answer|about|explanation|message|reply|response|text|content|body|translation|result|report)\b|摘要|概述|总结|概要|内容|回答|答复|描述|正文|译文|翻译`)
	wholeNames  = regexp.MustCompile(`(?i)\b(?:text|content|body|translation)\b|内容|正文|译文|翻译`)
	quoteNames  = regexp.MustCompile(`(?i)\b(?:evidence|quote|quotation|passage|proof|excerpt|citation|source)\b|原文|引用|证据|依据|出处`)
	whyNames    = regexp.MustCompile(`(?i)\b(?:reason|why|because|comment|explanation|rationale|justification|remark)\b|理由|原因|备注`)
	whereNames  = regexp.MustCompile(`(?i)\b(?:section|category|group|topic|heading|chapter|part|area)\b|类别|章节|分类|分组|栏目`)
	adviceName  = regexp.MustCompile(`(?i)\b(?:change|action|suggestion|fix|recommendation|advice|todo|measure)\b|修改|建议|措施|动作`)
	foundNames  = regexp.MustCompile(`(?i)\b(?:strengths?|match(?:es|ed|ing)?|found|shared|common|covered|met|proven|present)\b|优势|符合|匹配|一致`)
	listsNames  = regexp.MustCompile(`(?i)\b(?:names|tags?|keywords?|entit(?:y|ies)|terms|topics?|labels?|categories)\b|名称|标签|关键词|话题`)
	shareNames  = regexp.MustCompile(`(?i)\b(?:score|rating|percent(?:age)?|match|confidence|ratio|share|similarity|coverage|probability)\b|评分|得分|分数|置信|比例`)
	countNames  = regexp.MustCompile(`(?i)\b(?:count|number of|total|how many)\b|数量|个数|总数`)
	yesWords    = []string{"yes", "true", "met", "found", "ok", "pass", "present", "matched", "full", "covered", "positive", "是", "有", "符合", "满足"}
	noWords     = []string{"no", "false", "missing", "fail", "absent", "unmet", "none", "not", "negative", "否", "无", "缺", "不符合", "不满足"}
)

// text returns what the source says for a text; false if it says nothing, with a text to use if there has to be one.
func (f *filler) text(at place) (string, bool) {
	name := spaced(at.name)
	if e := at.entry; e != nil {
		return f.entryText(e, at, name)
	}
	switch {
	case at.section != nil && proseNames.MatchString(name):
		return strings.Join(first(5, at.section.texts()), " "), true
	case at.section != nil:
		return strings.Join(at.section.texts(), " "), true
	case localeNames.MatchString(name):
		return languageOf(f.subject.body), true
	case titleNames.MatchString(name) && !proseNames.MatchString(name):
		return f.nextHead(at.path), true
	case wholeNames.MatchString(name):
		return clip(f.subject.text, maxText), true
	case proseNames.MatchString(name):
		return f.prose(), true
	}
	for _, d := range append([]*document{f.subject}, f.docs...) {
		if l := f.named(d, at.words); l != nil {
			return l.text, true
		}
	}
	if text, ok := f.heads[at.path]; ok {
		return text, true
	}
	if head := f.subject.head; len(f.heads) > 0 && len(f.heads) < len(head) {
		return f.nextHead(at.path), true
	}
	return f.other(at), false
}

// named returns the first line with all of the words, nil for none.
func (f *filler) named(d *document, wanted []string) *line {
	wanted = slices.Compact(slices.Sorted(slices.Values(wanted)))
	for _, sec := range d.sections {
		for i := range sec.lines {
			if n := f.overlap(wanted, sec.lines[i].words); n > 0 && n == len(wanted) {
				return &sec.lines[i]
			}
		}
	}
	return nil
}

// other returns a text for a place about which the source says nothing: a value with another name, a name, a sentence.
func (f *filler) other(at place) string {
	var values []string
	for _, sec := range f.subject.sections {
		if sec.inline && len(sec.lines) == 1 && !ownTitle.MatchString(sec.heading) {
			values = append(values, sec.lines[0].text)
		}
	}
	values = append(values, f.namesIn(f.subject)...)
	if len(values) == 0 {
		values = f.subject.said
	}
	if len(values) == 0 {
		return f.subject.title
	}
	if _, ok := f.others[at.path]; !ok {
		f.others[at.path] = len(f.others)
	}
	return values[f.others[at.path]%len(values)]
}

// entryText returns what an entry says for one of its texts.
func (f *filler) entryText(e *entry, at place, name string) (string, bool) {
	quotes := quoteNames.MatchString(name)
	switch {
	case e.compared && quotes:
		return e.Passage, e.Passage != ""
	case e.compared && whyNames.MatchString(name):
		return f.render("reason", e), true
	case e.compared && adviceName.MatchString(name):
		return f.render("advice-line", e), true
	case whereNames.MatchString(name) && cmp.Or(e.place, e.heading) != "" && at.nth == 0 && e.compared:
		return cmp.Or(e.place, e.heading), true
	case whereNames.MatchString(name) && e.heading != "" && at.nth > 0:
		return e.heading, true
	case at.nth == 0, quotes:
		return e.Text, true
	case e.compared && e.OK && quoteNames.MatchString(at.about):
		return e.Passage, true
	case e.compared && quoteNames.MatchString(at.about):
		return "", false
	case e.compared && whyNames.MatchString(at.about):
		return f.render("reason", e), true
	case at.nth <= len(e.bullets):
		return e.bullets[at.nth-1], false
	default:
		return "", false
	}
}

func (s *section) texts() (out []string) {
	for _, l := range s.lines {
		out = append(out, l.text)
	}
	return out
}

// nextHead returns the first line of the subject that no other place has used.
func (f *filler) nextHead(path string) string {
	if text, ok := f.heads[path]; ok {
		return text
	}
	text := f.subject.title
	if head := f.subject.head; len(f.heads) < len(head) {
		text = head[len(f.heads)]
	}
	f.heads[path] = text
	return text
}

// prose returns the first sentences of the subject.
func (f *filler) prose() string {
	for _, sec := range f.subject.sections {
		if said := sec.prose(); len(said) > 0 && sec.heading != "" {
			return strings.Join(first(5, said), " ")
		}
	}
	return strings.Join(first(3, f.subject.said), " ")
}

func first[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// entries returns the items that the source has for a list.
func (f *filler) entries(all []*jsonschema.Schema, at place) (out []entry) {
	k := kindOf(all)
	what := spaced(at.name) + " " + at.about
	switch {
	case at.entry != nil && at.entry.compared:
		return asEntries(at.entry.shared)
	case at.entry != nil:
		return asEntries(at.entry.bullets)
	case at.section != nil && (k == nestedKind || k == deepKind || k == recordsKind && at.section.shape == groups):
		return at.section.entries(true)
	case at.section != nil:
		return at.section.entries(false)
	}
	if len(f.docs) > 1 {
		found, missing := split(f.compare(f.explained(at), true))
		switch {
		case intents[lacking].MatchString(what):
			return missing
		case foundNames.MatchString(what), k > textsKind:
			return found
		}
	}
	switch {
	case intents[lacking].MatchString(what), foundNames.MatchString(what):
		return nil
	case listsNames.MatchString(what):
		return asEntries(f.namesIn(f.subject))
	case len(f.subject.sections) == 1 && f.subject.sections[0].heading == "":
		if out = entriesOf(f.subject, nil); len(out) > 1 {
			return first(5, out)
		}
		return asEntries(f.namesIn(f.subject))
	}
	return nil
}

// explained returns the words of what the schema and the prompt say about a property.
func (f *filler) explained(at place) []string {
	out := append(slices.Clone(at.words), f.words(at.about)...)
	if f.work -= min(len(f.rules), maxRead) / 4; at.name == "" || f.work < 0 {
		return out
	}
	for _, sentence := range f.orders(f.rules) {
		if strings.Contains(sentence, at.name) && !strings.Contains(sentence, `"`+at.name) && len(sentence) < maxAbout {
			out = append(out, f.words(sentence)...)
		}
	}
	return out
}

func sentencesOf(text string) []string {
	return strings.Split(sentenceEnd.ReplaceAllString(clip(text, maxRead), "$0\n"), "\n")
}

func asEntries(texts []string) (out []entry) {
	for _, text := range texts {
		out = append(out, entry{Text: text})
	}
	return out
}

// namesIn returns the names in the lists of a document, else in all of its lines.
func (s *source) namesIn(d *document) (out []string) {
	for _, bullets := range []bool{true, false} {
		for _, sec := range d.sections {
			for _, l := range sec.lines {
				if s.work--; !l.bullet && bullets {
					continue
				}
				for _, name := range s.names(l.text) {
					if s.work -= len(out); s.work < 0 || len(out) == maxItems {
						return out
					}
					if !slices.Contains(out, name) {
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

// spare returns texts for the items that a list must have beyond those that the source has for it.
func (f *filler) spare(n int) string {
	all := f.subject.said
	if n < len(all) {
		return all[n]
	}
	return ""
}

// number returns the number that the source has for a place, nil for none. A share is scaled to the highest that is allowed.
func (f *filler) number(at place, high *big.Rat) (*big.Rat, bool) {
	name := spaced(at.name)
	lines := f.subject.said
	if at.entry != nil {
		lines = append([]string{at.entry.Text}, at.entry.bullets...)
	}
	switch {
	case shareNames.MatchString(name):
		top := big.NewRat(100, 1)
		if high != nil && high.Sign() > 0 && high.Cmp(top) < 0 {
			top = high
		}
		percent := 50
		switch {
		case at.entry != nil && at.entry.compared && at.entry.OK:
			percent = 100
		case at.entry != nil && at.entry.compared:
			percent = 0
		case len(f.docs) > 1:
			percent = share(f.compare(f.explained(at), true))
		}
		return new(big.Rat).Mul(top, big.NewRat(int64(percent), 100)), true
	case countNames.MatchString(name):
		if sec := f.about(f.subject, at.words, nil); sec != nil {
			return big.NewRat(int64(len(sec.entries(false))), 1), true
		}
		return big.NewRat(int64(len(entriesOf(f.subject, nil))), 1), true
	}
	if f.work -= len(lines) * (2 + len(at.words)); f.work < 0 {
		return nil, false
	}
	for _, text := range lines {
		for _, q := range f.quantities(text) {
			if slices.Contains(at.words, q.unit) {
				return q.number, true
			}
		}
	}
	if at.section != nil && len(at.section.lines) == 1 {
		lines = at.section.texts()
	}
	for _, text := range lines {
		if at.entry == nil && at.section == nil && f.overlap(at.words, f.words(text)) == 0 {
			continue
		}
		for _, q := range f.quantities(text) {
			if q.unit == "" || at.section != nil && len(at.section.lines) == 1 {
				return q.number, true
			}
		}
	}
	return nil, false
}

// holds answers a question by yes or no: whether an entry was found, else whether the name's words occur.
func (f *filler) holds(at place) bool {
	if e := at.entry; e != nil && e.compared {
		return e.OK != intents[lacking].MatchString(spaced(at.name))
	} else if e != nil {
		return f.overlap(at.words, f.words(e.Text)) > 0
	}
	return f.named(f.subject, at.words) != nil
}

// ordered returns the values of an enum with the most fitting first.
func (f *filler) ordered(values []any, at place) []any {
	text := f.subject.text
	if at.entry != nil {
		text = at.entry.Text
	}
	in := f.words(clip(text, maxText))
	out := slices.Clone(values)
	worth := func(v any) int {
		s, ok := v.(string)
		if !ok {
			return 0
		}
		n := 2 * f.overlap(f.words(spaced(s)), in)
		if e := at.entry; e != nil && e.compared {
			for _, w := range strings.Fields(strings.ToLower(spaced(s))) {
				if slices.Contains(yesWords, w) && e.OK || slices.Contains(noWords, w) && !e.OK {
					n += 3
				}
			}
		}
		return n
	}
	slices.SortStableFunc(out, func(a, b any) int { return worth(b) - worth(a) })
	if len(f.docs) > 1 && at.entry == nil && (shareNames.MatchString(spaced(at.name)) || intents[concluding].MatchString(spaced(at.name))) {
		out = slices.Clone(values) // from the best to the worst, the usual order
		i := (100 - share(f.compare(nil, true))) * len(out) / 101
		out[0], out[i] = out[i], out[0]
	}
	n := at.variant % len(out)
	return slices.Concat(out[n:], out[:n])
}
