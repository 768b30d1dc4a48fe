package extract

import (
	"strings"

	htmltoken "golang.org/x/net/html"
)

var (
	// implied are the elements that another one ends, unless it is in one of those that bound.
	implied = map[string]struct{ ends, bounds map[string]bool }{
		"li":       {elements("li"), lists},
		"dd":       {elements("dd dt"), lists},
		"dt":       {elements("dd dt"), lists},
		"option":   {elements("option"), elements("select datalist")},
		"optgroup": {elements("option optgroup"), elements("select datalist")},
		"td":       {elements("td th"), elements("table tr")},
		"th":       {elements("td th"), elements("table tr")},
		"tr":       {elements("tr"), elements("table")},
		"tbody":    {elements("tbody thead tfoot"), elements("table")},
		"thead":    {elements("tbody thead tfoot"), elements("table")},
		"tfoot":    {elements("tbody thead tfoot"), elements("table")},
	}
	paragraph = elements("p")
	lists     = elements("ul ol dl menu dir table td th caption blockquote section article form fieldset main aside nav details dialog body")
	cells     = elements("table td th caption button object template select datalist")
	inTable   = elements("table")
	tables    = elements("table tr td th tbody thead tfoot caption")
)

// maxSearched is how many open elements are searched for one, so that the time is bounded.
const maxSearched = 200

// element is an open element: gone if it is not displayed, with all in it, and invisible if only those in it are shown that are visible by their own
// style.
type element struct {
	name                 string
	gone, invisible, pre bool
}

// htmlWriter collects the text of a page.
type htmlWriter struct {
	strings.Builder
	keepLines bool
	space     bool // white space that has not been written yet
	open      []element
}

// top returns the innermost open element.
func (w *htmlWriter) top() element {
	if len(w.open) == 0 {
		return element{}
	}
	return w.open[len(w.open)-1]
}

// find returns the index of the innermost open element of these names, or -1 if there is none within those that bound.
func (w *htmlWriter) find(names, bounds map[string]bool) int {
	for i := len(w.open) - 1; i >= max(0, len(w.open)-maxSearched); i-- {
		switch name := w.open[i].name; {
		case names[name]:
			return i
		case bounds[name]:
			return -1
		}
	}
	return -1
}

func (w *htmlWriter) start(z *htmltoken.Tokenizer, closed bool) {
	tag, more := z.TagName()
	name := string(tag)
	if ends, found := implied[name]; found {
		if i := w.find(ends.ends, ends.bounds); i >= 0 {
			w.open = w.open[:i]
		}
	}
	if blocks[name] {
		if i := w.find(paragraph, cells); i >= 0 {
			w.open = w.open[:i]
		}
	}
	e := w.top()
	e.name, e.pre = name, e.pre || name == "pre" || name == "textarea"
	attributes := map[string]string{}
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		if _, twice := attributes[string(key)]; !twice {
			attributes[string(key)] = string(value)
		}
	}
	if !void[name] {
		e.hide(attributes)
		if !closed {
			w.open = append(w.open, e)
		}
	}
	switch {
	case e.gone:
	case name == "br":
		w.newline()
	case name == "td", name == "th":
		if w.Len() > 0 && !strings.HasSuffix(w.String(), "\n") {
			w.WriteByte('\t')
		}
		w.space = false
	default:
		w.block(name)
	}
}

// hide notes whether an element is displayed and visible.
func (e *element) hide(attributes map[string]string) {
	style := styleOf(attributes["style"])
	hidden, hides := attributes["hidden"]
	_, open := attributes["open"]
	display, set := style["display"]
	byDefault := hides || e.name == "dialog" && !open
	e.gone = e.gone || notShown[e.name] || display == "none" || byDefault && (!set || strings.HasPrefix(display, "revert")) ||
		strings.EqualFold(hidden, "until-found") || blocks[e.name] && style["content-visibility"] == "hidden"
	switch style["visibility"] {
	case "hidden", "collapse":
		e.invisible = true
	case "visible", "initial":
		e.invisible = false
	}
}

// end closes an element with all that are open in it. Those between words do not end blocks.
func (w *htmlWriter) end(name string) {
	bounds := blocks
	switch {
	case notShown[name]:
		bounds = nil
	case tables[name]:
		bounds = inTable
	case name == "li":
		bounds = lists
	case blocks[name], cells[name]:
		bounds = cells
	}
	e := w.top()
	if i := w.find(map[string]bool{name: true}, bounds); i >= 0 && name != "body" && name != "html" {
		e = w.open[i]
		w.open = w.open[:i]
	}
	if !e.gone {
		w.block(name)
	}
}

func (w *htmlWriter) block(name string) {
	if blocks[name] && w.Len() > 0 && !strings.HasSuffix(w.String(), "\n") {
		w.newline()
	}
}

func (w *htmlWriter) newline() {
	w.WriteByte('\n')
	w.space = false
}

// text writes text of which white space is one space, and none at the beginning of a line.
func (w *htmlWriter) text(s string) {
	top := w.top()
	switch {
	case top.gone:
		return
	case top.invisible: // its place remains
		w.space = true
		return
	}
	for _, r := range s {
		switch {
		case r == '\u00a0':
			w.space = true
		case top.pre, w.keepLines && r == '\n':
			w.space = false
			w.WriteRune(r)
		case r == ' ', r == '\t', r == '\n', r == '\r', r == '\f':
			w.space = true
		default:
			if w.space && w.Len() > 0 && !strings.HasSuffix(w.String(), "\n") && !strings.HasSuffix(w.String(), "\t") {
				w.WriteByte(' ')
			}
			w.space = false
			w.WriteRune(r)
		}
	}
}
