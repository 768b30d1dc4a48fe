package tests

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// O8: an operator creates a webhook, whose secret is shown once, sends a test, reads why it was not accepted, sends it again, and deletes the webhook. All
// of it is legible on phones and in both languages.
func TestConsole_Webhooks_SeenAndSentAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_WEBHOOK_ALLOW_PRIVATE=true"))
	_, err := s.operator().PutTeam(t.Context(), client.Team{TeamID: "search"})
	require.NoError(t, err)
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) })
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	b.visit(s, "/webhooks?teamId=search")
	b.press(".pane", "New webhook")
	b.set(b.labelled("URL"), r.URL+"/events")
	b.set(b.labelled("Title"), "Nightly reports")
	b.set(b.labelled("Events"), "response.done")
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("why it is refused, at the field", `document.querySelector('dialog[open] .error:not(:empty)')?.textContent.includes('response.completed')`)
	b.set(b.labelled("Events"), "response.completed\nresponse.failed")
	b.fits("dialog of a webhook")
	b.shoot("webhooks-dialog")
	b.confirm()
	b.await("the secret", `document.querySelector('.made input')?.value.startsWith('whsec_')`)
	b.do(chromedp.Click(`.rows .main a`))
	b.await("the view of the webhook", `document.querySelector('.pane h1')?.textContent === 'Nightly reports' && document.querySelector('.details') !== null`)
	b.press(".pane", "Send a test")
	b.await("the failed attempt", `document.querySelector('.rows')?.textContent.includes('the server returned 502')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('.rows details').open = true }`))
	r.set(nil)
	for _, lang := range []berth.Locale{berth.LocaleZH, berth.LocaleEN} {
		b.speak(lang)
		b.fits("webhook in " + string(lang))
		b.shoot("webhook-" + string(lang))
	}
	b.press(".rows", "Send again")
	b.confirm()
	s.eventually("the event to be accepted", func() bool { got := r.received(); return len(got) >= 2 })
	b.press(".pane", "Delete")
	b.confirm()
	b.await("no webhook", `document.querySelector('.pane h1')?.textContent === 'Webhooks' && document.querySelector('.rows') === null`)
	b.complaint() // the browser lists the refused request
	b.quiet()
}
