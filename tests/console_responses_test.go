package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/testprovider"
)

// O3, O8: from an API key, an operator finds the responses and chats that were made with it, and reads what the model has written, however they have ended.
func TestConsole_CallsOfKey_SeenAndRead(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.replaces(t, 1000*berth.Credit)
	create := func(more string) (id string) {
		return gjson.Get(all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`+more)))[0], "response.id").Str
	}
	d.provider.Answer(testprovider.Write(0, "The whole", " answer."))
	completed := create("")
	_, _, err := d.whole(t.Context(), d.httpAddr, true)
	require.NoError(t, err)
	d.provider.Answer(testprovider.Finish("The first half", "length"))
	incomplete := create("")
	d.provider.CutFirst(1, "The beginning", testprovider.Write(0, "Another", " answer."))
	failed := create("")
	replacement := d.response(t, 200, "GET", "/"+failed, "").Get("replaced_by").Str
	require.NotEmpty(t, replacement)
	d.resumeModel(t)
	d.ended(t, replacement, "response.completed")
	d.resumeModel(t)
	free := make(chan struct{})
	defer close(free)
	d.provider.Answer(gated(free))
	running := d.inBackground(t, "m")

	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + d.httpAddr + "/#token=" + d.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err, "axe-core is not installed: run `make console`")
	looks := func(view string) {
		t.Helper()
		for lang, width := range map[berth.Locale]int64{berth.LocaleZH: 390, berth.LocaleEN: 1280} {
			b.speak(lang)
			b.accessible(string(axe), view, width)
			b.fits(view)
			b.shoot(view + "-" + string(lang))
		}
		b.speak(berth.LocaleEN)
	}

	b.visit(d.stack, "/keys/"+d.keyID)
	b.await("the key", `document.querySelector('.pane .details') !== null`)
	looks("key-calls")
	b.do(chromedp.Click(`.view .actions a[href="#/console/tasks?userId=` + d.keyID + `"]`))
	row := `[...document.querySelectorAll('.rows tbody tr')].find((e) => e.textContent.includes(%s))?.textContent ?? ''`
	b.await("all calls", `document.querySelectorAll('.rows tbody tr').length === 6`)
	for id, status := range map[string]string{completed: "Done", incomplete: "Done, incomplete", failed: "Failed", running: "Writing"} {
		b.await(status, `(() => { const text = `+row+`; return text.includes('Response') && text.includes(%s) })()`, id, status)
	}
	b.await("the credits", `/\d → \d+\D*0\.\d+/.test(`+row+`)`, completed)
	looks("calls")
	b.do(chromedp.Click(`.rows a[href$="` + completed + `"]`))

	// The last one has the longest words.
	for _, c := range [][2]string{{completed, "The whole answer."}, {incomplete, "The first half"}, {running, "The beginning"}, {failed, "The beginning"}} {
		b.visit(d.stack, "/tasks/"+d.keyID+"/"+c[0])
		b.await(c[1], `document.querySelector('.task .answer')?.textContent.trim() === %s`, c[1])
		b.await("its id", `document.querySelector('.task h1').textContent === 'Response' && document.querySelector('.task .id').textContent.includes(%s)`, c[0])
	}
	require.True(t, strings.HasPrefix(running, "resp_"))
	b.await("the button to be seen", `document.elementFromPoint(...(() => { const button = document.querySelector('.task .id button'); button.scrollIntoView({ block: 'center' }); const r = button.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })())?.matches('.id button')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ navigator.clipboard.writeText = async (text) => { window.copied = text } }`))
	shown := ask[string](b, `document.querySelector('.task .id code').textContent`)
	b.press(".task .id", "Copy")
	b.await("that it is copied", `document.querySelector('.task .id button').textContent === 'Copied' && window.copied === %s`, shown)
	looks("response")
	for of, other := range map[string]string{failed: replacement, replacement: failed} {
		b.visit(d.stack, "/tasks/"+d.keyID+"/"+of)
		b.await("the other", `document.querySelector('.task .facts a[href$=' + JSON.stringify(%s) + ']') !== null`, other)
	}
	looks("response-replaced")
	b.quiet()
}
