package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// sameProfile opens another tab with the storage and the connections of b: in the same window, or in one of its own.
func (b *tab) sameProfile(t *testing.T, window bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(window))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx)) // opens it, for as long as this context
	return &tab{TB: t, ctx: ctx}
}

// front makes a tab the active one of its window.
func (b *tab) front() {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, maxWait)
	defer cancel()
	c := chromedp.FromContext(ctx)
	_, err := cdp.Call(ctx, c.Browser, target.ActivateTarget, target.ActivateTargetParams{TargetID: c.Target.TargetID})
	require.NoError(b, err)
	b.await("the tab to be shown", `!document.hidden`)
}

// FP2: a browser opens six connections to a server without HTTP/2. A user who opens twelve tabs or windows sees all of them work: hidden
// tabs have no event stream and continue with theirs when they are shown, and of visible ones some have to ask for the status.
func TestPage_TwelveTabs_AllAreServedAndMissNothing(t *testing.T) { // alone: so many windows need the whole machine
	const tabs = 12
	holds := []*hold{newHold("## Item by item\n"), newHold("## Score\n")}
	s := newStack(t, func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, holds) })
	chromium := startBrowser(t)
	c := s.user("olga")
	submit := func() (id, path string) {
		acc, err := c.Submit(t.Context(), client.Submission{
			ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
			Variables: map[string]any{"resume": string(example(t, "resume-en.txt")), "jobText": string(example(t, "posting-en.txt"))},
		}, berth.NewID(""))
		require.NoError(t, err)
		return acc.TaskID, "http://" + s.httpAddr + "/#/tasks/" + acc.TaskID
	}
	stored := func(id string) string {
		task, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, berth.TaskCompleted, task.Status)
		return plain(task.Text)
	}
	const first = `document.querySelector('.prose')?.textContent.includes('Item by item')`
	signIn := func() *tab {
		b := openTab(t, chromium)
		b.do(chromedp.Navigate("http://" + s.httpAddr + "/#token=" + s.token("olga", "user", "operator")))
		b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('olga')`)
		return b
	}

	// Tabs of one window, of which one is shown: half of them of the task, and half of the console.
	b := signIn()
	id, path := submit()
	holds[0].wait(t)
	all := []*tab{b}
	for range tabs - 1 {
		all = append(all, b.sameProfile(t, false))
	}
	for i, o := range all {
		o.front()
		if i%2 == 0 {
			o.do(chromedp.Navigate(path))
			o.await(fmt.Sprintf("the first tokens in tab %d", i), first)
		} else {
			o.do(chromedp.Navigate("http://" + s.httpAddr + "/#/console"))
			o.await(fmt.Sprintf("the live console in tab %d", i), `document.querySelector('.tiles') !== null && document.querySelector('.side .link .done') !== null`)
		}
	}
	for i, o := range all {
		require.Equal(t, i != tabs-1, ask[bool](o, `document.hidden`), "the browser reports which tab is shown")
	}
	_, err := s.operator().PatchModel(t.Context(), "deepseek-chat", map[string]any{"paused": true, "reason": "twelve tabs"})
	require.NoError(t, err)
	close(holds[0].release)
	holds[1].wait(t)
	all[0].front()
	all[0].await("what came while it was hidden", `document.querySelector('.prose')?.textContent.includes('Score')`)
	all[1].front()
	close(holds[1].release)
	all[2].await("the end in the title of a hidden tab", `document.hidden && document.title.startsWith('Done')`)
	for i, o := range all {
		o.front()
		if i%2 == 0 {
			o.await(fmt.Sprintf("the end in tab %d", i), `document.querySelector('.task .status.completed') !== null`)
			o.await(fmt.Sprintf("the whole answer in tab %d", i), `[...document.querySelectorAll('.prose')].map((e) => e.textContent).join('').replace(/\s+/g, '') === %s`, stored(id))
		} else {
			o.await(fmt.Sprintf("the change in tab %d", i), `document.querySelector('.side .link .done') !== null && document.querySelector('.changes')?.textContent.includes('twelve tabs')`)
		}
	}
	_, err = s.operator().PatchModel(t.Context(), "deepseek-chat", map[string]any{"paused": false})
	require.NoError(t, err)

	// Windows, all of which are shown.
	calls := s.holdCalls()
	id, path = submit()
	call := <-calls
	b = signIn()
	all = []*tab{b}
	for range tabs - 1 {
		all = append(all, b.sameProfile(t, true))
	}
	for i, o := range all {
		o.do(chromedp.Navigate(path))
		o.await(fmt.Sprintf("the task in window %d", i), `document.querySelector('.chain') !== null`)
	}
	crowded := func() (n int) {
		for _, o := range all {
			if ask[bool](o, `!document.hidden && [...document.querySelectorAll('.notice')].some((e) => e.textContent.startsWith('Other windows'))`) {
				n++
			}
		}
		return n
	}
	s.eventually("the notice in the windows without a stream", func() bool { return crowded() == tabs-4 })
	close(call)
	close(<-calls)
	for i, o := range all {
		o.await(fmt.Sprintf("the end in window %d", i), `document.querySelector('.task .status.completed') !== null`)
		o.await(fmt.Sprintf("the whole answer in window %d", i), `[...document.querySelectorAll('.prose')].map((e) => e.textContent).join('').replace(/\s+/g, '') === %s`, stored(id))
	}
}
