package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/template"
	"berth/internal/testtemplate"
)

// hostileCase is one way in which a provider misbehaves, and what the user of a task receives.
type hostileCase struct {
	template berth.Template
	// host is the index of the API and worker whose routing file serves the case: tasks of host 0 have a short deadline.
	host int
	// provider is the one of the case's own model; empty for a case that shares the model of interview_prep.
	provider string
	// misbehave answers one call on its connection, which is closed when it returns.
	misbehave func(net.Conn)
	// times is the number of calls that misbehave before the model simulator answers; 0 for all.
	times int

	code   berth.Code // of the error event; empty for done
	text   string     // of the answer; empty for that of the simulator
	finish string
	calls  int // 0 if it depends on the time until the deadline
	// bought is how many of the calls cost something, free how many the client made again without a field that was refused.
	bought, free int
	// says is a part of what the user reads, of an event error. truncated: the prompt was.
	says      string
	truncated bool
	// rejected is the code of the usage rows of calls whose answer is not used.
	rejected berth.Code
}

func hostileCases() map[string]hostileCase {
	const sse = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	shared := func(misbehave func(net.Conn), code berth.Code, text string) hostileCase {
		c := hostileCase{template: "interview_prep", misbehave: misbehave, code: code, text: text, calls: 1, rejected: code}
		if code == "" {
			c.finish, c.bought = "stop", 1
		}
		return c
	}
	failing := func(misbehave func(net.Conn), code berth.Code, calls, bought int, says string) hostileCase {
		c := shared(misbehave, code, "")
		c.calls, c.bought, c.says = calls, bought, says
		return c
	}
	recovers := func(template berth.Template, host, times int, misbehave func(net.Conn)) hostileCase {
		return hostileCase{
			template: template, host: host, provider: "hostile", misbehave: misbehave, times: times, finish: "stop", calls: times + 1,
			rejected: berth.CodeProviderUnavailable,
		}
	}
	write := func(parts ...string) func(net.Conn) {
		return func(c net.Conn) {
			for _, p := range parts {
				if _, err := io.WriteString(c, p); err != nil {
					return
				}
			}
		}
	}
	status := func(status, body string) func(net.Conn) {
		return write(fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body))
	}
	const tooLong = `{"error":{"message":"maximum context length is 65536 tokens","code":"context_length_exceeded"}}`
	noReason := shared(write(sse, delta("All of it.", ""), "data: [DONE]\n\n"), "", "All of it.")
	noReason.finish = berth.FinishUnknown
	cutPrompt := shared(write(sse, delta("A short answer.", "stop"), `data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":5}}`+"\n\n"), "", "A short answer.")
	cutPrompt.truncated = true
	refusesField := shared(status("422 Unprocessable Entity", `{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`), "", "")
	refusesField.times, refusesField.free, refusesField.calls = 1, 1, 2
	length := shared(write(sse, delta("Half an answer", "length")), "", "Half an answer")
	length.finish = berth.FinishLength
	const split, lines = "你好，世界 🌊 done", "first line\r\nsecond line\r\n\r\nevent: error\r\ndata: {}\r\n\r\nlast line"
	unreachable := func(template berth.Template, provider string) hostileCase {
		return hostileCase{
			template: template, provider: provider, code: berth.CodeProviderUnavailable,
			rejected: berth.CodeProviderUnavailable,
		}
	}
	return map[string]hostileCase{
		"429 with Retry-After": recovers("detailed_resume_summary", 1, 12,
			write("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")),
		"stall": recovers("job_match", 0, 2, func(c net.Conn) {
			write(sse, delta("The first ", ""), delta("words ", ""))(c)
			_, _ = io.Copy(io.Discard, c) // until berth closes it
		}),
		"cut":     recovers("job_match", 1, 2, write(sse, delta("The first ", ""), delta("words ", "")[:20])),
		"garbage": recovers("resume_customize", 1, 2, write(sse, "\x00\xff\xfe{{{\r\n\r\ndata: \x1b[31m]]\n\n\x00")),
		"slow headers": recovers("resume_summary", 1, 2, func(c net.Conn) {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				<-time.After(100 * time.Millisecond) // the pace of the provider
				_, err = io.WriteString(c, "X-Slow: 1\r\n")
			}
		}),
		"wrong content length": recovers("detailed_resume_summary", 0, 2, write(
			"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 150\r\nConnection: close\r\n\r\n",
			delta("{", ""), delta("}", "stop"))),
		"connection refused": unreachable("resume_customize", "refused"),
		"blackholed":         unreachable("resume_summary", "blackholed"),

		"context too long":                 failing(status("400 Bad Request", tooLong), berth.CodeProviderRejected, 1, 0, "shorten them"),
		"context too long within a stream": failing(write(sse, "data: "+tooLong+"\n\ndata: [DONE]\n\n"), berth.CodeProviderRejected, 1, 0, "shorten them"),
		"context too long in a 200":        failing(status("200 OK", tooLong), berth.CodeProviderRejected, 1, 0, "shorten them"),
		"content refused":                  failing(status("400 Bad Request", `{"error":{"message":"Content Exists Risk"}}`), berth.CodeProviderRejected, 1, 0, "change the texts"),
		"no credit":                        failing(status("402 Payment Required", `{"error":{"message":"Insufficient Balance"}}`), berth.CodeProviderRejected, 1, 0, "has no credit"),
		"filtered in the middle":           failing(write(sse, delta("Half an answer", "sensitive")), berth.CodeProviderRejected, 1, 1, "change the texts"),
		"unknown finish reason":            failing(write(sse, delta("Half an answer", "cancelled")), berth.CodeInvalidOutput, 3, 3, "berth tried three times"),
		"tool call": failing(write(sse, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]},"finish_reason":"tool_calls"}]}`+"\n\n"),
			berth.CodeInvalidOutput, 3, 3, "called a tool"),
		"content of another form": failing(write(sse, `data: {"choices":[{"index":0,"delta":{"content":{"text":"x"}}}]}`+"\n\n"), berth.CodeInvalidOutput, 1, 1, "an object"),
		"no finish reason":        noReason,
		"prompt truncated":        cutPrompt,
		"stream_options refused":  refusesField,
		"falsy errors":            shared(write(sse, strings.ReplaceAll(delta("All ", "")+delta("of it.", "stop"), `{"choices"`, `{"error":false,"choices"`)), "", "All of it."),
		"byte order mark, CR and pings": shared(write(sse, "\ufeff"+strings.ReplaceAll("event: ping\ndata: {}\n\n"+delta("All ", "")+": c\n\n"+delta("of it.", "stop"), "\n", "\r")),
			"", "All of it."),
		"thoughts and a box": shared(write(sse, delta("<thi", ""), delta("nk>hm</think><|begin_of_", ""), delta("box|>All of it.<|end_of_box|>", "stop")), "", "All of it."),
		"HTML": shared(write("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html><script>alert(1)</script>Sign in</html>"),
			berth.CodeProviderRejected, ""),
		"endless answer": shared(func(c net.Conn) {
			_, err := io.WriteString(c, sse)
			for word := delta(strings.Repeat("word ", 2000), ""); err == nil; {
				_, err = io.WriteString(c, word)
			}
		}, berth.CodeInvalidOutput, ""),
		"one line of 40 MB": shared(write(sse, `data: {"choices":[{"index":0,"delta":{"content":"`, strings.Repeat("x", 40<<20), "\"}}]}\n\n"),
			berth.CodeInvalidOutput, ""),
		"401": shared(write("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"),
			berth.CodeProviderKey, ""),
		"one delta with reasoning": shared(write(sse,
			`data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm","content":"The whole answer."},"finish_reason":"stop"}]}`+"\n\n"),
			"", "The whole answer."),
		"length": length,
		"split UTF-8": shared(func(c net.Conn) {
			write(sse)(c)
			for _, b := range []byte(delta(split, "stop")) { // each byte in a write of its own
				write(string([]byte{b}))(c)
			}
		}, "", split),
		"CRLF in tokens": shared(write(sse, strings.ReplaceAll(delta(lines[:13], "")+delta(lines[13:], "stop"), "\n\n", "\r\n\r\n")), "", lines),
	}
}

// delta returns a chunk of an answer.
func delta(content, finish string) string {
	var reason any
	if finish != "" {
		reason = finish
	}
	b, err := json.Marshal(map[string]any{"choices": []any{map[string]any{
		"index": 0, "delta": map[string]any{"content": content}, "finish_reason": reason,
	}}})
	if err != nil {
		panic(err)
	}
	return "data: " + string(b) + "\n\n"
}

// hostileProvider is a provider on raw connections, which recognises a case by its mark in the prompt.
type hostileProvider struct {
	cases    map[string]hostileCase
	upstream string // the model simulator
	mu       sync.Mutex
	calls    map[string]int
}

// hostileKey is the API key of the providers, which no user receives.
const hostileKey = "sk-of-the-operator"

var hostileMarkOf = regexp.MustCompile(`case (\d+) of the provider`)

// caseMark returns the text by which the calls of a case are recognised.
func (p *hostileProvider) caseMark(name string) string {
	return fmt.Sprintf("case %d of the provider", slices.Index(p.names(), name))
}

func (p *hostileProvider) names() (all []string) {
	for name := range p.cases {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (p *hostileProvider) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[name]++
	return p.calls[name]
}

func (p *hostileProvider) called(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[name]
}

// listen passes each connection to handle until the test ends, and returns the address.
func (p *hostileProvider) listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

func (p *hostileProvider) handle(c net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	mark := hostileMarkOf.FindSubmatch(body)
	if err != nil || mark == nil {
		return
	}
	var i int
	if _, err := fmt.Sscan(string(mark[1]), &i); err != nil {
		return
	}
	name := p.names()[i]
	one := p.cases[name]
	if n := p.count(name); one.times == 0 || n <= one.times {
		one.misbehave(c)
		return
	}
	res, err := http.Post(p.upstream+req.URL.Path, "application/json", bytes.NewReader(body)) //nolint:noctx // a test's own server
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	res.Close = true
	_ = res.Write(c)
}

// blackhole accepts a call and never reads it.
func (p *hostileProvider) blackhole(t *testing.T) func(net.Conn) {
	t.Helper()
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	return func(net.Conn) {
		p.count("blackholed")
		<-over
	}
}

// routing writes the routing file of one host: each of its cases has a model of its own, so that the failures of one do not
// pause the others.
func (p *hostileProvider) routing(t *testing.T, host int, providers map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("providers:\n")
	for name, url := range providers {
		fmt.Fprintf(&b, "  %s: {baseURL: %q, keySetting: HOSTILE_API_KEY, keyOptional: true}\n", name, url+"/v1")
	}
	fmt.Fprintf(&b, "models:\n  calm-%d: {provider: simulator}\n  shared-%d: {provider: hostile, cap: 8}\n", host, host)
	models := map[berth.Template]string{"interview_prep": fmt.Sprintf("shared-%d", host)}
	for i, name := range p.names() {
		c := p.cases[name]
		if c.host != host || c.provider == "" {
			continue
		}
		model := fmt.Sprintf("case-%d", i)
		require.Empty(t, models[c.template], "two cases of one host use the model of %s", c.template)
		models[c.template] = model
		fmt.Fprintf(&b, "  %s: {provider: %s, timeouts: {firstByte: 2s, idle: 2s}}\n", model, c.provider)
	}
	b.WriteString("routes:\n")
	fmt.Fprintf(&b, "  default: {paid: calm-%d, free: calm-%[1]d}\n  vision: {paid: calm-%[1]d, free: calm-%[1]d}\n", host)
	for _, tmpl := range testtemplate.All() {
		fmt.Fprintf(&b, "  %s: {credits: 2}\n", tmpl.Name)
		if model := models[tmpl.Name]; model != "" {
			fmt.Fprintf(&b, "  %s.%s: {paid: %s, free: %[3]s}\n", tmpl.Name, tmpl.Steps[len(tmpl.Steps)-1].ID, model)
		}
	}
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	return file
}

// Whatever a provider sends, the task ends with a clear outcome, and the user pays for an answer only.
func TestTask_HostileProvider_EndsClearlyAndIsPaidForAnswersOnly(t *testing.T) { // B2, B3, T18, T19, T20, T21
	t.Parallel()
	p := &hostileProvider{cases: hostileCases(), calls: map[string]int{}}
	require.Len(t, p.cases, 31)
	hostile, blackholed, refused := p.listen(t, p.handle), p.listen(t, p.blackhole(t)), "http://"+freeAddr(t)
	var hosts [2]*stack
	var stores [2]*ledger.Ledger
	for host, deadline := range []string{"25s", "10m"} {
		s := newStack(t, with("BERTH_TASK_DEADLINE="+deadline, "BERTH_PROVIDER_KEYS=HOSTILE_API_KEY="+hostileKey), func(s *stack) {
			p.upstream = s.model.URL
			s.settings = append(s.settings, "BERTH_ROUTING_FILE="+p.routing(t, host, map[string]string{
				"simulator": s.model.URL, "hostile": hostile, "blackholed": blackholed, "refused": refused,
			}))
		})
		store, err := ledger.Open(t.Context(), "sqlite:"+filepath.Join(s.dir, "berth.db"), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		defer func() { _ = store.Close() }()
		hosts[host], stores[host] = s, store
	}

	var mu sync.Mutex
	table, tasks := map[string]string{}, map[string]string{}
	t.Run("cases", func(t *testing.T) {
		for name, c := range p.cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				host := *hosts[c.host]
				host.tb = t
				row, id := p.run(t, &host, stores[c.host], name, c)
				mu.Lock()
				defer mu.Unlock()
				table[name], tasks[name] = row, id
			})
		}
	})
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "provider\tevent\tcode\tfinish\tcalls\tbought\tcredits\tmessage")
	for _, name := range p.names() {
		fmt.Fprintf(w, "%s\t%s\n", name, table[name])
	}
	require.NoError(t, w.Flush())
	t.Log("\n" + out.String())

	t.Run("page", func(t *testing.T) {
		b := openTab(t, startBrowser(t))
		for _, name := range p.names() {
			p.show(hosts[p.cases[name].host], b, name, tasks[name])
		}
	})
}

// hostileUser is the user of one case.
func hostileUser(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }

// show opens the task of one case in the browser, and checks what the page shows.
func (p *hostileProvider) show(s *stack, b *tab, name, id string) {
	c := p.cases[name]
	b.signIn(s, hostileUser(name))
	b.await("the balance", `/[0-9] credits/.test(document.querySelector('.balance').textContent)`)
	b.await("the price", `document.querySelector('.price strong').textContent === '2 credits'`)
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + id))
	if c.code == "" {
		b.await("the end of "+name, `document.querySelector('.task .status.completed') !== null`)
		if testtemplate.Find(b, c.template).Mode() == berth.ModeStream {
			b.await("the answer of "+name, `document.querySelector('.prose')?.textContent.trim().length > 0`)
		}
	} else {
		b.await("the failure of "+name, `document.querySelector('.task .status.failed') !== null &&
			document.querySelector('.notice.bad').textContent.includes('2 credits refunded.')`)
	}
	truncated := ask[bool](b, `[...document.querySelectorAll('.notice')].some((e) => e.textContent.includes('reached its length limit'))`)
	require.Equal(b, c.finish == berth.FinishLength, truncated, name)
	if name != "endless answer" { // whose text is too long for a picture
		b.shoot("provider-" + hostileUser(name))
	}
}

// run submits the task of one case, checks its outcome, and returns its row of the table and its id.
func (p *hostileProvider) run(t *testing.T, s *stack, store *ledger.Ledger, name string, c hostileCase) (row, taskID string) {
	user := hostileUser(name)
	u := s.user(user)
	credits := func() int64 {
		_, me := s.send(http.MethodGet, "/v1/me", s.token(user), nil)
		n, ok := me["credits"].(float64)
		require.True(t, ok, "%v", me)
		return int64(n)
	}
	before := credits()
	variables := map[string]any{"resume": p.caseMark(name) + "\n" + string(example(t, "resume-en.txt"))}
	if slices.ContainsFunc(testtemplate.Find(t, c.template).Variables, func(v template.Variable) bool { return v.Name == "jobText" }) {
		variables["jobText"] = string(example(t, "posting-en.txt"))
	}
	acc, err := u.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: c.template, Locale: berth.LocaleEN, Variables: variables,
	}, "")
	require.NoError(t, err)
	require.Equal(t, before-2, credits(), "charged at its acceptance")
	got := watch(t, u, acc.TaskID, nil)
	after := credits()

	require.Equal(t, 1, got.count(berth.EventDone)+got.count(berth.EventError), "one terminal event")
	require.Equal(t, c.code, got.last.Code, got.last.Message)
	if c.code == berth.CodeProviderUnavailable {
		require.Contains(t, got.last.Message, "until the deadline")
	}
	require.Equal(t, c.finish, got.last.FinishReason)
	require.Equal(t, c.truncated, got.last.PromptTruncated)
	if c.code != "" {
		require.Equal(t, berth.EventError, got.last.Type)
		require.NotEmpty(t, got.last.Message)
		require.NotContains(t, got.last.Message, hostileKey)
		require.Contains(t, got.last.Message, c.says)
		require.Equal(t, before, after, "refunded")
	} else {
		require.Equal(t, berth.EventDone, got.last.Type)
		require.Equal(t, before-2, after, "charged once")
		require.Equal(t, trim(got.last.Text), trim(got.text), "the tokens are the answer")
		if c.text != "" {
			require.Equal(t, c.text, got.last.Text)
		}
	}
	task, err := u.Get(t.Context(), acc.TaskID)
	require.NoError(t, err)
	require.Equal(t, got.last.Text, task.Text, "a later reader receives the same")

	rows, bought := p.usage(t, s, store, berth.TaskRef{UserID: user, TaskID: acc.TaskID}, c)
	if c.calls > 0 {
		require.Equal(t, c.calls, p.called(name))
	}
	if c.provider == "refused" {
		require.Zero(t, p.called(name))
		require.Positive(t, rows)
	} else {
		require.Equal(t, p.called(name)-c.free, rows, "each call has one row")
	}
	require.LessOrEqual(t, bought, 3, "whatever the cause")
	if c.provider == "" && name != "endless answer" && name != "one line of 40 MB" {
		require.Equal(t, c.bought, bought)
	}
	charged := "charged"
	if after == before {
		charged = "refunded"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\t%s", got.last.Type, got.last.Code, got.last.FinishReason,
		p.called(name), bought, charged, got.last.Message), acc.TaskID
}

// usage waits until the outcome of every call of the task's last step is recorded, and returns their number and how many of
// them cost something.
func (p *hostileProvider) usage(t *testing.T, s *stack, store *ledger.Ledger, task berth.TaskRef, c hostileCase) (rows, bought int) {
	last := len(testtemplate.Find(t, c.template).Plan(nil)) - 1
	var calls []ledger.ModelCall
	s.eventually("the outcome of all calls to be recorded", func() bool {
		all, err := store.ModelCalls(context.Background(), task)
		require.NoError(t, err)
		calls = slices.DeleteFunc(slices.Clone(all), func(m ledger.ModelCall) bool { return m.Step != last })
		return !slices.ContainsFunc(all, func(m ledger.ModelCall) bool { return m.FinishedAt.IsZero() || m.Code == berth.CodeInterrupted })
	})
	for i, m := range calls {
		require.Equal(t, c.code == "" && i == len(calls)-1, m.Success, "only the last call has an answer")
		if m.Usage != (berth.Usage{}) {
			bought++
		}
		if !m.Success {
			if m.Code != berth.CodeCancelled && m.Code != berth.CodeDeadlineExceeded { // by the deadline of the task
				require.Equal(t, c.rejected, m.Code)
			}
		}
	}
	return len(calls), bought
}
