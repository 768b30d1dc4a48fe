package tests

import (
	"errors"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// T18, T24: the page shows a user without credits the price and that the task would use the free queue, then that the task waits, its
// moving position with an estimate, that its model is paused, and that it is in the free tier.
func TestPage_TaskWaitsInFreeTier_PositionMovesWithEstimate(t *testing.T) {
	t.Parallel()
	const tasks = 9
	s := newStack(t)
	calls := s.holdCalls()
	chromium := startBrowser(t)
	op := client.New("http://"+s.httpAddr, s.token("op", "operator"))
	_, err := op.PatchModel(t.Context(), "glm-4.5-flash", map[string]any{"cap": 1})
	require.NoError(t, err)
	for _, c := range []struct {
		locale                                            berth.Locale
		lang, ahead, about, free, waiting, paused, spoken string
	}{
		{berth.LocaleEN, "en", `^\d+ ahead`, "about", "free queue and model", "Waiting", "The model is paused", "Model paused. Summarise the posting. "},
		{berth.LocaleZH, "zh-Hans", `^前面还有 \d+ 个`, "约", "免费队列和模型", "排队中", "模型已暂停", "模型已暂停。概括职位。"},
	} {
		t.Run(string(c.locale), func(t *testing.T) {
			b, user := openTab(t, chromium), "waiting-"+string(c.locale)
			u := client.New("http://"+s.httpAddr, s.token(user))
			b.openAs(s, user)
			if c.locale == berth.LocaleZH {
				b.do(chromedp.Click(`header button[lang="zh-Hans"]`, chromedp.NodeVisible))
			}
			b.await("the page's language", `document.documentElement.lang === %s`, c.lang)
			b.do(chromedp.Click(`input[name="template"][value="job_summary"]`))
			b.await("the price without credits", `document.querySelector('.price.free')?.textContent.includes(%s)`, c.free)
			b.shoot(user + "-price")

			var last string
			for i := range tasks {
				s.eventually("a task to be accepted", func() bool { // 503 while a busy machine's database does not reply within a second
					acc, err := u.Submit(t.Context(), client.Submission{
						ServiceID: "career", Template: "job_summary", Locale: c.locale,
						Variables: map[string]any{"jobText": fmt.Sprintf("We look for a baker. This is posting number %d.", i)},
					}, "")
					if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == berth.CodeUnavailable {
						return false
					}
					require.NoError(t, err)
					require.True(t, acc.Downgraded)
					last = acc.TaskID
					return true
				})
			}
			running := <-calls
			b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + last))
			b.await("the free tier", `[...document.querySelectorAll('.notice')].some((e) => e.textContent.includes(%s))`, c.free)
			b.await("a position", `new RegExp(%s).test(document.querySelector('.chain .state')?.textContent)`, c.ahead)
			b.await("that it waits", `document.querySelector('.task .status')?.textContent === %s`, c.waiting)
			before := ask[string](b, `document.querySelector('.chain .state').textContent`)
			for range 3 { // the first two are the pace
				close(running)
				running = <-calls
			}
			b.await("a later position with an estimate", `((now) => now !== %s && new RegExp(%s).test(now) && now.includes(%s))(document.querySelector('.chain .state').textContent)`,
				before, c.ahead, c.about)
			b.shoot(user + "-position")
			pause := func(paused bool) {
				_, err := op.PatchModel(t.Context(), "glm-4.5-flash", map[string]any{"paused": paused})
				require.NoError(t, err)
			}
			pause(true)
			b.await("the pause", `document.querySelector('.chain .state').textContent.startsWith(%s)`, c.paused)
			b.await("the pause to be announced", `document.querySelector('.task > [aria-live]').textContent.startsWith(%s)`, c.spoken)
			b.shoot(user + "-paused")
			pause(false)
			b.await("the end of the pause", `new RegExp(%s).test(document.querySelector('.chain .state').textContent)`, c.ahead)
			for range tasks - 4 {
				close(running)
				running = <-calls
			}
			close(running)
			b.await("the end", `document.querySelector('.task .status.completed') !== null`)
			b.shoot(user + "-done")
			b.quiet()
		})
	}
}
