package extract

import (
	"bytes"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/simplifiedchinese"
)

// header has the fields of a message or part, with names in lower case. Of several with one name the first counts.
type header map[string]string

var (
	fieldName = regexp.MustCompile(`^[!-9;-~]+[ \t]*:`)
	folding   = regexp.MustCompile(`\n[ \t]+`)
)

// splitHeader returns the fields before the first empty line, and what follows it. The lines end with LF. Another line than that of a field ends
// the header of programs that omit the empty line.
func splitHeader(content []byte) (h header, rest []byte, ended bool) {
	h = header{}
	for len(content) > 0 {
		end := lineEnd(content)
		if len(bytes.TrimSpace(content[:end])) == 0 {
			return h, content[end:], true
		}
		for end < len(content) && (content[end] == ' ' || content[end] == '\t') && len(bytes.TrimSpace(content[end:end+lineEnd(content[end:])])) > 0 {
			end += lineEnd(content[end:])
		}
		field := content[:end]
		if at := fieldName.FindIndex(field); at != nil {
			name := strings.ToLower(strings.TrimSpace(string(field[:at[1]-1])))
			if _, twice := h[name]; !twice {
				h[name] = strings.TrimSpace(folding.ReplaceAllString(string(field[at[1]:]), " "))
			}
		} else if !bytes.HasPrefix(field, []byte("From ")) && !bytes.HasPrefix(field, []byte(">From ")) {
			return h, content, false
		}
		content = content[end:]
	}
	return h, nil, true
}

// lineEnd returns where the line behind the first one begins.
func lineEnd(content []byte) int {
	if n := bytes.IndexByte(content, '\n'); n >= 0 {
		return n + 1
	}
	return len(content)
}

// unixLines returns a text whose lines end with LF.
func unixLines(content []byte) []byte {
	content = bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))
	if bytes.IndexByte(content, '\n') < 0 {
		content = bytes.ReplaceAll(content, []byte("\r"), []byte("\n"))
	}
	return content
}

// splitParts returns the parts of a multipart body, and whether its last boundary is there (RFC 2046, 5.1.1).
func splitParts(body []byte, boundary string) (parts [][]byte, closed bool) {
	delimiter := []byte("--" + boundary)
	begin := -1
	for at := 0; at < len(body); {
		end := at + lineEnd(body[at:])
		line := bytes.TrimRight(body[at:end], " \t\r\n")
		if rest, found := bytes.CutPrefix(line, delimiter); found && (len(rest) == 0 || string(rest) == "--") {
			if begin >= 0 {
				parts = append(parts, bytes.TrimSuffix(body[begin:at], []byte("\n")))
			}
			if begin = end; len(rest) > 0 {
				return parts, true
			}
		}
		at = end
	}
	if begin >= 0 {
		parts = append(parts, body[begin:])
	}
	return parts, false
}

// anyBoundary is a boundary with the header of a part behind it.
var anyBoundary = regexp.MustCompile(`(?m)^--([^\s-].{0,100}|-.{0,100}?)[ \t]*\n(?i:content-[a-z-]+:)`)

// partsOf returns the parts of a multipart body whose header may state no boundary, or another than is there.
func partsOf(body []byte, boundary string) (parts [][]byte, closed bool) {
	if boundary = strings.TrimRight(boundary, " \t"); boundary != "" {
		parts, closed = splitParts(body, boundary)
	}
	if len(parts) == 0 {
		if found := anyBoundary.FindSubmatch(body); found != nil {
			parts, closed = splitParts(body, strings.TrimRight(string(found[1]), " \t"))
		}
	}
	return parts, closed
}

// transferred undoes the encoding of a body for its transfer, with the number of letters that are left at its end. What cannot be decoded remains as it is.
func transferred(body []byte, coding string) (out []byte, left int) {
	coding, _, _ = strings.Cut(strings.ToLower(coding), ";")
	switch strings.TrimSpace(coding) {
	case "base64":
		return unbase64(body)
	case "quoted-printable":
		return unquoted(body), 0
	case "x-uuencode", "uuencode", "x-uue", "uue":
		return unuuencoded(body)
	}
	return body, 0
}

// unquoted decodes the quoted-printable encoding (RFC 2045, 6.7), in which an equals sign that encodes nothing is one.
func unquoted(body []byte) []byte {
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '=' {
			out = append(out, body[i])
			continue
		}
		rest := body[i+1:]
		if soft := len(rest) - len(bytes.TrimLeft(rest, " \t\r")); soft == len(rest) || rest[soft] == '\n' {
			i += soft + 1
			continue
		}
		if len(rest) >= 2 {
			if b, ok := hexByte(rest[0], rest[1]); ok {
				out = append(out, b)
				i += 2
				continue
			}
		}
		out = append(out, '=')
	}
	return out
}

func hexByte(high, low byte) (byte, bool) {
	var out [1]byte
	_, err := hex.Decode(out[:], []byte{high, low})
	return out[0], err == nil
}

// labelled decodes a text in the encoding that its label states, if it can be that.
func labelled(b []byte, label string) (string, bool) {
	label, _, _ = strings.Cut(strings.TrimSpace(label), " ")
	enc, name := encodingOf(label)
	switch {
	case enc == nil:
		return "", false
	case isUTF8(b, name):
		return string(b), true
	case name == "gbk": // programs write its extension, too
		enc = simplifiedchinese.GB18030
	}
	return strictly(enc, b)
}

// isUTF8 reports whether a text is UTF-8, though it states another encoding: Windows-1252 by its old names is the default of programs,
// and in others there are hardly four characters that are UTF-8.
func isUTF8(b []byte, stated string) bool {
	const hardly = 4
	return utf8.Valid(b) && (stated == "windows-1252" || stated == "utf-8" || wide(b) >= hardly)
}

// wide counts the characters that are not ASCII.
func wide(b []byte) (n int) {
	for _, r := range string(b) {
		if r >= utf8.RuneSelf {
			n++
		}
	}
	return n
}

// encodedWord is a piece of a header field (RFC 2047), possibly with a language (RFC 2231, 5).
var encodedWord = regexp.MustCompile(`=\?([\w.:+-]+)(?:\*[\w-]*)?\?([BbQq])\?(.*?)\?=`)

// headerText decodes the value of a header field; what cannot be decoded remains as it is. Adjacent words of one encoding are one text,
// because programs cut within characters. Bytes that are not encoded are in the encoding of the message, or in any that is certain.
func headerText(value, label string) string {
	if !utf8.ValidString(value) {
		out, ok := labelled([]byte(value), label)
		if !ok {
			var err error
			if out, err = decode([]byte(value)); err != nil {
				out = strings.ToValidUTF8(value, string(utf8.RuneError))
			}
		}
		value = out
	}
	var out strings.Builder
	var raw []byte // of words in the encoding of
	var of string
	flush := func() {
		if len(raw) > 0 {
			out.WriteString(wordText(raw, of))
		}
		raw = nil
	}
	last := 0
	for _, at := range encodedWord.FindAllStringSubmatchIndex(value, -1) {
		between := value[last:at[0]]
		name := strings.ToLower(value[at[2]:at[3]])
		if strings.TrimSpace(between) != "" || last == 0 || name != of {
			flush()
		}
		if strings.TrimSpace(between) != "" || last == 0 {
			out.WriteString(between)
		}
		text := []byte(value[at[6]:at[7]])
		if strings.EqualFold(value[at[4]:at[5]], "b") {
			text, _ = unbase64(text)
		} else {
			text = unquoted(bytes.ReplaceAll(text, []byte("_"), []byte(" ")))
		}
		raw, of, last = append(raw, text...), name, at[1]
	}
	flush()
	out.WriteString(value[last:])
	return strings.Join(strings.Fields(out.String()), " ")
}

// wordText decodes the bytes of words.
func wordText(raw []byte, label string) string {
	if out, ok := labelled(raw, label); ok {
		return out
	}
	if enc, _ := encodingOf(label); enc != nil && enc != encoding.Nop {
		if out, err := enc.NewDecoder().Bytes(raw); err == nil {
			return string(out)
		}
	}
	return strings.ToValidUTF8(string(raw), string(utf8.RuneError))
}
