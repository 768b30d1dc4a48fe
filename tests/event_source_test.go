package tests

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// followTaskCode returns the recipe for browsers of docs/api.md.
func followTaskCode(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	code := regexp.MustCompile("(?s)```js\n(.*?function followTask.*?)```").FindSubmatch(guide)
	require.NotNil(t, code, "docs/api.md has no recipe for EventSource")
	return string(code[1])
}

// FP3: the recipe of docs/api.md reads all events of a task, once and in order, although the API restarts when the ticket has expired. An
// EventSource alone stops then.
func TestGuide_EventSource_ResumesAfterTicketExpired(t *testing.T) {
	t.Parallel()
	code := followTaskCode(t)
	const user = "reader"
	holds := []*hold{newHold("## Item by item\n"), newHold("## Score\n")}
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, holds) })
	c := s.user(user)
	acc, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
		Variables: map[string]any{"resume": string(example(t, "resume-en.txt")), "jobText": string(example(t, "posting-en.txt"))},
	}, "")
	require.NoError(t, err)
	holds[0].wait(t)

	b := openTab(t, startBrowser(t))
	b.do(chromedp.Navigate("http://" + s.httpAddr + "/")) // any page of the origin
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		%s
		window.seen = [];
		window.problems = [];
		const token = async () => %q;
		followTask(%q, token, (type, data) => window.seen.push({ type, text: data.text ?? '' }), (p) => window.problems.push(p));
		followTask('none', token, () => {}, (p) => window.problems.push(p));
		fetch('/v1/tickets', { method: 'POST', headers: { Authorization: 'Bearer ' + %[2]q, 'Content-Type': 'application/json' }, body: JSON.stringify({ taskId: %[3]q }) })
			.then((r) => r.json()).then((t) => { window.alone = new EventSource(t.eventsUrl); window.ticket = t });
	}`, code, s.token(user), acc.TaskID)))
	text := `window.seen.filter((e) => e.type.startsWith('token')).map((e) => e.text).join('')`
	b.await("the first tokens", text+`.includes('Item by item')`)
	b.await("the EventSource", `window.alone?.readyState === EventSource.OPEN`)
	b.await("the reason of what cannot be followed", `window.problems.length === 1 && window.problems[0].length > 0`)

	s.api.kill()
	b.await("the end of the ticket", `Date.now() > Date.parse(window.ticket.expiresAt)`)
	close(holds[0].release)
	holds[1].wait(t)
	s.startAPI()
	b.await("what came meanwhile", text+`.includes('Score')`)
	require.True(t, s.api.stop(20*time.Second))
	s.startAPI()
	close(holds[1].release)
	b.await("the end", `window.seen.at(-1).type === 'done'`)
	task, err := c.Get(t.Context(), acc.TaskID)
	require.NoError(t, err)
	require.Equal(t, task.Text, trim(ask[string](b, text)), "nothing is lost or repeated")
	require.Equal(t, 1, ask[int](b, `window.seen.filter((e) => e.type === 'done').length`))
	require.Equal(t, 1, ask[int](b, `window.problems.length`))
	b.await("the EventSource alone to have stopped", `window.alone.readyState === EventSource.CLOSED`)
}
