package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// storeTemplate stores a template of testdata on the server.
func (s *stack) storeTemplate(name string) {
	s.tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "templates", name, "*"))
	require.NoError(s.tb, err)
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(s.tb, err)
		files[filepath.Base(path)] = string(text)
	}
	_, err = s.operator().PutTemplate(s.tb.Context(), berth.Template(name), client.TemplateFiles{Files: files})
	require.NoError(s.tb, err)
}

const complaint = "Order 4711\n\nWhat happened\n- The chair arrived with a broken leg.\n- The seller promised a new one within two weeks.\n" +
	"- Nothing has arrived after five weeks.\n\nWhat I want\n- My money back, 129 euros\n"

// A form, the progress of a task and its result are the template's, whatever that is about: the page has no word of any of them.
func TestPage_TemplateOfAnyKind_FormAndResultAreItsOwn(t *testing.T) { // G5, G6, G7
	t.Parallel()
	s := newStack(t)
	s.storeTemplate("order")
	s.storeTemplate("weekly_report")
	chromium := startBrowser(t)
	for name, check := range map[string]func(*stack, *tab){
		"a template that exists in Chinese only": useChineseOnly,
		"ten variables":                          useTenVariables,
		"items of an unknown kind":               showUnknownItems,
		"a result by its schema":                 showBySchema,
		"a template that was deleted":            showDeleted,
		"a thousand templates":                   chooseOfMany,
		"a template without languages":           useNeutral,
	} {
		t.Run(name, func(t *testing.T) { check(s, openTab(t, chromium)) })
	}
}

// texts returns the texts of elements.
func (b *tab) texts(selector string) []string {
	b.Helper()
	return ask[[]string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent.trim().replace(/\s+/g, ' '))`, selector))
}

// fitsAndShoots checks what is shown, and saves how it looks.
func (b *tab) fitsAndShoots(name string) {
	b.Helper()
	b.fits(name)
	b.shoot(name)
}

func useChineseOnly(s *stack, b *tab) {
	b.signIn(s, "zh-only")
	b.choice("template", "weekly_report")
	b.await("the form", `document.querySelector('#field-notes-label')?.textContent.startsWith('工作记录')`)
	require.Equal(b, "en", ask[string](b, `document.documentElement.lang`))
	require.Equal(b, "zh-Hans", ask[string](b, `document.querySelector('#field-notes-label [lang]').lang`), "what is in another language is marked")
	require.Equal(b, []string{"一周的记录，想到什么写什么即可。"}, b.texts(".sheet .help"))
	require.Equal(b, []string{"中文"}, b.texts("#locale option"))
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('details.extra').open = true }`))
	require.Equal(b, []string{"Without an entry: 正式"}, b.texts(".sheet .default"))
	b.fitsAndShoots("template-zh-form")

	b.enter("notes", "# 周一\n- 修复登录超时的问题\n- 参加评审会\n# 周二\n- 编写导出功能的测试\n")
	require.Equal(b, 1, b.start())
	b.await("the end", `document.querySelector('.task .status.completed') !== null && document.querySelector('.items') !== null`)
	require.Equal(b, []string{"已完成", "下周计划", "风险"}, b.texts(".stages li"))
	require.Contains(b, b.texts(".items h2")[0], "事项: 已完成")
	require.NotEmpty(b, b.items())
	require.Equal(b, berth.LocaleZH, s.tasksOf("zh-only")[0].Locale)
	b.fitsAndShoots("template-zh-task")
	b.open("#/tasks", `document.querySelector('.history .tasks .of')?.textContent === '周报整理'`)
	b.quiet()
}

func useTenVariables(s *stack, b *tab) {
	b.signIn(s, "ten")
	b.choice("template", "order")
	b.await("the form", `document.querySelector('#field-orderNumber') !== null`)
	require.Zero(b, b.start())
	require.Equal(b, []string{"message", "orderNumber", "product", "contract"}, ask[[]string](b, `[...document.querySelectorAll('.sheet.bad textarea')].map((e) => e.id.slice(6))`))
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('details.extra').open = true }`))
	require.Len(b, b.texts(".sheet"), 9, "ten variables, of which two are alternatives")
	b.fitsInBoth("template-order-form")
	b.shoot("template-order-form-zh")
	b.speak(berth.LocaleEN)
	b.shoot("template-order-form-en")

	b.enter("message", complaint)
	b.enter("orderNumber", "4711")
	b.enter("product", "Chair")
	b.enter("contract", "Returns within 30 days.")
	b.choice("choice-terms", "contractNumber")
	b.enter("contractNumber", "AGB-7")
	require.Equal(b, 1, b.start())
	b.await("the end", `document.querySelector('.task .status.completed') !== null && document.querySelector('.items') !== null`)
	given := make([]string, 0, 4)
	for _, in := range s.task("ten").Inputs {
		given = append(given, in.Variable)
	}
	require.Equal(b, []string{"message", "orderNumber", "product", "contractNumber"}, given, "the alternative that was chosen, and no other")
	require.Equal(b, []string{"Collect the facts", "Decide"}, ask[[]string](b, `[...document.querySelectorAll('.chain > li h3')].map((h) => h.firstElementChild.textContent)`), "the step without an image was left out")
	require.Len(b, b.texts(".stages li"), 6)
	require.Equal(b, []string{"Message of the customer", "Order number", "Product", "Number of the terms"}, b.texts(".submitted dt"))
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('.chain details summary').click() }`))
	b.await("the output by its schema", `document.querySelector('.chain .written h3')?.textContent === 'What happened'`)
	b.fitsAndShoots("template-order-task")
	b.quiet()
}

// task returns the only task of a user with its inputs.
func (s *stack) task(user string) client.Task {
	s.tb.Helper()
	listed := s.tasksOf(user)
	require.Len(s.tb, listed, 1)
	task, err := s.user(user).Get(s.tb.Context(), listed[0].ID)
	require.NoError(s.tb, err)
	return task
}

// done submits a task and waits for its end.
func (b *tab) done(s *stack, user string, sub client.Submission) string {
	b.Helper()
	sub.ServiceID, sub.Locale = "any", berth.LocaleEN
	acc, err := s.user(user).Submit(b.Context(), sub, "")
	require.NoError(b, err)
	b.open("#/tasks/"+acc.TaskID, `document.querySelector('.task .status.completed') !== null`)
	return acc.TaskID
}

func showUnknownItems(s *stack, b *tab) {
	b.signIn(s, "unknown")
	id := b.done(s, "unknown", client.Submission{Template: "order", Variables: map[string]any{"message": complaint, "orderNumber": "1", "product": "Chair", "contractNumber": "2"}})
	items := []any{
		map[string]any{"kind": "otherKind", "value": map[string]any{"label": "First of them", "ok": true, "n": 12345}},
		map[string]any{"kind": "otherKind", "value": map[string]any{"label": "Second", "ok": false, "nested": map[string]any{"list": []any{"a", 1, nil, map[string]any{"deep": "value"}}}}},
		map[string]any{"kind": "toString", "value": "only a text <b>with a tag</b>"},
		map[string]any{"kind": "toString", "value": []any{1, "مرحبا بالعالم", false}},
		map[string]any{"kind": "check", "value": map[string]any{"question": "Known?", "answered": true}},
	}
	b.serveResult(id, map[string]any{"items": items})
	b.open("#/tasks", `document.querySelector('.history .tasks') !== null`)
	b.open("#/tasks/"+id, `document.querySelectorAll('.items').length === 3`)
	require.Equal(b, []string{"1 of 1 Open questions: Answered", "1 of 2 Other kind: Ok", "To string 2"}, b.texts(".items h2"))
	shown := strings.Join(b.texts(".items .list"), "\n")
	for _, text := range []string{"First of them", "12,345", "value", "only a text <b>with a tag</b>", "مرحبا بالعالم", "Known?"} {
		require.Contains(b, strings.ToLower(shown), strings.ToLower(text))
	}
	require.Zero(b, ask[int](b, `document.querySelectorAll('.items :is(b, script):not(.sum b)').length`))
	b.fitsAndShoots("template-unknown-items")
	b.quiet()
}

func showBySchema(s *stack, b *tab) {
	b.signIn(s, "schema")
	id := b.done(s, "schema", client.Submission{Template: "ticket_summary", Variables: map[string]any{"ticket": complaint}})
	b.await("the result", `document.querySelector('.reading > section > h3')?.textContent === 'Summary'`)
	// The model may write it in any order, with what the schema does not name.
	b.serveResult(id, map[string]any{"extraField": 1, "reply": "Dear customer,\nwe are sorry.", "urgency": "low", "summary": "A chair arrived with a broken leg.", "topics": []string{"chair", "refund"}, "question": nil})
	b.open("#/tasks", `document.querySelector('.history .tasks') !== null`)
	b.open("#/tasks/"+id, `document.querySelectorAll('.reading > section').length === 5`)
	require.Equal(b, []string{"Summary", "Urgency", "Topics", "Reply", "Extra field"}, b.texts(".reading > section > h3"), "in the order of the schema, under its titles or the names of its fields")
	b.fitsAndShoots("template-schema")
	b.quiet()
}

func showDeleted(s *stack, b *tab) {
	files := map[string]string{"gone.prompt": "---\ntitle: {en: Soon gone}\nmodels: {paid: deepseek-chat, free: glm-4.5-flash}\nvariables:\n  - {name: text, required: true}\n---\n{{role \"user\"}}\n{{document \"text\" text}}\n"}
	_, err := s.operator().PutTemplate(b.Context(), "gone", client.TemplateFiles{Files: files})
	require.NoError(b, err)
	b.signIn(s, "deleted")
	id := b.done(s, "deleted", client.Submission{Template: "gone", Title: "Mine", Variables: map[string]any{"text": "Anything."}})
	b.await("the title", `document.querySelector('.task .lead')?.textContent === 'Soon gone'`)
	require.NoError(b, s.operator().DeleteTemplate(b.Context(), "gone"))
	b.do(chromedp.Reload())
	b.await("the name in its place", `document.querySelector('.task .lead')?.textContent === 'gone' && document.querySelector('.prose') !== null`)
	b.press(".task header", "Edit")
	b.await("the reason", `document.querySelector('.paper .notice.bad')?.textContent.includes('This template is no longer offered.')`)
	b.open("#/", `document.querySelector('form .templates input') !== null`)
	require.Zero(b, ask[int](b, `document.querySelectorAll('input[name="template"][value="gone"]').length`))
	b.open("#/tasks?template=gone", `document.querySelector('.history .tasks .of')?.textContent === 'gone'`)
	require.Equal(b, "gone", ask[string](b, `document.querySelector('#find-template').value`))
	require.NotEmpty(b, id)
	b.quiet()
}

// useNeutral submits a task of a template whose prompts depend on no language: its form asks for none, and the request names none.
func useNeutral(s *stack, b *tab) {
	b.signIn(s, "neutral")
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const call = window.fetch;
		window.posted = [];
		window.fetch = (url, o) => {
			if (o?.method === 'POST' && new URL(url, document.baseURI).pathname === '/v1/tasks') window.posted.push(JSON.parse(o.body));
			return call(url, o);
		} }`))
	b.choice("template", "job_summary")
	b.await("a template with languages", `document.querySelectorAll('#locale option').length === 2`)
	b.choice("template", "translate")
	b.await("no language", `document.querySelector('#field-text') !== null && document.querySelector('#locale') === null`)
	b.fitsAndShoots("template-neutral-form")
	b.enter("text", complaint)
	require.Equal(b, 1, b.start())
	b.await("the end", `document.querySelector('.task .status.completed') !== null`)
	require.Equal(b, []bool{true, false}, ask[[]bool](b, `['template' in window.posted[0], 'locale' in window.posted[0]]`))
	b.shoot("template-neutral-task")
	b.quiet()
}

// chooseOfMany makes the page receive a thousand templates: it shows a few, and those that a search finds.
func chooseOfMany(s *stack, b *tab) {
	status, listed := s.send(http.MethodGet, "/v1/templates", s.token("many"), nil)
	require.Equal(b, http.StatusOK, status)
	one := listed["templates"].([]any)[0]
	raw, err := json.Marshal(one)
	require.NoError(b, err)
	s.user("many")
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("many", "user", "operator")))
	b.await("the form", `document.querySelectorAll('input[name="template"]').length > 0`)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		const call = window.fetch, one = %s;
		const many = Array.from({ length: 1000 }, (_, i) => ({ ...one, name: 'letter_' + i, mode: i & 1 ? 'stream' : 'batch', title: { en: 'Letter number ' + i, zh: '信件 ' + i }, description: { en: 'For case ' + i } }));
		window.fetch = async (url, o) => new URL(url, document.baseURI).pathname === '/v1/templates' ? Response.json({ templates: many }) : call(url, o) }`, raw)))
	b.open("#/tasks", `document.querySelector('.history') !== null`)
	b.open("#/", `document.querySelector('#find-template') !== null`)
	few := `document.querySelectorAll('input[name="template"]').length`
	b.await("a few of them", few+` === 12`)
	b.fits("thousand templates")
	find := func(selector, text string) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event('input', { bubbles: true })) }`, selector, text)))
	}
	find("#find-template", "case 777")
	b.await("the one that was searched for, and the chosen one", few+` === 2`)
	b.choice("template", "letter_777")
	find("#find-template", "信件 88")
	b.await("those with a title of another language", few+` === 12 && document.querySelector('input[name="template"]:checked').value === 'letter_777'`)
	find("#find-template", "nothing of the kind")
	b.await("that there is none", `document.querySelector('.templates .hint')?.textContent === 'Nothing matches.'`)
	b.shoot("template-thousand-en")

	b.open("#/console/templates", `document.querySelectorAll('.rows tbody tr').length === 50`)
	b.fits("console thousand templates")
	b.press(".pager", "Next")
	b.await("the next page", `document.querySelector('.rows tbody tr td').textContent.includes('letter_50')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector('.filters input'); e.value = 'letter_99'; e.dispatchEvent(new Event('change', { bubbles: true })) }`))
	b.await("those that were searched for", `location.hash === '#/console/templates?q=letter_99' && document.querySelectorAll('.rows tbody tr').length === 11 && document.querySelector('.pager') === null`)
	b.open("#/console/templates?mode=stream&locale=zh", `document.querySelectorAll('.rows tbody tr').length === 50 && document.querySelector('.found').textContent.startsWith('500 ')`)
	b.open("#/console/templates?mode=vision", `document.querySelector('.pane .hint')?.textContent === 'None.'`)
	b.quiet()
}
