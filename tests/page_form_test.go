package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
)

// maxText is the API's limit of one text in bytes, which the page has to know.
const maxText = 200_000

// The form refuses what the API would refuse before it costs the user anything, and loses nothing that was entered.
func TestPage_FormIsSubmitted_InputIsCheckedAndKept(t *testing.T) {
	t.Parallel()
	const rate = 3
	s := newStack(t, with(fmt.Sprintf("BERTH_PAID_RATE=%d", rate)))
	chromium := startBrowser(t)
	for name, check := range map[string]func(*stack, *tab){
		"a text above the limit is not inserted":    refuseLargeText,
		"a file is checked when it is chosen":       checkFile,
		"a refused file stops start":                refuseFile,
		"a service has the rule of the API":         checkService,
		"several clicks on start are one task":      startOnce,
		"an expired session keeps what was entered": keepDraft,
		"a refused user can start again in time":    countDown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(s, openTab(t, chromium))
		})
	}
}

// refuseLargeText pastes 2 MB, which a browser's text field lays out for seconds, opens them as a file, and submits texts at the limit
// and one byte above it.
func refuseLargeText(s *stack, b *tab) {
	b.signIn(s, "large")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	b.await("the field", `document.querySelector('#field-jobText') !== null`)
	b.enter("jobText", "abc")
	// The page copies three characters, in whose place the clipboard receives a large text.
	b.do(chromedp.Evaluate[chromedp.Void](`{
		document.addEventListener('copy', (e) => { e.clipboardData.setData('text/plain', 'word\n'.repeat(400_000)); e.preventDefault() }, { once: true });
		document.addEventListener('paste', (e) => { window.pasted = e.clipboardData.getData('text/plain').length });
		document.querySelector('#field-jobText').select() }`))
	b.edit("c", "copy")
	b.edit("v", "paste")
	b.await("the paste", `window.pasted === 2_000_000`)
	b.await("its refusal", `document.querySelector('#field-jobText-error').textContent === 'The text is too long: it has 2,000,000 bytes, and the limit is 200,000 bytes.'`)
	require.Equal(b, "abc", ask[string](b, `document.querySelector('#field-jobText').value`))
	b.shoot("form-large-en")

	b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
	large := filepath.Join(b.TempDir(), "large.txt")
	require.NoError(b, os.WriteFile(large, []byte(strings.Repeat("word\n", 400_000)), 0o600))
	b.choose("jobText", large)
	b.await("the refusal of a file", `document.querySelector('#field-jobText-error').textContent === '文字过长：大小为 2,000,000 字节，上限为 200,000 字节。'`)
	require.Equal(b, "abc", ask[string](b, `document.querySelector('#field-jobText').value`))

	words := strings.Repeat("né ", maxText/4)
	b.enter("jobText", words+"x")
	require.Equal(b, "200,001 / 200,000 字节", ask[string](b, `document.querySelector('.count').textContent`))
	require.Equal(b, 0, b.start())
	b.await("the refusal of a byte", `document.querySelector('#field-jobText-error').textContent.includes('200,001 字节')`)
	b.shoot("form-above-zh")
	_, err := s.user("large").Submit(b.Context(), client.Submission{
		ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": strings.Repeat("x", maxText+1)},
	}, "")
	require.ErrorContains(b, err, "exceeds the limit", "the API has the limit of the page")

	b.enter("jobText", words)
	require.Equal(b, 1, b.start())
	b.await("a task with a text at the limit", `location.hash.startsWith('#/tasks/')`)
	b.quiet()
}

// checkFile uploads documents without a text, whose reasons the page states, and an image under the name of a document.
func checkFile(s *stack, b *tab) {
	b.signIn(s, "files")
	b.choice("template", "job_match")
	write := func(name, content string) string {
		path := filepath.Join(b.TempDir(), name)
		require.NoError(b, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	says := func(field, text string) {
		b.Helper()
		b.await(text, `document.querySelector(%s).textContent.startsWith(%s)`, "#field-"+field+"-error", text)
	}
	b.choose("resume", write("locked.pdf", pdf(`/Encrypt << /Filter /Standard /V 1 /R 2 /O <`+strings.Repeat("41", 32)+`> /U <`+strings.Repeat("42", 32)+
		`> /P -4 >> /ID [<00> <00>]`)))
	says("resume", "The file is protected by a password.")
	b.choose("resume", write("scanned.pdf", pdf("")))
	says("resume", "The file contains no text.")
	b.choose("resume", write("broken.pdf", "%PDF-1.7\nbroken"))
	says("resume", "The file is damaged or incomplete.")
	b.choose("resume", write("large.pdf", "%PDF-1.7\n"+strings.Repeat("x", 10<<20)))
	says("resume", "This is too large: the limit is 10 MB.")
	b.shoot("form-file-en")

	b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
	b.choose("resume", write("locked-2.pdf", pdf(`/Encrypt << /Filter /Standard /V 1 /R 2 /O <`+strings.Repeat("41", 32)+`> /U <`+strings.Repeat("42", 32)+
		`> /P -4 >> /ID [<01> <01>]`)))
	says("resume", "文件有密码保护")
	posting := write("r.pdf", string(example(b.TB, "posting-zh.png")))
	b.choose("resume", posting)
	says("resume", "此处只接受文字。")
	b.shoot("form-file-zh")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	b.choose("jobText", posting)
	b.await("the image", `document.querySelector('.sheet figure img')?.naturalWidth > 0`)
	require.Equal(b, 1, b.start())
	b.await("its text to be read", `document.querySelector('.task .status.completed') !== null`)
	require.Equal(b, 2, ask[int](b, `document.querySelectorAll('.chain > li.done').length`))
}

// refuseFile opens a binary file in a field with a text: the text is submitted only after the user has edited or kept it, or has chosen
// another file.
func refuseFile(s *stack, b *tab) {
	b.signIn(s, "refused")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	write := func(name, content string) string {
		path := filepath.Join(b.TempDir(), name)
		require.NoError(b, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	binary := write("posting.bin", "\x00\x01\x02\x00\x00old")
	says := func(text string) {
		b.Helper()
		b.await(text, `document.querySelector('#field-jobText-error')?.textContent.startsWith(%s)`, text)
	}
	blocked := func(text string) {
		b.Helper()
		says(text)
		require.Zero(b, b.start())
		says(text)
		b.await("the focus on the field", `document.activeElement?.id === 'field-jobText'`)
	}
	b.enter("jobText", "We look for a baker.")
	b.choose("jobText", binary)
	blocked("This is neither text nor a document")
	b.shoot("form-refused-en")
	b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
	says("该文件不是文本")
	b.do(chromedp.Click(`nav a[href="#/tasks"]`))
	b.await("another view", `document.querySelector('.history') !== null`)
	b.do(chromedp.Click(`nav a[href="#/"]`))
	blocked("该文件不是文本")
	b.do(chromedp.Click(`header button[lang="en"]`, chromedp.NodeVisible))

	b.enter("jobText", "We look for two bakers.")
	says("")
	require.Empty(b, ask[string](b, `document.querySelector('#field-jobText-error').textContent`), "an edited text is submitted")
	b.choose("jobText", binary)
	says("This is neither")
	b.choose("jobText", write("posting.txt", "We look for three bakers."))
	b.await("the text of another file", `document.querySelector('#field-jobText').value === 'We look for three bakers.' && !document.querySelector('#field-jobText-error').textContent`)
	b.choose("jobText", binary)
	says("This is neither")
	b.press(".sheet", "Dismiss")
	b.await("the field without the refusal", `document.querySelector('.sheet.bad') === null && document.activeElement?.id === 'field-jobText'`)
	require.Equal(b, 1, b.start())
	b.await("the task's place", `location.hash.startsWith('#/tasks/')`)
	require.Len(b, s.tasksOf("refused"), 1)
	b.quiet()
}

// checkService submits ids of a service that the API refuses, and the longest that it accepts.
func checkService(s *stack, b *tab) {
	b.signIn(s, "service")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	b.enter("jobText", "We look for a baker.")
	set := func(id string) {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector('#serviceId'); e.value = %q; e.dispatchEvent(new Event('input', { bubbles: true })) }`, id)))
	}
	for _, id := range []string{"two words", "session"} {
		set(id)
		require.Equal(b, 1, b.start())
		b.await("the rule", `document.querySelector('#serviceId-error').textContent.includes('1 to 128 letters, digits and characters of _.@-')`)
	}
	require.EqualValues(b, 128, ask[int](b, `document.querySelector('#serviceId').maxLength`))
	longest := "jobs@example.org" + strings.Repeat("_", 112)
	set(longest)
	require.Equal(b, 1, b.start())
	b.await("the task's place", `location.hash.startsWith('#/tasks/')`)
	require.Equal(b, longest, s.tasksOf("service")[0].ServiceID)
}

func startOnce(s *stack, b *tab) {
	b.signIn(s, "clicks")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	b.enter("jobText", "We look for a baker.")
	require.Equal(b, 1, b.start())
	b.await("the task's place", `location.hash.startsWith('#/tasks/')`)
	require.Len(b, s.tasksOf("clicks"), 1)
	b.quiet()
}

// keepDraft lets the API reject the token of a submission, and reloads the page before the user signs in again, as a sign-in with a
// provider does.
func keepDraft(s *stack, b *tab) {
	b.signIn(s, "draft")
	b.choice("template", "job_match")
	b.enter("resume", "Ada, baker")
	path, err := filepath.Abs(filepath.Join("..", "examples", "posting-en.png"))
	require.NoError(b, err)
	b.choose("jobText", path)
	b.await("the upload", `document.querySelector('.sheet figure[aria-busy="false"]') !== null`)
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const call = window.fetch;
		window.fetch = (url, o) => new URL(url, document.baseURI).pathname === '/v1/tasks' && o?.method === 'POST' ? Promise.resolve(new Response('{}', { status: 401 })) : call(url, o) }`))
	b.start()
	b.await("the sign-in", `document.querySelector('.signin') !== null`)
	b.do(chromedp.Reload())
	b.await("the reloaded sign-in", `document.querySelector('.signin #token') !== null`)
	b.do(chromedp.SendKeys(`#token`, s.token("draft")), chromedp.Click(`.signin form button.primary`))
	b.await("the text", `document.querySelector('#field-resume')?.value === 'Ada, baker'`)
	b.await("the file", `document.querySelector('#field-jobText figcaption strong')?.textContent === 'posting-en.png'`)
	b.shoot("form-draft-en")
	require.Equal(b, 1, b.start())
	b.await("the task's place", `location.hash.startsWith('#/tasks/')`)
	require.Len(b, s.tasksOf("draft"), 1)

	b.do(chromedp.Click(`nav a[href="#/"]`))
	b.await("an empty form", `document.querySelector('#field-resume')?.value === ''`)
	b.enter("resume", "Ada's secret")
	b.press("header", "Sign out")
	b.openAs(s, "another")
	b.choice("template", "job_match")
	b.await("the field", `document.querySelector('#field-resume') !== null`)
	require.Empty(b, ask[string](b, `document.querySelector('#field-resume').value`), "another user sees nothing of it")
	b.quiet()
}

// countDown submits more tasks than a user may in a minute.
func countDown(s *stack, b *tab) {
	u := s.user("hasty")
	for i := range 3 {
		_, err := u.Submit(b.Context(), client.Submission{
			ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": fmt.Sprintf("A baker, number %d.", i)},
		}, "")
		require.NoError(b, err)
	}
	b.openAs(s, "hasty")
	b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
	b.enter("jobText", "We look for a baker.")
	require.Equal(b, 1, b.start())
	left := `Number(/in (\d+) s/.exec(document.querySelector('[role="timer"]')?.textContent)?.[1])`
	b.await("the time to wait", left+` > 0`)
	first := ask[int](b, left)
	require.Contains(b, ask[string](b, `document.querySelector('form [role="alert"].wide').textContent`), "Too many requests.")
	require.True(b, ask[bool](b, `document.querySelector('form button.primary').disabled`))
	b.shoot("form-wait-en")
	b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
	b.await("the refusal in the other language", `document.querySelector('form [role="alert"].wide').textContent === '请求过于频繁。'`)
	b.do(chromedp.Click(`header button[lang="en"]`, chromedp.NodeVisible))
	b.await("the countdown", left+` < %s`, first)
	b.await("the end of the wait", `!document.querySelector('form button.primary').disabled && document.querySelector('[role="timer"]') === null`)
	require.Empty(b, ask[string](b, `document.querySelector('form [role="alert"].wide').textContent`))
	require.Equal(b, 1, b.start())
	b.await("the task's place", `location.hash.startsWith('#/tasks/')`)
}

// A task that was cancelled or failed, and a server that does not answer, are described as they are: no text is promised that does not
// exist, and the refund is stated.
func TestPage_TaskEndsEarly_StatesWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := pageIn(berth.LocaleEN)
	early, middle := newHold(w.early.at), newHold(w.middle.at)
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, []*hold{early, middle}) }, with("STREAM_TTL_SECONDS=5"))
	b := openTab(t, startBrowser(t))
	b.signIn(s, "early")
	notices := `[...document.querySelectorAll('.notice')].map((e) => e.textContent.replace(/\s+/g, ' ').trim()).join('\n')`

	b.fillMatch("job_match")
	b.start()
	early.wait(t)
	b.await("the first tokens", `document.querySelector('.prose') !== null`)
	b.press(".task", "Cancel")
	b.await("the cancellation", `document.querySelector('.task .status.cancelled') !== null`)
	b.await("that the text is kept for a time", notices+`.includes('is below. It is kept for a few minutes only. 3 credits refunded.')`)
	close(early.release)
	task := strings.TrimPrefix(ask[string](b, `location.hash`), "#/tasks/")
	s.eventually("the events to expire", func() bool { return strings.Contains(s.eventsOf("early", task), "id: end\n") })
	b.do(chromedp.Reload())
	b.await("that the text is gone", notices+`.includes('is no longer available. 3 credits refunded.')`)
	require.Equal(t, "Done, Cancelled here", ask[string](b, `[...document.querySelectorAll('.chain .state')].map((e) => e.textContent).join(', ')`))
	require.NotContains(t, ask[string](b, notices), "Simulated")
	require.Zero(t, ask[int](b, `document.querySelectorAll('.empty').length`))
	b.shoot("task-cancelled-en")

	b.do(chromedp.Click(`header a.balance`))
	b.await("the entries", `document.querySelectorAll('.history tbody tr').length === 3`)
	require.Equal(t, []string{"+3", "-3"}, ask[[]string](b, `[...document.querySelectorAll('.history tbody td:last-child')].slice(0, 2).map((e) => e.textContent)`))
	short := task[:6] + "…" + task[len(task)-6:]
	require.Equal(t, []string{"Refund for task " + short, "Task " + short}, ask[[]string](b, `[...document.querySelectorAll('.history tbody a')].map((e) => e.textContent)`))
	b.shoot("credits-en")
	b.do(chromedp.Click(fmt.Sprintf(`.history tbody a[href="#/tasks/%s"]`, task)))
	b.press(".task", "Erase the texts")
	b.await("what is erased", `document.querySelector('dialog[open]')?.textContent.includes('cannot be undone')`)
	b.shoot("task-erase-en")
	b.confirm()
	b.await("the task without its texts", `document.querySelector('.notice.erased') !== null`)

	s.fault(sim.Fault{Kind: sim.Fault401, Times: -1})
	b.do(chromedp.Click(`nav a[href="#/"]`))
	b.fillMatch("job_match")
	b.start()
	b.await("the failure", `document.querySelector('.task .status.failed') !== null`)
	b.await("the refund", notices+`.includes('3 credits refunded.')`)
	require.NotContains(t, ask[string](b, notices), "Simulated")
	require.NotContains(t, ask[string](b, notices), "No credits were charged")
	require.Zero(t, ask[int](b, `document.querySelectorAll('.task a.button').length`), "a user without the scope operator has no access to Temporal")
	b.shoot("task-failed-en")
	failed := strings.TrimPrefix(ask[string](b, `location.hash`), "#/tasks/")
	o := openTab(t, b.ctx)
	o.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("early", "user", "operator")))
	o.await("the sign-in", `document.querySelector('.who') !== null`)
	o.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + failed))
	stored, err := s.user("early").Get(t.Context(), failed)
	require.NoError(t, err)
	o.await("the operator's link", `document.querySelector('.task a.button')?.href === %s`, stored.Links.Temporal)
	s.clearFaults()

	s.fault(sim.Fault{Kind: sim.FaultLength, Times: -1})
	b.do(chromedp.Click(`nav a[href="#/"]`))
	b.fillMatch("interview_prep")
	b.start()
	b.await("a truncated answer", `document.querySelector('.task .status.completed') !== null && `+notices+`.includes('The answer is incomplete')`)
	b.do(chromedp.Click(`nav a[href="#/tasks"]`))
	b.await("the truncated task in the list", `document.querySelector('.tasks li .status')?.textContent === 'Done, incomplete'`)
	require.Equal(t, "Failed", ask[string](b, `document.querySelectorAll('.tasks li .status')[1].textContent`))
	b.shoot("tasks-en")
	s.clearFaults()

	b.do(chromedp.Click(`nav a[href="#/"]`))
	b.fillMatch("job_match")
	b.start()
	middle.wait(t)
	b.await("the answer", `document.querySelector('.prose.live') !== null`)
	s.api.kill()
	b.await("that the server is down", notices+`.includes('The server cannot be reached.')`)
	require.Equal(t, "Server unreachable", ask[string](b, `document.querySelector('.task .status').textContent`))
	require.Zero(t, ask[int](b, `document.querySelectorAll('.prose.live, .chain > li.running').length`))
	b.shoot("task-down-en")
	close(middle.release)
	s.startAPI()
	b.await("the end", `document.querySelector('.task .status.completed') !== null`)
	require.NotContains(t, ask[string](b, notices), "cannot be reached")
}

// An address without a view is reported, and the header of a phone has whole words in at most three lines, also with a long balance.
func TestPage_AnyAddressOnPhone_HeaderIsOrderlyUnknownIsReported(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	b := openTab(t, startBrowser(t))
	b.signIn(s, "phone")
	for lang, notFound := range map[string]string{"en": "Page not found.", "zh-Hans": "页面不存在。"} {
		if lang != ask[string](b, `document.documentElement.lang`) {
			b.do(chromedp.Click(`header button[lang]`, chromedp.NodeVisible))
		}
		for _, hash := range []string{"#/nope", "#/tasks/", "#/tasks/%E0%A4%A"} {
			b.do(chromedp.Navigate("http://"+s.httpAddr+"/"+hash), chromedp.Reload())
			b.await("the notice for "+hash, `document.documentElement.lang === %s && document.querySelector('main h1')?.textContent === %s`, lang, notFound)
			b.do(chromedp.Click(`main a[href="#/"]`))
			b.await("the form", `document.querySelector('form .templates') !== null`)
		}
		for _, hash := range []string{"", "#", "#/"} {
			b.do(chromedp.Navigate("http://"+s.httpAddr+"/"+hash), chromedp.Reload())
			b.await("the form at "+hash, `document.querySelector('form .templates') !== null`)
		}
		b.do(chromedp.EmulateViewport(360, 800, chromedp.EmulateMobile))
		b.await("the balance", `document.querySelector('.balance')?.textContent.startsWith('1,000,000')`)
		header := `[...document.querySelectorAll('.bar :is(a, button, .who)')].map((e) => e.getBoundingClientRect())`
		require.True(t, ask[bool](b, header+`.every((r) => r.height < 45 && r.right <= innerWidth) && document.documentElement.scrollWidth <= innerWidth`), "an item wraps or is cut")
		require.LessOrEqual(t, ask[int](b, `new Set(`+header+`.map((r) => Math.round((r.top + r.bottom) / 40))).size`), 3)
		b.shoot("header-" + lang)
		b.do(chromedp.EmulateViewport(1280, 900))
	}
	b.quiet()
}

// clearFaults lets the model answer again.
func (s *stack) clearFaults() {
	s.tb.Helper()
	req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodDelete, s.model.URL+"/sim/faults", nil)
	require.NoError(s.tb, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.tb, err)
	require.Less(s.tb, res.StatusCode, 300)
	require.NoError(s.tb, res.Body.Close())
}

// eventsOf returns the events of a task that has ended.
func (s *stack) eventsOf(user, task string) string {
	s.tb.Helper()
	req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodGet, "http://"+s.httpAddr+"/v1/tasks/"+task+"/events", nil)
	require.NoError(s.tb, err)
	req.Header.Set("Authorization", "Bearer "+s.token(user))
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.tb, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(s.tb, err)
	return string(body)
}

func (s *stack) tasksOf(user string) []client.Task {
	s.tb.Helper()
	status, out := s.send(http.MethodGet, "/v1/tasks", s.token(user), nil)
	require.Equal(s.tb, http.StatusOK, status)
	raw, err := json.Marshal(out["tasks"])
	require.NoError(s.tb, err)
	var tasks []client.Task
	require.NoError(s.tb, json.Unmarshal(raw, &tasks))
	return tasks
}

// pdf returns a PDF with one empty page.
func pdf(trailer string) string {
	var b strings.Builder
	b.WriteString("%PDF-1.4\n")
	var offsets []int
	for i, o := range []string{"/Type /Catalog /Pages 2 0 R", "/Type /Pages /Kids [3 0 R] /Count 1", "/Type /Page /Parent 2 0 R /MediaBox [0 0 9 9]"} {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n<< %s >>\nendobj\n", i+1, o)
	}
	table := b.Len()
	b.WriteString("xref\n0 4\n0000000000 65535 f \n")
	for _, o := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size 4 /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n", trailer, table)
	return b.String()
}

// fillMatch chooses a template of a résumé and a posting, and enters both.
func (b *tab) fillMatch(template string) {
	b.Helper()
	b.choice("template", template)
	b.enter("resume", string(example(b.TB, "resume-en.txt")))
	b.enter("jobText", string(example(b.TB, "posting-en.txt")))
}

// choice selects a radio button of the form.
func (b *tab) choice(name, value string) {
	b.Helper()
	b.await("the choice "+value, `document.querySelector('form input[name="' + %s + '"][value="' + %s + '"]') !== null`, name, value)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ document.querySelector('form input[name="%s"][value="%s"]').click() }`, name, value)))
}

// choose opens a file in a field of the form.
func (b *tab) choose(field, path string) {
	b.Helper()
	b.do(chromedp.SetUploadFiles(fmt.Sprintf(`.sheet:has(#field-%s) input[type="file"]`, field), []string{path}))
}

// enter replaces the text of a field.
func (b *tab) enter(field, text string) {
	b.Helper()
	b.await("the field "+field, `document.querySelector(%s) !== null`, "#field-"+field)
	literal, err := json.Marshal(text)
	require.NoError(b, err)
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector('#field-%s'); e.value = %s; e.dispatchEvent(new Event('input', { bubbles: true })) }`, field, literal)))
	b.await("the page to have it", `document.querySelector('.sheet:has(#field-' + %s + ') .count') !== null`, field)
}

// edit presses a key with the editing command that a browser has for it.
func (b *tab) edit(key, command string) {
	b.Helper()
	b.do(chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierCtrl), func(p *input.DispatchKeyEventParams) {
		if p.Type == input.DispatchKeyEventTypeRawKeyDown || p.Type == input.DispatchKeyEventTypeKeyDown {
			p.Commands = []string{command}
		}
	}))
}

// start presses Start three times in the same moment, and returns the number of submissions that this sent.
func (b *tab) start() int {
	b.Helper()
	b.await("the button", `document.querySelector('form button.primary')?.disabled === false`)
	b.do(chromedp.Evaluate[chromedp.Void](`{
		const call = (window.call ??= window.fetch);
		window.sent = 0;
		window.fetch = (url, o) => { if (new URL(url, document.baseURI).pathname === '/v1/tasks' && o?.method === 'POST') window.sent++; return call(url, o) };
		const button = document.querySelector('form button.primary');
		for (let i = 0; i < 3; i++) button.click() }`))
	b.await("the reaction", `window.sent > 0 || document.querySelector('form [role="alert"].wide')?.textContent`)
	return ask[int](b, `window.sent`)
}
