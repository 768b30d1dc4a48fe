package extract

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// effect is what an element of a document means for its text.
type effect uint8

const (
	nothing effect = 0
	shown   effect = 1 // its character data is text
	block   effect = 2 // its text is on lines of its own
	skip    effect = 4 // it has no visible text
	hideRun effect = 8 // its grandparent has no visible text from here
)

// dialect is a kind of documents in XML.
type dialect struct {
	// effect returns what an element means, and text that it represents, such as a tab.
	effect func(xml.StartElement) (effect, string)
	// collapse is set if white space is one space.
	collapse bool
}

// newDecoder returns a decoder of a document in UTF-8, whatever it declares.
func newDecoder(r io.Reader) *xml.Decoder {
	d := xml.NewDecoder(r)
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	return d
}

// text returns the text of a document, at most limit bytes.
func (l dialect) text(d *xml.Decoder, limit int) (string, error) {
	w := &textWriter{collapse: l.collapse}
	var open []effect
	visible := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return w.String(), nil
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e, insert := l.effect(t)
			w.WriteString(insert)
			switch {
			case e == hideRun && len(open) > 1:
				for range 3 {
					err = errors.Join(err, d.Skip())
				}
				for _, o := range open[len(open)-2:] {
					visible -= w.close(o)
				}
				open = open[:len(open)-2]
			case e == skip, e == hideRun:
				err = d.Skip()
			default:
				visible += w.open(e)
				open = append(open, e)
			}
			if err != nil {
				return "", fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		case xml.EndElement:
			visible -= w.close(open[len(open)-1])
			open = open[:len(open)-1]
		case xml.CharData:
			if visible > 0 {
				w.characters(string(t))
			}
		}
		if w.Len() > limit {
			return "", ErrTooLong
		}
	}
}

// textWriter collects text in lines.
type textWriter struct {
	strings.Builder
	collapse bool
}

// open starts a line for a block, and returns 1 if the character data of the element is visible.
func (w *textWriter) open(e effect) int {
	if e&block != 0 && w.Len() > 0 && !strings.HasSuffix(w.String(), "\n") {
		w.WriteByte('\n')
	}
	return int(e & shown)
}

// close ends the line of a block, and returns what open returned.
func (w *textWriter) close(e effect) int {
	if e&block != 0 {
		w.WriteByte('\n')
	}
	return int(e & shown)
}

func (w *textWriter) characters(s string) {
	if !w.collapse {
		w.WriteString(s)
		return
	}
	words := strings.Fields(s)
	inside := w.Len() > 0 && !strings.HasSuffix(w.String(), "\n") && !strings.HasSuffix(w.String(), " ")
	if inside && s != "" && strings.ContainsRune(blank, rune(s[0])) {
		w.WriteByte(' ')
	}
	w.WriteString(strings.Join(words, " "))
	if len(words) > 0 && strings.ContainsRune(blank, rune(s[len(s)-1])) {
		w.WriteByte(' ')
	}
}

// xmlRoot returns the name of the first element of a document; empty if it is not XML.
func xmlRoot(document string) string {
	d := newDecoder(strings.NewReader(document))
	d.Strict = false // entities that the document declares are not known
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case xml.StartElement:
			return t.Name.Local
		case xml.CharData:
			if strings.TrimSpace(string(t)) != "" {
				return ""
			}
		}
	}
}
