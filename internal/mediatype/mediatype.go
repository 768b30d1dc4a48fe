// Package mediatype reads the values of Content-Type and Content-Disposition as programs write them.
package mediatype

import (
	"maps"
	"mime"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// parameter is one of a value that is not written as RFC 2045 requires: with spaces or other characters without quotes, with quotes in
// them, or twice.
var parameter = regexp.MustCompile(`(?i);\s*([a-z][a-z0-9_.*-]*)\s*=\s*(?:"((?:\\.|[^"\\])*)"\s*(?:;|$)|([^;]*))`)

// Parse returns what stands before the parameters, in lower case, and the parameters by their names in lower case; of several with one
// name the first.
func Parse(value string) (kind string, params map[string]string) {
	if kind, params, err := mime.ParseMediaType(value); err == nil && !strings.Contains(value, "*=") {
		return kind, params
	}
	kind, rest, _ := strings.Cut(value, ";")
	if before, after, found := strings.Cut(strings.TrimSpace(kind), " "); found { // instead of a semicolon
		kind, rest = before, after+";"+rest
	}
	params = map[string]string{}
	for rest = ";" + rest; ; {
		at := parameter.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		name := strings.ToLower(rest[at[2]:at[3]])
		var text string
		if at[4] >= 0 {
			text = strings.ReplaceAll(rest[at[4]:at[5]], `\"`, `"`)
			rest = rest[at[5]+1:]
		} else {
			text = strings.Trim(strings.TrimSpace(rest[at[6]:at[7]]), `"'`)
			rest = rest[at[7]:]
		}
		if plain, extended := strings.CutSuffix(name, "*"); extended {
			name, text = plain, extendedValue(text)
		}
		if _, twice := params[name]; !twice {
			params[name] = text
		}
	}
	if _, strict, err := mime.ParseMediaType(value); err == nil { // which joins the parts of a value
		maps.Copy(params, strict)
	}
	return strings.ToLower(strings.TrimSpace(kind)), params
}

// extendedValue decodes a value that states its encoding (RFC 8187).
func extendedValue(text string) string {
	label, rest, _ := strings.Cut(text, "'")
	_, escaped, found := strings.Cut(rest, "'")
	if !found {
		return text
	}
	raw, err := url.PathUnescape(escaped)
	if err != nil {
		return text
	}
	if enc, _ := charset.Lookup(label); enc != nil && !utf8.ValidString(raw) {
		if out, err := enc.NewDecoder().String(raw); err == nil {
			return out
		}
	}
	return raw
}
