package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// An operator uses the console as in an incident: every view is opened and changes while it is shown, without an error in the browser,
// and a check of accessibility finds nothing in any of them.
func TestConsole_OperatorInBrowser_SeesAndSteersEverything(t *testing.T) { // X8
	t.Parallel()
	early := newHold("## Item by item\n")
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, []*hold{early}) })
	s.setTimes(berth.NodeMedia, 200, 1000, 2000)
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga') && document.querySelector('nav a[href="#/console"]') !== null`)
	b.do(chromedp.Click(`nav a[href="#/console"]`))
	b.await("the live overview", `document.querySelector('.tiles') !== null && document.querySelector('.chart canvas') !== null && document.querySelector('.side .link .done') !== null`)

	t.Run("watches and cancels", func(t *testing.T) { b.with(t).watchAndCancel(s, early) })
	t.Run("pauses a model", func(t *testing.T) { b.with(t).pauseModel(s) })
	t.Run("drains a node", func(t *testing.T) { b.with(t).drainNode(s) })
	var turn string
	t.Run("sees where a turn ran", func(t *testing.T) { turn = b.with(t).seeTurn(s) })
	t.Run("sees a conference recover", func(t *testing.T) { b.with(t).seeRecovery(s) })
	t.Run("adds credits", func(t *testing.T) { b.with(t).addCredits() })
	t.Run("starts a reconciliation", func(t *testing.T) { b.with(t).reconcile() })
	t.Run("every view is accessible", func(t *testing.T) { b.with(t).visitAll(s, turn) })
}

// with returns the tab for a part of a test.
func (b *tab) with(t *testing.T) *tab {
	return &tab{TB: t, ctx: b.ctx, said: b.said}
}

// visit opens a view of the console by its address.
func (b *tab) visit(s *stack, view string) {
	b.Helper()
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/console" + view))
	b.await("the view "+view, `location.hash === %s && document.querySelector('.pane h1') !== null && document.querySelector('.pane [role=status].hint') === null`, "#/console"+view)
}

// press clicks the button with a text, in the given part of the page.
func (b *tab) press(in, text string) {
	b.Helper()
	button := `[...document.querySelectorAll(%s + ' button')].find((e) => e.textContent.trim().startsWith(%s) && !e.disabled)`
	b.await("the button "+text, button, in, text)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ "+button+".click() }", quote(in), quote(text))))
}

// confirm accepts the open dialog.
func (b *tab) confirm() {
	b.Helper()
	b.await("the dialog", `document.querySelector('dialog[open] button.primary') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("the dialog to close", `document.querySelector('dialog[open]') === null`)
}

func quote(text string) string { return fmt.Sprintf("%q", text) }

func (b *tab) watchAndCancel(s *stack, early *hold) {
	b.do(chromedp.Click(`nav a[href="#/"]`))
	b.await("the form", `document.querySelector('input[name="template"][value="job_summary"]') !== null`)
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`), chromedp.SendKeys(`#field-jobText`, "We look for a baker."))
	b.do(chromedp.Click(`form button.primary`))
	b.await("the end of the operator's own task", `location.hash.startsWith('#/tasks/') && document.querySelector('.task .status.completed') !== null`)

	b.visit(s, "/tasks")
	b.await("the operator's task", `document.querySelector('.rows tbody tr')?.textContent.includes('olga')`)
	acc, err := s.user("carol").Submit(b.Context(), client.Submission{
		ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
		Variables: map[string]any{"resume": string(example(b.TB, "resume-en.txt")), "jobText": string(example(b.TB, "posting-en.txt"))},
	}, "")
	require.NoError(b, err)
	row := `[...document.querySelectorAll('.rows tbody tr')].find((e) => e.textContent.includes(%s))`
	b.await("another user's task in the open list", row, acc.TaskID)
	early.wait(b)
	b.do(chromedp.Click(fmt.Sprintf(`.rows a[href="#/console/tasks/carol/%s"]`, acc.TaskID)))
	b.await("live tokens of another user's task", `document.querySelector('.prose')?.textContent.includes('Item by item')`)
	b.shoot("task-live-en")
	b.press(".task", "Cancel")
	b.await("the cancelled task", `document.querySelector('.task .status.cancelled') !== null`)
	b.visit(s, "/tasks?status=CANCELLED")
	b.await("the cancelled task in the list", row, acc.TaskID)
	require.Equal(b, 1, ask[int](b, `document.querySelectorAll('.rows tbody tr').length`), "the filter of the address is applied")
	b.quiet()
}

func (b *tab) pauseModel(s *stack) {
	const card = `[aria-labelledby="m-deepseek-chat"]`
	b.visit(s, "/models")
	b.press(card, "Pause")
	b.await("the dialog", `document.querySelector('dialog[open] #reason') !== null`)
	b.do(chromedp.SendKeys(`#reason`, "provider maintenance"))
	b.shoot("model-pause-en")
	b.confirm()
	b.await("the reason of the pause", `document.querySelector(%s + ' .notice')?.textContent.includes('provider maintenance')`, card)
	s.eventually("the model to be paused", func() bool {
		models, err := s.operator().Models(b.Context())
		require.NoError(b, err)
		for _, m := range models {
			if m.Name == "deepseek-chat" {
				return m.Paused && m.Reason == "provider maintenance"
			}
		}
		return false
	})
	b.visit(s, "")
	b.await("the paused model among what needs attention", `document.querySelector('.attention')?.textContent.includes('provider maintenance')`)
	b.visit(s, "/models")
	b.press(card, "Resume")
	b.confirm()
	b.await("the running model", `document.querySelector(%s + ' .notice') === null`, card)
	b.press(card, "Edit limits")
	b.await("the limits", `document.querySelector('dialog[open] #limit-cap')?.value > 0`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector('#limit-cap'); e.value = '3'; e.dispatchEvent(new Event('input', { bubbles: true })) }`))
	b.confirm()
	b.await("the new cap", `document.querySelector(%s + ' .meter .of').textContent.replace(/\s/g, '') === '/3'`, card)
	b.quiet()
}

func (b *tab) drainNode(s *stack) {
	s.translator("tokyo-1")
	s.translator("tokyo-2")
	b.visit(s, "/fleet")
	b.await("both nodes", `document.querySelectorAll('.rows tbody tr').length === 2`)
	b.do(chromedp.Click(`.rows a[href="#/console/fleet/tokyo-1"]`))
	b.press(".pane", "Drain")
	b.confirm()
	b.await("the draining node", `document.querySelector('.badges')?.textContent.includes('Draining') && document.querySelector('.notice')?.textContent.includes('draining')`)
	b.await("the change among the recent ones", `document.querySelector('.changes')?.textContent.includes('Draining')`)
	n, err := s.operator().Node(b.Context(), "tokyo-1")
	require.NoError(b, err)
	require.False(b, n.DrainUntil.IsZero())
	b.do(chromedp.Reload())
	b.await("the node after a reload", `document.querySelector('.badges')?.textContent.includes('Draining')`)
	b.press(".pane", "Cancel drain")
	b.confirm()
	b.await("the node without a drain", `document.querySelector('.badges') && !document.querySelector('.badges').textContent.includes('Draining')`)
	b.press(".pane", "Cordon")
	b.confirm()
	b.await("the cordoned node", `document.querySelector('.badges').textContent.includes('Cordoned')`)
	b.press(".pane", "Uncordon")
	b.confirm()
	b.await("the node without orders", `!document.querySelector('.badges').textContent.includes('Cordoned')`)
	b.quiet()
}

func (b *tab) seeTurn(s *stack) (turn string) {
	d := s.session("speaker", "console-session")
	first := d.submit("", 0, berth.FinalizeNone)
	d.submit(first.TurnID, 1, berth.FinalizeManual)
	d.await(first.TurnID, berth.EventDone)
	b.visit(s, "/turns")
	row := `document.querySelector(%s)`
	link := fmt.Sprintf(`.rows a[href="#/console/turns/%s"]`, first.TurnID)
	b.await("the turn in the list", row, link) // visibility has it a moment later
	b.do(chromedp.Click(link))
	b.await("the dispatches of the turn", `document.querySelectorAll('.timeline .span.good').length === 2 && document.querySelector('.timeline .span').title.includes('tokyo')`)
	b.visit(s, "/sessions")
	b.await("the session", `document.querySelector('.rows')?.textContent.includes('console-session')`)
	b.quiet()
	return first.TurnID
}

func (b *tab) seeRecovery(s *stack) {
	const number = "8681230001"
	u1 := s.media("unit-1", 5)
	s.conferences().open(number, func(c *client.ConferenceSpec) { c.Title = "Weekly planning" })
	b.visit(s, "/conferences/"+number)
	b.await("the open conference", `document.querySelector('.badges')?.textContent.includes('Open') && document.querySelector('.timeline')?.textContent.includes('unit-1')`)
	u1.kill()
	b.await("the loss of the unit", `document.querySelector('.badges')?.textContent.includes('Awaiting recovery') && document.querySelector('.recovery') !== null`)
	b.shoot("conference-lost-en")
	s.media("unit-2", 5)
	b.await("the recovery", `document.querySelector('.badges')?.textContent.includes('Open') && document.querySelector('.recovery h3')?.textContent.includes('recovered in')`)
	require.Contains(b, ask[string](b, `document.querySelector('.recovery').textContent`), "unit-2")
	require.Contains(b, ask[string](b, `document.querySelector('.view .actions a[href*="/workflows/"]').href`), "/workflows/conference:"+number)
	b.quiet()
}

func (b *tab) addCredits() {
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/console/accounts' }`))
	b.await("the accounts", `document.querySelector('.rows a[href="#/console/accounts/carol"]') !== null`)
	b.do(chromedp.Click(`.rows a[href="#/console/accounts/carol"]`))
	b.press(".pane", "Add credits")
	b.await("the dialog", `document.querySelector('dialog[open] #why') !== null`)
	b.do(chromedp.SendKeys(`#why`, "thanks"))
	b.confirm()
	b.await("the entry", `document.querySelector('.rows')?.textContent.includes('thanks')`)
	b.quiet()
}

func (b *tab) reconcile() {
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/console/reconciliation' }`))
	b.press(".pane", "Start a full pass")
	b.confirm()
	// It is skipped if a dependency has just become available.
	b.await("the requested pass", `[...document.querySelectorAll('.rows tbody tr')].some((e) => e.textContent.includes('requested'))`)
	b.quiet()
}

// visitAll opens every view in both languages, and reloads it. Its accessibility is checked in English at the width of a desktop, and in
// Chinese at that of a phone.
func (b *tab) visitAll(s *stack, turn string) {
	script, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(b, err, "axe-core is not installed: run `make console`")
	s.engine("engine-1", 2, false)
	execution, err := s.user("alice", "user", "node").Execute(b.Context(), client.ExecutionSpec{Executor: "echo", Input: []byte(`{"page": 1}`)})
	require.NoError(b, err)
	for lang, width := range map[string]int64{"en": 1280, "zh": 390} {
		b.do(chromedp.EmulateViewport(1280, 900))
		if chinese := ask[bool](b, `document.documentElement.lang === 'zh-Hans'`); chinese != (lang == "zh") {
			b.do(chromedp.Click(`header .end button[lang]`, chromedp.NodeVisible))
			b.await("the page in the other language", `(document.documentElement.lang === 'zh-Hans') === %s`, lang == "zh")
		}
		for _, view := range []string{
			"", "/fleet", "/fleet/tokyo-1", "/pools", "/pools/translate%3Aen-es", "/models", "/tasks", "/templates", "/templates/job_match", "/turns", "/turns/" + turn, "/sessions",
			"/executions", "/executions/alice/" + execution.ExecutionID, "/conferences", "/conferences/8681230001", "/accounts", "/accounts/carol", "/usage", "/audit", "/reconciliation",
		} {
			b.visit(s, view)
			b.do(chromedp.Reload())
			b.await("the view "+view+" after a reload", `location.hash === %s && document.querySelector('.pane h1') !== null && document.querySelector('.pane [role=status].hint') === null`, "#/console"+view)
			require.Zero(b, ask[int](b, `document.querySelectorAll('.pane .notice.bad[role=alert]').length`), view)
			b.accessible(string(script), view, width)
			b.fits("console" + view + " " + lang)
			name := strings.NewReplacer("/", "-", "%3A", "-", turn, "one", execution.ExecutionID, "one").Replace("view" + view)
			if view == "" {
				name = "view-overview"
			}
			b.shoot(name + "-" + lang)
		}
		for _, hash := range []string{"#/", "#/tasks"} {
			b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ location.hash = %q }", hash)))
			b.await("the view "+hash, `document.querySelector('main h1') !== null && document.querySelector('.console') === null`)
			b.accessible(string(script), hash, width)
		}
	}
	if ask[bool](b, `document.documentElement.lang === 'zh-Hans'`) {
		b.do(chromedp.Click(`header .end button[lang]`, chromedp.NodeVisible))
	}
	for _, d := range []struct{ view, in, button string }{
		{"/models", `[aria-labelledby="m-deepseek-chat"]`, "Pause"},
		{"/models", `[aria-labelledby="m-deepseek-chat"]`, "Edit limits"},
		{"/fleet/tokyo-1", ".pane", "Drain"},
		{"/accounts/carol", ".pane", "Add credits"},
		{"/reconciliation", ".pane", "Start a full pass"},
	} {
		for _, width := range []int64{1280, 390} {
			b.do(chromedp.EmulateViewport(width, 900))
			b.visit(s, d.view)
			b.press(d.in, d.button)
			b.await("the dialog", `document.querySelector('dialog[open] button.primary') !== null`)
			b.accessible(string(script), d.view+": "+d.button, width)
			b.fits(d.view + " " + d.button)
			b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.quiet').click() }`))
			b.await("the dialog to close", `document.querySelector('dialog[open]') === null`)
		}
	}
	b.quiet()
}

// scheme emulates the user's preference for dark or light colours.
func (b *tab) scheme(name string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	require.NoError(b, err)
	b.await("the colours "+name, `matchMedia('(prefers-color-scheme: ' + %s + ')').matches`, name)
}

// accessible requires that a view violates no rule of WCAG 2.2 AA that axe checks, in light and in dark colours.
func (b *tab) accessible(axe, view string, width int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 900))
	b.await("the width", `innerWidth === %s`, width)
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		// Colours change with a transition, whose intermediate ones are not those of the page.
		b.await("the end of transitions", `document.getAnimations().every((a) => !(a instanceof CSSTransition))`)
		if !ask[bool](b, `window.axe !== undefined`) {
			b.do(chromedp.Evaluate[chromedp.Void](axe))
		}
		b.do(chromedp.Evaluate[chromedp.Void](`{ window.axed = null; axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((r) => { window.axed = r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).slice(0, 3).join(' | ')) }, (e) => { window.axed = [String(e)] }) }`))
		b.await("the check", `window.axed !== null`)
		require.Empty(b, ask[[]string](b, `window.axed`), "%s at %d px, %s", view, width, scheme)
	}
}
