package berth

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// maxLanguage is the maximum length of a language tag in bytes. RFC 5646, section 4.4.1, expects 35.
const maxLanguage = 64

// canonical makes the canonical form of a tag: current codes instead of deprecated ones (iw is he), two letters where a language has
// them, the macro language instead of its dominant one (cmn is zh), and no script that is the only one of its language.
const canonical = language.Default | language.SuppressScript | language.Macro

// Locales of programs that are not languages, and scripts as locales of POSIX name them.
var (
	programLocales = map[string]string{"C": "en", "POSIX": "en", "zh-CHS": "zh-Hans", "zh-CHT": "zh-Hant"}
	posixScripts   = map[string]string{"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab", "valencia": "valencia"}
)

// extended are the languages whose extended subtags are those of other languages, such as zh-yue (RFC 5646, section 2.2.2).
const extended = " ar kok lv ms sgn sw uz zh "

// ParseLanguage returns the canonical tag (BCP 47, RFC 5646) of a language as browsers, operating systems and users state it: pt-BR of
// pt_br and of pt_BR.UTF-8, he of iw. It keeps language, script, region and variants, and omits everything else. It
// returns CodeInvalid for the field where v names no language.
func ParseLanguage(field, v string) (string, error) {
	text := strings.TrimSpace(v)
	invalid := Invalid(field, "invalid language %.*q; use a BCP 47 tag such as en, pt-BR or zh-Hant", maxLanguage, v)
	if text == "" || len(text) > maxLanguage {
		return "", invalid
	}
	text, modifier, _ := strings.Cut(text, "@")
	text, _, _ = strings.Cut(text, ".")
	text = strings.ReplaceAll(text, "_", "-")
	for name, tag := range programLocales {
		if strings.EqualFold(name, text) {
			text = tag
		}
	}
	base, rest, _ := strings.Cut(text, "-")
	if part := posixScripts[strings.ToLower(modifier)]; len(part) == 4 {
		text = strings.TrimSuffix(base+"-"+part+"-"+rest, "-")
	} else if part != "" {
		text += "-" + part
	}
	if next, _, _ := strings.Cut(rest, "-"); len(next) == 3 && next[0] > '9' && !strings.Contains(extended, " "+strings.ToLower(base)+" ") {
		return "", invalid
	}
	tag, err := language.Raw.Parse(text)
	if err != nil {
		return "", invalid
	}
	if tag = canonicalTag(tag); !isLanguage(tag) {
		return "", invalid
	}
	return tag.String(), nil
}

// canonicalTag returns the canonical form of a tag without its extensions. Bokmål stays apart from Norwegian.
func canonicalTag(tag language.Tag) language.Tag {
	use := canonical
	if base, _, _ := tag.Raw(); base.String() == "nb" {
		use &^= language.Macro
	}
	tag, _ = use.Canonicalize(tag)
	base, script, region := tag.Raw()
	parts := []any{base}
	if script.String() != "Zzzz" {
		parts = append(parts, script)
	}
	if region.String() != "ZZ" {
		parts = append(parts, region)
	}
	plain, err := use.Compose(append(parts, tag.Variants())...)
	if err != nil {
		return language.Und // unreachable: the parts are valid
	}
	return plain
}

// isLanguage reports whether a tag names one language: special and private codes of ISO 639-2 do not.
func isLanguage(tag language.Tag) bool {
	base, _, _ := tag.Raw()
	switch code := base.String(); code {
	case "und", "mul", "mis", "zxx":
		return false
	default:
		return code < "qaa" || code > "qtz" || len(code) != 3
	}
}

// ParseLocale returns the locale of a language in any form that ParseLanguage reads. Which ones are supported is the templates' business.
func ParseLocale(field, v string) (Locale, error) {
	tag, err := ParseLanguage(field, v)
	return Locale(tag), err
}

// NearestLocale returns which of the declared locales serves a wanted one: the same, the same without variant, region or script, or the
// first of the same language; false if none does.
func NearestLocale(declared []Locale, wanted Locale) (Locale, bool) {
	for try := string(wanted); try != ""; try = try[:max(strings.LastIndexByte(try, '-'), 0)] {
		if slices.Contains(declared, Locale(try)) {
			return Locale(try), true
		}
	}
	base, _, _ := strings.Cut(string(wanted), "-")
	i := slices.IndexFunc(declared, func(l Locale) bool { return base != "" && strings.HasPrefix(string(l), base+"-") })
	if i < 0 {
		return "", false
	}
	return declared[i], true
}

// spoken is what of a language decides which nodes can translate it: the code and the script, so that zh-TW and zh-HK are zh-Hant, and
// zh, zh-CN and zh-SG are zh-Hans.
type spoken struct{ code, script string }

func spokenOf(tag language.Tag) spoken {
	base, _ := tag.Base()
	script, _ := tag.Script()
	code := base.String()
	if code == "nb" {
		code = "no"
	}
	return spoken{code, script.String()}
}

// difference returns how far a declared language is from a wanted one that is spoken alike: 0 if it is the same, 1 for another spelling
// of the same region, 2 for one without a region, 3 for another region.
func difference(declared, wanted language.Tag) int {
	full := func(t language.Tag) string {
		base, _ := t.Base()
		script, _ := t.Script()
		region, _ := t.Region()
		return base.String() + script.String() + region.String()
	}
	_, _, region := declared.Raw()
	switch {
	case declared == wanted:
		return 0
	case full(declared) == full(wanted):
		return 1
	case region.String() == "ZZ":
		return 2
	default:
		return 3
	}
}

// LanguagePair is a source and a target language: canonical tags, or codes of an earlier version.
type LanguagePair struct{ Src, Tgt string }

// pairKey is what of a pair decides which nodes can translate it.
type pairKey struct{ src, tgt spoken }

// parsedPair is a pair with its parsed tags.
type parsedPair struct {
	LanguagePair
	src, tgt language.Tag
}

func parsePair(p LanguagePair) (out parsedPair, ok bool) {
	src, err1 := language.Raw.Parse(p.Src)
	tgt, err2 := language.Raw.Parse(p.Tgt)
	return parsedPair{p, canonicalTag(src), canonicalTag(tgt)}, err1 == nil && err2 == nil
}

func (p parsedPair) key() pairKey { return pairKey{spokenOf(p.src), spokenOf(p.tgt)} }

// LanguageIndex finds the declared pairs that serve a wanted one. It is immutable.
type LanguageIndex map[pairKey][]parsedPair

// NewLanguageIndex returns the index of the language pairs among capabilities.
func NewLanguageIndex(capabilities []string) LanguageIndex {
	index := LanguageIndex{}
	for _, c := range capabilities {
		if declared, ok := PairOf(c); ok {
			if p, ok := parsePair(declared); ok {
				index[p.key()] = append(index[p.key()], p)
			}
		}
	}
	return index
}

// Find returns the declared pairs that serve a wanted one, in groups: the pairs of the first are the closest, those within a group equally
// close. A pair serves another one if both of its languages have the same code and script: pt and pt-PT serve pt-BR, zh does not serve
// zh-TW. Between variants of one language only the very pair does.
func (x LanguageIndex) Find(wanted LanguagePair) (groups [][]LanguagePair) {
	w, ok := parsePair(wanted)
	if !ok {
		return nil
	}
	byDistance := map[int][]LanguagePair{}
	for _, p := range x[w.key()] {
		d := max(difference(p.src, w.src), difference(p.tgt, w.tgt))
		if k := p.key(); k.src != k.tgt || d == 0 {
			byDistance[d] = append(byDistance[d], p.LanguagePair)
		}
	}
	for d := range 4 {
		if len(byDistance[d]) > 0 {
			groups = append(groups, byDistance[d])
		}
	}
	return groups
}
