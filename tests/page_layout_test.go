package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
)

// layoutWidths are those at which every view is measured: of phones, of parts of a screen and of whole ones, and the narrowest one of the
// layout for desktops.
var layoutWidths = []int64{320, 390, 761, 900, 1280, 1600}

// fits requires that the view is legible at all widths, in the language in which it is shown: no narrow columns, nothing cut off.
func (b *tab) fits(view string) {
	b.Helper()
	script, err := os.ReadFile("testdata/layout.js")
	require.NoError(b, err)
	var wrong []string
	for _, width := range layoutWidths {
		b.do(chromedp.EmulateViewport(width, 900))
		b.await("the width", `innerWidth === %s && document.fonts.status === 'loaded'`, width)
		b.settled()
		for _, problem := range ask[[]string](b, string(script)) {
			wrong = append(wrong, fmt.Sprintf("%d px: %s", width, problem))
		}
	}
	if len(wrong) > 0 {
		b.shoot("layout-" + strings.NewReplacer("/", "-", " ", "-").Replace(view))
		b.Errorf("%s:\n%s", view, strings.Join(wrong, "\n")) // the other views are checked, too
	}
}

// settled waits until the page has drawn a frame, and its charts have their new width.
func (b *tab) settled() {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](`{ window.drawn = false; requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = true })) }`))
	b.await("the frame", `window.drawn`)
}

// speak switches the page's language.
func (b *tab) speak(l berth.Locale) {
	b.Helper()
	if chinese := ask[bool](b, `document.documentElement.lang === 'zh-Hans'`); chinese != (l == berth.LocaleZH) {
		b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('header .end button[lang]').click() }`))
	}
	b.await("the language", `(document.documentElement.lang === 'zh-Hans') === %s`, l == berth.LocaleZH)
}

// fitsInBoth checks a view in both languages.
func (b *tab) fitsInBoth(view string) {
	b.Helper()
	for _, l := range []berth.Locale{berth.LocaleEN, berth.LocaleZH} {
		b.speak(l)
		b.fits(view + " " + string(l))
	}
}

// shapes are structured results that the page has to show whatever their form.
var shapes = map[string]any{
	"lists": map[string]any{
		"skills":   []string{"Go", "PostgreSQL", "Kubernetes", "gRPC"},
		"duties":   []string{strings.Repeat("Designs and operates services that many teams depend on. ", 3), "Reviews code.", "Is on call every fourth week, with a colleague."},
		"benefits": []any{"Thirty days of holiday, of which five are fixed by the company", 12, true},
	},
	"nested": map[string]any{
		"experience": []any{
			map[string]any{"title": "Senior engineer", "organisation": "Acme of Northern Europe", "period": "2019 to today", "achievements": []string{"Cut the cost of storage by a third within one year.", "Led the move of forty services to another region."}},
			map[string]any{"title": "Engineer", "details": map[string]any{"team": "Payments", "stack": []string{"Go", "Redis"}, "notes": map[string]any{"first": "A sentence that is long enough to need several lines on a phone.", "deep": map[string]any{"deeper": []any{[]any{"one", "two sentences of a list in a list"}}}}}},
		},
	},
	"long words": map[string]any{
		"identifier": strings.Repeat("0123456789abcdef", 12), "link": "https://example.org/" + strings.Repeat("path/", 40),
		"list": []string{strings.Repeat("Donaudampfschifffahrtsgesellschaft", 4), strings.Repeat("x", 300)},
	},
	"chinese": map[string]any{"职责": []string{strings.Repeat("负责核心系统的设计与开发，", 6), "参与代码评审。"}, "要求": map[string]any{"学历": "本科及以上", "技能": []string{"熟悉分布式系统", "熟悉数据库"}}},
	"scalars": []any{"one sentence that is the first of several in a list without any keys", 1.5, false, nil},
	"empty":   map[string]any{"nothing": nil, "list": []any{}, "text": ""},
	"table":   []any{map[string]any{"name": "first", "value": 1}, map[string]any{"name": "second", "value": 2, "comment": "A comment on the second row, which has one."}},
}

// The pages of tasks, conferences and errors are legible at every width and in both languages. Those of the console are checked where the
// console is used.
func TestPage_EveryView_FitsItsWindow(t *testing.T) {
	t.Parallel()
	held := newHold("## Item by item\n")
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, []*hold{held}) })
	b := openTab(t, startBrowser(t))
	base := "http://" + s.httpAddr

	b.do(chromedp.Navigate(base + "/"))
	b.await("the sign-in", `document.querySelector('.signin #token') !== null`)
	b.fitsInBoth("sign-in")
	b.do(chromedp.SendKeys(`#token`, "wrong"), chromedp.Click(`.signin form button.primary`))
	b.await("the refusal", `document.querySelector('#token-trouble').textContent.trim() !== ''`)
	b.fitsInBoth("sign-in refused")
	b.do(chromedp.Navigate(base + "/#/conferences/8635000009"))
	b.await("the sign-in of a host", `document.querySelector('.signin h1') !== null`)
	b.fitsInBoth("sign-in of a host")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(base+"/#/join/ABCDEFGHIJKLMNOPQRSTUVWX27"))
	b.await("the refused invitation", `document.querySelector('.out h1') !== null`)
	b.fitsInBoth("invitation refused")

	const user = "a-user-with-a-long-name@subsidiary.example.org"
	b.do(chromedp.Navigate("about:blank"))
	b.signIn(s, user)
	c := s.user(user)
	resume, posting := string(example(t, "resume-en.txt")), string(example(t, "posting-en.txt"))
	submit := func(tmpl berth.Template, locale berth.Locale, variables map[string]any) string {
		acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "career", Template: tmpl, Locale: locale, Variables: variables}, "")
		require.NoError(t, err)
		return acc.TaskID
	}
	tasks := map[string]string{
		"résumé summary":          submit("resume_summary", berth.LocaleEN, map[string]any{"resume": resume}),
		"résumé summary, Chinese": submit("resume_summary", berth.LocaleZH, map[string]any{"resume": string(example(t, "resume-zh.txt"))}),
		"detailed résumé summary": submit("detailed_resume_summary", berth.LocaleEN, map[string]any{"resume": resume}),
		"job summary":             submit("job_summary", berth.LocaleEN, map[string]any{"jobText": posting}),
		"customised résumé":       submit("resume_customize", berth.LocaleEN, map[string]any{"resume": resume, "jobText": posting}),
		"interview":               submit("interview_prep", berth.LocaleEN, map[string]any{"resume": resume, "jobText": posting}),
		"match":                   submit("job_match", berth.LocaleEN, map[string]any{"resume": resume, "jobText": posting}),
	}
	held.wait(t)
	b.open("#/tasks/"+tasks["match"], `document.querySelector('.prose') !== null`)
	b.fitsInBoth("match that runs")
	close(held.release)
	for name, id := range tasks {
		b.open("#/tasks/"+id, `document.querySelector('.task .status.completed') !== null && document.querySelector('.paper :is(.prose, .reading)') !== null`)
		b.do(chromedp.Evaluate[chromedp.Void](`{ for (const d of document.querySelectorAll('details')) d.open = true }`))
		b.await("the texts of the steps", `[...document.querySelectorAll('.chain details')].every((d) => d.querySelector('pre, .written') !== null)`)
		b.fitsInBoth(name)
	}
	for name, result := range shapes {
		b.serveResult(tasks["résumé summary"], result)
		b.open("#/tasks", `document.querySelector('.history .tasks') !== null`)
		b.open("#/tasks/"+tasks["résumé summary"], `document.querySelector('.task .status.completed') !== null && document.querySelector('.raw') !== null`)
		b.fitsInBoth("result with " + name)
	}
	b.do(chromedp.Reload()) // with the real answers again

	s.fault(sim.Fault{Kind: sim.Fault401, Times: -1})
	failed := submit("job_match", berth.LocaleEN, map[string]any{"resume": resume, "jobText": "Another one. " + posting})
	b.open("#/tasks/"+failed, `document.querySelector('.task .status.failed') !== null && document.querySelector('.notice.bad') !== null`)
	b.fitsInBoth("failed task")
	for name, view := range map[string][2]string{
		"tasks": {"#/tasks", `document.querySelector('.history .tasks') !== null`}, "credits": {"#/credits", `document.querySelector('.rows') !== null`},
		"task that does not exist": {"#/tasks/none", `document.querySelector('.history h1') !== null`},
		"page that does not exist": {"#/none", `document.querySelector('.history h1') !== null`},
		"conference of another":    {"#/conferences/8635000009", `document.querySelector('.lobby, .out') !== null`},
	} {
		b.open(view[0], view[1])
		b.fitsInBoth(name)
	}
	b.open("#/", `document.querySelectorAll('input[name="template"]').length > 0`)
	for _, tmpl := range ask[[]string](b, `[...document.querySelectorAll('input[name="template"]')].map((e) => e.value)`) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ document.querySelector('input[value="%s"]').click() }`, tmpl)))
		b.settled()
		b.do(chromedp.Evaluate[chromedp.Void](`{ for (const d of document.querySelectorAll('details')) d.open = true; document.querySelector('form button.primary').click() }`))
		b.await("what is missing", `document.querySelector('.sheet.bad') !== null`)
		b.fitsInBoth("form of " + tmpl)
	}

	s.media("unit-1", 5)
	const number = "8635000001"
	s.conferences().open(number, func(c *client.ConferenceSpec) { c.Title = strings.Repeat("Planning of the year after the next ", 2) })
	status, made := s.send(http.MethodPost, "/v1/conferences/"+number+"/links", s.token("alice"), map[string]any{})
	require.Equal(t, http.StatusCreated, status, "%v", made)
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(base+"/#/join/"+made["secret"].(string)))
	b.await("the lobby", `document.querySelector('#meeting-name') !== null`)
	b.fitsInBoth("lobby of a guest")
}

// open shows a view of the loaded page.
func (b *tab) open(hash, condition string) {
	b.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ location.hash = %q }", hash)))
	b.await("the view "+hash, condition)
}

// serveResult makes the page receive another result of a task.
func (b *tab) serveResult(taskID string, result any) {
	b.Helper()
	text, err := json.Marshal(result)
	require.NoError(b, err)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		window.fetched ??= window.fetch;
		window.fetch = async (url, o) => {
			if (new URL(url, document.baseURI).pathname === '/v1/tasks/%[1]s/events') return new Response(null, { status: 204 });
			const res = await window.fetched(url, o);
			if (new URL(url, document.baseURI).pathname !== '/v1/tasks/%[1]s') return res;
			return Response.json({ ...(await res.json()), result: %[2]s });
		} }`, taskID, text)))
}
