package extract

import (
	"encoding/xml"
	"errors"
	"fmt"
	escape "html"
	"io"
	"regexp"
	"strings"
)

const (
	// xsltNamespace is that of programs in XSLT.
	xsltNamespace = "http://www.w3.org/1999/XSL/Transform"
	// maxEntityDepth bounds entities within entities.
	maxEntityDepth = 16
)

// errStylesheet is the error for a program that is written in XML.
var errStylesheet = errors.New("the document is an XSLT program")

// onlyData reports whether a text that declares nothing is a document in XML of which the character data is all that a reader misses: it
// has neither attributes nor comments, and does not look like a component.
func onlyData(start string) bool {
	d := newDecoder(strings.NewReader(start))
	d.Entity = xml.HTMLEntity
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF) && roots == 1
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth == 0 && isOffice(t.Name) {
				return true
			}
			if depth == 0 {
				roots++
			}
			if depth++; len(t.Attr) > 0 || roots > 1 || fragments[strings.ToLower(t.Name.Local)] && depth == 1 {
				return false
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && strings.TrimSpace(string(t)) != "" || strings.ContainsAny(string(t), "{}") {
				return false
			}
		default: // comments, instructions, declarations
			return false
		}
	}
}

// isOffice reports whether an element is the first of an office document in one file.
func isOffice(name xml.Name) bool {
	return name.Local == "document" && name.Space == officeNamespace || isFlatWord(name)
}

func isFlatWord(name xml.Name) bool {
	return name.Local == "wordDocument" || name.Local == "package" && name.Space == packageNamespace
}

// xmlText returns the text of any other document in XML. Two elements without text between them are on two lines.
func xmlText(document string, limit int) (string, error) {
	d := newDecoder(strings.NewReader(document))
	d.Entity = xml.HTMLEntity
	var declared entities
	w := &textWriter{collapse: true}
	ended, first := false, true
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", declared.explain(err)
		}
		switch t := token.(type) {
		case xml.Directive:
			if declared, err = entitiesOf(string(t), document, limit); err != nil {
				return "", err
			}
			d.Entity = declared.texts
		case xml.StartElement:
			if first && t.Name.Space == xsltNamespace {
				return "", errStylesheet
			}
			if first && t.Name.Local == "document" && t.Name.Space == officeNamespace {
				return flatODT(document, limit)
			}
			if first && isFlatWord(t.Name) {
				return flatWord(document, limit)
			}
			if ended {
				w.open(block)
			}
			first, ended = false, false
		case xml.EndElement:
			ended = true
		case xml.CharData:
			if strings.TrimSpace(string(t)) != "" {
				ended = false
			}
			w.characters(string(t))
		}
		if w.Len() > limit {
			return "", ErrTooLong
		}
	}
	out, err := tidy(w.String())
	if errors.Is(err, ErrNoText) {
		err = without("XML document", writeText)
	}
	return out, err
}

// entities are those that a document declares: their texts, and the names of those that are in other files.
type entities struct {
	texts     map[string]string
	elsewhere map[string]bool
}

var (
	// entityDeclaration is that of an entity of the text (XML 1.0, 4.2), not of one of the declarations.
	entityDeclaration  = regexp.MustCompile(`<!ENTITY\s+([^\s&;#<>"'%]{1,200})\s+(?:"([^"]*)"|'([^']*)'|(SYSTEM|PUBLIC)\s)`)
	characterReference = regexp.MustCompile(`&#[0-9a-zA-Z]+;`)
	entityReference    = regexp.MustCompile(`&(#x[0-9a-fA-F]{1,6}|#[0-9]{1,7}|[^\s&;#<>"']{1,200});`)
	// unknownEntity is how the decoder states that it does not know one.
	unknownEntity = regexp.MustCompile(`invalid character entity &([^\s&;]+);`)
)

// entitiesOf returns the entities that a declaration has. Entities may have entities in them, which multiplies their length: the text of
// the document with them has the limit of all texts. Nothing is read from other files.
func entitiesOf(declaration, document string, limit int) (entities, error) {
	all := entities{texts: map[string]string{}, elsewhere: map[string]bool{}}
	for name, text := range xml.HTMLEntity {
		all.texts[name] = text
	}
	raw := map[string]string{}
	for _, found := range entityDeclaration.FindAllStringSubmatch(declaration, -1) {
		name := found[1]
		if _, twice := raw[name]; twice || all.elsewhere[name] { // the first counts
			continue
		}
		if found[4] != "" {
			all.elsewhere[name] = true
			delete(all.texts, name)
			continue
		}
		raw[name] = found[2] + found[3]
	}
	x := &expansion{raw: raw, done: map[string]string{}, left: 4 * limit, others: all.texts}
	for name := range raw {
		text, err := x.text(name, 0)
		switch {
		case errors.Is(err, errElsewhere):
			all.elsewhere[name] = true
		case err != nil:
			return all, err
		default:
			all.texts[name] = text
		}
	}
	total := 0
	for _, at := range entityReference.FindAllStringSubmatchIndex(document, -1) {
		if total += len(all.texts[document[at[2]:at[3]]]); total > 2*limit {
			return all, ErrTooLong
		}
	}
	return all, nil
}

// errElsewhere is the error for an entity that has one of another file in it.
var errElsewhere = errors.New("the entity is in another file")

// expansion replaces entities within entities.
type expansion struct {
	raw, done, others map[string]string
	left              int // how many bytes may still be made
}

// text returns the text of an entity, without the markup that may be in it.
func (x *expansion) text(name string, depth int) (string, error) {
	if text, found := x.done[name]; found {
		return text, nil
	}
	raw, found := x.raw[name]
	if !found {
		if text, known := x.others[name]; known {
			return text, nil
		}
		return "", errElsewhere
	}
	if depth > maxEntityDepth {
		return "", Reason("the XML document has entities within entities without end: upload its content as text")
	}
	var out strings.Builder
	last := 0
	for _, at := range entityReference.FindAllStringSubmatchIndex(raw, -1) {
		inner := raw[at[2]:at[3]]
		out.WriteString(raw[last:at[0]])
		if last = at[1]; strings.HasPrefix(inner, "#") || predefined[inner] {
			out.WriteString(raw[at[0]:at[1]])
		} else {
			text, err := x.text(inner, depth+1)
			if err != nil {
				return "", err
			}
			out.WriteString(escapeXML.Replace(text))
		}
		if x.left -= out.Len(); x.left < 0 {
			return "", ErrTooSlow
		}
	}
	out.WriteString(raw[last:])
	text, err := plainXML(out.String())
	if err != nil {
		return "", Reason(fmt.Sprintf("the XML document declares the entity &%s; in a way that cannot be read: upload its content as text", name))
	}
	x.done[name] = text
	return text, nil
}

var (
	predefined = elements("amp lt gt quot apos")
	escapeXML  = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

// plainXML returns the character data of a piece of a document. References to characters are replaced twice, as the standard does for
// those in the value of an entity.
func plainXML(source string) (string, error) {
	if !strings.ContainsAny(source, "&<") {
		return source, nil
	}
	d := newDecoder(strings.NewReader("<e>" + source + "</e>"))
	d.Entity = xml.HTMLEntity
	var out strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return characterReference.ReplaceAllStringFunc(out.String(), escape.UnescapeString), nil
		}
		if err != nil {
			return "", err
		}
		if data, isData := token.(xml.CharData); isData {
			out.Write(data)
		}
	}
}

// explain returns the reason why a document cannot be read.
func (e entities) explain(err error) error {
	if found := unknownEntity.FindStringSubmatch(err.Error()); found != nil {
		if e.elsewhere[found[1]] {
			return Reason(fmt.Sprintf("the XML document uses the entity &%s;, which is in another file: upload its content as text", found[1]))
		}
		return Reason(fmt.Sprintf("the XML document uses the entity &%s; and does not declare it: upload its content as text", found[1]))
	}
	syntax, ok := errors.AsType[*xml.SyntaxError](err)
	if !ok || strings.Contains(syntax.Msg, "unexpected EOF") {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return Reason(fmt.Sprintf("the XML document is not well-formed in line %d (%s): correct it, or upload its content as text", syntax.Line, syntax.Msg))
}
