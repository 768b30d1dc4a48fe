package berth

import (
	"regexp"
	"slices"
	"strings"
)

var capabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

const translatePrefix = "translate:"

// ParseCapability returns a capability in its canonical form, and CodeInvalid for the field unless v can be one. After `translate:` a
// language pair is required, whose form is that of TranslateCapability; the parts of a tag may also be joined by a hyphen where that is
// unambiguous.
func ParseCapability(field, v string) (string, error) {
	if !capabilityPattern.MatchString(v) {
		return "", Invalid(field, "%.80q: must be 1 to 128 letters, digits and ._:/-, and start with a letter or digit", v)
	}
	text, ok := strings.CutPrefix(v, translatePrefix)
	if !ok {
		return v, nil
	}
	pairs, err := readPairs(text)
	switch len(pairs) {
	case 1:
		return TranslateCapability(pairs[0].Src, pairs[0].Tgt), nil
	case 0:
		return "", Invalid(field, "%q: must be a language pair such as translate:zh-en or translate:en-pt_BR", v).With(err)
	default:
		return "", Invalid(field, "%q is ambiguous; join the parts of a language with _, as in %s", v, TranslateCapability(pairs[0].Src, pairs[0].Tgt))
	}
}

// readPairs returns the language pairs that a text can mean, and an error where it can mean none.
func readPairs(text string) (pairs []LanguagePair, err error) {
	parts := strings.Split(text, "-")
	for i := 1; i < len(parts); i++ {
		src, srcErr := ParseLanguage("", strings.Join(parts[:i], "-"))
		tgt, tgtErr := ParseLanguage("", strings.Join(parts[i:], "-"))
		switch {
		case srcErr != nil:
			err = srcErr
		case tgtErr != nil:
			err = tgtErr
		default:
			pairs = append(pairs, LanguagePair{src, tgt})
		}
	}
	return pairs, err
}

// TranslateCapability returns the capability of a language pair, such as translate:zh-en. Hyphens within a tag become underscores, so that
// the one between the languages is the only one: translate:en-pt_BR.
func TranslateCapability(src, tgt string) string {
	return translatePrefix + strings.ReplaceAll(src, "-", "_") + "-" + strings.ReplaceAll(tgt, "-", "_")
}

// PairOf returns the languages of a capability that TranslateCapability, also that of an earlier version, has made.
func PairOf(capability string) (p LanguagePair, ok bool) {
	pair, ok := strings.CutPrefix(capability, translatePrefix)
	src, tgt, found := strings.Cut(pair, "-")
	return LanguagePair{strings.ReplaceAll(src, "_", "-"), strings.ReplaceAll(tgt, "_", "-")}, ok && found
}

// TranslatePairs returns the capabilities of every pair of a source and a different target language. It returns CodeInvalid for
// the field and the part of it that is invalid.
func TranslatePairs(field string, sources, targets []string) ([]string, error) {
	if len(sources) == 0 {
		return nil, Invalid(field+".sources", "must name a language")
	}
	if len(targets) == 0 {
		return nil, Invalid(field+".targets", "must name a language")
	}
	from, err := parseLanguages(field+".sources", sources)
	if err != nil {
		return nil, err
	}
	to, err := parseLanguages(field+".targets", targets)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, src := range from {
		for _, tgt := range to {
			if c := TranslateCapability(src, tgt); src != tgt && !slices.Contains(out, c) {
				out = append(out, c)
			}
			if len(out) > MaxNodeCapabilities {
				return nil, Invalid(field, "exceed the limit of %d pairs", MaxNodeCapabilities)
			}
		}
	}
	if len(out) == 0 {
		return nil, Invalid(field, "must have a source and a different target language")
	}
	return out, nil
}

func parseLanguages(field string, tags []string) ([]string, error) {
	out := make([]string, len(tags))
	for i, tag := range tags {
		var err error
		if out[i], err = ParseLanguage(field, tag); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseCapabilities returns capabilities in their canonical form, each once.
func parseCapabilities(field string, capabilities []string) ([]string, error) {
	out := make([]string, 0, len(capabilities))
	known := make(map[string]bool, len(capabilities))
	for _, c := range capabilities {
		parsed, err := ParseCapability(field, c)
		if err != nil {
			return nil, err
		}
		if !known[parsed] {
			known[parsed], out = true, append(out, parsed)
		}
	}
	return out, nil
}
