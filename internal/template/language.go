package template

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth"
	"berth/internal/schema"
)

// textAt is a text for users and its place.
type textAt struct {
	path []string
	text Text
}

// child returns the path of a part of a field. No two paths share memory.
func child(path []string, parts ...string) []string { return slices.Concat(path, parts) }

// findLanguages finds the languages that prompts are compiled for: those that the template declares, else those of its prompt files, else those
// of its texts for users, else none.
func (l *loader) findLanguages(at fieldPath) (declared bool) {
	if declared = len(l.spec.Locales) > 0 && !l.listViolated("locales"); declared {
		for i, given := range l.spec.Locales {
			path := []string{"locales", strconv.Itoa(i)}
			tag, err := berth.ParseLanguage("locale", string(given))
			switch {
			case err != nil:
				l.invalid(path, "%s", messageOf(err))
			case tag != string(given):
				l.invalid(path, "write %s instead of %s", tag, given)
			default:
				l.languages = append(l.languages, given)
			}
		}
		if len(l.languages) == len(l.spec.Locales) {
			return true
		}
	}
	l.incomplete = l.incomplete || declared
	var own, shared []berth.Locale
	for _, s := range l.spec.Steps {
		stem := promptStem(s)
		for i, dir := range l.dirs {
			for _, file := range slices.Sorted(maps.Keys(dir.files)) {
				found, locale := splitPrompt(file)
				if found != stem || locale == "" || !strings.HasSuffix(file, promptEnd) {
					continue
				}
				if i == 0 && !strings.HasPrefix(stem, "_") {
					own = append(own, locale)
				} else if strings.HasPrefix(stem, "_") {
					shared = append(shared, locale)
				}
			}
		}
	}
	if len(own) == 0 {
		own = shared
	}
	for _, locale := range own {
		if tag, err := berth.ParseLanguage("locale", string(locale)); err != nil || tag != string(locale) {
			l.invalid(at(0, "prompt"), "%q in the name of a prompt file is not a language: write name.en%s", locale, promptEnd)
		}
	}
	if len(own) == 0 {
		own = l.languagesOfTexts()
	}
	slices.Sort(own)
	if l.languages = slices.Compact(own); len(own) == 0 {
		l.languages = []berth.Locale{""}
	}
	return false
}

// languagesOfTexts returns those of titles, labels and the other texts for users.
func (l *loader) languagesOfTexts() (found []berth.Locale) {
	texts := []Text{l.spec.Title, l.spec.Description}
	for _, v := range l.spec.Variables {
		texts = append(texts, v.Label, v.Help)
	}
	for _, s := range l.spec.Steps {
		texts = append(texts, s.Label)
	}
	for _, s := range l.spec.Stages {
		texts = append(texts, s.Label)
	}
	for _, i := range l.spec.Items {
		texts = append(texts, i.Label)
	}
	for _, t := range texts {
		for locale := range t {
			if locale != "" {
				found = append(found, locale)
			}
		}
	}
	return found
}

// settleLanguages keeps the languages if the template declares them or a prompt depends on them. A user of another template has no language to
// choose, because none would change anything.
func (l *loader) settleLanguages(declared bool) {
	t := l.out
	t.Locales = []berth.Locale{}
	switch {
	case l.languages[0] == "" && l.localized:
		l.invalid([]string{"locales"}, "a prompt uses {{@%s}}, and the template has no language: write locales: [en, zh], for example", contextLocale)
		return
	case declared || l.localized:
		t.Locales = l.languages
	default:
		for key, p := range t.prompts {
			t.prompts[promptKey{step: key.step}] = p
		}
		return
	}
	for _, one := range l.texts {
		if _, ok := berth.NearestLocale(slices.Sorted(maps.Keys(one.text)), t.Locales[0]); !ok {
			l.invalid(one.path, "has no text in %s, the first language of the template: add it", t.Locales[0])
		}
	}
}

// title completes a short text for users; that of one without any is the name.
func (l *loader) title(path []string, t Text, name string) Text {
	if len(t) == 0 && name != "" {
		t = Text{"": name}
	}
	return l.text(path, t, berth.MaxTemplateTitle)
}

// text completes a text for users. One without a language is in the first of the template, or English.
func (l *loader) text(path []string, t Text, limit int) Text {
	if len(t) == 0 {
		return t
	}
	out := Text{}
	for _, locale := range slices.Sorted(maps.Keys(t)) {
		at := path
		if locale == "" {
			locale = l.languages[0]
			if locale == "" {
				locale = berth.LocaleEN
			}
			out[locale] = l.line(at, t[""], limit)
			continue
		}
		at = child(path, string(locale))
		if tag, err := berth.ParseLanguage("locale", string(locale)); err != nil || tag != string(locale) {
			l.invalid(at, noLanguage)
		}
		out[locale] = l.line(at, t[locale], limit)
	}
	l.texts = append(l.texts, textAt{path, out})
	return out
}

// line returns a text for users by the rule for all names. A line break in it is a space.
func (l *loader) line(path []string, text string, limit int) string {
	name, err := berth.Name("", strings.ReplaceAll(strings.TrimSpace(text), "\n", " "), limit)
	if err != nil {
		l.invalid(path, "%s", messageOf(err))
	}
	return name
}

// shown reports characters that a text of several lines must not have, because users see it.
func (l *loader) shown(path []string, text string) {
	for line := range strings.Lines(text) {
		l.line(path, strings.ReplaceAll(line, "\t", " "), len(text))
	}
}

// shownSchema reports titles and names of properties that users could not read: results are shown with them. at is the place in the schema.
func (l *loader) shownSchema(raw []byte, at func(inner []string, format string, args ...any)) {
	check := func(path []string, text string) {
		if _, err := berth.Name("", text, berth.MaxTemplateTitle); err != nil {
			at(path, "%s", messageOf(err))
		}
	}
	schema.Each(raw, func(path []string, s map[string]any) {
		if title, ok := s["title"].(string); ok {
			check(child(path, "title"), title)
		}
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			check(child(path, "properties", name), name)
		}
	})
}

// messageOf returns the message of an error of package berth.
func messageOf(err error) string {
	if invalid, ok := errors.AsType[*berth.Error](err); ok {
		return invalid.Message
	}
	return err.Error()
}
