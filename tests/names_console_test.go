package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth/client"
	"berth/internal/testnames"
)

// types enters a text in a field as an input method does, in place of what it has.
func (b *tab) types(field, text string) {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%q); e.focus(); e.select() }`, field)))
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
	require.NoError(b, err)
	require.Equal(b, text, ask[string](b, fmt.Sprintf(`document.querySelector(%q).value`, field)), "the field takes the whole text")
}

// refuses waits until the reason of a refusal is shown at a field of a form, and nowhere else.
func (b *tab) refuses(form, field, text string) {
	b.Helper()
	b.await("the refusal of "+field, `(() => {
		const e = document.querySelector(%[1]s), said = document.getElementById(e?.getAttribute('aria-describedby'));
		return e?.getAttribute('aria-invalid') === 'true' && said?.textContent.includes(%[3]s) && document.activeElement === e &&
			[...document.querySelectorAll(%[2]s + ' .error')].filter((p) => p.textContent.trim() !== '').length === 1;
	})()`, field, form, text)
}

// worldTexts are all texts of testnames.
func worldTexts() (all []string) {
	for _, n := range testnames.All() {
		all = append(all, n.Stored(), testnames.Stored(n.Title), n.Identity)
	}
	return all
}

// wellShown requires that the names that are shown neither turn the text around them nor are markup.
func (b *tab) wellShown(what string) {
	b.Helper()
	script, err := os.ReadFile("testdata/shown.js")
	require.NoError(b, err)
	names, err := json.Marshal(worldTexts())
	require.NoError(b, err)
	require.Empty(b, ask[[]string](b, fmt.Sprintf("(%s\n)(%s)", script, names)), what)
}

// listed returns the texts of the elements that a selector matches on all pages of a list.
func (b *tab) listed(what, selector string) (all []string) {
	b.Helper()
	for first := ""; ; {
		b.await("the next page of "+what, `![null, undefined, %s].includes(document.querySelector('.pane .rows tbody tr')?.textContent)`, first)
		b.wellShown(what)
		all = append(all, ask[[]string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent)`, selector))...)
		if !ask[bool](b, `document.querySelector('.pager button:last-of-type')?.disabled === false`) {
			return all
		}
		first = ask[string](b, `document.querySelector('.pane .rows tbody tr').textContent`)
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('.pager button:last-of-type').click() }`))
	}
}

// FR3: titles and reasons that are typed in the console, and the users and languages of sessions and executions, are shown as they are
// stored, in every list and every view. None turns the text around it, is markup, or leaves the window of a phone.
func TestConsole_NamesOfTheWorld_ShownAsTyped(t *testing.T) { // X8
	t.Parallel()
	rows := testnames.All()
	s := namesStack(t, rows)
	const zone = namesZone
	b := openTab(t, startBrowser(t))
	b.do(chromedp.EmulateViewport(390, 900), chromedp.Navigate("http://"+s.httpAddr+"/#token="+s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	refused := "a\u202eb"

	b.visit(s, "/conferences")
	b.press(".pane", "New conference")
	b.await("the dialog", `document.querySelector('dialog[open] #conference-title') !== null`)
	b.types("#conference-title", refused)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.refuses("dialog[open]", "#conference-title", "U+202E")
	var titles []string
	for i, n := range rows {
		if i > 0 {
			b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/console/conferences' }`))
			b.await("the list", `document.querySelector('#conference-title') === null && document.querySelector('.pane .rows') !== null`)
			b.press(".pane", "New conference")
			b.await("the dialog", `document.querySelector('dialog[open] #conference-title') !== null`)
		}
		b.types("#conference-title", n.Title)
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
		titles = append(titles, testnames.Stored(n.Title))
		b.await("the title of "+n.Language, `location.hash !== '#/console/conferences' && document.querySelector('.details dd')?.textContent === %s`, titles[i])
		b.wellShown(n.Language)
		number := strings.TrimPrefix(ask[string](b, `location.hash`), "#/console/conferences/")
		got, err := client.New("http://"+s.httpAddr, s.token("olga")).Conference(t.Context(), number, "")
		require.NoError(t, err)
		require.Equal(t, titles[i], got.Title, n.Language)
	}
	b.visit(s, "/conferences")
	require.ElementsMatch(t, titles, b.listed("conferences", ".rows .main small .ident"))
	b.fits("conferences of the world")

	var users []string
	for i, n := range rows {
		users = append(users, n.Identity)
		c := s.user(n.Identity)
		session, err := c.PutSession(t.Context(), "session-1", client.SessionSpec{SrcLang: n.Code, TgtLang: "eo"})
		require.NoError(t, err, n.Language)
		require.Equal(t, n.Tag, session.SrcLang, n.Language)
		_, err = c.Execute(t.Context(), client.ExecutionSpec{ExecutionID: "x1", Executor: "echo", Input: []byte(`1`)})
		require.NoError(t, err, n.Language)

		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ location.hash = %q }", "#/console/accounts/"+url.PathEscape(n.Identity))))
		b.await("the account of "+n.Language, `document.querySelector('.view h1')?.textContent === %s && document.querySelector('.pane .rows') !== null`, n.Identity)
		b.press(".pane", "Add credits")
		b.await("the dialog", `document.querySelector('dialog[open] #why') !== null`)
		require.Equal(t, "Add credits: "+n.Identity, ask[string](b, `document.querySelector('dialog[open] h2').textContent`))
		if i == 0 {
			b.types("#why", refused)
			b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
			b.refuses("dialog[open]", "#why", "U+202E")
		}
		b.types("#why", n.Name)
		b.wellShown(n.Language)
		b.confirm()
		b.await("the reason of "+n.Language, `[...document.querySelectorAll('.rows .long bdi')].some((e) => e.textContent === %s)`, n.Stored())
		b.wellShown(n.Language)
		require.Contains(t, ask[string](b, `document.title`), n.Identity)
		entries, _, err := s.operator().CreditEntries(t.Context(), n.Identity, "", 10)
		require.NoError(t, err)
		require.Equal(t, n.Stored(), entries[0].Reason, n.Language)
	}
	for _, view := range []string{"sessions", "executions", "accounts"} {
		selector := `.rows td:nth-child(2) .ident`
		if view == "accounts" {
			selector = `.rows .main .ident`
		}
		b.visit(s, "/"+view)
		require.Subset(t, b.listed(view, selector), users, view)
		b.fits(view + " of the world")
	}
	b.visit(s, "/sessions")
	sessions := b.listed("languages", ".rows tbody tr")
	for _, n := range rows {
		require.True(t, slices.ContainsFunc(sessions, func(row string) bool {
			return strings.Contains(row, n.Identity) && strings.Contains(row, n.Tag+" → eo")
		}), n.Language)
	}
	b.visit(s, "/audit")
	audited := strings.Join(b.listed("audit", ".rows td.long"), "\n")
	for _, n := range rows {
		require.Contains(t, audited, n.Name, "%s, as it was sent", n.Language)
	}
	b.fits("audit of the world")
	for _, n := range rows {
		id := url.PathEscape(n.Identity)
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ location.hash = %q }", "#/console/executions/"+id+"/x1")))
		b.await("the execution of "+n.Language, `[...document.querySelectorAll('.details dd bdi')].some((e) => e.textContent === %s)`, n.Identity)
		b.wellShown(n.Language)
	}
	b.visit(s, "/fleet/polyglot")
	b.await("the zone", `[...document.querySelectorAll('.details dd bdi')].some((e) => e.textContent === %s)`, zone)

	for _, n := range rows { // who is signed in
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.httpAddr+"/#token="+s.token(n.Identity)))
		b.await("the sign-in of "+n.Language, `document.querySelector('.who bdi')?.textContent === %s`, n.Identity)
		b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/credits' }`))
		b.await("the reason", `[...document.querySelectorAll('.rows small bdi')].some((e) => e.textContent === %s)`, n.Stored())
		require.Empty(t, ask[string](b, `document.documentElement.scrollWidth > innerWidth ? 'wider than the window' : ''`), n.Language)
	}
	b.fits("credits of the last user")
	for line := range strings.Lines(b.complaint()) {
		require.Contains(t, line, "400 (Bad Request)", "what was refused")
	}
}
