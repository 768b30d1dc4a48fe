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
	var out strings.Builder
	for _, part := range []string{"styles.xml", "content.xml"} {
		if a.parts[part] == nil && part == "styles.xml" {
			continue
		}
		b, err := a.read(part)
		if err != nil {
			return "", err
		}
		text, err := openDocument.text(newDecoder(bytes.NewReader(b)), limit)
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
	text, err := openDocument.text(newDecoder(strings.NewReader(document)), limit)
	if err != nil {
		return "", err
	}
	text, err = tidy(text)
	if errors.Is(err, ErrNoText) {
		err = without("OpenDocument file", saveAsPDF)
	}
	return text, err
}

// openDocument is the dialect of OpenDocument.
var openDocument = dialect{effect: openDocumentEffect, collapse: true}

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
