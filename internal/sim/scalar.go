package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
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

// strings returns texts for a place within the limits of its schemas, that of the source first. said is false if the source has none.
func (f *filler) strings(all schemas, at place) (options []any, said bool) {
	least, most := 0, maxText
	text, said := f.text(at)
	for _, s := range all {
		if s.MinLength != nil {
			least = max(least, *s.MinLength)
		}
		if s.MaxLength != nil {
			most = min(most, *s.MaxLength)
		}
		if s.Format != nil && formats[s.Format.Name] != "" {
			options, said = append(options, formatted(formats[s.Format.Name], at.variant)), false
		}
	}
	if most = max(most, least); least > maxLength {
		return nil, false
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
	for _, s := range all {
		if s.Pattern != nil {
			for _, text := range matching(s.Pattern.String(), at.variant) {
				options, said = append(options, text, text+strings.Repeat("a", max(least-utf8.RuneCountInString(text), 0))), false
			}
		}
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

// matching returns texts that match an expression, of different lengths.
func matching(pattern string, variant int) (out []string) {
	for seed := range 20 {
		out = append(out, rapid.StringMatching(pattern).Example(100*variant+seed))
	}
	slices.SortStableFunc(out, func(a, b string) int { return len(a) - len(b) })
	return out
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
