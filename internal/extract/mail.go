package extract

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-message"
	"golang.org/x/net/html/charset"
)

const (
	// maxMailDepth and maxMailParts bound the structure of a message.
	maxMailDepth = 8
	maxMailParts = 100
	// maxMailHead is how far the header of a message is searched.
	maxMailHead = 64 << 10
)

var (
	// headerLines are the fields of a message and their continuations, up to the empty line.
	headerLines = regexp.MustCompile(`^(?:[!-9;-~]+:.*\r?\n(?:[ \t].*\r?\n)*)+\r?\n`)
	// technical are fields that programs write, and that a text about a message hardly begins with.
	technical = regexp.MustCompile(`(?mi)^(?:mime-version|message-id|received|return-path|delivered-to|content-transfer-encoding):`)
	// mailbox is the line before each message of a mailbox (RFC 4155).
	mailbox = regexp.MustCompile(`^From \S+ .*\d\d:\d\d:\d\d.*\r?\n`)
)

// looksLikeMail reports whether a file is a message in its source (RFC 5322), or several in a mailbox.
func looksLikeMail(content []byte) bool {
	head := bytes.TrimLeft(content[:min(len(content), maxMailHead)], blank)
	if at := mailbox.FindIndex(head); at != nil {
		head = head[at[1]:]
	}
	found := headerLines.Find(head)
	return found != nil && technical.Match(found) && bytes.IndexByte(content, 0) < 0
}

// mail returns the header fields that a reader is shown and the text of a message, and the names of what is attached.
func mail(content []byte, limit int) (string, error) {
	content = bytes.TrimLeft(content, blank)
	if mailbox.Match(content) {
		return "", unsupported("a mailbox", "export single messages as .eml")
	}
	e, err := message.Read(bytes.NewReader(content))
	if e == nil {
		return "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m := &mailReader{limit: limit}
	for _, field := range []string{"From", "To", "Cc", "Date", "Subject"} {
		if text := headerText(e.Header.Get(field)); text != "" {
			fmt.Fprintf(&m.out, "%s: %s\n", field, text)
		}
	}
	if err := e.Walk(m.part); err != nil {
		if _, known := errors.AsType[Reason](err); known || errors.Is(err, ErrTooLong) {
			return "", err
		}
		return "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if m.texts == 0 {
		return "", without("message", "save what it has attached and upload that")
	}
	return tidy(m.out.String() + m.attached.String())
}

// mailReader collects the text of the parts of a message.
type mailReader struct {
	out, attached strings.Builder
	limit         int
	parts, texts  int
	// shown is the multipart/alternative of which a part has been read: the others are the same text again.
	shown string
	kinds []string
}

func (m *mailReader) part(at []int, e *message.Entity, err error) error {
	if err != nil && !message.IsUnknownCharset(err) {
		return err
	}
	if m.parts++; m.parts > maxMailParts || len(at) > maxMailDepth {
		return ErrTooSlow
	}
	kind, params, _ := e.Header.ContentType() // an invalid one is that of plain text
	m.kinds = append(m.kinds[:min(len(at), len(m.kinds))], kind)
	if strings.HasPrefix(kind, "multipart/") {
		return nil
	}
	disposition, named, _ := e.Header.ContentDisposition() // as above
	name := headerText(cmp.Or(named["filename"], params["name"]))
	if disposition == "attachment" || kind != "" && kind != "text/plain" && kind != "text/html" {
		if name != "" {
			fmt.Fprintf(&m.attached, "\nAttachment, which is not included: %s", name)
		}
		return nil
	}
	branch := ""
	if n := len(at) - 1; n >= 0 && n < len(m.kinds) && m.kinds[n] == "multipart/alternative" {
		branch = fmt.Sprint(at[:n])
	}
	if branch != "" && branch == m.shown {
		return nil
	}
	b, err := io.ReadAll(e.Body)
	if err != nil {
		return err
	}
	text, err := partText(b, kind, params["charset"], m.limit)
	switch {
	case errors.Is(err, ErrNoText):
		return nil
	case err != nil:
		return err
	}
	m.shown = branch
	m.texts++
	m.out.WriteString("\n" + text + "\n")
	if m.out.Len() > m.limit {
		return ErrTooLong
	}
	return nil
}

// partText returns the text of one part, which is in the encoding that the message states.
func partText(b []byte, kind, label string, limit int) (string, error) {
	// Programs state their default, Windows-1252 by its old names, for texts in UTF-8, too.
	if enc, name := charset.Lookup(label); enc != nil && (name != "windows-1252" || !utf8.Valid(b)) {
		if out, ok := strictly(enc, b); ok {
			b = []byte(out)
		}
	}
	decoded, err := decode(b)
	if err != nil {
		return "", err
	}
	if kind != "text/html" {
		return tidy(decoded)
	}
	out, err := html(decoded, limit, false)
	if _, empty := errors.AsType[Reason](err); empty {
		return "", ErrNoText
	}
	return out, err
}

// headerText decodes the value of a header field; what cannot be decoded remains as it is.
func headerText(value string) string {
	words := mime.WordDecoder{CharsetReader: charset.NewReaderLabel}
	if text, err := words.DecodeHeader(value); err == nil {
		value = text
	}
	return strings.Join(strings.Fields(value), " ")
}
