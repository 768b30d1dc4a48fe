package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// MaxDepth is how deep values may be nested: more than any request needs, and less than what readers with a small stack refuse.
const MaxDepth = 200

// maxKey bounds the names of keys in errors, in bytes.
const maxKey = 64

// Check returns an error that says what is wrong, and where, with a text that is not one JSON value in UTF-8, is nested too deeply, or has an
// object with two fields of the same name, of which readers would take different ones.
func Check(text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("byte %d is not UTF-8", invalidAt(text))
	}
	if !json.Valid(text) {
		return invalid(text)
	}
	return checkNames(text)
}

// invalidAt returns where the first invalid character is.
func invalidAt(text []byte) int {
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

func invalid(text []byte) error {
	var ignored json.RawMessage
	err := json.Unmarshal(text, &ignored)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w, at byte %d", syntax, syntax.Offset)
	}
	return errors.New("invalid JSON")
}

// names are the keys of the object that is being read.
type names struct {
	list [][]byte
	set  map[string]bool // once they are many
}

// fewNames is up to how many names a list is faster than a set.
const fewNames = 16

// add reports whether the name is new.
func (n *names) add(name []byte) bool {
	if n.set == nil && len(n.list) < fewNames {
		if slices.ContainsFunc(n.list, func(other []byte) bool { return bytes.Equal(name, other) }) {
			return false
		}
		n.list = append(n.list, name)
		return true
	}
	if n.set == nil {
		n.set = map[string]bool{}
		for _, other := range n.list {
			n.set[string(other)] = true
		}
	}
	known := n.set[string(name)]
	n.set[string(name)] = true
	return !known
}

// checkNames checks depth and names of a valid text. It does not call itself, so that no text exhausts the stack.
func checkNames(text []byte) error {
	open := make([]names, 0, MaxDepth+1) // of the objects and lists around the place; their lists are used again
	for i := 0; i < len(text); {
		switch text[i] {
		case '{', '[':
			if len(open) == MaxDepth {
				return fmt.Errorf("nested deeper than %d levels, at byte %d", MaxDepth, i)
			}
			open = open[:len(open)+1]
			last := &open[len(open)-1]
			last.list, last.set = last.list[:0], nil
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			n := stringEnd(text[i:])
			content := text[i+1 : i+n-1]
			if i += n; isKey(text[i:]) {
				if bytes.IndexByte(content, '\\') >= 0 {
					content = []byte(unquoted(content))
				}
				if !open[len(open)-1].add(content) {
					return fmt.Errorf("an object has the key %q twice, at byte %d", content[:min(len(content), maxKey)], i-n)
				}
			}
			continue
		}
		i++
	}
	return nil
}

// isKey reports whether a colon follows.
func isKey(rest []byte) bool {
	rest = trimmed(rest)
	return len(rest) > 0 && rest[0] == ':'
}
