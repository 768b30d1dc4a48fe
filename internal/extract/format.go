package extract

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// Format is what a file is. Those that are refused have a reason.
type Format struct {
	// Image is the media type of an image that is accepted.
	Image  string
	Reason Reason
	read   func(content []byte, limit int) (string, error)
	pdf    bool
}

const (
	// maxHead is where a PDF header may begin at most, as in Acrobat (ISO 32000-1, annex H, note 13).
	maxHead = 1024
	blank   = " \t\r\n\f\v"
)

var (
	pdfHeader = regexp.MustCompile(`%PDF-\d\.\d`)
	// pdfParts are in every PDF that is more than its beginning.
	pdfParts = regexp.MustCompile(`\d obj\b`)
	// dataURL is a file in Base64 (RFC 2397).
	dataURL = regexp.MustCompile(`^data:[\w.+-]+/[\w.+-]+[^,\s]*;base64,`)
	pdfEnds = [][]byte{[]byte("endobj"), []byte("startxref"), []byte("%%EOF")}
)

// Detect returns the format of a file by its content: PDF, the marks of binary formats, and then kinds of text. A mark that texts
// may begin with, such as GIF89a, counts only in a file that is not a text.
func Detect(content []byte) Format {
	if pdfStarts(content) {
		return Format{pdf: true}
	}
	if f, found := binary(content); found {
		return f
	}
	if pdfAfterJunk(content) {
		return Format{pdf: true}
	}
	if looksLikeMail(content) {
		return Format{read: mail}
	}
	return Format{read: text}
}

// pdfStarts reports whether a file begins with the header of a PDF, possibly behind a byte order mark or white space. A line of text
// may begin with it, too.
func pdfStarts(content []byte) bool {
	trimmed := bytes.TrimLeft(bytes.TrimPrefix(content, utf8BOM), blank)
	at := pdfHeader.FindIndex(trimmed[:min(len(trimmed), 8)])
	if at == nil || at[0] != 0 {
		return false
	}
	rest := trimmed[at[1]:]
	return len(rest) == 0 || rest[0] == '\r' || rest[0] == '\n' || pdfParts.Match(rest)
}

// pdfAfterJunk reports whether a file is a PDF with something before its header, such as the headers of a transfer.
func pdfAfterJunk(content []byte) bool {
	at := pdfHeader.FindIndex(content[:min(len(content), maxHead+len("%PDF-1.4"))])
	return at != nil && pdfParts.Match(content[at[1]:]) &&
		slices.ContainsFunc(pdfEnds, func(end []byte) bool { return bytes.Contains(content[at[1]:], end) })
}

// text returns the text of a file that is not a known binary: plain text as it is, and the text of documents that are written as text.
func text(content []byte, limit int) (string, error) {
	decoded, err := decode(content)
	if err != nil {
		return "", err
	}
	start := strings.TrimLeft(decoded, blank)
	switch {
	case strings.HasPrefix(start, `{\rtf`):
		return "", unsupported("an RTF document", saveAsDocument)
	case strings.HasPrefix(start, "%!PS-Adobe-") && strings.Contains(start, "%%"):
		return "", unsupported("a PostScript document", saveAsPDF)
	case dataURL.MatchString(start):
		return "", unsupported("a data URL", "upload the file in it")
	case strings.HasPrefix(start, "<"):
		if out, err, found := marked(start, limit); found {
			return out, err
		}
	}
	if len(decoded) > limit {
		return "", ErrTooLong
	}
	return decoded, nil
}

// marked returns the text of HTML or XML, or found false for a text that only begins with an angle bracket.
func marked(start string, limit int) (out string, err error, found bool) { //nolint:revive // found belongs to both
	root := rootOf(start)
	if root == "" && (strings.HasPrefix(start, "<?xml") || strings.HasPrefix(start, "<!")) {
		root = xmlRoot(start) // declarations of XML may have others in them
	}
	switch {
	case root == "svg":
		return "", unsupported("an SVG image", saveAsImage), true
	case root == "html":
		out, err = html(start, limit, false)
	case isHTML(root) && !strings.HasPrefix(start, "<?xml"):
		out, err = html(start, limit, true)
	case root == "" && !strings.HasPrefix(start, "<?xml"):
		return "", nil, false
	default:
		out, err = xmlText(start, limit)
		if errors.Is(err, ErrDamaged) && !strings.HasPrefix(start, "<?xml") {
			return "", nil, false // such as "<T> is a type parameter"
		}
	}
	return out, err, true
}
