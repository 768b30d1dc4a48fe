//go:build faults

package tests

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth/client"
	"berth/internal/testnames"
)

// FR3: names that guests type in the lobby are admitted and shown as they are stored, to themselves, to the host and in the console. A
// name that is refused is an error at its field, from which the guest continues.
func TestConferencePage_NamesOfTheWorld_ShownAsTyped(t *testing.T) { // B9
	t.Parallel()
	s := newStack(t, withParticipants())
	const number, title = "8635000077", "פגישה (סודי!)"
	s.mediaUnit("u1", 5)
	s.conferences().open(number, func(c *client.ConferenceSpec) { c.Title = title })
	browser := startBrowser(t, chromedp.Flag("use-fake-device-for-media-stream", true), chromedp.Flag("use-fake-ui-for-media-stream", true))
	host, guest := openTab(t, browser), openTab(t, browser)
	for _, b := range []*tab{host, guest} {
		b.do(chromedp.EmulateViewport(390, 900))
	}
	join := func(b *tab) {
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('form button.primary').click() }`))
	}
	silent := func(b *tab) { // without a microphone
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('.choices .toggle').click() }`))
	}
	host.openAs(s, "alice")
	host.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/conferences/` + number + `' }`))
	host.await("the lobby of the host", `document.querySelector('#meeting-name')?.value === 'alice'`)
	silent(host)
	join(host)
	host.await("the conference", `document.querySelector('.meeting .now .done') !== null`)

	names := map[string]bool{}
	for i, n := range testnames.All() {
		guest.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.httpAddr+"/#/join/"+s.newLink(number)))
		guest.await("the lobby", `document.querySelector('#meeting-name')?.value === '' && document.querySelector('h1').textContent === %s`, title)
		silent(guest)
		if i == 0 {
			for bad, text := range map[string]string{"a\u202eb": "U+202E", "\u2067a": "another direction", "\u200d": "Nothing of this text can be seen"} {
				guest.types("#meeting-name", bad)
				join(guest)
				guest.refuses("form.card", "#meeting-name", text)
			}
		}
		guest.types("#meeting-name", n.Name)
		join(guest)
		for who, b := range map[string]*tab{"the guest": guest, "the host": host} {
			b.await(fmt.Sprintf("%s sees %s", who, n.Language), `document.querySelector('.meeting .now .done') !== null && [...document.querySelectorAll('.person .name')].some((e) => e.textContent === %s)`, n.Stored())
			b.wellShown(n.Language)
			require.False(t, ask[bool](b, `document.documentElement.scrollWidth > innerWidth`), n.Language)
		}
		names[n.Stored()] = true
	}
	stored := map[string]bool{}
	for cursor := ""; ; {
		status, body := s.send(http.MethodGet, "/v1/conferences/"+number+"/participants?limit=50&cursor="+cursor, s.token("alice"), nil)
		require.Equal(t, http.StatusOK, status)
		for _, p := range body["participants"].([]any) {
			if name, _ := p.(map[string]any)["name"].(string); name != "alice" {
				stored[name] = true
			}
		}
		next, more := body["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	require.Equal(t, names, stored)
	host.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.httpAddr+"/#token="+s.token("olga", "user", "operator")))
	host.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	host.visit(s, "/conferences/"+number)
	host.await("the participants", `document.querySelector('.rows .main .ident') !== null`)
	shown := host.listed("participants", ".rows .main > .ident")
	for name := range names {
		require.Contains(t, shown, name)
	}
}
