//go:build faults

package tests

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// FI6: streams without an event for more than two minutes stay open through proxies, whose default times are 50 and 60 seconds, and then get
// the next event immediately: those of a program, of the page, and the signalling of a participant.
func TestProxy_StreamIdleForTwoMinutes_StaysOpen(t *testing.T) {
	t.Parallel()
	const idle = 125 * time.Second
	s := newStack(t, withParticipants())
	op := client.New("http://"+s.httpAddr, s.token("op", "operator"))
	pause := func(paused bool) {
		for _, model := range []string{"deepseek-chat", "deepseek-reasoner"} {
			_, err := op.PatchModel(t.Context(), model, map[string]any{"paused": paused})
			require.NoError(t, err)
		}
	}
	pause(true)
	acc, err := s.user("alice").Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
		Variables: map[string]any{"resume": string(example(t, "resume-en.txt")), "jobText": string(example(t, "posting-en.txt"))},
	}, "")
	require.NoError(t, err)
	task := acc.TaskID
	s.mediaUnit("u1", 5)
	m := s.conferences()
	const number = "8635000012"
	m.open(number)
	var proxies []*reverseProxy
	for _, c := range []struct{ program, config, prefix string }{
		{"nginx", recipe(t, "nginx", true), "/berth"}, {"nginx", plainNginxPrefix, "/berth"}, {"haproxy", recipe(t, "haproxy", false), ""}, {"haproxy", plainHAProxy, ""},
	} {
		proxies = append(proxies, s.reverseProxy(t, c.program, c.config, c.prefix))
	}
	var reading sync.WaitGroup
	var all []*participants
	began, heartbeats, ended := time.Now(), make([]int, len(proxies)), make([]bool, len(proxies))
	for i, p := range proxies {
		lines := bufio.NewScanner(p.get(t.Context(), "/v1/tasks/"+task+"/events", s.token("alice")).Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && lines.Text() != "event: queued" {
		}
		reading.Go(func() {
			for lines.Scan() && !ended[i] {
				if strings.HasPrefix(lines.Text(), ": heartbeat") {
					heartbeats[i]++
				}
				ended[i] = lines.Text() == "event: done"
			}
		})
		if !p.limited {
			all = append(all, s.participants(p.environment()...))
			a, err := m.AddParticipant(t.Context(), number, client.ParticipantSpec{Identity: strings.Repeat("x", i+1)})
			require.NoError(t, err)
			all[len(all)-1].join("p", strings.Replace(p.base, "http", "ws", 1), a.Token, false)
			all[len(all)-1].await("p", "joined", 1)
		}
	}
	b := openTab(t, startBrowser(t, chromedp.Flag("ignore-certificate-errors", true)))
	b.do(chromedp.Navigate(proxies[1].base + "/#token=" + s.token("alice")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('alice')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/tasks/` + task + `' }`))
	b.await("the waiting task", `document.querySelector('.task') !== null`)
	select {
	case <-time.After(idle): // the time itself is tested
	case <-t.Context().Done():
	}
	require.NotContains(t, string(s.api.output()), "route=/v1/tasks/:id/events", "a stream has ended")
	pause(false)
	reading.Wait()
	for i, p := range proxies {
		require.True(t, ended[i], "%s: the stream that was opened first has all events", p.base)
		require.GreaterOrEqual(t, heartbeats[i], 7)
	}
	b.await("the end", `document.querySelector('.task .status.completed') !== null`)
	for _, p := range all {
		require.Empty(t, p.of("p", "reconnecting"))
		require.Empty(t, p.of("p", "disconnected"))
	}
	require.Equal(t, http.StatusOK, proxies[0].get(t.Context(), "/readyz", "").StatusCode)
	t.Logf("idle for %s; heartbeats %v; %d participants stayed connected", time.Since(began).Round(time.Second), heartbeats, len(all))
}
