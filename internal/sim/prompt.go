package sim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// source is what the simulator finds in the messages of a request.
type source struct {
	zh     bool        // the answer is in Chinese, otherwise in English
	rules  string      // what the messages say outside of their documents
	schema []byte      // that the rules quote, nil for none
	docs   []*document // at least one
	steps  int         // values that may still be tried
}

const (
	maxDocuments = 20
	maxRead      = 64 << 10 // characters of a text
)

// readSource finds the documents of the last turn, else of an earlier one. Without documents, it takes what the last message says after the schema, without lines with markers. A message
// after the one with the documents asks for another answer about them. seen are the texts of images.
func readSource(messages []message, seen []string) *source {
	s := &source{steps: maxSteps}
	var given, earlier []enclosure
	said, asked := "", false // asked: a message of the user has documents
	for _, m := range messages {
		rest, found := enclosed(clip(m.Content.text(), 4*maxRead))
		switch {
		case m.Role == "assistant":
			earlier, given, asked = given, nil, false
			continue
		case m.Role != "user" || !asked:
			given, asked = append(given, found...), m.Role == "user" && len(found) > 0
		}
		said = rest
		s.rules += rest + "\n"
	}
	if len(given) == 0 {
		given = earlier
	}
	for _, text := range seen {
		given = append(given, enclosure{text: text})
	}
	s.schema = quotedSchema(s.rules)
	if len(given) == 0 {
		before, after, _ := strings.Cut(said, string(s.schema))
		if strings.TrimSpace(after) == "" {
			after = before
		}
		given = []enclosure{{text: markLine.ReplaceAllString(after, "")}}
	}
	// What only sets something, such as a language, and outputs of earlier steps are left out if there is something else.
	some := slices.DeleteFunc(slices.Clone(given), func(e enclosure) bool {
		return len(words(e.text)) < 4 && !strings.Contains(e.text, "\n") || json.Valid([]byte(e.text))
	})
	if len(some) == 0 {
		some = given
	}
	for _, e := range first(maxDocuments, some) {
		s.docs = append(s.docs, readDocument(e))
	}
	s.zh = isChinese(strings.Replace(s.rules, string(s.schema), "", 1) + s.docs[0].text)
	return s
}

// enclosure is a text between document lines, with the line before it.
type enclosure struct{ name, intro, text string }

var opening = regexp.MustCompile(`(?m)^[ \t]*<document name="([^"\n]*)" id="([^"\n]*)">[ \t]*\n`)

// enclosed cuts the documents out of a text. Only a closing line with the id of the opening line ends a document.
func enclosed(text string) (rest string, found []enclosure) {
	for {
		m := opening.FindStringSubmatchIndex(text)
		if m == nil {
			return rest + text, found
		}
		before, id := text[:m[0]], text[m[4]:m[5]]
		body, after, ok := strings.Cut(text[m[1]:], `</document id="`+id+`">`)
		if !ok || len(found) == 10*maxDocuments {
			return rest + text, found
		}
		intro := strings.TrimSpace(before)
		intro = strings.TrimSpace(intro[strings.LastIndexByte(intro, '\n')+1:])
		found = append(found, enclosure{text[m[2]:m[3]], intro, strings.TrimSpace(body)})
		rest, text = rest+before, after
	}
}

// quotedSchema returns the first JSON object with a keyword of JSON Schema in a text, nil for none.
func quotedSchema(text string) []byte {
	for range 50 {
		i := strings.IndexByte(text, '{')
		if i < 0 {
			break
		}
		text = text[i:]
		var raw json.RawMessage
		var o map[string]json.RawMessage
		_ = json.NewDecoder(strings.NewReader(text)).Decode(&raw) // nothing is read if it is not valid
		_ = json.Unmarshal(raw, &o)
		for _, keyword := range []string{"$schema", "$ref", "$defs", "properties", "additionalProperties", "anyOf", "oneOf", "allOf"} {
			if o[keyword] != nil {
				return raw
			}
		}
		if string(o["type"]) == `"object"` {
			return raw
		}
		text = text[max(len(raw), 1):]
	}
	return nil
}

// isChinese reports whether a text is mostly in Chinese. Prompts in any language name things in Latin letters.
func isChinese(text string) bool {
	han, others, latin := 0, 0, false
	for _, r := range clip(text, maxRead) {
		switch {
		case unicode.Is(unicode.Han, r):
			han++
		case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul), unicode.IsLetter(r) && !latin:
			others++
		}
		latin = unicode.IsLetter(r) && r < 0x3000
	}
	return han > others
}
