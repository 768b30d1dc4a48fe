//go:build faults

package tests

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// The configurations that an operator begins with: those of nginx's guide, and Debian's haproxy.cfg.
const (
	plainNginx       = "server { listen 127.0.0.1:443; location / { proxy_pass http://127.0.0.1:8080; } }\n"
	plainNginxPrefix = "upstream berth { server 127.0.0.1:8080; }\nserver { listen 127.0.0.1:443; location /berth/ { proxy_pass http://berth/; } }\n"
	plainHAProxy     = "defaults\n mode http\n option dontlognull\n timeout connect 5000\n timeout client 50000\n timeout server 50000\n" +
		"frontend f\n bind :443\n default_backend b\nbackend b\n server s 127.0.0.1:8080\n"
)

// FI6: the page, event streams, uploads and participants work behind real proxies, with the configurations of the guide and with those that
// an operator begins with; what these do not forward is named.
func TestProxy_RealProxies_EverythingWorksOrIsNamed(t *testing.T) {
	t.Parallel()
	early := newHold("## Item by item\n")
	s := newStack(t, withParticipants(), func(s *stack) { s.model.Config.Handler = holding(s.model.Config.Handler, []*hold{early}) })
	s.user("alice")
	op := client.New("http://"+s.httpAddr, s.token("op", "operator"))
	_, err := op.PutPool(t.Context(), berth.Pool{ID: "eu/west", Capabilities: []string{"translate:en-es"}})
	require.NoError(t, err)
	task := submitMatch(t, s.user("alice"), berth.LocaleEN, "").TaskID
	early.wait(t)
	s.mediaUnit("u1", 5)
	m := s.conferences()
	m.open("8635000011")
	browser := startBrowser(t, chromedp.Flag("ignore-certificate-errors", true))

	for name, c := range map[string]struct{ program, config, prefix string }{
		"nginx":                       {"nginx", recipe(t, "nginx", false), ""},
		"nginx, prefix":               {"nginx", recipe(t, "nginx", true), "/berth"},
		"nginx with defaults":         {"nginx", plainNginx, ""},
		"nginx with defaults, prefix": {"nginx", plainNginxPrefix, "/berth"},
		"HAProxy":                     {"haproxy", recipe(t, "haproxy", false), ""},
		"HAProxy, prefix":             {"haproxy", recipe(t, "haproxy", true), "/berth"},
		"HAProxy with defaults":       {"haproxy", plainHAProxy, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.reverseProxy(t, c.program, c.config, c.prefix)
			t.Run("tokens", func(t *testing.T) { tokensArriveAtOnce(t, p, task) })
			t.Run("calls", func(t *testing.T) { callsArriveAsSent(t, p, c.config == plainNginxPrefix) })
			t.Run("upload", func(t *testing.T) { largeUpload(t, p) })
			t.Run("page", func(t *testing.T) { pageBehind(t, p, openTab(t, browser), task) })
			if !p.limited {
				t.Run("participant", func(t *testing.T) {
					participantBehind(t, p, m, openTab(t, browser), "8635000011", strings.ReplaceAll(name, " ", "-"))
				})
			}
			if c.prefix != "" {
				t.Run("outage", func(t *testing.T) { outageIsNamed(t, p, openTab(t, browser), task) })
			}
		})
	}
	close(early.release)
}

// tokensArriveAtOnce reads the tokens that the model has sent so far, while its answer has not ended, also where the client accepts gzip.
func tokensArriveAtOnce(t *testing.T, p *reverseProxy, task string) {
	for _, encoding := range []string{"identity", "gzip"} {
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		res := p.get(ctx, "/v1/tasks/"+task+"/events", p.s.token("alice"), "Accept-Encoding", encoding)
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Empty(t, res.Header.Get("Content-Encoding"))
		if p.ca != nil {
			require.Equal(t, 2, res.ProtoMajor, "HTTP/2")
		}
		lines, found := bufio.NewScanner(res.Body), false
		lines.Buffer(nil, 1<<20)
		for !found && lines.Scan() {
			found = strings.Contains(lines.Text(), "Item by item")
		}
		require.True(t, found, "the tokens before the pause: %v", lines.Err())
		cancel()
	}
}

// callsArriveAsSent checks what proxies change: encoded ids, paths, the addresses in responses.
func callsArriveAsSent(t *testing.T, p *reverseProxy, decodes bool) {
	operator := p.s.token("op", "operator")
	res := p.get(t.Context(), "/v1/pools/eu%2Fwest", operator)
	require.Equal(t, http.StatusOK, res.StatusCode, text(t, res))
	want := http.StatusOK
	if decodes {
		want = http.StatusNotFound // as the guide states
	}
	res = p.get(t.Context(), "/v1/accounts/a%2Fb/entries", operator)
	require.Equal(t, want, res.StatusCode, text(t, res))
	require.Equal(t, http.StatusOK, p.get(t.Context(), "/v1/audit?userId=a%7Cb%2Fc%20d", operator).StatusCode)

	out, err := p.berth(p.s.token("alice"), "task", "list")
	require.NoError(t, err, out)
	require.Contains(t, out, "job_match")

	res = p.get(t.Context(), "/nothing/here", "", "Accept", "text/html")
	require.Equal(t, http.StatusNotFound, res.StatusCode)
	require.Contains(t, text(t, res), `<a href="../">`)
	require.Contains(t, text(t, p.get(t.Context(), "/openapi.yaml", "")), "\n    url: .\n")
}

// largeUpload sends a document of 10 MB, whose text is short.
func largeUpload(t *testing.T, p *reverseProxy) {
	file := filepath.Join(t.TempDir(), "large.png")
	content := append(example(t, "posting-en.png"), make([]byte, 10<<20-len(example(t, "posting-en.png"))-1000)...)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "large.png")
	require.NoError(t, err)
	_, err = part.Write(content)
	require.NoError(t, err)
	require.NoError(t, form.Close())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.base+"/v1/assets", &body)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+p.s.token("alice"))
	req.Header.Set("Content-Type", form.FormDataContentType())
	res, err := p.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	if p.limited {
		require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
		_, err := client.New(p.base, p.s.token("alice")).Upload(t.Context(), "large.png", content)
		require.Equal(t, berth.CodeTooLarge, problem(t, err).Code)
		require.ErrorContains(t, err, "client_max_body_size")
		out, err := p.berth(p.s.token("alice"), "task", "submit", "--template", "job_match", "--var", "jobImage=@"+file, "--var", "resume=@../examples/resume-en.txt")
		require.Error(t, err)
		require.Contains(t, out, "client_max_body_size")
		return
	}
	require.Equal(t, http.StatusCreated, res.StatusCode, text(t, res))
	location, err := res.Location()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(location.String(), p.base+"/v1/assets/"), location.String())
}

// pageBehind opens the page as a user who leaves out the slash, and reloads each view.
func pageBehind(t *testing.T, p *reverseProxy, b *tab, task string) {
	user := p.s.token("alice", "user", "operator")
	b.do(chromedp.Navigate(p.base + "#token=" + user))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('alice')`)
	require.True(t, strings.HasPrefix(ask[string](b, `location.href`), p.base+"/#"))
	views := map[string]string{
		"#/":                   `document.querySelectorAll('input[name="template"]').length > 0`,
		"#/tasks":              `document.querySelector('a[href="#/tasks/` + task + `"]') !== null`,
		"#/tasks/" + task:      `document.querySelector('.prose')?.textContent.includes('Item by item')`,
		"#/console":            `document.querySelector('.pane h1') !== null`,
		"#/console/models":     `document.querySelector('[aria-labelledby="m-deepseek-chat"]') !== null`,
		"#/credits":            `document.querySelector('h1') !== null && location.hash === '#/credits'`,
		"index.html#/tasks":    `document.querySelector('a[href="#/tasks/` + task + `"]') !== null`,
		"?utm_source=a/b#/":    `document.querySelectorAll('input[name="template"]').length > 0`,
		"#/conferences/863500": `document.querySelector('h1') !== null`,
	}
	for hash, condition := range views {
		if hash != "#/tasks" && strings.HasSuffix(p.base, p.addr) { // all views where there is a prefix
			continue
		}
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.base+"/"+hash))
		b.await(hash, condition)
		b.do(chromedp.Reload())
		b.await(hash+" after a reload", condition)
	}
	b.complaint() // of 404 for the conference that does not exist
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(p.base+"/#/tasks/"+task))
	b.await("the live task", `document.querySelector('.prose.live') !== null`)
	b.quiet()
	require.Equal(t, []string{}, ask[[]string](b, `performance.getEntriesByType('resource').map((e) => e.name).filter((a) => !a.startsWith(`+fmt.Sprintf("%q", p.base+"/")+`))`),
		"every address begins at the page's own")
	if !p.limited {
		return
	}
	file := filepath.Join(t.TempDir(), "large.png")
	require.NoError(t, os.WriteFile(file, append(example(t, "posting-en.png"), make([]byte, 5<<20)...), 0o600))
	b.do(chromedp.Navigate(p.base+"/#/"), chromedp.Click(`input[name="template"][value="job_match"]`),
		chromedp.SetUploadFiles(`.sheet:has(#field-jobText) input[type="file"]`, []string{file}))
	b.await("the limit of the proxy", `document.body.textContent.includes('client_max_body_size')`)
	b.complaint()
}

// participantBehind connects a real participant through the proxy, with the address that the client returns, and the WebSocket of one on the
// page, whose policy permits it.
func participantBehind(t *testing.T, p *reverseProxy, m *conferences, b *tab, number, name string) {
	address := strings.Replace(p.base, "http", "ws", 1)
	a := m.admit(number, name)
	if p.ca == nil {
		var err error
		a, err = client.New(p.base+"/", p.s.token("alice")).AddParticipant(t.Context(), number, client.ParticipantSpec{Identity: name})
		require.NoError(t, err)
		require.Equal(t, address, a.URL)
	}
	all := p.s.participants(p.environment()...)
	all.join(name, address, a.Token, true)
	all.await(name, "joined", 1)

	page := m.admit(number, name+"-page")
	b.do(chromedp.Navigate(p.base + "/"))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		window.signalled = 0;
		const socket = new WebSocket(%q);
		socket.binaryType = 'arraybuffer';
		socket.onmessage = () => window.signalled++;
	}`, address+"/rtc?access_token="+page.Token+"&protocol=15&auto_subscribe=1&sdk=js&version=2.15.0")))
	b.await("the first message of the media server", `window.signalled > 0`)
	b.quiet()
}

// outageIsNamed stops the API: the proxy answers with an error page of its own, which streams survive.
func outageIsNamed(t *testing.T, p *reverseProxy, b *tab, task string) {
	b.do(chromedp.Navigate(p.base + "/#token=" + p.s.token("alice")))
	b.await("the sign-in", `document.querySelector('.who')?.textContent.includes('alice')`)
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/tasks/` + task + `' }`))
	b.await("the live task", `document.querySelector('.prose.live')?.textContent.includes('Item by item')`)
	p.s.api.kill()
	stopped := true
	defer func() {
		if stopped { // for the next proxy
			p.s.startAPI()
		}
	}()
	out, err := p.berth(p.s.token("alice"), "task", "list")
	require.Error(t, err)
	require.Regexp(t, `the proxy at https?://127\.0\.0\.1:\d+ has no response of berth: it responded to GET (/berth)?/v1/tasks with 50[234] .*\(text/html\)`, out)
	require.NotContains(t, out, "<html")
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/tasks' }`))
	b.await("the reason", `document.body.textContent.includes('The proxy in front of the server has no answer from it')`)
	p.s.startAPI()
	stopped = false
	b.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/tasks/` + task + `' }`))
	b.await("the live task again", `document.querySelector('.prose.live')?.textContent.includes('Item by item')`)
}
