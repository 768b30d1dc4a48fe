package extract

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"berth/internal/mediatype"
)

const (
	// maxMailDepth and maxMailParts bound the structure of a message.
	maxMailDepth = 30
	maxMailParts = 1000
	// maxMailHead is how far the header of a message is searched.
	maxMailHead = 64 << 10
	// maxListed is how many attachments are named.
	maxListed = 100
)

var (
	// technical are fields that programs write, and that a text about a message hardly begins with.
	technical = []string{
		"mime-version", "message-id", "received", "return-path", "delivered-to", "content-transfer-encoding", "dkim-signature", "x-mailer",
		"authentication-results", "in-reply-to", "list-unsubscribe",
	}
	// addressed are fields that readers are shown.
	addressed = []string{"from", "to", "cc", "date", "subject"}
	shownAs   = map[string]string{"from": "From", "to": "To", "cc": "Cc", "date": "Date", "subject": "Subject"}
	// textual is a Content-Type that messages have.
	textual = regexp.MustCompile(`(?i)^(text|multipart|message)/`)
	// mailbox is the line before each message of a mailbox (RFC 4155).
	mailbox = regexp.MustCompile(`^From \S+.*\d\d:\d\d.*\r?\n`)
	// counted is the first line of a message of Apple Mail: its length.
	counted = regexp.MustCompile(`^\d{1,9}[ \t]*\r?\n`)
)

// mailNames are the extensions of messages in their source.
var mailNames = elements(".eml .emlx .mbox .mht .mhtml")

// looksLikeMail reports whether a file is a message in its source (RFC 5322), or several in a mailbox. Beside fields that programs write,
// the name of the file or encoded fields show it.
func looksLikeMail(content []byte, extension string) bool {
	head := bytes.TrimLeft(bytes.TrimPrefix(content, utf8BOM), blank)
	head = unixLines(head[:min(len(head), maxMailHead)])
	begins := mailbox.FindIndex(head)
	if begins != nil {
		head = head[begins[1]:]
	} else if at := counted.FindIndex(head); at != nil {
		head = head[at[1]:]
	}
	fields, _, ended := splitHeader(head)
	if !ended && !mailNames[extension] || bytes.IndexByte(content, 0) >= 0 {
		return false
	}
	has := func(names []string) bool {
		for _, name := range names {
			if _, found := fields[name]; found {
				return true
			}
		}
		return false
	}
	encoded := func() bool {
		for _, name := range addressed {
			if encodedWord.MatchString(fields[name]) {
				return true
			}
		}
		return false
	}
	return has(technical) || has(addressed) && (mailNames[extension] || begins != nil || textual.MatchString(fields["content-type"]) || encoded())
}

// mail returns the header fields that a reader is shown and the text of a message, or of all messages of a mailbox, and the names of what
// is attached.
func mail(content []byte, limit int) (string, error) {
	content = unixLines(bytes.TrimLeft(bytes.TrimPrefix(content, utf8BOM), blank))
	if at := counted.FindIndex(content); at != nil { // behind the message is a property list
		length, err := strconv.Atoi(string(bytes.TrimSpace(content[:at[1]])))
		if content = content[at[1]:]; err == nil && length < len(content) {
			content = content[:length]
		}
	}
	m := &mailReader{source: content, limit: limit}
	var all []string
	for _, source := range messages(content) {
		text, err := m.message(source, 0)
		if m.damaged {
			return "", ErrDamaged
		}
		if err != nil {
			return "", err
		}
		all = append(all, text)
		if m.size += len(text); m.size > limit {
			return "", ErrTooLong
		}
	}
	switch {
	case m.cutOff && !bytes.HasSuffix(content, []byte("\n")):
		return "", ErrDamaged
	case m.texts == 0 && (!m.blank || m.encrypted || len(m.attached) > 0):
		return "", m.reason()
	}
	out, err := tidy(strings.Join(all, "\n\n") + "\n" + m.list())
	if errors.Is(err, ErrNoText) {
		return "", m.reason()
	}
	if len(out) > limit {
		return "", ErrTooLong
	}
	return out, err
}

// messages returns the messages of a mailbox, or the one message that a file is.
func messages(content []byte) (all [][]byte) {
	if !mailbox.Match(content) {
		return [][]byte{content}
	}
	begin := 0
	for at := 0; at < len(content); {
		line := content[at : at+lineEnd(content[at:])]
		next := at + len(line)
		begins := bytes.HasPrefix(line, []byte("From ")) && mailbox.Match(line) && fieldName.Match(content[next:]) &&
			(at == 0 || at > 1 && content[at-2] == '\n')
		if begins && at > 0 {
			all = append(all, unstuffed(content[begin:at]))
		}
		if begins {
			begin = next
		}
		at = next
	}
	return append(all, unstuffed(content[begin:]))
}

var stuffed = regexp.MustCompile(`(?m)^>(>*From )`)

// unstuffed removes the mark of lines of a message that begin like the line before a message.
func unstuffed(source []byte) []byte { return stuffed.ReplaceAll(source, []byte("$1")) }

// mailReader reads messages.
type mailReader struct {
	source       []byte
	limit, size  int
	parts, texts int
	attached     []string
	times        map[string]int
	// blank: a text is empty. cutOff: a part has no end. damaged: it ends within a group of Base64. outlook, encrypted: what a message without text has.
	blank, cutOff, damaged, outlook, encrypted bool
}

// reason is why there is no text.
func (m *mailReader) reason() error {
	switch {
	case m.encrypted:
		return Reason("the message is encrypted: save it without encryption")
	case m.outlook:
		return without("message", "it is in an Outlook attachment (winmail.dat); let the sender send it as HTML or plain text")
	}
	return without("message", "save what it has attached and upload that")
}

// attach notes a part that is not included.
func (m *mailReader) attach(name, kind string) {
	if name == "" {
		name = "one without a name, " + kind
	}
	if m.times == nil {
		m.times = map[string]int{}
	}
	if m.times[name]++; m.times[name] == 1 {
		m.attached = append(m.attached, name)
	}
}

// list names what is attached.
func (m *mailReader) list() string {
	var out strings.Builder
	for i, name := range m.attached {
		if i == maxListed {
			fmt.Fprintf(&out, "\nAttachments, which are not included: %d more", len(m.attached)-i)
			break
		}
		fmt.Fprintf(&out, "\nAttachment, which is not included: %s", name)
		if m.times[name] > 1 {
			fmt.Fprintf(&out, " (%d times)", m.times[name])
		}
	}
	return out.String()
}

// message returns the fields and the text of a message.
func (m *mailReader) message(source []byte, depth int) (string, error) {
	h, body, _ := splitHeader(bytes.TrimLeft(source, "\n"))
	_, params := mediatype.Parse(h["content-type"])
	var out strings.Builder
	for _, name := range addressed {
		if text := headerText(h[name], params["charset"]); text != "" {
			fmt.Fprintf(&out, "%s: %s\n", shownAs[name], text)
		}
	}
	text, err := m.part(piece{header: h, body: body, depth: depth, root: true})
	if text != "" {
		out.WriteString("\n" + text)
	}
	return out.String(), err
}

// piece is a part of a message.
type piece struct {
	header
	body  []byte
	depth int
	// root: it is a message. within is the media type of the part that it is in.
	root   bool
	within string
}

// part returns the text of a part, empty if it has none.
func (m *mailReader) part(p piece) (string, error) {
	if m.parts++; m.parts > maxMailParts || p.depth > maxMailDepth {
		return "", ErrTooSlow
	}
	kind, params := mediatype.Parse(p.header["content-type"])
	switch {
	case p.within == "multipart/digest" && kind == "":
		kind = "message/rfc822"
	case !strings.Contains(kind, "/"):
		kind = "text/plain"
	}
	disposition, named := mediatype.Parse(p.header["content-disposition"])
	name := headerText(cmp.Or(named["filename"], params["name"]), params["charset"])
	coding := p.header["content-transfer-encoding"]
	switch {
	case strings.HasPrefix(kind, "multipart/"):
		parts, closed := partsOf(p.body, params["boundary"])
		if len(parts) == 0 { // which no program wrote as multipart
			body, _ := transferred(p.body, coding)
			parts, closed = partsOf(body, params["boundary"])
		}
		m.encrypted = m.encrypted || kind == "multipart/encrypted"
		if m.cutOff = m.cutOff || !closed; len(parts) > 0 {
			return m.multipart(p, kind, parts)
		}
		return m.text(p.body, "text/plain", params)
	case kind == "message/rfc822" || kind == "message/global":
		body := m.decoded(p.body, coding)
		text, err := m.message(bytes.TrimLeft(body, "\n"), p.depth+1)
		return "Forwarded message:\n" + text, err
	case disposition == "attachment" && !p.root, !isTextual(kind):
		m.outlook = m.outlook || strings.HasSuffix(kind, "ms-tnef") || strings.EqualFold(name, "winmail.dat")
		m.encrypted = m.encrypted || strings.HasSuffix(kind, "pkcs7-mime")
		if name != "" || p.within != "multipart/related" || strings.HasPrefix(kind, "image/") { // others are parts of a page
			m.attach(name, kind)
		}
		return "", nil
	}
	return m.text(m.decoded(p.body, coding), kind, params)
}

// decoded undoes the encoding of a part for its transfer, and notes whether the file ends within it: a single letter encodes nothing, and
// others without padding are whole at the end of a line only.
func (m *mailReader) decoded(body []byte, coding string) []byte {
	out, left := transferred(body, coding)
	if left > 0 && bytes.HasSuffix(m.source, body) {
		m.damaged = m.damaged || left == 1 || !bytes.HasSuffix(body, []byte("\n"))
	}
	return out
}

// isTextual reports whether a part of this media type is shown as text.
func isTextual(kind string) bool {
	switch kind {
	case "text/css", "text/javascript", "text/rtf", "text/x-amp-html", "text/xml":
		return false
	case "message/delivery-status", "message/disposition-notification", "message/feedback-report", "message/rfc822-headers":
		return true
	}
	return strings.HasPrefix(kind, "text/")
}

// multipart returns the texts of parts, of alternatives those that have text which the others lack.
func (m *mailReader) multipart(p piece, kind string, parts [][]byte) (string, error) {
	var texts []string
	for _, source := range parts {
		h, body, _ := splitHeader(source)
		text, err := m.part(piece{header: h, body: body, depth: p.depth + 1, within: kind})
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(text) != "" {
			texts = append(texts, text)
		}
	}
	if kind == "multipart/alternative" {
		texts = different(texts)
	}
	out := strings.Join(texts, "\n\n")
	if len(out) > m.limit {
		return "", ErrTooLong
	}
	return out, nil
}

// text returns the text of a part, which is in the encoding that the message states.
func (m *mailReader) text(b []byte, kind string, params map[string]string) (string, error) {
	if isUTF7(params["charset"]) && bytes.IndexByte(b, '+') >= 0 {
		return "", Reason("the message is in UTF-7, which is not supported: save its text as UTF-8")
	}
	decoded, ok := labelled(b, params["charset"])
	if !ok {
		var err error
		if decoded, err = decode(b); err != nil {
			return "", err
		}
	}
	if _, err := noNUL(decoded); err != nil {
		return "", err
	}
	start := strings.TrimLeft(decoded, blank)
	var out string
	var err error
	switch {
	case kind == "text/html", strings.HasPrefix(start, "<") && isPage(rootOf(start)):
		if out, err = html(decoded, m.limit, false); errors.Is(err, errBlankPage) {
			m.blank = m.blank || start == ""
			return "", nil
		}
	case kind == "text/calendar":
		out, err = tidy(foldedLine.ReplaceAllString(decoded, ""))
	case strings.EqualFold(params["format"], "flowed"):
		out, err = tidy(unflowed(decoded, strings.EqualFold(params["delsp"], "yes")))
	default:
		out, err = tidy(decoded)
	}
	if errors.Is(err, ErrNoText) {
		m.blank = m.blank || start == ""
		return "", nil
	}
	if err != nil {
		return "", err
	}
	m.texts++
	return out, nil
}
