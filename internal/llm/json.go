package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// canonical returns an object without white space, in which each key is there once, with its last value, and no text has NUL characters or
// halves of surrogate pairs: databases do not store those, and readers of JSON differ in all of these. Numbers remain as they are written.
func canonical(object json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	return rewritten(dec)
}

func rewritten(dec *json.Decoder) (json.RawMessage, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return rewrittenList(dec)
		}
		return rewrittenObject(dec)
	case string:
		return quoted(t)
	case json.Number:
		return json.RawMessage(t), nil
	default:
		return json.Marshal(t)
	}
}

func rewrittenList(dec *json.Decoder) (json.RawMessage, error) {
	var items []json.RawMessage
	for dec.More() {
		item, err := rewritten(dec)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := dec.Token()
	return enclosed('[', items, ']'), err
}

func rewrittenObject(dec *json.Decoder) (json.RawMessage, error) {
	var fields []json.RawMessage
	at := map[string]int{}
	for dec.More() {
		key, err := rewritten(dec)
		if err != nil {
			return nil, err
		}
		value, err := rewritten(dec)
		if err != nil {
			return nil, err
		}
		field := fmt.Appendf(nil, "%s:%s", key, value)
		if i, again := at[string(key)]; again {
			fields[i] = field
			continue
		}
		at[string(key)] = len(fields)
		fields = append(fields, field)
	}
	_, err := dec.Token()
	return enclosed('{', fields, '}'), err
}

func enclosed(begin byte, parts []json.RawMessage, end byte) json.RawMessage {
	out := []byte{begin}
	for i, part := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, part...)
	}
	return append(out, end)
}

// quoted returns a text in JSON. The decoder has replaced halves of surrogate pairs.
func quoted(text string) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(strings.ReplaceAll(text, "\x00", string(utf8.RuneError)))
	return bytes.TrimSpace(out.Bytes()), err
}

// unwrapped returns an answer that a model has written as a text in JSON.
func unwrapped(answer []byte) []byte {
	var text string
	if trimmed := bytes.TrimSpace(answer); bytes.HasPrefix(trimmed, []byte(`"`)) && json.Unmarshal(trimmed, &text) == nil {
		return []byte(text)
	}
	return answer
}

// lenient reads an object as models write it: with commas behind the last value, comments, and line ends in texts. It returns the object in
// JSON, and the size of what it read; 0 if that is something else.
func lenient(text []byte) (object json.RawMessage, size int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		c, rest := text[i], text[i:]
		switch {
		case c == '"':
			end := stringEnd(rest)
			if end == 0 {
				return nil, 0
			}
			object = appendString(object, rest[:end])
			i += end - 1
			continue
		case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")):
			closing := "\n"
			if rest[1] == '*' {
				closing = "*/"
			}
			n := bytes.Index(rest[2:], []byte(closing))
			if n < 0 {
				return nil, 0
			}
			i += 2 + n + len(closing) - 1
			continue
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
			object = bytes.TrimSuffix(bytes.TrimRight(object, " \t\r\n"), []byte(","))
		}
		if object = append(object, c); depth == 0 {
			if !json.Valid(object) {
				return nil, 0
			}
			return object, i + 1
		}
	}
	return nil, 0
}

// stringEnd returns where a text in JSON ends, 0 if it does not.
func stringEnd(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// appendString appends a text in JSON, in which control characters are escaped.
func appendString(out, text []byte) []byte {
	for _, c := range text {
		if c < ' ' {
			out = fmt.Appendf(out, `\u%04x`, c)
			continue
		}
		out = append(out, c)
	}
	return out
}
