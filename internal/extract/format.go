package extract

import (
	"bytes"
	"errors"
	"path"
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
	// rtfHeader is the beginning of RTF with a control word or a group behind it; behind that of rtfText is text.
	rtfHeader = regexp.MustCompile(`^\{\\rtf\d*\s*(\\[a-z*]|\{\\)`)
	rtfText   = regexp.MustCompile(`^\{\\rtf\d+\s`)
	// xmlDeclaration is the beginning of a document in XML.
	xmlDeclaration = regexp.MustCompile(`^<\?xml(\s+(version|encoding)|-stylesheet\s+(href|type))\s*=\s*["']`)

	pdfEnds = [][]byte{[]byte("endobj"), []byte("startxref"), []byte("%%EOF")}
)

// pages and sources are the extensions of names that state what a text with tags is: HTML, or a text that is kept as it is, such as
// source code, a component or a template.
var (
	pages   = elements(".html .htm .xhtml .xht .shtml")
	sources = elements(`.md .markdown .mdown .mkd .mdx .rmd .qmd .rst .adoc .asciidoc .textile .org .tex .wiki
		.vue .svelte .astro .riot .marko .jsx .tsx .js .mjs .cjs .ts .mts .coffee
		.erb .rhtml .haml .slim .ejs .eta .hbs .handlebars .mustache .twig .liquid .njk .j2 .jinja .jinja2 .tmpl .tpl .gohtml .gotmpl .templ
		.ftl .ftlh .vm .mako .tt .heex .leex .eex .cshtml .vbhtml .razor .ascx .master .jspx .tag .latte .blade
		.xsl .xslt .go .py .rb .java .kt .cs .c .h .cpp .hpp .rs .swift .scala .sh .ps1 .sql .r .lua .pl .css .scss .less
		.json .jsonl .yaml .yml .toml .ini .csv .tsv .log .diff .patch`)
)

// Detect returns the format of a file by its content: PDF, the marks of binary formats, and then kinds of text. A mark that texts
// may begin with, such as GIF89a, counts only in a file that is not a text. The name, which may be empty, decides only what a text is
// that has tags, or fields like those of a message, in it.
func Detect(content []byte, name string) Format {
	if pdfStarts(content) {
		return Format{pdf: true}
	}
	if f, found := binary(content); found {
		return f
	}
	if pdfAfterJunk(content) {
		return Format{pdf: true}
	}
	extension := strings.ToLower(path.Ext(name))
	if !sources[extension] && looksLikeMail(content, extension) {
		return Format{read: mail}
	}
	return Format{read: func(content []byte, limit int) (string, error) { return text(content, extension, limit) }}
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

// isRTF reports whether a file is RTF: it begins with control words, or is one group.
func isRTF(content []byte) bool {
	content = bytes.Trim(bytes.TrimPrefix(content, utf8BOM), blank+"\x00")
	return rtfHeader.Match(content) || rtfText.Match(content) && oneGroup(content)
}

// oneGroup reports whether a text is within the braces that it begins with.
func oneGroup(content []byte) bool {
	depth := 0
	for i := 0; i < len(content); i++ {
		switch content[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i == len(content)-1
			}
		}
	}
	return false
}

// text returns the text of a file that is not a known binary: plain text as it is, and the text of documents that are written as text.
func text(content []byte, extension string, limit int) (out string, err error) {
	if isRTF(content) {
		return "", unsupported("an RTF document", saveAsDocument)
	}
	decoded, err := decode(content)
	if err != nil {
		return "", err
	}
	start := strings.TrimLeft(decoded, blank)
	switch {
	case strings.HasPrefix(start, "%!PS-Adobe-") && strings.Contains(start, "%%"):
		return "", unsupported("a PostScript document", saveAsPDF)
	case dataURL.MatchString(start):
		return "", unsupported("a data URL", "upload the file in it")
	case sources[extension], isProgram(start):
	case pages[extension] && hasElement(start):
		return html(start, limit, !isPage(rootOf(start)))
	case strings.HasPrefix(start, "<"):
		if out, err, found := marked(start, extension, limit); found {
			return out, err
		}
	}
	if len(decoded) > limit {
		return "", ErrTooLong
	}
	return decoded, nil
}

// marked returns the text of HTML or XML, or found false for a text that only has tags in it: nothing of that may be lost.
func marked(start, extension string, limit int) (out string, err error, found bool) { //nolint:revive // found belongs to both
	declares := xmlDeclaration.MatchString(start)
	root := rootOf(start)
	if root == "" && (declares || strings.HasPrefix(start, "<!")) {
		root = xmlRoot(start) // declarations of XML may have others in them
	}
	switch {
	case root == "svg":
		return "", unsupported("an SVG image", saveAsImage), true
	case isPage(root):
		out, err = html(start, limit, false)
	case declares, extension == ".xml", extension == ".fodt", strings.HasPrefix(start, "<!DOCTYPE") && root != "", onlyData(start):
		out, err = xmlText(start, limit)
		if errors.Is(err, errStylesheet) {
			return "", nil, false
		}
	default:
		return "", nil, false
	}
	return out, err, true
}
