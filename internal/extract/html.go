package extract

import (
	"errors"
	"io"
	"strings"

	htmltoken "golang.org/x/net/html"
)

// maxToken bounds a tag, a comment or a piece of text in HTML: images are part of some pages.
const maxToken = 8 << 20

// elements maps names to themselves.
func elements(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		set[name] = true
	}
	return set
}

var (
	// fragments are the elements of HTML.
	fragments = elements(`a abbr address article aside b base big blockquote body br button center cite code dd del details dfn div dl dt em
		fieldset figure font footer form h1 h2 h3 h4 h5 h6 head header hr i iframe img input ins kbd label li link main mark menu meta nav
		noscript ol p picture pre q s samp script section small span strike strong style sub summary sup table tbody td template textarea
		tfoot th thead title tr tt u ul var video`)
	// notShown are elements without text that a page shows.
	notShown = elements(`audio canvas datalist iframe noembed noframes noscript object script style svg template title video`)
	// void are elements without an end (HTML, 13.1.2).
	void = elements(`area base br col embed hr img input link meta source track wbr`)
	// blocks are elements whose text is on lines of its own.
	blocks = elements(`address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption figure footer form
		h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol optgroup option p pre search section summary table tbody tfoot thead
		tr ul`)
)

// errBlankPage is the reason to refuse a page that shows no text.
var errBlankPage = without("HTML page", "open it in a browser and save it as PDF")

// isPage reports whether a text that begins with an element of this name, or with the declaration of HTML, is a page. Other elements of
// HTML begin components and templates, too.
func isPage(name string) bool {
	switch name {
	case "html", "head", "body", "frameset", "meta":
		return true
	}
	return false
}

// hasElement reports whether a text has an element of HTML.
func hasElement(text string) bool {
	z := htmltoken.NewTokenizer(strings.NewReader(text))
	z.SetMaxBuf(maxToken)
	for {
		switch z.Next() {
		case htmltoken.StartTagToken, htmltoken.SelfClosingTagToken:
			if name, _ := z.TagName(); fragments[string(name)] || isPage(string(name)) {
				return true
			}
		case htmltoken.ErrorToken:
			return false
		}
	}
}

// isProgram reports whether a page has the code of a server in it, such as PHP, and so is not a page but what makes one. Scripts of pages
// may have templates of that kind.
func isProgram(text string) bool {
	if !strings.Contains(text, "<?") && !strings.Contains(text, "<%") {
		return false
	}
	z := htmltoken.NewTokenizer(strings.NewReader(text))
	z.SetMaxBuf(maxToken)
	script := false
	for {
		switch z.Next() {
		case htmltoken.StartTagToken:
			name, _ := z.TagName()
			script = string(name) == "script" || string(name) == "style"
			if !script && strings.Contains(string(z.Raw()), "<%") {
				return true
			}
		case htmltoken.EndTagToken:
			script = false
		case htmltoken.CommentToken: // as which the standard reads processing instructions
			if raw := strings.ToLower(string(z.Raw())); strings.HasPrefix(raw, "<?php") || strings.HasPrefix(raw, "<?=") {
				return true
			}
		case htmltoken.TextToken:
			if !script && (strings.Contains(string(z.Raw()), "<%") || strings.Contains(string(z.Raw()), "<?=")) {
				return true
			}
		case htmltoken.ErrorToken:
			return false
		}
	}
}

// rootOf returns the lower-case name of the first element of HTML or XML, behind declarations and comments; empty if there is none.
func rootOf(text string) string {
	z := htmltoken.NewTokenizer(strings.NewReader(text))
	z.SetMaxBuf(maxToken)
	for {
		switch z.Next() {
		case htmltoken.StartTagToken, htmltoken.SelfClosingTagToken:
			name, _ := z.TagName()
			return string(name)
		case htmltoken.DoctypeToken:
			if kind := strings.ToLower(strings.TrimSpace(string(z.Text()))); kind == "html" || strings.HasPrefix(kind, "html ") {
				return "html"
			}
		case htmltoken.CommentToken: // also <?xml … ?>
		case htmltoken.TextToken:
			if strings.TrimSpace(string(z.Text())) != "" {
				return ""
			}
		default:
			return ""
		}
	}
}

// html returns the text that a page shows. In a fragment, which may be a part of a text with markup such as Markdown, lines remain.
func html(page string, limit int, fragment bool) (string, error) {
	z := htmltoken.NewTokenizer(strings.NewReader(page))
	z.SetMaxBuf(maxToken)
	w := &htmlWriter{keepLines: fragment}
	for {
		switch kind := z.Next(); kind {
		case htmltoken.ErrorToken:
			if err := z.Err(); !errors.Is(err, io.EOF) {
				return "", ErrTooSlow
			}
			out, err := tidy(w.String())
			if errors.Is(err, ErrNoText) {
				err = errBlankPage
			}
			return out, err
		case htmltoken.TextToken:
			w.text(string(z.Text()))
		case htmltoken.StartTagToken, htmltoken.SelfClosingTagToken:
			w.start(z, kind == htmltoken.SelfClosingTagToken)
		case htmltoken.EndTagToken:
			name, _ := z.TagName()
			w.end(string(name))
		}
		if w.Len() > limit {
			return "", ErrTooLong
		}
	}
}
