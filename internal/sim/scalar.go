package sim

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"pgregory.net/rapid"
)

const (
	maxText   = 4000
	maxLength = 100_000 // of a text whose schema wants it long
)

// formats are texts of JSON Schema formats.
var formats = map[string]string{
	"date": "2000-01-01", "time": "00:00:00Z", "date-time": "2000-01-01T00:00:00Z", "duration": "P1D", "period": "2000-01-01T00:00:00Z/P1D",
	"email": "name@example.org", "hostname": "example.org", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000",
	"uri": "https://example.org/", "iri": "https://example.org/", "uri-reference": "/", "iri-reference": "/", "uri-template": "/",
	"json-pointer": "/0", "relative-json-pointer": "0", "regex": "a", "semver": "1.0.0",
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
			options, said = append(options, formats[s.Format.Name]), false
		}
	}
	if most = max(most, least); least > maxLength {
		return nil, false
	}
	if text == "" && at.entry != nil {
		options = append(options, "") // as short as allowed
	}
	for _, text := range []string{cmp.Or(text, f.title(at)), "–", "a"} {
		options = append(options, fit(text, least, most))
	}
	for _, s := range all {
		if s.Pattern != nil {
			for _, text := range matching(s.Pattern.String()) {
				options, said = append(options, text, text+strings.Repeat("a", max(least-utf8.RuneCountInString(text), 0))), false
			}
		}
	}
	return options, said
}

// matching returns texts that match an expression, none if no such text is found.
func matching(pattern string) (out []string) {
	defer func() { _ = recover() }() // the library panics at what it cannot match
	for seed := range 20 {
		out = append(out, rapid.StringMatching(pattern).Example(seed))
	}
	return out
}

// fit makes a text as long as it must be, in characters.
func fit(text string, least, most int) string {
	text = clip(text, most)
	return text + strings.Repeat("–", max(least-utf8.RuneCountInString(text), 0))
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
	tried := slices.Concat(wanted, byDefault, []float64{0}, low, high)
	if low != nil && high != nil {
		tried = append(tried, (low[0]+high[0])/2)
	}
	for _, n := range tried {
		for _, n := range []float64{n, n + step, n - step} {
			if stepped {
				n = math.Floor(n/step) * step
			}
			options = append(options, json.Number(strconv.FormatFloat(n, 'f', -1, 64)))
		}
	}
	return options, wanted != nil
}
