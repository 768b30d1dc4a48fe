package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// pageWords has the page's texts in one language, and the words after which the model's answer is held.
type pageWords struct {
	lang          string // lang attribute of the document
	template      string
	steps         []string
	done          string
	early, middle *hold
}

func pageIn(l berth.Locale) pageWords {
	if l == berth.LocaleZH {
		return pageWords{
			lang: "zh-Hans", template: "匹配分析", steps: []string{"识别图片", "概括职位", "匹配"}, done: "已完成",
			early: newHold("## 逐条对照\n"), middle: newHold("## 评分\n"),
		}
	}
	return pageWords{
		lang: "en", template: "Match", steps: []string{"Read the image", "Summarise the posting", "Match"}, done: "Done",
		early: newHold("## Item by item\n"), middle: newHold("## Score\n"),
	}
}

func TestPage_TaskInBrowser_ShowsStreamAndResult(t *testing.T) { // T16, T24; P17
	t.Parallel()
	locales := map[berth.Locale]pageWords{berth.LocaleEN: pageIn(berth.LocaleEN), berth.LocaleZH: pageIn(berth.LocaleZH)}
	hostile := newHold(hostileEnd)
	holds := []*hold{hostile}
	for _, w := range locales {
		holds = append(holds, w.early, w.middle)
	}
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, holds) })
	chromium := startBrowser(t)
	for _, locale := range []berth.Locale{berth.LocaleEN, berth.LocaleZH} {
		t.Run(string(locale), func(t *testing.T) { followOnPage(t, s, openTab(t, chromium), locale, locales[locale]) })
	}
	t.Run("hostile", func(t *testing.T) { readHostileText(t, s, openTab(t, chromium), hostile) })
}

// followOnPage acts as a user: it signs in, submits an image and a résumé, reloads during the task, and reads the result.
func followOnPage(t *testing.T, s *stack, b *tab, locale berth.Locale, w pageWords) {
	user := "page-" + string(locale)
	b.signIn(s, user)
	if locale == berth.LocaleZH {
		b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
	}
	b.await("the page's language", `document.documentElement.lang === %s`, w.lang)

	b.do(chromedp.Click(`input[name="template"][value="job_match"]`))
	upload := func(field, file string) {
		path, err := filepath.Abs(filepath.Join("..", "examples", file))
		require.NoError(t, err)
		b.do(chromedp.SetUploadFiles(fmt.Sprintf(`.sheet:has(#field-%s) input[type="file"]`, field), []string{path}))
	}
	upload("jobText", "posting-"+string(locale)+".png")
	upload("resume", "resume-"+string(locale)+".txt")
	b.await("the picture to be shown", `document.querySelector('.sheet figure img')?.naturalWidth > 0`)
	b.await("the résumé to be read in", `document.querySelector('#field-resume').value.length === %s`, len([]rune(string(example(t, "resume-"+string(locale)+".txt")))))
	b.await("the answer's language to be the page's", `document.querySelector('#locale').value === %s`, locale)
	b.shoot(user + "-form")
	b.do(chromedp.Click(`form button.primary`))

	b.await("the task's place", `location.hash.startsWith('#/tasks/') && document.querySelector('.task') !== null`)
	id := strings.TrimPrefix(ask[string](b, `location.hash`), "#/tasks/")
	require.Equal(t, w.steps, ask[[]string](b, `[...document.querySelectorAll('.chain > li h3')].map((h) => h.firstChild.textContent)`))
	b.await("the chain to reach the match", `document.querySelectorAll('.chain > li.done').length === 2`)

	w.early.wait(t)
	heading := trim(strings.Trim(w.early.at, "#\n"))
	b.await("the first tokens", `document.querySelector('.prose')?.textContent.includes(%s)`, heading)
	first := b.answer()
	close(w.early.release)
	w.middle.wait(t)
	b.await("more tokens", `document.querySelector('.prose').textContent.includes(%s)`, trim(strings.Trim(w.middle.at, "#\n")))
	half, items := b.answer(), b.items()
	require.True(t, strings.HasPrefix(half, first), "the text shown before is kept")
	require.Greater(t, len(half), len(first))
	require.NotEmpty(t, items)
	b.shoot(user + "-middle")

	b.do(chromedp.Reload())
	b.await("the same text after a reload", `document.querySelector('.prose.live') !== null && [...document.querySelectorAll('.prose')].map((e) => e.textContent).join('').replace(/\s+/g, '') === %s`, half)
	require.Equal(t, items, b.items())
	require.Zero(t, ask[int](b, `document.querySelectorAll('.notice:not(.simulated)').length`), "nothing was lost, so no notice is shown")
	close(w.middle.release)
	b.await("the end", `document.querySelector('.task .status.completed')?.textContent === %s`, w.done)

	task, err := s.user(user).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, berth.TaskCompleted, task.Status)
	awaitReady := plain(task.Text)
	require.Equal(t, awaitReady, b.answer(), "the page shows the stored answer, once and whole")
	require.True(t, strings.HasPrefix(awaitReady, half))
	require.Equal(t, items, b.items())
	require.Len(t, items, strings.Count(task.Text, "\n- ✅")+strings.Count(task.Text, "\n- ❌"))
	require.Equal(t, 3, ask[int](b, `document.querySelectorAll('.chain > li.done').length`))
	require.Zero(t, ask[int](b, `document.querySelectorAll('.task a.button').length`), "the link to Temporal is for operators")
	b.do(chromedp.Click(`.chain li:nth-child(2) summary`))
	b.await("the summary of the posting", `document.querySelector('.chain .written') !== null`)
	b.shoot(user + "-done")

	b.do(chromedp.Click(`nav a[href="#/tasks"]`))
	row := fmt.Sprintf(`.history .tasks a[href="#/tasks/%s"]`, id)
	b.await("the task in the history", `document.querySelector(%s) !== null`, row)
	require.Equal(t, w.template, ask[string](b, fmt.Sprintf(`document.querySelector(%q).querySelector('.of').textContent`, row)))
	require.Equal(t, w.done, ask[string](b, fmt.Sprintf(`document.querySelector(%q).querySelector('.status').textContent`, row)))
	b.shoot(user + "-history")
	b.do(chromedp.Click(row))
	b.await("the stored answer", `document.querySelector('.task .status.completed') !== null && document.querySelector('.prose') !== null`)
	require.Equal(t, awaitReady, b.answer())

	status, _ := s.send(http.MethodDelete, "/v1/tasks/"+id+"/content", s.token(user), nil)
	require.Equal(t, http.StatusOK, status)
	b.do(chromedp.Reload())
	b.await("the task without its texts", `document.querySelector('.task .status.completed') !== null && document.querySelector('.notice.erased') !== null`)
	require.Zero(t, ask[int](b, `document.querySelectorAll('.prose, .items, .chain details').length`), "nothing to show is offered")
	b.shoot(user + "-erased")
	b.quiet()
}

const (
	hostileSign = "Résumé of one who tries" // a match of this résumé is answered with hostileText
	hostileEnd  = "End of the attempt."
	hostileMark = `<<point {"requirement":"<img src=x onerror=window.ran=1>","matched":true,"evidence":"<script>window.ran=2</script>"}>>` + "\n"
	hostileText = "## <script>window.ran=3</script>\n\n" +
		`<img src=x onerror="window.ran=4"> <svg onload=window.ran=5> [press](javascript:window.ran=6) ![x](//other.test/x.png)` + "\n\n" +
		"<iframe srcdoc='<script>parent.ran=7</script>'></iframe> `<b onclick=window.ran=8>` \x1b[31mred\x1b[0m\n\n" +
		"event: done\ndata: {\"type\":\"done\",\"text\":\"forged\"}\nid: 9999999999999-1\n\n" +
		"\r\n\r\nevent: error\r\ndata: {\"code\":\"forged\"}\r\n\r\n" + hostileEnd + "\n"
)

// readHostileText checks that texts of users and models are shown as text: not executed, and not treated as events.
func readHostileText(t *testing.T, s *stack, b *tab, last *hold) {
	b.signIn(s, "mallory")
	c := s.user("mallory")
	resume := hostileSign + "\n<img src=x onerror=window.ran=9>\n\nSkills\nGo <script>window.ran=10</script>, Redis <svg onload=window.ran=11>\n"
	posting := "Engineer <script>window.ran=12</script>\nAcme <img src=x onerror=window.ran=13>\n\nRequirements\n- Go <svg onload=window.ran=14>\n- Redis\n"
	submit := func(tmpl berth.Template, variables map[string]any) string {
		acc, err := c.Submit(t.Context(), client.Submission{ServiceID: "career", Template: tmpl, Locale: berth.LocaleEN, Variables: variables}, berth.NewID(""))
		require.NoError(t, err)
		return acc.TaskID
	}
	tags := `document.querySelectorAll('main :is(script, img, iframe, object, embed, a[href^="javascript:" i], .prose svg)').length`

	id := submit("job_match", map[string]any{"resume": resume, "jobText": posting})
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + id))
	last.wait(t)
	b.await("the forged events as text", `document.querySelector('.prose')?.textContent.includes(%s)`, hostileEnd)
	require.True(t, ask[bool](b, `document.querySelector('.task .status.streaming') !== null`), "a forged end is ignored")
	require.Contains(t, b.answer(), plain("event: done\ndata: {"))
	require.Len(t, b.items(), 1, "an item sent twice is shown once")
	require.Zero(t, ask[int](b, tags))
	close(last.release)
	b.await("the end", `document.querySelector('.task .status.completed') !== null`)
	b.do(chromedp.Click(`.chain details summary`))
	b.await("the summary of the posting", `document.querySelector('.chain details .written')?.textContent.includes('<script>')`)
	task, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, trim(hostileText), task.Text)
	require.Zero(t, ask[int](b, tags))
	b.shoot("hostile-match")

	id = submit("resume_summary", map[string]any{"resume": resume})
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + id))
	b.await("the summary of the résumé", `document.querySelector('.task .status.completed') !== null && document.querySelector('.reading')?.textContent.includes(%s)`, hostileSign)
	require.Zero(t, ask[int](b, tags))
	require.True(t, ask[bool](b, `window.ran === undefined`), "nothing ran")
	b.shoot("hostile-summary")
	b.quiet()

	// If the page created an element from the text, the policy would still prevent it from running.
	b.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('main').insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.ran=15">') }`))
	require.Contains(t, b.complaint(), "Content Security Policy")
	require.True(t, ask[bool](b, `window.ran === undefined`), "the policy let an inline handler run")
}

var (
	lineMark   = regexp.MustCompile(`(?m)^\s*(#{1,6} |> |[-*] |\d+\. |_(.*)_$)`)
	inlineMark = regexp.MustCompile("\\*\\*|`")
	space      = regexp.MustCompile(`\s+`)
)

// plain returns Markdown without marks and white space, as far as the simulated model writes Markdown.
func plain(markdown string) string {
	return space.ReplaceAllString(inlineMark.ReplaceAllString(lineMark.ReplaceAllString(markdown, "$2"), ""), "")
}

// hold pauses a model's answer after certain words until the test releases it.
type hold struct {
	at      string
	reached chan struct{}
	release chan struct{} // closed by the test
}

func newHold(at string) *hold {
	return &hold{at: at, reached: make(chan struct{}, 1), release: make(chan struct{})}
}

// wait returns when an answer has reached the hold.
func (h *hold) wait(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), maxWait)
	defer cancel()
	select {
	case <-h.reached:
	case <-ctx.Done():
		tb.Fatalf("waited %s for the model to say %q", maxWait, h.at)
	}
}

// holding adds holds to a model, and returns its own match for the hostile résumé.
func holding(model http.Handler, holds []*hold) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(`"deepseek-reasoner"`)) {
			model.ServeHTTP(w, r)
			return
		}
		held := &heldWriter{ResponseWriter: w, ctx: r.Context(), holds: holds}
		if !bytes.Contains(body, []byte(hostileSign)) {
			model.ServeHTTP(held, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range strings.SplitAfterSeq("<<stage:compare>>\n"+hostileMark+hostileMark+hostileText, " ") {
			delta, err := json.Marshal(piece)
			if err == nil {
				_, err = fmt.Fprintf(held, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%s}}]}`+"\n\n", delta)
			}
			if err != nil {
				return // the worker closed the connection
			}
		}
		fmt.Fprint(held, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
}

// heldWriter passes on a streamed answer and pauses it after the words of a hold.
type heldWriter struct {
	http.ResponseWriter
	ctx   context.Context // the request's
	holds []*hold
	text  string
}

func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *heldWriter) Write(frame []byte) (int, error) {
	n, err := w.ResponseWriter.Write(frame)
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if err != nil {
		return n, err
	}
	before := w.text
	w.text += contentOf(frame)
	for _, h := range w.holds {
		if strings.Contains(before, h.at) || !strings.Contains(w.text, h.at) {
			continue
		}
		select {
		case h.reached <- struct{}{}:
		default: // a second attempt
		}
		select {
		case <-h.release:
		case <-w.ctx.Done():
			return n, w.ctx.Err()
		}
	}
	return n, nil
}

// contentOf returns the piece of the answer in a frame of a chat completion's stream, empty if there is none.
func contentOf(frame []byte) string {
	var chunk struct {
		Choices []struct {
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
	}
	data, _ := bytes.CutPrefix(frame, []byte("data: "))
	if err := json.Unmarshal(data, &chunk); err != nil || len(chunk.Choices) == 0 {
		return ""
	}
	return chunk.Choices[0].Delta.Content
}

// startBrowser starts a Chromium with an empty profile for this test.
func startBrowser(t *testing.T, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	require.NotEmpty(t, path, "no browser: install Chromium (Debian: apt-get install chromium)")
	flags := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
	}
	for _, name := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-breakpad",
		"disable-dev-shm-usage", "disable-background-timer-throttling", "disable-renderer-backgrounding",
		"force-prefers-reduced-motion", // without a GPU every frame of an animation costs processor time
	} {
		flags = append(flags, chromedp.Flag(name, true))
	}
	flags = append(flags, chromedp.Flag("lang", "en-US"),
		chromedp.Flag("disable-features", "WebUIOmniboxPopup,WebUIOmniboxAimPopup")) // pages of the browser's own, two in each window
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(flags, more...)...)
	t.Cleanup(stop)
	// Ignore errors of the library about messages of a newer Chromium. They do not concern the page.
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = chromedp.Cancel(end) // gracefully if it can; otherwise it is killed
	})
	return ctx
}

// tab is one page with its own storage.
type tab struct {
	testing.TB
	ctx  context.Context // a browser's tab is a context to chromedp
	said chan chromedp.ConsoleMessage
}

func openTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{TB: t, ctx: ctx, said: make(chan chromedp.ConsoleMessage, 1000)}
	t.Cleanup(cancel)
	console := chromedp.Console(ctx)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			b.said <- m
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page: %s", ask[string](b, `location.hash + "\n" + document.body.innerText`))
		}
	})
	return b
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	require.NoError(b, chromedp.Do(ctx, actions...))
}

// ask evaluates JavaScript in the page.
func ask[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return v
}

// await waits for a condition in the page; its %s become JavaScript literals of the arguments. The library's own polling
// would need eval, which the page's policy forbids.
func (b *tab) await(what, condition string, args ...any) {
	b.Helper()
	for i, a := range args {
		literal, err := json.Marshal(a)
		require.NoError(b, err)
		args[i] = literal
	}
	expression := fmt.Sprintf("Boolean("+condition+")", args...)
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		// While the page reloads, there may be nothing to evaluate.
		if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("waited %s for %s: %s", maxWait, what, expression)
		}
	}
}

// signIn opens the link that `make run` prints.
func (b *tab) signIn(s *stack, user string) {
	b.Helper()
	s.user(user) // with credits
	b.openAs(s, user)
}

// openAs signs a user in without adding credits.
func (b *tab) openAs(s *stack, user string) {
	b.Helper()
	token := s.token(user)
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + token))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes(%s) && document.querySelectorAll('input[name="template"]').length > 0`, user)
	require.NotContains(b, ask[string](b, `location.href`), token, "the token leaves the address")
}

// answer returns the visible text of the answer, without white space.
func (b *tab) answer() string {
	return ask[string](b, `[...document.querySelectorAll('.prose')].map((e) => e.textContent).join('').replace(/\s+/g, '')`)
}

func (b *tab) items() []string {
	return ask[[]string](b, `[...document.querySelectorAll('.items .list > li')].map((e) => e.textContent.trim())`)
}

// complaint returns the browser's errors, warnings and policy violations since the last call.
func (b *tab) complaint() string {
	b.Helper()
	mark := "up to here"
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("{ console.log(%q) }", mark)))
	var out []string
	for {
		select {
		case m := <-b.said:
			if m.Text == mark {
				return strings.Join(out, "\n")
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() || m.Source == "security" {
				out = append(out, fmt.Sprintf("%s %s (%s)", m, m.URL, m.Source))
			}
		case <-b.ctx.Done():
			b.Fatal("the browser is gone")
		}
	}
}

// quiet requires that the browser has reported no problems.
func (b *tab) quiet() {
	b.Helper()
	require.Empty(b, b.complaint())
}

// shoot saves screenshots of the page at the widths of a desktop and a phone in the directory BERTH_SHOTS, if that is set.
func (b *tab) shoot(name string) {
	b.Helper()
	dir := os.Getenv("BERTH_SHOTS") //nolint:forbidigo // for developers; no test depends on it
	if dir == "" {
		return
	}
	require.NoError(b, os.MkdirAll(dir, 0o750))
	for _, width := range []int64{390, 1280} {
		var as []chromedp.EmulateViewportOption
		if width < 800 {
			as = append(as, chromedp.EmulateMobile)
		}
		b.do(chromedp.EmulateViewport(width, 900, as...))
		b.await("the fonts", `document.fonts.status === 'loaded' && innerWidth === %s`, width)
		height := ask[int64](b, `document.documentElement.scrollHeight`)
		b.do(chromedp.EmulateViewport(width, max(900, height), as...))
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(b, err)
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.png", name, width)), png, 0o600))
		b.do(chromedp.EmulateViewport(width, 900, as...))
	}
}
