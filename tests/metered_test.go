package tests

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testprovider"
)

// meteredTemplate has a step whose answer is streamed.
const meteredTemplate = `---
title: {en: Metered}
credits: metered
mode: stream
models: {paid: m, free: free}
variables:
  - {name: text, required: true}
---
{{role "user"}}
{{document "text" text}}
`

// G16, O4: a metered task is charged for what its calls used, by the prices of its model, after its worker was killed in a call, a failed call
// and a cancellation; one whose reservation the balance does not cover is of the free tier. The sums of the usage are what was charged.
func TestMetered_CallsOfAnyOutcome_ChargedForWhatWasUsed(t *testing.T) {
	t.Parallel()
	provider := testprovider.Start(t)
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {p: {baseURL: "`+provider.URL+`"}}
models:
  m: {provider: p, cap: 5, maxOutputTokens: 1000, credits: {input: 10, output: 100.5}, price: {input: 1, output: 2}}
  free: {provider: p, cap: 5}
routes: {default: {paid: m, free: free}}
`), 0o600))
	s := newStack(t, with("BERTH_ROUTING_FILE="+file))
	_, err := s.operator().PutTemplate(t.Context(), "metered", client.TemplateFiles{Files: map[string]string{"metered.prompt": meteredTemplate}})
	require.NoError(t, err)
	s.eventually("the template", func() bool { _, err := s.operator().Template(t.Context(), "metered"); return err == nil })

	alice := s.user("alice")
	deposits := func() berth.Credits {
		a, err := alice.Account(t.Context(), "")
		require.NoError(t, err)
		return a.Credits
	}
	before := deposits()
	submit := func(c *client.Client, text string) string {
		accepted, err := c.Submit(t.Context(), client.Submission{ServiceID: "tests", Template: "metered", Variables: map[string]any{"text": text}}, "")
		require.NoError(t, err)
		return accepted.TaskID
	}
	task := func(id string) client.Task {
		got, err := alice.Get(t.Context(), id)
		require.NoError(t, err)
		return got
	}
	ended := func(id string) client.Task {
		s.eventually("the end of "+id, func() bool { return task(id).Status.Final() })
		return task(id)
	}

	// 1,000 tokens of input and 10 of output, as the provider says: 0.01 + 0.001005, rounded up.
	const price = berth.Credits(12)
	done := ended(submit(alice, "completes"))
	require.Equal(t, berth.TaskCompleted, done.Status)
	require.True(t, done.Metered)
	require.Equal(t, price, done.Price)
	require.Equal(t, before-price, deposits())

	provider.Answer(testprovider.Hang("The beg"))
	id := submit(alice, "is cancelled in its answer")
	s.eventually("the answer to begin", func() bool { return task(id).Status == berth.TaskStreaming && task(id).Price > price })
	require.Greater(t, before-price-deposits(), 100*price/10, "reserved")
	require.NoError(t, alice.Cancel(t.Context(), id))
	require.Equal(t, berth.TaskCancelled, ended(id).Status)
	s.eventually("the charge for the part that arrived", func() bool { return before-price-deposits() < 10*price })
	cancelled := task(id)
	require.Positive(t, cancelled.Price)
	require.Equal(t, before-price-cancelled.Price, deposits())

	killed := submit(alice, "loses its worker")
	s.eventually("the answer to begin", func() bool { return task(killed).Status == berth.TaskStreaming })
	s.worker.kill()
	provider.Answer(testprovider.Write(time.Millisecond, "The ", "answer."))
	s.worker = s.startWorker()
	require.Equal(t, berth.TaskCompleted, ended(killed).Status)
	require.Equal(t, price, task(killed).Price)

	provider.Answer(testprovider.Status(http.StatusBadRequest, "bad"))
	require.Equal(t, berth.TaskFailed, ended(submit(alice, "fails")).Status)

	provider.Answer(testprovider.Write(0, "The answer."))
	_, err = s.operator().AddCredits(t.Context(), "poor", price, "test", "test")
	require.NoError(t, err)
	poor := client.New("http://"+s.httpAddr, s.token("poor"))
	free, err := poor.Submit(t.Context(), client.Submission{ServiceID: "tests", Template: "metered", Variables: map[string]any{"text": "x"}}, "")
	require.NoError(t, err)
	require.True(t, free.Downgraded)

	spent := before - deposits()
	require.Equal(t, 2*price+cancelled.Price, spent)
	sums, err := alice.UsageSums(t.Context(), url.Values{"by": {"template,model"}})
	require.NoError(t, err)
	require.Len(t, sums.Sums, 1)
	require.Equal(t, spent, sums.Sums[0].Credits)
}
