package tests

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth/internal/identity"
	"berth/internal/testprovider"
)

// open sends a request without a key, as a browser does, and returns the response. header has names and values.
func (d *durable) open(ctx context.Context, t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.httpAddr+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func bodyOf(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}

// O8: a ticket of a response, which the key makes that has made the response, reads it for some seconds without the key, and does nothing else.
func TestResponses_Ticket_ReadsOneResponse(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(0, "One", " two"))
	ended := d.readAll(t, d.response(t, 200, "POST", "", responseBody("")).Get("id").Str)
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	running := d.inBackground(t, "m")

	issued := d.response(t, 200, "POST", "/"+ended.id+"/ticket", "")
	require.Equal(t, []string{"response.ticket", ended.id}, []string{issued.Get("object").Str, issued.Get("id").Str})
	require.WithinDuration(t, time.Now(), time.Unix(issued.Get("expires_at").Int(), 0), time.Minute)
	query := "?ticket=" + issued.Get("ticket").Str
	path := "/openai/v1/responses/" + ended.id
	require.Equal(t, ended.whole, bodyOf(t, d.open(t.Context(), t, "GET", path+query)))
	var events, rest []string
	for _, to := range []struct {
		url  string
		list *[]string
	}{{issued.Get("url").Str, &events}, {issued.Get("url").Str + "&starting_after=2", &rest}} {
		for line := range strings.Lines(bodyOf(t, d.open(t.Context(), t, "GET", to.url))) {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				*to.list = append(*to.list, strings.TrimSpace(data))
			}
		}
	}
	require.Equal(t, ended.events, events)
	require.Equal(t, ended.events[3:], rest)

	for name, secret := range map[string]string{"another key": d.newKeyHolder(t, "other", "durable").secret, "a user": d.token("alice", "models")} {
		require.Equal(t, 404, d.open(t.Context(), t, "POST", path+"/ticket", "Authorization", "Bearer "+secret).StatusCode, name)
	}
	own := identity.Tickets{Secrets: identity.Secrets{secret}, TTL: 5 * time.Second}
	issue := func(kind identity.TicketKind, id string, at time.Time) string {
		own.Clock = func() time.Time { return at }
		ticket, _, err := own.Issue(identity.Principal{UserID: d.keyID}, kind, id)
		require.NoError(t, err)
		return "?ticket=" + ticket
	}
	for _, refused := range []struct{ method, path string }{
		{"POST", path + "/ticket"},
		{"GET", path},
		{"GET", "/openai/v1/responses/" + running + query},
		{"GET", path + "/input_items" + query},
		{"POST", path + "/cancel" + query},
		{"POST", path + "/ticket" + query},
		{"DELETE", path + query},
		{"POST", "/openai/v1/responses" + query},
		{"GET", "/openai/v1/models" + query},
		{"GET", "/v1/tasks/" + ended.id + "/events" + query},
		{"GET", path + issue(identity.TicketTask, ended.id, time.Now())},
		{"GET", path + issue(identity.TicketResponse, ended.id, time.Now().Add(-time.Minute))},
	} {
		require.Equal(t, http.StatusUnauthorized, d.open(t.Context(), t, refused.method, refused.path).StatusCode, "%s %s", refused.method, refused.path)
	}
	for _, header := range []string{issued.Get("ticket").Str, "sk-berth-wrong"} {
		require.Equal(t, http.StatusUnauthorized, d.open(t.Context(), t, "GET", path+query, "Authorization", "Bearer "+header).StatusCode)
	}

	soon := issue(identity.TicketResponse, running, time.Now())
	stream := d.open(t.Context(), t, "GET", "/openai/v1/responses/"+running+soon+"&stream=true")
	require.Equal(t, http.StatusOK, stream.StatusCode)
	d.eventually("the ticket to expire", func() bool {
		return d.open(t.Context(), t, "GET", "/openai/v1/responses/"+running+soon).StatusCode == http.StatusUnauthorized
	})
	close(free)
	require.Contains(t, bodyOf(t, stream), "response.completed", "an open stream continues")
	revoked := d.newKeyHolder(t, "research", "durable")
	of := &durable{stack: d.stack, keyHolder: revoked}
	gone := of.response(t, 200, "POST", "/"+of.response(t, 200, "POST", "", responseBody("")).Get("id").Str+"/ticket", "").Get("url").Str
	require.Equal(t, http.StatusOK, d.open(t.Context(), t, "GET", gone).StatusCode)
	require.NoError(t, d.operator().RevokeKey(t.Context(), revoked.keyID))
	require.Equal(t, http.StatusUnauthorized, d.open(t.Context(), t, "GET", gone).StatusCode)
	d.response(t, 200, "DELETE", "/"+ended.id, "")
	require.Equal(t, http.StatusNotFound, d.open(t.Context(), t, "GET", path+query).StatusCode)
	d.settled(t)
}

// O8: the recipe of a page, as users run it: it is reloaded in mid-answer, loses its connection, and shows the same text. The browser gets no API key, and
// another one gets nothing.
func TestExamples_PageReloadedInMidAnswer_SameText(t *testing.T) {
	t.Parallel()
	installExamples(t)
	addr := freeAddr(t)
	d := newDurable(t, "BERTH_CALL_HOLD=1ms", "BERTH_CORS_ORIGINS=http://"+addr)
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	script, err := filepath.Abs("../examples/openai/page/server.mjs")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	d.awaitOutput(d.runExample(t, []string{"PORT=" + port}, "node", script), "open http")

	browser := startBrowser(t)
	b := openTab(t, browser)
	shows := func(text string) {
		t.Helper()
		b.await(text, `!window.old && document.querySelector('article')?.textContent === %s`, text)
	}
	reload := func() {
		t.Helper()
		b.do(chromedp.Evaluate[chromedp.Void](`{ window.old = true; location.reload() }`))
	}
	b.do(chromedp.Navigate("http://"+addr+"/"), chromedp.Click("form button"))
	shows("The beginning")
	reload()
	shows("The beginning")
	d.api.kill()
	d.startAPI()
	close(free)
	shows("The beginning and the end.")
	b.await("its status", `document.querySelector('[role=status]').textContent === 'completed'`)
	id := ask[string](b, `location.hash.slice(1)`)
	require.Equal(t, "The beginning and the end.", d.response(t, 200, "GET", "/"+id, "").Get("output.0.content.0.text").Str)
	reload()
	shows("The beginning and the end.")
	require.NotContains(t, ask[string](b, `document.documentElement.outerHTML + JSON.stringify([performance.getEntries(), { ...localStorage }, { ...sessionStorage }, document.cookie])`), d.secret)

	other := openTab(t, browser)
	other.do(chromedp.Navigate("http://" + addr + "/#" + id))
	other.await("the refusal", `document.querySelector('[role=status]').textContent.includes('404')`)
	require.Empty(t, ask[string](other, `document.querySelector('article').textContent`))
	require.EqualValues(t, 1, d.provider.Calls.Load())
	d.settled(t)
}
