package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// The namespaces of documents in Office Open XML, of the transitional and of the strict form (ECMA-376, part 4 and part 1, annex A),
// and of Word 2003 in XML.
const (
	wordNamespace      = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
	strictNamespace    = "http://purl.oclc.org/ooxml/wordprocessingml/main"
	word2003Namespace  = "http://schemas.microsoft.com/office/word/2003/wordml"
	mathNamespace      = "http://schemas.openxmlformats.org/officeDocument/2006/math"
	alternateNamespace = "http://schemas.openxmlformats.org/markup-compatibility/2006"
	packageNamespace   = "http://schemas.microsoft.com/office/2006/xmlPackage"
)

// defaultPart is where most programs write the text.
const defaultPart = "word/document.xml"

// documentPart returns the name of the part with the text of a DOCX file, which the package's relationships name; empty for others.
func (a archive) documentPart() string {
	if rels, err := a.read("_rels/.rels"); err == nil {
		var list struct {
			Relationship []struct {
				Type   string `xml:",attr"`
				Target string `xml:",attr"`
			}
		}
		for _, r := range xmlValue(rels, &list).Relationship {
			if part := strings.TrimPrefix(path.Clean(r.Target), "/"); strings.HasSuffix(r.Type, "/officeDocument") &&
				strings.HasPrefix(part, "word/") && a.parts[part] != nil {
				return part
			}
		}
	}
	if a.parts[defaultPart] != nil {
		return defaultPart
	}
	return ""
}

// xmlValue decodes a document into value; what cannot be decoded remains empty.
func xmlValue[T any](document []byte, value *T) *T {
	_ = newDecoder(bytes.NewReader(document)).Decode(value) // see above
	return value
}

// docx returns the text of a DOCX file, at most limit bytes: headers, the document, notes and footers.
func docx(content []byte, limit int) (string, error) {
	a, err := openArchive(content)
	if err != nil {
		return "", err
	}
	main := a.documentPart()
	var all []string
	for _, part := range a.around(main) {
		b, err := a.read(part)
		if err == nil {
			var text string
			if text, err = word.text(newDecoder(bytes.NewReader(b)), limit); err == nil {
				if text, err = tidy(text); errors.Is(err, ErrNoText) {
					continue
				}
			}
			if !slices.Contains(all, text) { // such as the header of the first page
				all = append(all, text)
			}
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", part, err)
		}
	}
	text := strings.Join(all, "\n\n")
	if len(text) > limit {
		return "", ErrTooLong
	}
	return tidy(text)
}

// around returns the names of the parts with text, in the order in which they are read.
func (a archive) around(main string) (parts []string) {
	all := map[string][]string{}
	for name := range a.parts {
		if path.Dir(name) != path.Dir(main) || path.Ext(name) != ".xml" {
			continue
		}
		kind := strings.TrimRight(strings.TrimSuffix(path.Base(name), ".xml"), "0123456789")
		all[kind] = append(all[kind], name)
	}
	for _, kind := range []string{"header", "", "footnotes", "endnotes", "footer"} {
		if kind == "" {
			parts = append(parts, main)
			continue
		}
		slices.Sort(all[kind])
		parts = append(parts, all[kind][:min(len(all[kind]), maxParts)]...)
	}
	return parts
}

// flatWord returns the text of a document that Word saved as one XML file.
func flatWord(document string, limit int) (string, error) {
	text, err := word.text(newDecoder(strings.NewReader(document)), limit)
	if err != nil {
		return "", err
	}
	return tidy(text)
}

// word is the dialect of Word. Deleted text and field codes are in other elements than t.
var word = dialect{effect: wordEffect}

func wordEffect(e xml.StartElement) (effect, string) {
	switch e.Name.Space {
	case wordNamespace, strictNamespace, word2003Namespace:
	case mathNamespace:
		if e.Name.Local == "t" {
			return shown, ""
		}
		return nothing, ""
	case alternateNamespace:
		if e.Name.Local == "Fallback" { // the same again, for earlier versions of Word
			return skip, ""
		}
		return nothing, ""
	case packageNamespace:
		if e.Name.Local == "binaryData" {
			return skip, ""
		}
		return nothing, ""
	default:
		return nothing, ""
	}
	switch e.Name.Local {
	case "t":
		return shown, ""
	case "p":
		return block, ""
	case "tab", "ptab":
		return nothing, "\t"
	case "br", "cr":
		return nothing, "\n"
	case "noBreakHyphen":
		return nothing, "-"
	case "pPr", "sectPr", "moveFrom", "del", "footnotePr", "endnotePr", "binData", "docPr":
		return skip, ""
	case "vanish":
		if v := value(e, "val"); v != "0" && v != "false" && v != "off" {
			return hideRun, ""
		}
	}
	return nothing, ""
}

// value returns the value of an attribute, whatever its namespace.
func value(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
