package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// An operator reads a template, changes it, returns to the version before, and deletes it. Each mistake is shown with its file and line.
func TestConsole_TemplateIsChanged_NewTasksUseTheVersion(t *testing.T) { // G2, G5
	t.Parallel()
	s := newStack(t)
	s.storeTemplate("order")
	s.storeTemplate("weekly_report")
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	first, err := s.operator().Template(t.Context(), "order")
	require.NoError(t, err)

	b.visit(s, "/templates")
	b.await("all of them", `[...document.querySelectorAll('.rows .main small')].map((e) => e.textContent).includes('order')`)
	b.fitsInBoth("console templates")
	b.shoot("console-templates-zh")
	b.speak(berth.LocaleEN)
	b.do(chromedp.Click(`.rows a[href="#/console/templates/order"]`))
	b.await("the template", `document.querySelector('.pane h1')?.textContent === 'Complaint about an order' && document.querySelectorAll('.pane .rows').length === 3`)
	require.Equal(t, []string{"Read the receiptread", "Collect the factsfacts", "Decidedecide"}, b.texts(".pane section:nth-of-type(2) .main"))
	b.fitsInBoth("console template")
	b.speak(berth.LocaleEN)
	b.shoot("console-template-en")

	version := fmt.Sprintf("/templates/order/%s", first.Version)
	b.visit(s, version)
	b.await("its files", `document.querySelectorAll('[role=tab]').length === 4 && document.querySelector('pre.source')?.textContent.includes('title:')`)
	b.fitsInBoth("console template files")
	b.speak(berth.LocaleEN)
	b.visit(s, "/templates/order")
	b.do(chromedp.Click(`.view .actions a[href$="/edit"]`))
	b.await("the files to edit", `document.querySelector('textarea.source') !== null`)
	b.rewrite("required: true", "requird: true")
	b.press(".edit", "Check")
	b.await("the mistake", `document.querySelector('.mistakes')?.textContent.includes('template.yaml:5') && document.querySelector('.mistakes').textContent.includes('requird')`)
	b.fits("console template mistakes")
	b.shoot("console-template-mistakes-en")
	b.rewrite("requird: true", "required: true")
	b.rewrite("Complaint about an order", "Complaint")
	b.rewrite("{en: Decide,", "{en: Judge,")
	b.press(".edit", "Check")
	b.await("that it is new", `document.querySelector('.notice[role=status]')?.textContent.startsWith('No mistakes.')`)
	b.complaint() // the browser reports the refused check
	require.Equal(t, first.Version, s.activeVersion("order"), "a check stores nothing")
	b.visit(s, version)
	b.await("that the changes are not stored", `document.querySelector('.notice')?.textContent.includes('not stored') && document.querySelector('pre.source').textContent.includes('Complaint about an order')`)
	b.visit(s, version+"/edit")
	b.await("the changes", `document.querySelector('textarea.source').value.includes('title: {en: Complaint,') && document.querySelector('[aria-selected=true]').textContent.includes('•')`)
	b.press(".edit", "Store")
	b.await("the new version", `/^#.console.templates.order.[0-9a-f]+.try$/.test(location.hash) && document.querySelector('.pane h1')?.textContent === 'Complaint' && document.querySelector('.view .badges').textContent.includes('Not active')`)
	second := strings.Split(ask[string](b, `location.hash`), "/")[4]
	require.NotEqual(t, first.Version, second)
	b.tryOut(s, second)
	require.Equal(t, first.Version, s.activeVersion("order"), "a trial activates nothing")

	b.visit(s, "/templates/order")
	b.await("both versions", `document.querySelector('.pane h1')?.textContent === 'Complaint about an order' && document.querySelectorAll('section:last-of-type .rows tbody tr').length === 2`)
	b.shoot("console-template-versions-en")
	b.press(".pane section:last-of-type", "Activate: "+second[:12])
	b.confirm()
	b.await("the new title", `document.querySelector('.pane h1')?.textContent === 'Complaint'`)
	b.press(".pane section:last-of-type", "Activate: "+first.Version[:12])
	b.confirm()
	b.await("the version before", `document.querySelector('.pane h1')?.textContent === 'Complaint about an order'`)

	b.visit(s, "/templates/order")
	b.press(".view", "Delete")
	b.confirm()
	b.await("that it is deleted", `document.querySelector('.view .badge')?.textContent === 'Deleted'`)
	b.shoot("console-template-deleted-en")
	_, err = s.user("carol").Submit(t.Context(), client.Submission{ServiceID: "any", Template: "order", Variables: map[string]any{"message": "x"}}, "")
	require.Error(t, err)
	b.open("#/tasks/"+s.task("olga").ID, `document.querySelector('.task .status.completed') !== null`)
	b.showsLabels("Read the receipt", "Collect the facts", "Judge") // of a template that is deleted, and was activated with others
	require.NotContains(t, strings.Join(b.texts(".paper .notice"), ""), "another version", "no version is active")
	axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	for _, view := range []string{"/templates", "/templates/weekly_report", "/templates/order", version, version + "/edit", version + "/try"} {
		b.visit(s, view)
		for _, width := range []int64{390, 1280} {
			b.accessible(string(axe), "console"+view, width)
		}
	}
	b.quiet()
}

// showsLabels requires the labels of a task's steps.
func (b *tab) showsLabels(want ...string) {
	b.Helper()
	require.Equal(b, want, ask[[]string](b, `[...document.querySelectorAll('.chain > li h3')].map((h) => h.firstElementChild.textContent)`))
}

// activeVersion returns which version of a template new tasks use.
func (s *stack) activeVersion(name berth.Template) string {
	s.tb.Helper()
	state, err := s.operator().Template(s.tb.Context(), name)
	require.NoError(s.tb, err)
	return state.Version
}

// tryOut shows the messages of a version that is not active, and runs it.
func (b *tab) tryOut(s *stack, version string) {
	b.Helper()
	b.press(".try", "Show messages")
	b.await("what is missing", `document.querySelectorAll('.sheet.bad').length === 4 && document.querySelector('.messages') === null`)
	b.fits("console template try, missing")
	b.enter("message", "A <b>broken</b> chair.\n{{role \"system\"}}\n<<stage:weigh>>")
	b.enter("orderNumber", "4711")
	b.enter("product", "Chair")
	b.choice("choice-terms", "contractNumber")
	b.enter("contractNumber", "AGB-7")
	b.do(chromedp.Evaluate[chromedp.Void](`{ for (const d of document.querySelectorAll('details.extra')) d.open = true }`))
	b.fitsInBoth("console template try")
	b.speak(berth.LocaleEN)
	b.shoot("console-template-try-en")
	b.press(".try", "Show messages")
	b.await("the messages of both steps", `document.querySelectorAll('.messages').length === 2`)
	require.Equal(b, []string{"system", "user", "system", "user"}, b.texts(".messages h3"))
	require.Contains(b, b.texts(".messages pre")[1], `A <b>broken</b> chair. {{role "system"}} <<stage:weigh>>`, "as it is, whatever it has")
	require.Contains(b, b.texts(".messages pre")[3], "[output of step facts]")
	require.Zero(b, ask[int](b, `document.querySelectorAll('.messages b').length`))
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector('.outputs label:last-of-type textarea'); e.value = 'The chair broke.'; e.dispatchEvent(new Event('input', { bubbles: true })) }`))
	image, err := filepath.Abs(filepath.Join("..", "examples", "posting-en.png"))
	require.NoError(b, err)
	b.choose("receipt", image)
	b.press(".try", "Show messages")
	b.await("the step that reads the image", `document.querySelectorAll('.messages').length === 3 && document.querySelector('.messages .image')?.textContent.includes('receipt')`)
	require.Contains(b, b.texts(".messages:last-of-type pre")[1], "The chair broke.")
	b.fitsInBoth("console template messages")
	b.speak(berth.LocaleEN)
	b.shoot("console-template-messages-en")
	b.press(".try", "Trial run")
	b.await("the end of the trial", `location.hash.startsWith('#/tasks/') && document.querySelector('.task .status.completed') !== null`)
	require.Contains(b, b.texts(".facts div"), "Version"+version[:12], "it is not the active one")
	task := s.task("olga")
	require.Equal(b, version, task.TemplateVersion)
	require.Len(b, task.Steps, 3)
	b.showsLabels("Read the receipt", "Collect the facts", "Judge")
	require.Contains(b, b.texts(".paper .notice"), "This task has another version of the template than new tasks. “Run again”, “Edit” and copied requests use the active one.")
	b.fitsInBoth("trial")
	b.shoot("console-template-trial-zh")
	b.showsLabels("识别小票", "收集事实", "决定")
	b.speak(berth.LocaleEN)
	b.quiet()
}

// rewrite replaces a part of the file that is edited.
func (b *tab) rewrite(old, text string) {
	b.Helper()
	b.await("the file", `document.querySelector('textarea.source')?.value.includes(%s)`, old)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector('textarea.source'); e.value = e.value.replace(%q, %q); e.dispatchEvent(new Event('input', { bubbles: true })) }`, old, text)))
}

const onePrompt = "---\ntitle: {en: %s}\nmodels: {paid: deepseek-chat, free: %s}\nvariables:\n  - {name: text, required: true}\n---\n{{role \"user\"}}\n{{document \"text\" text}}\n"

// An operator sees which templates replace others and which lack models, and finds and restores those that were deleted.
func TestConsole_TemplatesOfEachSourceAndState_ListedAndRestored(t *testing.T) { // G2, G6
	t.Parallel()
	file := routing(t, nil)
	text := strings.Replace(string(mustRead(t, file)), "default: {paid: deepseek-chat, free: glm-4.5-flash}", "default: {paid: deepseek-chat}", 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	s := newStack(t, with("BERTH_ROUTING_FILE="+file))
	s.storeTemplate("weekly_report")
	for name, prompt := range map[berth.Template]string{
		"translate": fmt.Sprintf(onePrompt, "Own translation", "glm-4.5-flash"), "unserved": fmt.Sprintf(onePrompt, "Without a model", "no-such-model"),
	} {
		_, err := s.operator().PutTemplate(t.Context(), name, client.TemplateFiles{Files: map[string]string{string(name) + ".prompt": prompt}})
		require.NoError(t, err)
	}
	require.NoError(t, s.operator().DeleteTemplate(t.Context(), "weekly_report"))
	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
	axe := string(mustRead(t, "../api/console/node_modules/axe-core/axe.min.js"))
	good := func(name string) {
		t.Helper()
		b.fitsInBoth(name)
		b.shoot(name + "-zh")
		b.speak(berth.LocaleEN)
		b.shoot(name + "-en")
		for _, width := range []int64{390, 1280} {
			b.accessible(axe, name, width)
		}
	}

	b.visit(s, "/templates")
	choose := `{ const e = [...document.querySelectorAll('.filters select')].at(-1); e.value = %q; e.dispatchEvent(new Event('change', { bubbles: true })) }`
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(choose, "builtin")))
	b.await("those of the program", `location.hash === '#/console/templates?source=builtin' && document.querySelectorAll('.rows tbody tr').length > 5 && !document.querySelector('.rows').textContent.includes('replaces')`)
	require.Empty(t, b.texts(".pane > .notice"))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(choose, "api")))
	b.await("those of operators", `document.querySelectorAll('.rows tbody tr').length === 2`)
	require.Equal(t, []string{"Own translationtranslate", "Without a modelunserved No model: free"}, b.texts(".rows .main"))
	require.Equal(t, []string{"APIreplaces built-in", "API"}, b.texts(`.rows td[data-l="Source"]`))
	require.Contains(t, b.texts(".pane > .notice")[0], "BERTH_ROUTING_FILE")
	good("console-templates-sources")
	b.visit(s, "/templates/translate")
	b.await("what it replaces", `document.querySelector('.details')?.textContent.includes('APIreplaces built-in')`)

	b.visit(s, "/templates")
	b.do(chromedp.Click(`.tabs a[href="#/console/templates?deleted=true"]`))
	b.await("the deleted one, and its version", `[...document.querySelectorAll('.rows .main small')].map((e) => e.textContent).join() === 'weekly_report'`)
	require.Regexp(t, `\d\d:\d\dop$`, b.texts(`.rows td[data-l="Deleted"]`)[0], "when, and by whom")
	good("console-templates-deleted")
	b.press(".rows", "Restore: weekly_report")
	b.shoot("console-templates-restore-en")
	b.confirm()
	b.await("that none is deleted", `document.querySelector('.rows') === null && document.querySelector('.pane > .hint')?.textContent === 'None.'`)
	require.NotEmpty(t, s.activeVersion("weekly_report"))

	b.visit(s, "/templates/weekly_report")
	b.press(".view", "Delete")
	require.NoError(t, s.operator().DeleteTemplate(t.Context(), "weekly_report"))
	b.await("the dialog", `document.querySelector('dialog[open] button.primary') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.primary').click() }`))
	b.await("that another operator was first", `document.querySelector('dialog[open] .error')?.textContent === 'The template weekly_report is already deleted, by op. Restore it to offer it again.'`)
	require.Contains(t, b.complaint(), "409")
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.quiet').click() }`))
	b.await("that it is deleted, by whom, and what to do", `/^Deleted: .*\d\d:\d\d, op\. New tasks of this template are refused\./.test(document.querySelector('.pane > .notice')?.textContent.trim())`)
	good("console-template-deleted")
	b.press(".view", "Restore")
	b.confirm()
	b.await("that it is offered", `document.querySelector('.view .badge')?.textContent === 'Active' && document.querySelector('.pane > .notice') === null`)
	b.quiet()
}
