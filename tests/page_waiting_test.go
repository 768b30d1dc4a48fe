package tests

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// T18, T24: the page shows a user without credits the price and that the task would use the free queue, then the moving position of
// the task with an estimate, and that it is in the free tier.
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
		locale                      berth.Locale
		lang, position, about, free string
	}{
		{berth.LocaleEN, "en", "Position ", "about", "free queue and model"},
		{berth.LocaleZH, "zh-Hans", "排在第 ", "约", "免费队列和模型"},
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
				acc, err := u.Submit(t.Context(), client.Submission{
					ServiceID: "career", Template: berth.TemplateJobSummary, Locale: c.locale,
					Variables: map[string]any{"jobText": fmt.Sprintf("We look for a baker. This is posting number %d.", i)},
				}, "")
				require.NoError(t, err)
				require.True(t, acc.Downgraded)
				last = acc.TaskID
			}
			running := <-calls
			b.do(chromedp.Navigate("http://" + s.httpAddr + "/#/tasks/" + last))
			b.await("the free tier", `[...document.querySelectorAll('.notice')].some((e) => e.textContent.includes(%s))`, c.free)
			b.await("a position", `document.querySelector('.chain .state')?.textContent.startsWith(%s)`, c.position)
			before := ask[string](b, `document.querySelector('.chain .state').textContent`)
			for range 3 { // the first two are the pace
				close(running)
				running = <-calls
			}
			b.await("a later position with an estimate", `((now) => now !== %s && now.startsWith(%s) && now.includes(%s))(document.querySelector('.chain .state').textContent)`,
				before, c.position, c.about)
			b.shoot(user + "-position")
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
