package extract

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	// displays are the values of the property display beside none, in their old form of one word and their new one of several.
	displays = elements(`block inline inline-block flow flow-root flex inline-flex grid inline-grid table inline-table list-item contents ruby math
		run-in table-row-group table-header-group table-footer-group table-row table-cell table-column-group table-column table-caption
		ruby-base ruby-text ruby-base-container ruby-text-container -webkit-box -webkit-inline-box -webkit-flex -webkit-inline-flex
		inherit initial unset revert revert-layer`)
	displayParts = elements("block inline run-in flow flow-root flex grid table ruby list-item math")
	visibilities = elements("visible hidden collapse inherit initial unset revert revert-layer")
	// properties are those that hide an element, and whether a value is one of theirs.
	properties = map[string]func(value string) bool{
		"display": func(value string) bool {
			if value == "none" || displays[value] {
				return true
			}
			for part := range strings.FieldsSeq(value) {
				if !displayParts[part] {
					return false
				}
			}
			return value != ""
		},
		"visibility": func(value string) bool { return visibilities[value] },
		"content-visibility": func(value string) bool {
			return value == "visible" || value == "auto" || visibilities[value] && value != "collapse"
		},
	}
	important = regexp.MustCompile(`\s*!\s*important\s*$`)
	variable  = regexp.MustCompile(`(^|[\s,])(var|env|attr)\(`)
)

// styleOf returns the values that the declarations of a style attribute give to the properties that hide an element: of each the last valid
// one, or the last of the important ones. A value that depends on a variable is empty.
func styleOf(style string) map[string]string {
	values, fixed := map[string]string{}, map[string]bool{}
	for _, declaration := range declarations(style) {
		name, value, found := strings.Cut(declaration, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.ToLower(strings.TrimSpace(value))
		rest := important.ReplaceAllString(value, "")
		priority := rest != value
		valid := properties[name]
		if !found || valid == nil || fixed[name] && !priority {
			continue
		}
		switch rest = strings.Join(strings.Fields(rest), " "); {
		case variable.MatchString(rest):
			values[name] = ""
		case valid(rest):
			values[name] = rest
		default:
			continue
		}
		fixed[name] = priority
	}
	return values
}

// declarations splits a style attribute (CSS Syntax Module Level 3, 5.4.4): not within strings, comments, addresses, parentheses and
// blocks, of which only the beginning remains. Escapes are decoded.
func declarations(style string) (all []string) {
	var out strings.Builder
	for i := 0; i < len(style); {
		switch rest := style[i:]; {
		case strings.HasPrefix(rest, "/*"):
			out.WriteByte(' ')
			i += skipTo(rest, 2, "*/")
		case rest[0] == ';':
			all = append(all, out.String())
			out.Reset()
			i++
		case rest[0] == '\\':
			r, n := unescaped(rest)
			out.WriteRune(r)
			i += n
		case strings.IndexByte(`"'([{`, rest[0]) >= 0:
			address := rest[0] == '(' && strings.HasSuffix(strings.ToLower(out.String()), "url")
			out.WriteByte(rest[0])
			i += enclosedIn(rest, address)
		default:
			out.WriteByte(rest[0])
			i++
		}
	}
	return append(all, out.String())
}

// skipTo returns the length of a text up to an end, which is searched from an index.
func skipTo(text string, from int, end string) int {
	if n := strings.Index(text[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(text)
}

// enclosedIn returns the length of the string, the parentheses or the block at the beginning of a text. An address without quotation marks
// ends with its parenthesis, whatever is in it.
func enclosedIn(text string, address bool) int {
	if quoted := strings.TrimLeft(text[1:], blank); address && !strings.HasPrefix(quoted, `"`) && !strings.HasPrefix(quoted, "'") {
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case ')':
				return i + 1
			}
		}
		return len(text)
	}
	closing := map[byte]byte{'(': ')', '[': ']', '{': '}'}
	var open []byte // the ends that are expected
	for i := 0; i < len(text); i++ {
		quote := len(open) > 0 && (open[len(open)-1] == '"' || open[len(open)-1] == '\'')
		switch c := text[i]; {
		case c == '\\':
			i++
		case len(open) > 0 && c == open[len(open)-1], quote && c == '\n':
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1
			}
		case quote:
		case c == '"' || c == '\'':
			open = append(open, c)
		case closing[c] != 0:
			open = append(open, closing[c])
		case strings.HasPrefix(text[i:], "/*"):
			i += skipTo(text[i:], 2, "*/") - 1
		}
	}
	return len(text)
}

// unescaped returns the character of an escape and the length of that. Characters that are not of a name have no meaning when escaped.
func unescaped(text string) (r rune, n int) {
	n = 1
	for n < len(text) && n <= 6 && strings.IndexByte("0123456789abcdefABCDEF", text[n]) >= 0 {
		n++
	}
	if code, err := strconv.ParseInt(text[1:n], 16, 32); err == nil {
		r = rune(code)
		if n < len(text) && strings.IndexByte(blank, text[n]) >= 0 {
			n++
		}
	} else if n < len(text) {
		var size int
		r, size = utf8.DecodeRuneInString(text[n:])
		n += size
	}
	if r != '-' && r != '_' && (r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z') {
		r = utf8.RuneError
	}
	return r, n
}
