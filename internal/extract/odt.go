package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strconv"
	"strings"
)

// The namespaces of OpenDocument 1.3, and the beginning of the media types of its texts and their templates.
const (
	officeNamespace = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
	textNamespace   = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
	styleNamespace  = "urn:oasis:names:tc:opendocument:xmlns:style:1.0"
	titleNamespace  = "urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
	odtType         = "application/vnd.oasis.opendocument.text"
)

// odt returns the text of an OpenDocument text, at most limit bytes: headers and footers, which are in its styles, and the document.
func odt(content []byte, limit int) (string, error) {
	a, err := openArchive(content)
	if err != nil {
		return "", err
	}
	if manifest, err := a.read("META-INF/manifest.xml"); err == nil && bytes.Contains(manifest, []byte("encryption-data")) {
		return "", ErrEncrypted
	}
	var parts [][]byte
	styles := odtStyles{}
	for _, part := range []string{"styles.xml", "content.xml"} {
		if a.parts[part] == nil && part == "styles.xml" {
			continue
		}
		b, err := a.read(part)
		if err != nil {
			return "", err
		}
		parts = append(parts, b)
		styles.read(newDecoder(bytes.NewReader(b)))
	}
	var out strings.Builder
	for _, b := range parts {
		text, err := openDocument(styles).text(newDecoder(bytes.NewReader(b)), limit)
		if err != nil {
			return "", err
		}
		out.WriteString(text + "\n")
	}
	if out.Len() > limit+len("\n\n") {
		return "", ErrTooLong
	}
	return tidy(out.String())
}

// flatODT returns the text of an OpenDocument text in one XML file.
func flatODT(document string, limit int) (string, error) {
	styles := odtStyles{}
	styles.read(newDecoder(strings.NewReader(document)))
	text, err := openDocument(styles).text(newDecoder(strings.NewReader(document)), limit)
	if err != nil {
		return "", err
	}
	text, err = tidy(text)
	if errors.Is(err, ErrNoText) {
		err = without("OpenDocument file", saveAsPDF)
	}
	return text, err
}

// odtStyles are styles by family and name: whether their text is hidden, where they state it, and their parents.
type odtStyles map[odtStyle]struct {
	parent string
	states bool
	hidden bool
}

type odtStyle struct{ family, name string }

// maxParents bounds how many parents of a style are considered, because they may refer to each other.
const maxParents = 32

// read adds the styles of a part. What comes behind an error is missing, and the error is that of the text.
func (s odtStyles) read(d *xml.Decoder) {
	var of odtStyle
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		if end, ok := token.(xml.EndElement); ok && end.Name.Space == styleNamespace && end.Name.Local == "style" {
			of = odtStyle{}
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Space != styleNamespace {
			continue
		}
		switch display := value(e, "display"); {
		case e.Name.Local == "style":
			of = odtStyle{value(e, "family"), value(e, "name")}
			style := s[of]
			style.parent = value(e, "parent-style-name")
			s[of] = style
		case e.Name.Local == "text-properties" && display != "":
			style := s[of]
			style.states, style.hidden = true, display == "none"
			s[of] = style
		}
	}
}

// hides reports whether the text of an element is hidden by its style.
func (s odtStyles) hides(e xml.StartElement) bool {
	of := odtStyle{"text", value(e, "style-name")}
	if e.Name.Local == "p" || e.Name.Local == "h" {
		of.family = "paragraph"
	}
	for range maxParents {
		style, known := s[of]
		if !known || style.states {
			return style.hidden
		}
		of.name = style.parent
	}
	return false
}

// openDocument returns the dialect of OpenDocument in a document with these styles.
func openDocument(styles odtStyles) dialect {
	return dialect{collapse: true, effect: func(e xml.StartElement) (effect, string) {
		if e.Name.Space == textNamespace && (e.Name.Local == "span" || e.Name.Local == "p" || e.Name.Local == "h") && styles.hides(e) {
			return skip, ""
		}
		return openDocumentEffect(e)
	}}
}

func openDocumentEffect(e xml.StartElement) (effect, string) {
	switch {
	case e.Name.Space == textNamespace:
	case e.Name.Space == officeNamespace && (e.Name.Local == "annotation" || e.Name.Local == "binary-data" || e.Name.Local == "scripts"),
		e.Name.Space == titleNamespace && (e.Name.Local == "title" || e.Name.Local == "desc"):
		return skip, ""
	default:
		return nothing, ""
	}
	switch e.Name.Local {
	case "p", "h":
		return shown | block, ""
	case "tab":
		return nothing, "\t"
	case "line-break":
		return nothing, "\n"
	case "s":
		n, err := strconv.Atoi(value(e, "c"))
		if err != nil {
			n = 1
		}
		return nothing, strings.Repeat(" ", max(0, min(n, 100)))
	case "tracked-changes", "note-citation", "hidden-text":
		return skip, ""
	}
	return nothing, ""
}
