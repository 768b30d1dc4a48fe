package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/workflows"
)

// signedInUI serves the Temporal UI at addr as if its users signed in with a provider; otherwise its page deletes their
// tokens.
func signedInUI(t *testing.T, addr string) *httptest.Server {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.ModifyResponse = func(res *http.Response) error {
		if res.Request.URL.Path != "/api/v1/settings" {
			return nil
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		changed := bytes.Replace(body, []byte(`"Auth":{"Enabled":false`), []byte(`"Auth":{"Enabled":true`), 1)
		res.Header.Del("Content-Length")
		res.ContentLength, res.Body = int64(len(changed)), io.NopCloser(bytes.NewReader(changed))
		return nil
	}
	ui := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Header.Del("Accept-Encoding")
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(ui.Close)
	return ui
}

// The Temporal UI passes the token of its sign-in to the codec endpoint, over HTTPS only. Here the browser has the token and
// the endpoint in the UI's storage, and a proxy provides HTTPS.
func TestTemporalUI_CodecEndpoint_ShowsPayloadsToOperators(t *testing.T) { // B7
	t.Parallel()
	s := prepareStack(t, t.TempDir(), withKeys(t, "k1:"+payloadKey("1")))
	addr := freeAddr(t)
	ui := signedInUI(t, addr)
	s.infraSettings = append(s.infraSettings, "BERTH_DEV_ONLY=redis,temporal,ui", "BERTH_TEMPORAL_UI_ADDR="+addr)
	s.settings = append(s.settings, "BERTH_TEMPORAL_UI_URL="+ui.URL)
	t.Cleanup(s.close)
	s.boot()
	alice := s.user("alice")
	acc, err := alice.Submit(t.Context(), client.Submission{
		TaskID: "t1", ServiceID: "career", Template: "job_summary", Variables: map[string]any{"jobText": "harpooner"},
	}, "")
	require.NoError(t, err)
	require.Equal(t, berth.EventDone, watch(t, alice, acc.TaskID, nil).last.Type)
	id := workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: acc.TaskID})
	history := fmt.Sprintf("%s/namespaces/default/workflows/%s/%s/history", ui.URL, url.PathEscape(id), s.runOf(s.temporal(), id))
	target, err := url.Parse("http://" + s.httpAddr)
	require.NoError(t, err)
	secure := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(target))
	t.Cleanup(secure.Close)

	browser := startBrowser(t, chromedp.Flag("ignore-certificate-errors", true))
	open := func(token string) *tab {
		b := openTab(t, browser)
		b.do(chromedp.Navigate(ui.URL))
		b.await("the UI", `document.body.innerText.length > 0`)
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
			localStorage.setItem('endpoint', JSON.stringify(%q));
			localStorage.setItem('passAccessToken', 'true');
			localStorage.setItem('overrideRemoteCodecConfiguration', 'true');
			localStorage.setItem('AuthUser', JSON.stringify({accessToken: %q}));
		}`, secure.URL+"/v1/codec", token)), chromedp.Navigate(history))
		return b
	}
	const field = "serviceId" // of the task's input
	b := open(s.token("op", "operator"))
	b.await("the decrypted input", `document.body.innerText.includes(%s)`, field)
	b.shoot("temporal-ui-decrypted")

	b = open(s.token("alice"))
	b.await("the error of the codec endpoint", `document.body.innerText.includes("Codec Server could not connect")`)
	require.NotContains(t, ask[string](b, `document.body.innerText`), field)
	b.shoot("temporal-ui-encrypted")
}
