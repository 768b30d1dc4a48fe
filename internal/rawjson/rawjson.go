// Package rawjson reads JSON as it was written: what its callers do not change keeps its bytes, with numbers of any size, the order of keys
// and escapes.
package rawjson

import (
	"bytes"
	"encoding/json"
)

// Cursor reads the fields of an object or the items of a list, one after the other, without copying them. The text must be valid JSON.
type Cursor struct {
	rest  []byte
	begun bool
}

// Read returns a cursor of an object or a list. Of anything else it returns one without values.
func Read(text []byte) Cursor {
	if text = trimmed(text); IsObject(text) || IsList(text) {
		return Cursor{rest: text[1:]}
	}
	return Cursor{}
}

// Field returns the next field of an object: its key between the quotes, as it is written, and its value.
func (c *Cursor) Field() (key, value []byte, ok bool) {
	if !c.next() {
		return nil, nil, false
	}
	n := stringEnd(c.rest)
	key = c.rest[1 : n-1]
	c.skip(n)
	c.skip(1) // the colon
	value, ok = c.value()
	return key, value, ok
}

// Item returns the next item of a list.
func (c *Cursor) Item() (value []byte, ok bool) {
	if !c.next() {
		return nil, false
	}
	return c.value()
}

// next goes to the next field or item.
func (c *Cursor) next() bool {
	c.skip(0)
	if c.begun && len(c.rest) > 0 && c.rest[0] == ',' {
		c.skip(1)
	}
	c.begun = true
	return len(c.rest) > 0 && c.rest[0] != '}' && c.rest[0] != ']'
}

func (c *Cursor) value() (value []byte, ok bool) {
	n := valueEnd(c.rest)
	value = c.rest[:n]
	c.rest = c.rest[n:]
	return value, n > 0
}

// skip passes n bytes and the white space behind them.
func (c *Cursor) skip(n int) {
	c.rest = trimmed(c.rest[n:])
}

// trimmed returns a text without the white space before it.
func trimmed(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	return text
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// stringEnd returns the size of the text that begins with a string.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			return len(text)
		}
		i += n
		escapes := 0
		for j := i - 1; j > 0 && text[j] == '\\'; j-- {
			escapes++
		}
		if i++; escapes%2 == 0 {
			return i
		}
	}
	return len(text)
}

// valueEnd returns the size of the value with which a text begins.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); {
		switch text[i] {
		case '"':
			i += stringEnd(text[i:])
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default: // a number or a name
			for i < len(text) && !endsName(text[i]) {
				i++
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(text)
}

func endsName(b byte) bool { return b == ',' || b == '}' || b == ']' || isSpace(b) }

// IsObject reports whether a value is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// IsList reports whether a value is a list.
func IsList(value []byte) bool { return len(value) > 0 && value[0] == '[' }

// IsString reports whether a value is a string.
func IsString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

// IsNull reports whether a value is null, or missing.
func IsNull(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

// String returns the text of a string, and false for anything else.
func String(value []byte) (string, bool) {
	if !IsString(value) {
		return "", false
	}
	return unquoted(value[1 : len(value)-1]), true
}

// unquoted returns what stands between quotes.
func unquoted(inner []byte) string {
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if err := json.Unmarshal(append(append([]byte{'"'}, inner...), '"'), &s); err != nil {
		return string(inner)
	}
	return s
}

// Key returns the name of a field whose key is written in a way.
func Key(key []byte) string { return unquoted(key) }
