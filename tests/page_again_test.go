package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// A user finds a task by its title, sees what was submitted for it, and submits that again: as it was, or with a change.
func TestPage_TaskInList_IsFoundShownAndSubmittedAgain(t *testing.T) { // T30
	t.Parallel()
	s := newStack(t)
	b := openTab(t, startBrowser(t))
	const user = "again"
	b.signIn(s, user)
	c := s.user(user)
	upload := func(name, file string) client.AssetVariable {
		id, err := c.Upload(t.Context(), name, example(t, file))
		require.NoError(t, err)
		return client.AssetRef(id)
	}
	const notes = "Answer <b>briefly</b>.\nSecond line."
	submit := func(sub client.Submission) string {
		sub.ServiceID, sub.Locale = "letters", berth.LocaleEN
		acc, err := c.Submit(t.Context(), sub, berth.NewID(""))
		require.NoError(t, err)
		return acc.TaskID
	}
	first := submit(client.Submission{Template: "job_match", Variables: map[string]any{
		"resume": upload("Lebenslauf 简历.txt", "resume-en.txt"), "jobImage": upload("posting.png", "posting-en.png"), "notes": notes,
	}})
	submit(client.Submission{Template: "job_summary", Title: "港湾系统：后端工程师", Variables: map[string]any{"jobText": string(example(t, "posting-zh.txt"))}})
	submit(client.Submission{Template: "job_summary", Variables: map[string]any{"jobText": string(example(t, "posting-en.txt"))}})

	t.Run("the list is searched", func(t *testing.T) { b.with(t).findTasks(first) })
	t.Run("the task shows what was submitted", func(t *testing.T) { b.with(t).seeSubmitted(s, user, first, notes) })
	t.Run("it runs again as it was", func(t *testing.T) { b.with(t).runAgain(c, first) })
	t.Run("it is edited", func(t *testing.T) { b.with(t).editTask(c, first) })
	t.Run("the views are accessible", func(t *testing.T) {
		axe, err := os.ReadFile("../api/console/node_modules/axe-core/axe.min.js")
		require.NoError(t, err)
		for hash, ready := range map[string]string{
			"#/tasks": `document.querySelector('.history .tasks') !== null`, "#/tasks/" + first: `document.querySelector('.submitted img')?.naturalWidth > 0`,
		} {
			b := b.with(t)
			b.open(hash, ready)
			b.await("the end of what arrives", `document.getAnimations().every((a) => a.playState === 'finished' || a.effect.getTiming().iterations === Infinity)`)
			for _, width := range []int64{390, 1280} {
				b.accessible(string(axe), hash, width)
			}
		}
	})
	t.Run("an erased task states it", func(t *testing.T) { b.with(t).eraseTask(first) })
}

// findTasks searches and filters the list with the keyboard; the address has the filters.
func (b *tab) findTasks(first string) {
	titles := func(want ...string) {
		b.Helper()
		b.await("the tasks "+strings.Join(want, ", "), `[...document.querySelectorAll('.history .tasks .name')].map((e) => e.textContent).join('|') === %s`, strings.Join(want, "|"))
	}
	const document, given, words = "Lebenslauf 简历.txt", "港湾系统：后端工程师", "Senior Backend Engineer Harbourline Systems · Rotterdam, Netherlands (hybrid)…"
	b.open("#/tasks", `document.querySelector('.history .tasks') !== null`)
	titles(words, given, document)
	b.await("that all end, while the list is shown", `[...document.querySelectorAll('.history .tasks .status')].every((e) => e.textContent === 'Done')`)
	b.shoot("again-list-en")
	row := fmt.Sprintf(`document.querySelector('.tasks a[href="#/tasks/%s"]')`, first)
	require.Equal(b, "Match", ask[string](b, row+`.querySelector('.of').textContent`))
	require.Regexp(b, `ago$|^now$`, ask[string](b, row+`.querySelector('time span').textContent`))
	require.Regexp(b, `\d{4}.*:\d\d:\d\d (UTC|GMT|C|E|[A-Z])`, ask[string](b, row+`.querySelector('time').title`))

	b.do(chromedp.SendKeys(`#find-q`, "HARBOUR rotterdam"))
	titles(words)
	require.Equal(b, "#/tasks?q=HARBOUR+rotterdam", ask[string](b, `location.hash`))
	require.Equal(b, "find-q", ask[string](b, `document.activeElement.id`), "typing continues")
	b.do(chromedp.Reload())
	titles(words)
	require.Equal(b, "HARBOUR rotterdam", ask[string](b, `document.querySelector('#find-q').value`))
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector('#find-q'); e.value = '后端'; e.dispatchEvent(new Event('input', { bubbles: true })) }`))
	titles(given)
	b.do(chromedp.Evaluate[chromedp.Void](`{ const e = document.querySelector('#find-q'); e.value = '100%'; e.dispatchEvent(new Event('input', { bubbles: true })) }`))
	b.await("that there is none", `document.querySelector('.history .hint')?.textContent.startsWith('No task matches.')`)
	b.press(".history .hint", "All tasks")
	titles(words, given, document)
	choose := func(list, value string) {
		b.Helper()
		b.await("the choice", `document.querySelector(%s)?.querySelector('option[value="' + %s + '"]')`, list, value)
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = %q; e.dispatchEvent(new Event('change', { bubbles: true })) }`, list, value)))
	}
	choose("#find-template", "job_match")
	titles(document)
	choose("#find-state", "FAILED")
	b.await("that none failed", `document.querySelector('.history .hint')?.textContent.startsWith('No task matches.')`)
	b.await("the filters in the address", `location.hash === '#/tasks?template=job_match&state=FAILED'`)
	b.open("#/tasks/"+first, `document.querySelector('.task .status.completed') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ history.back() }`))
	choose("#find-state", "")
	titles(document)
	b.shoot("again-filtered-en")
	b.speak(berth.LocaleZH)
	b.shoot("again-list-zh")
	b.speak(berth.LocaleEN)
	b.quiet()
}

// seeSubmitted reads the input of a task, and submits what the page copies: it is the same request.
func (b *tab) seeSubmitted(s *stack, user, first, notes string) {
	b.open("#/tasks/"+first, `document.querySelector('.task .status.completed') !== null && document.querySelector('.submitted img')?.naturalWidth > 0`)
	require.Equal(b, "Lebenslauf 简历.txt", ask[string](b, `document.querySelector('.task h1').textContent`))
	require.Equal(b, []string{"Résumé", "Job posting", "Notes"}, ask[[]string](b, `[...document.querySelectorAll('.submitted dt')].map((e) => e.textContent)`))
	size := len(example(b, "resume-en.txt"))
	require.Equal(b, fmt.Sprintf("Lebenslauf 简历.txt %s bytes", comma(size)), ask[string](b, `document.querySelectorAll('.submitted dd')[0].querySelector('summary').textContent`))
	require.Equal(b, fmt.Sprintf("Text %d bytes", len(notes)), ask[string](b, `document.querySelectorAll('.submitted dd')[2].querySelector('summary').textContent`))
	require.Zero(b, ask[int](b, `document.querySelectorAll('.submitted details[open]').length`), "texts are collapsed")
	b.shoot("again-task-en")
	b.do(chromedp.Evaluate[chromedp.Void](`{ for (const e of document.querySelectorAll('.submitted summary')) e.click() }`))
	b.await("the texts", `document.querySelectorAll('.submitted pre')[1]?.textContent === %s && document.querySelectorAll('.submitted pre')[0].textContent === %s`, notes, string(example(b, "resume-en.txt")))
	facts := ask[string](b, `document.querySelector('.facts').textContent`)
	for _, fact := range []string{"Template", "Match", "Price", "3 credits", "letters"} {
		require.Contains(b, facts, fact)
	}
	require.Equal(b, 2, ask[int](b, `[...document.querySelectorAll('.facts time')].filter((e) => /\d{4}.*:\d\d:\d\d \S+/.test(e.textContent)).length`), "times have date and zone")

	b.do(chromedp.Evaluate[chromedp.Void](`{ navigator.clipboard.writeText = async (text) => { window.copied = text } }`))
	b.press(".copies", "Copy as curl")
	b.await("the copy", `window.copied?.startsWith('curl ')`)
	command := ask[string](b, `window.copied`)
	require.Contains(b, command, "'http://"+s.httpAddr+"/v1/tasks'")
	b.press(".copies", "Copy as JSON")
	b.await("the copy", `window.copied?.startsWith('{')`)
	copied := ask[string](b, `window.copied`)
	require.Contains(b, command, copied)
	var body map[string]any
	require.NoError(b, json.Unmarshal([]byte(copied), &body))
	body["taskId"] = first
	status, replayed := s.send(http.MethodPost, "/v1/tasks", s.token(user), body)
	require.Equal(b, http.StatusOK, status, "the same request: %v", replayed)
	b.speak(berth.LocaleZH)
	b.fits("submitted input zh")
	b.shoot("again-task-zh")
	b.speak(berth.LocaleEN)
	b.quiet()
}

// runAgain starts the same task with one click: a new one, also within the window in which equal requests are one.
func (b *tab) runAgain(c *client.Client, first string) {
	b.open("#/tasks/"+first, `document.querySelector('.task .status.completed') !== null && document.querySelector('.submitted') !== null`)
	before, err := c.Get(b.Context(), first)
	require.NoError(b, err)
	b.press(".task header", "Run again")
	b.await("another task that completes", `location.hash.startsWith('#/tasks/') && location.hash !== %s && document.querySelector('.task .status.completed') !== null`, "#/tasks/"+first)
	after, err := c.Get(b.Context(), strings.TrimPrefix(ask[string](b, `location.hash`), "#/tasks/"))
	require.NoError(b, err)
	require.Equal(b, before.Variables, after.Variables)
	require.Equal(b, before.Inputs, after.Inputs)
	require.Equal(b, []any{before.Template, before.ServiceID, before.Locale, before.Title}, []any{after.Template, after.ServiceID, after.Locale, after.Title})
	b.quiet()
}

// editTask fills the form with the input of a task, changes a text, and submits it: the files are the same assets.
func (b *tab) editTask(c *client.Client, first string) {
	b.open("#/tasks/"+first, `document.querySelector('.task .status.completed') !== null && document.querySelector('.submitted') !== null`)
	b.press(".task header", "Edit")
	b.await("the form", `document.querySelector('#field-notes')?.value.startsWith('Answer <b>briefly</b>.') && document.querySelector('.sheet figure img')?.naturalWidth > 0`)
	require.Equal(b, []string{"Lebenslauf 简历.txt", "posting.png"}, ask[[]string](b, `[...document.querySelectorAll('.sheet figcaption strong')].map((e) => e.textContent)`))
	require.Equal(b, "letters", ask[string](b, `document.querySelector('#serviceId').value`))
	require.Equal(b, "en", ask[string](b, `document.querySelector('#locale').value`))
	require.True(b, ask[bool](b, `document.querySelector('.extra').open`), "what is filled in is shown")
	b.shoot("again-form-en")
	b.enter("notes", "Answer in French.")

	// What was entered is not replaced without a question.
	b.open("#/tasks/"+first, `document.querySelector('.submitted') !== null`)
	b.press(".task header", "Edit")
	b.await("the question", `document.querySelector('dialog[open]') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] button.quiet').click() }`))
	b.open("#/", `document.querySelector('#field-notes')?.value === 'Answer in French.'`)

	require.Equal(b, 1, b.start())
	b.await("the edited task", `location.hash.startsWith('#/tasks/') && document.querySelector('.task .status.completed') !== null`)
	before, err := c.Get(b.Context(), first)
	require.NoError(b, err)
	after, err := c.Get(b.Context(), strings.TrimPrefix(ask[string](b, `location.hash`), "#/tasks/"))
	require.NoError(b, err)
	require.NotEqual(b, before.Variables["notes"], after.Variables["notes"])
	before.Variables["notes"] = after.Variables["notes"]
	require.Equal(b, before.Variables, after.Variables)
	b.quiet()
}

// eraseTask erases the texts of a task: its title goes, and it cannot be submitted again.
func (b *tab) eraseTask(first string) {
	b.open("#/tasks/"+first, `document.querySelector('.task .status.completed') !== null && document.querySelector('.submitted') !== null`)
	b.press(".task header", "Erase the texts")
	b.confirm()
	b.await("the task without its texts", `document.querySelectorAll('.submitted dd .hint').length === 3 && document.querySelector('.task h1').textContent === 'Match'`)
	buttons := ask[[]string](b, `[...document.querySelectorAll('.task header button')].map((e) => e.textContent.trim())`)
	require.False(b, slices.Contains(buttons, "Run again") || slices.Contains(buttons, "Edit"), "%v", buttons)
	b.shoot("again-erased-en")
	b.open("#/tasks", `document.querySelector('.history .tasks') !== null`)
	b.await("the row without its title", `document.querySelector('.tasks a[href="#/tasks/' + %s + '"] .name')?.textContent === 'Match'`, first)
	b.quiet()
}

// comma formats a number as the page does.
func comma(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
