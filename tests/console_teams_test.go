package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/lua"
)

// set writes into a field of the page, as a user does.
func (b *tab) set(selector, value string) {
	b.Helper()
	b.await("the field "+selector, `document.querySelector(%s) !== null`, selector)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event('input', { bubbles: true })); e.dispatchEvent(new Event('change', { bubbles: true })) }`, selector, value)))
}

// G11, G12, G15: an operator defines teams and applications, changes the routing and the upstreams of a model, and sees what runs and waits at
// each level, why, and what it costs. All of it fits phones, in both languages.
func TestConsole_TeamsAndUpstreams_SeenAndChanged(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	operator := s.operator()
	c := s.userOf("ads", "", "carol")
	acc, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": string(example(t, "posting-en.txt"))},
	}, "")
	require.NoError(t, err)
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	b.visit(s, "/tasks/carol/"+acc.TaskID)
	b.await("the upstream that answered", `document.querySelector('.chain .route')?.textContent.includes('deepseek') && document.querySelector('.chain .route').textContent.includes('·') && document.querySelector('.pane > section .rows td[data-l=Model] small')?.textContent === 'deepseek'`)
	b.shoot("task-upstream")

	t.Run("defines teams", func(t *testing.T) { b.with(t).defineTeams(s) })
	t.Run("changes the routing", func(t *testing.T) { b.with(t).changeRouting(s) })
	for i, p := range []lua.Path{
		{Queue: "q_paid_stream", Group: lua.Group{Team: "search", App: "chat", EndUser: "e1"}, UserID: "bot"},
		{Queue: "q_paid_stream", Group: lua.Group{Team: "search", App: "chat", EndUser: "e2"}, UserID: "bot"},
		{Queue: "q_paid_stream", Group: lua.Group{Team: "search"}, UserID: "ann"},
		{Queue: "q_paid_batch", Group: lua.Group{Team: "ads"}, UserID: "bob"},
		{Queue: "q_paid_stream", UserID: "李雷"},
		{Queue: "q_paid_stream", UserID: "李雷"},
	} {
		_, err := lua.New(s.redis(), lua.Keys{}).AcquireSlot(t.Context(), lua.SlotCall{
			Model: "deepseek-chat", Limits: lua.OneUpstream(1), Times: lua.SlotTimes{TTL: time.Hour, Grant: time.Hour},
			Lease: lua.Lease{Process: "p", Path: p, Rest: fmt.Sprint(i)}.ID(),
		})
		require.NoError(t, err)
	}
	t.Run("sees why calls wait", func(t *testing.T) { b.with(t).seeLevels(s, operator) })
	t.Run("sees sums", func(t *testing.T) { b.with(t).seeSums(s) })
	t.Run("every view is accessible", func(t *testing.T) {
		b := b.with(t)
		axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
		require.NoError(t, err, "axe-core is not installed: run `make console`")
		for lang, width := range map[berth.Locale]int64{berth.LocaleEN: 1280, berth.LocaleZH: 390} {
			b.speak(lang)
			for _, view := range []string{
				"/teams", "/teams/search", "/apps", "/apps/chat", "/models", "/models/deepseek-chat", "/models/deepseek-chat?teamId=search", "/routing", "/routing/1", "/sums", "/usage",
			} {
				b.visit(s, view)
				b.await("the content of "+view, `document.querySelector('.pane .rows, .pane .details') !== null`)
				b.accessible(string(axe), view, width)
				b.fits("console" + view)
				b.shoot(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace("teams"+view) + "-" + string(lang))
			}
		}
		b.speak(berth.LocaleEN)
	})
	b.quiet()
}

func (b *tab) defineTeams(s *stack) {
	b.visit(s, "/apps")
	b.await("no applications", `document.querySelector('.pane .hint')?.textContent.startsWith('No applications yet')`)
	b.shoot("teams-empty")
	b.visit(s, "/teams")
	b.await("the team of a token", `document.querySelector('.rows')?.textContent.includes('ads')`)
	b.press(".pane", "New team")
	b.set("dialog[open] input[required]", "ads")
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("why it is refused", `document.querySelector('dialog[open] .error')?.textContent.includes('exists already')`)
	b.set("dialog[open] input[required]", "search")
	b.set("dialog[open] input[type=number]", "2.5")
	b.set("dialog[open] textarea", "ann\nann, bob")
	b.fits("dialog of a team")
	b.shoot("teams-dialog")
	b.confirm()
	b.await("the team", `document.querySelector('.pane h1')?.textContent === 'search' && document.querySelector('.chips')?.textContent === 'annbob'`)
	b.press(".pane", "Edit")
	b.await("its slots", `document.querySelectorAll('dialog[open] input[type=number]').length === 3`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelectorAll('dialog[open] input[type=number]')[1]; e.value = '1'; e.dispatchEvent(new Event('input', { bubbles: true })) }`))
	b.confirm()
	b.await("the limit", `document.querySelector('.details .meter .of')?.textContent.replace(/\s/g, '') === '/1'`)
	b.visit(s, "/apps?teamId=search")
	b.press(".pane", "New application")
	b.set("dialog[open] input[required]", "chat")
	b.confirm()
	b.await("the application with its team", `document.querySelector('.pane h1')?.textContent === 'chat' && document.querySelector('.details a')?.textContent === 'search'`)
	b.visit(s, "/teams/search")
	b.press(".pane", "Delete")
	b.await("the dialog", `document.querySelector('dialog[open] button.primary') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("why it is not deleted", `document.querySelector('dialog[open] .error')?.textContent.includes('chat')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.quiet').click() }`))
	b.visit(s, "/teams?prefix=se")
	b.await("the teams found", `document.querySelectorAll('.rows tbody tr').length === 1 && document.querySelector('.rows').textContent.includes('search')`)
	b.complaint() // the browser lists each refused request
}

func (b *tab) changeRouting(s *stack) {
	b.visit(s, "/routing")
	b.await("the content", `document.querySelector('.source')?.textContent.includes('deepseek-chat')`)
	b.press(".pane", "Edit")
	content := ask[string](b, `document.querySelector('textarea.source').value`)
	b.set("textarea.source", strings.Replace(content, "cap: 5", "cap: many", 1))
	b.press(".pane", "Check")
	b.await("what is wrong, and where", `document.querySelector('.routing .notice.bad')?.textContent.includes('models.deepseek-chat.cap') && document.querySelector('.routing .notice.bad').textContent.includes('line')`)
	b.shoot("routing-wrong")
	const from = "    provider: deepseek\n    cap: 5"
	require.Contains(b, content, from)
	b.set("textarea.source", strings.Replace(content, from,
		"    upstreams: [{provider: deepseek, cap: 2}, {provider: zhipu, cap: auto, min: 1, max: 8, rank: 2}]", 1))
	b.press(".pane", "Check")
	b.await("that it is valid", `document.querySelector('.routing .notice[role=status]')?.textContent.startsWith('The content is valid')`)
	b.press(".pane", "Use it")
	b.confirm()
	b.await("the new revision", `document.querySelectorAll('.rows tbody tr').length === 2 && document.querySelector('.source').textContent.includes('cap: auto')`)
	b.visit(s, "/models/deepseek-chat")
	b.await("its upstreams", `document.querySelectorAll('.upstreams li').length === 2`)
	b.complaint()
}

func (b *tab) seeLevels(s *stack, operator *client.Client) {
	b.visit(s, "/models/deepseek-chat")
	row := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.levels tbody tr')].find((e) => e.querySelector('.main').textContent.replace(/\s+/g, '').endsWith(%q))?.textContent`, text)
	}
	b.await("the team at its limit", row("teamsearch")+`?.includes('at its limit')`)
	b.await("a level below", row("enduser"+"e2")+`?.includes('a level above is at its limit')`)
	b.await("why", `document.querySelector('.pane .lead').textContent !== ''`)
	b.shoot("model-levels")
	pause := `[...document.querySelectorAll('.upstreams li')].find((e) => e.querySelector('strong').textContent === 'zhipu')`
	b.await("the upstream", pause+` !== undefined`)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ [...%s.querySelectorAll('button')].find((e) => e.textContent.startsWith('Pause')).click() }`, pause)))
	b.set("dialog[open] #reason", "key is being replaced")
	b.confirm()
	b.await("the reason", pause+`.textContent.includes('key is being replaced')`)
	models, err := operator.Models(b.Context())
	require.NoError(b, err)
	for _, m := range models {
		if m.Name == "deepseek-chat" {
			require.Equal(b, []any{false, true}, []any{m.Paused, m.Upstreams[1].Paused})
		}
	}
	b.set(".filters input", "ads")
	b.await("one team", `[...document.querySelectorAll('.levels .d1')].every((e) => e.textContent.includes('ads')) && document.querySelector('.levels .d1') !== null`)
	b.shoot("model-levels-of-team")
}

func (b *tab) seeSums(s *stack) {
	b.visit(s, "/sums?by=user,model,upstream,day")
	b.await("the sum", `document.querySelector('.sums tbody')?.textContent.includes('carol') && document.querySelector('.sums').textContent.includes('deepseek-chat')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ [...document.querySelectorAll('.dimensions input')].at(-2).click() }`))
	b.await("the sum by result", `location.hash.includes('outcome') && document.querySelector('.sums thead')?.textContent.includes('Result')`)
	b.shoot("sums")
	b.visit(s, "/sums?teamId=none")
	b.await("that there is none", `document.querySelector('.pane .hint')?.textContent.startsWith('No calls have ended')`)
}
