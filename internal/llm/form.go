package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

func (s *session) notAnAnswer(mediaType string, words []byte) *CallError {
	s.accepted = false
	media, _, _ := mime.ParseMediaType(mediaType) // empty if it is invalid
	reason := media + " without an answer"
	if bytes.HasPrefix(bytes.TrimSpace(words), []byte("<")) { // such as that of a proxy
		reason = strings.TrimSpace("a page " + media)
	}
	return s.failure(CauseAddress, http.StatusOK, s.shown("", reason), errors.New(s.quote(words)))
}

// form is what a response with status 200 is.
type form int

const (
	formOther form = iota
	formStream
	formObject
)

// fieldNames are those of an event stream; a comment has none.
var fieldNames = []string{"", "data", "event", "id", "retry"}

// formOf looks at the beginning of a response: servers without streaming return a JSON object, errors too, and some state another
// media type than they send. White space before it keeps connections open.
func formOf(in *bufio.Reader, mediaType string) (form, error) {
	for {
		c, _, err := in.ReadRune()
		if errors.Is(err, io.EOF) {
			return formStream, nil // without an event
		}
		if err != nil {
			return formOther, err
		}
		if blank(c) {
			continue
		}
		if err := in.UnreadRune(); err != nil {
			return formOther, err
		}
		media, _, _ := mime.ParseMediaType(mediaType) // empty if it is invalid
		switch {
		case c == '{' || c == '[':
			return formObject, nil
		case c == '<':
			return formOther, nil
		case media == "" || media == "text/event-stream":
			return formStream, nil
		}
		return formOfField(in), nil
	}
}

// formOfField reports whether a response begins with a field of an event stream. It reads no further than that.
func formOfField(in *bufio.Reader) form {
	for n := 1; n <= len("retry:"); n++ {
		head, err := in.Peek(n)
		if err != nil {
			break
		}
		if name, isField := bytes.CutSuffix(head, []byte(":")); isField {
			if slices.Contains(fieldNames, string(name)) {
				return formStream
			}
			break
		}
	}
	return formOther
}
