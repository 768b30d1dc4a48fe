package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxText   = 4000
	maxLength = 100_000 // of a text whose schema wants it long
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// formats are texts of a JSON Schema format with %d in place of a number.
var formats = map[string]string{
	"duration": "P%dD", "period": "2000-01-01T00:00:00Z/P%dD", "email": "name%d@example.org", "ipv4": "192.0.2.%d", "ipv6": "2001:db8::%d",
	"uri": "https://example.org/%d", "iri": "https://example.org/%d", "uri-reference": "/%d", "iri-reference": "/%d", "uri-template": "/%d",
	"uuid": "00000000-0000-4000-8000-%012d", "hostname": "host%d.example.org", "json-pointer": "/%d", "regex": "a%d", "semver": "1.0.%d",
	"relative-json-pointer": "%d", "date": "2006-01-02", "date-time": time.RFC3339, "time": "15:04:05Z07:00",
}

// formatted returns a text of a format, a different one for each number.
func formatted(format string, n int) string {
	if strings.Contains(format, "%") {
		return fmt.Sprintf(format, n+1)
	}
	return epoch.AddDate(0, 0, n).Add(time.Duration(n) * time.Second).Format(format)
}

// found find texts of a format in other texts.
var found = map[string]*regexp.Regexp{
	"date":  regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b`),
	"email": regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`),
	"uri":   regexp.MustCompile(`\bhttps?://[^\s<>"'“”]*[^\s<>"'“”.,;:!?)，。；]`),
}

// strings returns texts for a place within the limits of its schemas, those of the source first. said is false if the source has none.
func (f *filler) strings(all schemas, at place) (options []any, said bool) {
	least, most, format := 0, maxText, ""
	var find, made []string // patterns, and texts that match them
	for _, s := range all {
		if s.MinLength != nil {
			least = max(least, *s.MinLength)
		}
		if s.MaxLength != nil {
			most = min(most, *s.MaxLength)
		}
	}
	if most = max(most, least); least > maxLength {
		return nil, false
	}
	for _, s := range all {
		if s.Format != nil && formats[s.Format.Name] != "" {
			format = formats[s.Format.Name]
			made = append(made, formatted(format, at.variant))
			if re := found[s.Format.Name]; re != nil {
				find = append(find, re.String())
			}
		}
		if s.Pattern != nil {
			find = append(find, strings.TrimSuffix(strings.TrimPrefix(s.Pattern.String(), "^"), "$"))
			made = append(made, matching(s.Pattern.String(), least, at.variant)...)
		}
	}
	text, ok := f.text(at)
	where := f.subject.text
	if at.entry != nil {
		where = at.entry.Text + "\n" + where
	}
	for _, pattern := range find {
		if re, err := regexp.Compile(pattern); err == nil && pattern != "" {
			if all := re.FindAllString(where, at.variant+1); len(all) > at.variant {
				options, said = append(options, all[at.variant]), true
			}
		}
	}
	for _, text := range made {
		options = append(options, text)
	}
	if format == "" && len(find) == 0 {
		said = ok
	}
	switch {
	case text == "" && at.entry == nil:
		text = f.subject.title()
	case text == "":
		text = at.entry.Text
		if at.variant == 0 {
			options = append(options, "") // as short as allowed
		}
	}
	for _, text := range []string{text, "–", "a"} {
		options = append(options, fit(text, least, most, at.variant))
	}
	return options, said
}

// fit makes a text as long as it must be, in characters, and different for each variant.
func fit(text string, least, most, variant int) string {
	suffix := ""
	if variant > 0 {
		suffix = " " + strconv.Itoa(variant+1)
	}
	text = clip(clip(text, most-len(suffix))+suffix, most)
	return text + strings.Repeat("–", max(least-utf8.RuneCountInString(text), 0))
}

// matching returns texts that match an expression, with at least so many characters where that is possible; variants differ if the expression
// allows it.
func matching(pattern string, least, variant int) (out []string) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	for _, more := range []int{0, 1, 2, least} {
		g := generator{more: more, variant: variant, left: maxLength}
		g.write(re)
		out = append(out, g.out.String())
	}
	return append(out, out[0]+strings.Repeat("a", max(least-utf8.RuneCountInString(out[0]), 0)))
}

// generator writes a text that matches an expression.
type generator struct {
	out     strings.Builder
	more    int // repetitions beyond the fewest
	variant int
	left    int // repetitions that may still be written
}

func (g *generator) write(re *syntax.Regexp) {
	least, most := 1, 1
	switch re.Op {
	case syntax.OpLiteral:
		g.out.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		g.out.WriteRune(g.pick(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		g.out.WriteRune(g.pick([]rune("az")))
	case syntax.OpAlternate:
		n := g.variant % len(re.Sub)
		g.variant /= len(re.Sub)
		g.write(re.Sub[n])
		return
	case syntax.OpStar:
		least, most = 0, maxLength
	case syntax.OpPlus:
		most = maxLength
	case syntax.OpQuest:
		least = 0
	case syntax.OpRepeat:
		if least, most = re.Min, re.Max; most < 0 {
			most = maxLength
		}
	}
	for n := min(least+g.more, most); n > 0 && g.left > 0; n-- {
		g.left--
		for _, sub := range re.Sub {
			g.write(sub)
		}
	}
}

// pick returns a character of a class, given as ranges: a letter or digit if it has some.
func (g *generator) pick(ranges []rune) rune {
	var plain []rune
	for _, r := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				plain = append(plain, r)
			}
		}
	}
	if len(plain) == 0 {
		return append(ranges, 'a')[0]
	}
	r := plain[g.variant%len(plain)]
	g.variant /= len(plain)
	return r
}

// numbers returns the number that the source has for the place, and others within the limits. said is false if the source has none.
func (f *filler) numbers(all schemas, at place) (options []any, said bool) {
	var low, high, byDefault []float64 // at most one of each
	step, stepped := 1.0, false
	for _, s := range all {
		for _, n := range []*big.Rat{s.Minimum, s.ExclusiveMinimum} {
			if n != nil {
				least, _ := n.Float64()
				low = []float64{slices.Max(append(low, least))}
			}
		}
		for _, n := range []*big.Rat{s.Maximum, s.ExclusiveMaximum} {
			if n != nil {
				most, _ := n.Float64()
				high = []float64{slices.Min(append(high, most))}
			}
		}
		whole := s.Types != nil && !slices.Contains(s.Types.ToStrings(), "number")
		if s.MultipleOf != nil {
			if step, _ = s.MultipleOf.Float64(); stepped || whole { // its numerator is a whole multiple of it
				step, _ = new(big.Rat).SetInt(s.MultipleOf.Num()).Float64()
			}
		}
		stepped = stepped || whole || s.MultipleOf != nil
		if s.Default != nil {
			if n, err := strconv.ParseFloat(marshal(*s.Default), 64); err == nil {
				byDefault = []float64{n}
			}
		}
	}
	wanted := f.number(at)
	shift := float64(at.variant)
	var tried []float64
	for _, n := range slices.Concat(wanted, byDefault, []float64{0}, low) {
		tried = append(tried, n+shift*step, n+(shift+1)*step)
	}
	for _, n := range high {
		for _, l := range low {
			tried = append(tried, l+(n-l)*(shift+1)/(shift+2), l+(n-l)*(shift+1)/(shift+2)+step)
		}
		tried = append(tried, n-shift*step, n-(shift+1)*step)
	}
	for _, n := range tried {
		if stepped {
			n = math.Floor(n/step) * step
		}
		options = append(options, json.Number(strconv.FormatFloat(n, 'f', -1, 64)))
	}
	return options, wanted != nil
}
