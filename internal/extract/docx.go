package extract

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxXML limits the size of a DOCX file's text part after decompression.
const maxXML = 16 << 20

// documentPart is the part of a DOCX file with its text. Its elements are in one of the namespaces, of the transitional and of
// the strict form (ECMA-376, part 4 and part 1, annex A).
const (
	documentPart    = "word/document.xml"
	wordNamespace   = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
	strictNamespace = "http://purl.oclc.org/ooxml/wordprocessingml/main"
)

// IsDOCX reports whether a ZIP file is a DOCX file.
func IsDOCX(content []byte) bool {
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	return err == nil && part(archive) != nil
}

func part(archive *zip.Reader) *zip.File {
	for _, f := range archive.File {
		if f.Name == documentPart {
			return f
		}
	}
	return nil
}

// DOCX returns the text of a DOCX file, at most limit bytes, without headers, footers and notes.
func DOCX(content []byte, limit int) (string, error) {
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	f := part(archive)
	if f == nil {
		return "", ErrDamaged
	}
	r, err := f.Open()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer func() { _ = r.Close() }() // it was only read from
	bounded := &io.LimitedReader{R: r, N: maxXML + 1}
	text, err := paragraphs(xml.NewDecoder(bounded), limit)
	switch {
	case bounded.N <= 0, errors.Is(err, ErrTooLong):
		return "", ErrTooLong
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return tidy(text)
}

// paragraphs returns the text of a document part. Deleted text and field codes are in other elements than w:t.
func paragraphs(d *xml.Decoder, limit int) (string, error) {
	var out strings.Builder
	inText, runs := false, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		switch e := token.(type) {
		case xml.StartElement:
			name := wordName(e.Name)
			inText = name == "t"
			switch {
			case name == "r":
				runs++
			case runs > 0 && name == "tab": // others define tab stops
				out.WriteByte('\t')
			case runs > 0 && (name == "br" || name == "cr"):
				out.WriteByte('\n')
			}
		case xml.EndElement:
			inText = false
			switch wordName(e.Name) {
			case "r":
				runs--
			case "p":
				out.WriteByte('\n')
			}
		case xml.CharData:
			if inText {
				out.Write(e)
			}
		}
		if out.Len() > limit {
			return "", ErrTooLong
		}
	}
}

// wordName returns the name of an element of the document, empty for others such as formulas and drawings.
func wordName(n xml.Name) string {
	if n.Space != wordNamespace && n.Space != strictNamespace {
		return ""
	}
	return n.Local
}
