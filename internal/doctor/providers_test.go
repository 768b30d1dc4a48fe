package doctor_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/testprovider"
)

// answer is what a provider answers: a status and a body, as the real ones send them.
type answer struct {
	status int
	body   string
}

func (a answer) write(w http.ResponseWriter) {
	if strings.HasPrefix(a.body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	if a.status/100 == 3 {
		w.Header().Set("Location", "https://elsewhere.invalid/")
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

const providerKey = "hidden-key-1234567890"

var (
	// listed and incomplete are the answers of a provider to a correct setup: to the list of models, and to a call without messages.
	listed     = answer{200, `{"object":"list","data":[{"id":"other","object":"model"},{"id":"one-id","object":"model"}]}`}
	incomplete = answer{400, `{"error":{"message":"Missing required parameter: 'messages'.","type":"invalid_request_error","param":"messages","code":"missing_required_parameter"}}`}
	noRoute    = answer{404, "404 page not found\n"}
	wrongKey   = answer{401, `{"error":{"message":"Incorrect API key provided: ` + providerKey + `. You can find your API key at https://platform.test.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`}
)

// provide serves a provider at /v1 and returns the routing file, whose only model has the id one-id. Other paths have no route.
func provide(t *testing.T, list, chat answer) *httptest.Server {
	t.Helper()
	return httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.Method + " " + r.URL.Path {
		case "GET /v1/models":
			list.write(w)
		case "POST /v1/chat/completions":
			if strings.Contains(string(body), "messages") {
				http.Error(w, "the call costs something", http.StatusTeapot)
				return
			}
			chat.write(w)
		default:
			noRoute.write(w)
		}
	}))
}

// routing returns a routing file with one provider and a model of it.
func routing(t *testing.T, baseURL, keySetting string) string {
	t.Helper()
	text := fmt.Sprintf("providers: {acme: {baseURL: %q%s}}\nmodels: {one: {provider: acme, id: one-id}}\nroutes:\n", baseURL, keySetting)
	text += "  default: {paid: one, free: one}\n  vision: {paid: one, free: one}\n"
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const needsKey = ", keySetting: ACME_API_KEY"

// providers returns the findings about a provider at an address.
func providers(t *testing.T, baseURL, keySetting string) []doctor.Finding {
	t.Helper()
	found := run(t, "providers", time.Now, "--redis-addr=127.0.0.1:1", "--routing-file="+routing(t, baseURL, keySetting), "--provider-keys=ACME_API_KEY="+providerKey)
	for _, f := range found {
		require.NotContains(t, f.Text+f.Advice, providerKey)
		t.Logf("%s %s -> %s", f.Level, f.Text, f.Advice)
	}
	return found
}

// The doctor names what is wrong with a provider in its own words, the setting and what to change, without a call that costs something.
func TestRun_Provider_IsTriedWithoutCost(t *testing.T) { // B7
	t.Parallel()
	const (
		id      = "correct id of models.one in the routing file (BERTH_ROUTING_FILE)"
		address = "baseURL of providers.acme in the routing file (BERTH_ROUTING_FILE), which is http://127.0.0.1:"
		key     = "ACME_API_KEY in BERTH_PROVIDER_KEYS"
	)
	json := func(status int, body string) answer { return answer{status, body} }
	page := func(status int, title string) answer {
		return answer{status, "<html>\r\n<head><title>" + title + "</title></head>\r\n<body><h1>" + title + "</h1><hr>nginx</body></html>"}
	}
	for name, c := range map[string]struct {
		list, chat   answer
		level        doctor.Level
		text, advice string
	}{
		"everything right":           {listed, incomplete, doctor.OK, "accepts " + key + "; models, which it lists: one; not checked, because calls cost: credit", ""},
		"no list":                    {noRoute, incomplete, doctor.OK, "models, which it does not list: one", ""},
		"an empty list":              {json(200, `{"object":"list","data":[]}`), incomplete, doctor.OK, "which it does not list: one", ""},
		"a part of the list":         {json(200, `{"data":[{"id":"a"}],"has_more":true}`), incomplete, doctor.OK, "which it does not list: one", ""},
		"list of Google":             {json(200, `{"object":"list","data":[{"id":"models/one-id"}]}`), incomplete, doctor.OK, "which it lists: one", ""},
		"list of Ollama":             {json(200, `{"object":"list","data":[{"id":"one-id:latest"}]}`), incomplete, doctor.OK, "which it lists: one", ""},
		"list of Together":           {json(200, `[{"id":"one-id"}]`), incomplete, doctor.OK, "which it lists: one", ""},
		"FastAPI":                    {listed, json(422, `{"detail":[{"type":"missing","loc":["body","messages"],"msg":"Field required","input":{"model":"one-id","max_tokens":1}}]}`), doctor.OK, "which it lists: one", ""},
		"a server that answers":      {listed, json(200, `{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}`), doctor.OK, "which it lists: one", ""},
		"wrong key":                  {wrongKey, wrongKey, doctor.Error, "status 401: Incorrect API key provided", "correct " + key},
		"wrong key, public list":     {listed, wrongKey, doctor.Error, "status 401: Incorrect API key provided", "correct " + key},
		"wrong key, only text":       {json(401, "Unauthorized"), json(401, "Unauthorized"), doctor.Error, "status 401: Unauthorized", "correct " + key},
		"wrong key in a 200":         {noRoute, json(200, `{"base_resp":{"status_code":1004,"status_msg":"login fail: Please carry the API secret key"}}`), doctor.Error, "login fail", "correct " + key},
		"list refuses the key":       {wrongKey, incomplete, doctor.Warning, "its list of models is refused: status 401", "correct " + key},
		"no rights":                  {listed, json(403, `{"error":{"message":"You do not have access to this project","type":"permission_error"}}`), doctor.Error, "status 403: You do not have access", "check the rights of " + key},
		"no credit":                  {listed, json(402, `{"error":{"message":"Insufficient Balance","type":"unknown_error"}}`), doctor.Error, "status 402: Insufficient Balance", "add credit to the account of " + key},
		"wrong region":               {listed, json(403, `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported"}}`), doctor.Error, "territory not supported", "use another provider"},
		"a proxy in front":           {page(403, "403 Forbidden"), page(403, "403 Forbidden"), doctor.Error, "status 403: 403 Forbidden", "check the network and its proxy"},
		"wrong path":                 {noRoute, noRoute, doctor.Error, "status 404: 404 page not found", "correct " + address},
		"wrong path, JSON":           {json(404, `{"error":"Not Found"}`), json(404, `{"error":"Not Found"}`), doctor.Error, "status 404: Not Found", "correct " + address},
		"wrong path, page":           {page(404, "404 Not Found"), page(404, "404 Not Found"), doctor.Error, "status 404: 404 Not Found", "correct " + address},
		"method not allowed":         {json(200, "<html>"), json(405, `{"detail":"Method Not Allowed"}`), doctor.Error, "status 405: Method Not Allowed", "correct " + address},
		"a web site":                 {page(200, "Welcome"), page(200, "Welcome"), doctor.Error, "a page text/html", "correct " + address},
		"a page with 400":            {page(400, "400 Bad Request"), page(400, "400 Bad Request"), doctor.Error, "status 400: 400 Bad Request", "correct " + address},
		"a redirect":                 {answer{301, ""}, answer{301, ""}, doctor.Error, "status 301", "correct " + address},
		"unknown model":              {json(200, `{"data":[{"id":"two"},{"id":"three"}]}`), json(404, `{"error":{"message":"The model 'one-id' does not exist","type":"invalid_request_error","code":"model_not_found"}}`), doctor.Error, "The model 'one-id' does not exist; its list of models has two, three", id},
		"unknown model, DeepSeek":    {json(200, `{"data":[{"id":"two"}]}`), json(400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}`), doctor.Error, "Model Not Exist; its list of models has two", id},
		"unknown model, no list":     {noRoute, json(404, `{"error":{"message":"model 'one-id' not found","type":"api_error"}}`), doctor.Error, "model 'one-id' not found", "or id of models.one"},
		"model that is not listed":   {json(200, `{"data":[{"id":"two"}]}`), incomplete, doctor.Warning, `no "one-id"; its list of models has two`, "unless the provider serves models that it does not list"},
		"too many calls":             {listed, json(429, `{"error":{"message":"Rate limit reached"}}`), doctor.Warning, "status 429: Rate limit reached", "not checked: run berth doctor again later"},
		"overloaded":                 {listed, json(503, `{"error":{"message":"The server is overloaded"}}`), doctor.Warning, "status 503", "not checked"},
		"fails":                      {listed, json(500, "Internal Server Error"), doctor.Warning, "status 500: Internal Server Error", "not checked"},
		"something else than an API": {noRoute, json(400, "bad request"), doctor.Warning, "status 400: bad request", "not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := provide(t, c.list, c.chat)
			server.Start()
			t.Cleanup(server.Close)
			found := providers(t, server.URL+"/v1/", needsKey)
			has(t, found, c.level, c.text, c.advice)
			require.Len(t, found, map[bool]int{true: 2, false: 1}[name == "list refuses the key"], "%+v", found)
			require.True(t, strings.HasPrefix(found[0].Text, "acme: "))
		})
	}
}

func TestRun_ProviderIsUnreachable_AddressIsNamed(t *testing.T) { // B7
	t.Parallel()
	const address = "correct baseURL of providers.acme in the routing file (BERTH_ROUTING_FILE), which is "
	plain, secure := provide(t, listed, incomplete), provide(t, listed, incomplete)
	plain.Start()
	t.Cleanup(plain.Close)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	for name, c := range map[string]struct{ url, text, advice string }{
		"no server":          {"http://127.0.0.1:1/v1", "connection refused", "or let this host reach it"},
		"unknown host":       {"https://nowhere.invalid/v1", "nowhere.invalid", "its host is not found"},
		"unknown authority":  {secure.URL + "/v1", "certificate signed by unknown authority", "or to SSL_CERT_FILE"},
		"a port without TLS": {strings.Replace(plain.URL, "http:", "https:", 1) + "/v1", "server gave HTTP response to HTTPS client", "the server uses no TLS at this port"},
		"a port with TLS":    {strings.Replace(secure.URL, "https:", "http:", 1) + "/v1", "Client sent an HTTP request to an HTTPS server", ""},
		"path without /v1":   {plain.URL, "status 404", "or id of models.one"},
		"a path too long":    {plain.URL + "/v1/chat/completions", "status 404", "or id of models.one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := providers(t, c.url, needsKey)
			require.Len(t, found, 1)
			has(t, found, doctor.Error, c.text, address+c.url)
			has(t, found, doctor.Error, c.text, c.advice)
		})
	}
	t.Run("a server that loads its model", func(t *testing.T) { // calls wait longer
		t.Parallel()
		found := providers(t, silent.URL, needsKey)
		require.Len(t, found, 1)
		has(t, found, doctor.Warning, "no response in time", "not checked")
	})
}

// A provider that needs no key, or whose key is optional, is tried as well; the model simulator, too.
func TestRun_ProviderWithoutKey_IsTried(t *testing.T) { // B7
	t.Parallel()
	start := func(list, chat answer) string {
		server := provide(t, list, chat)
		server.Start()
		t.Cleanup(server.Close)
		return server.URL + "/v1"
	}
	open, closed := start(listed, incomplete), start(wrongKey, wrongKey)
	has(t, providers(t, open, ""), doctor.OK, open+" accepts calls without a key", "")
	has(t, providers(t, closed, ""), doctor.Error, "status 401", "set keySetting of providers.acme in the routing file")
	has(t, providers(t, closed, ", keySetting: OTHER_API_KEY, keyOptional: true"), doctor.Error, "status 401", "set OTHER_API_KEY")

	args := []string{"--redis-addr=127.0.0.1:1", "--routing-file=" + routing(t, open, ", keySetting: OTHER_API_KEY")}
	has(t, run(t, "providers", time.Now, append(args, "--local-model-url="+open)...), doctor.Warning, `no "one"`, "")
	has(t, run(t, "providers", time.Now, append(args, "--local-model-url=http://127.0.0.1:1")...), doctor.Error, "local simulator: dial tcp", "correct BERTH_LOCAL_MODEL_URL, which is http://127.0.0.1:1")
}

// Each upstream gets a call of one token, and its outcome is named by its cause.
func TestCalls_Upstreams_OutcomeOfEachNamed(t *testing.T) { // G12
	t.Parallel()
	faults := map[string]http.HandlerFunc{
		"fine": nil, "thinks": testprovider.Finish("", "length"), "unpaid": testprovider.Status(402, "insufficient_quota"),
		"busy": testprovider.Status(503, "overloaded"), "keyless": testprovider.Status(401, "invalid_api_key"), "other": testprovider.Status(404, "model_not_found"),
	}
	var list, upstreams strings.Builder
	for name, fault := range faults {
		s := testprovider.Start(t)
		s.Fail(fault)
		fmt.Fprintf(&list, "  %s: {baseURL: %q, keySetting: ACME_API_KEY}\n", name, s.URL)
		fmt.Fprintf(&upstreams, "      - {provider: %s, id: one-id}\n", name)
	}
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte("providers:\n"+list.String()+"models:\n  one:\n    upstreams:\n"+upstreams.String()+
		"  two: {upstreams: [{provider: unpaid}, {provider: busy}]}\n"), 0o600))
	c := settings(t, "--routing-file="+file, "--provider-keys=ACME_API_KEY="+providerKey)
	got := map[string]string{}
	for _, f := range doctor.Calls(t.Context(), c, time.Now) {
		require.NotContains(t, f.Text+f.Advice, providerKey)
		_, rest, _ := strings.Cut(f.Text, ": ")
		name, _, _ := strings.Cut(strings.ReplaceAll(rest, ":", ""), " ")
		if strings.HasPrefix(f.Text, "two") {
			name += " of two"
		}
		got[name] = string(f.Level) + " " + regexp.MustCompile(`answered|\(\w+\)(; other upstreams serve one)?$`).FindString(f.Text)
	}
	require.Equal(t, map[string]string{
		"fine": "ok answered", "thinks": "ok answered", "unpaid": "warning (no_credit); other upstreams serve one", "busy": "warning (overload)",
		"keyless": "warning (invalid_key); other upstreams serve one", "other": "warning (not_found); other upstreams serve one",
		"unpaid of two": "error (no_credit)", "busy of two": "warning (overload)",
	}, got)
}

// A provider that refuses all calls is a warning while the models have others, and providers are tried concurrently.
func TestRun_OneOfSeveralProvidersFails_Warning(t *testing.T) { // G12
	t.Parallel()
	const hanging = 4
	fine := provide(t, answer{200, `{"data":[{"id":"one"}]}`}, answer{400, `{"error":{"message":"messages is required"}}`})
	fine.Start()
	t.Cleanup(fine.Close)
	providers := fmt.Sprintf("  fine: {baseURL: %q}\n  refused: {baseURL: 'http://127.0.0.1:1/v1'}\n", fine.URL+"/v1")
	for i := range hanging {
		s := testprovider.Start(t)
		s.Fail(testprovider.Hang(""))
		providers += fmt.Sprintf("  hanging%d: {baseURL: %q}\n", i, s.URL)
	}
	file := filepath.Join(t.TempDir(), "routing.yaml")
	write := func(upstreams string) []string {
		text := "providers:\n" + providers + "models:\n  one: {upstreams: [" + upstreams + "]}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return []string{"--routing-file=" + file, "--redis-addr=127.0.0.1:1"}
	}
	found := run(t, "providers", time.Now, write("{provider: fine}, {provider: refused}")...)
	require.False(t, doctor.Failed(found), "%+v", found)
	has(t, found, doctor.Warning, "refused: dial tcp 127.0.0.1:1: connect: connection refused; other upstreams serve one", "correct baseURL of providers.refused")
	has(t, found, doctor.OK, "fine: ", "")
	has(t, run(t, "providers", time.Now, write("{provider: refused}")...), doctor.Error, "refused: dial tcp", "correct baseURL")

	began := time.Now()
	found = run(t, "providers", time.Now, write("{provider: hanging0}, {provider: hanging1}, {provider: hanging2}, {provider: hanging3}")...)
	require.Less(t, time.Since(began), 3*10*time.Second, "each of them takes up to 10 s")
	require.Len(t, found, hanging)
	has(t, found, doctor.Warning, "hanging3: ", "run berth doctor again later")
}

// A model that lacks the keys of some upstreams is served by the others, and the doctor names those.
func TestModels_UpstreamWithoutKey_Named(t *testing.T) { // G12
	t.Parallel()
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte("providers: {acme: {baseURL: 'http://127.0.0.1:1/v1', keySetting: ACME_API_KEY}}\nmodels: {one: {upstreams: "+
		"[{provider: acme}, {provider: acme, name: second, keySetting: SECOND_KEY}]}}\n"), 0o600))
	found := run(t, "models", time.Now, "--routing-file="+file, "--provider-keys=ACME_API_KEY="+providerKey)
	require.Len(t, found, 1)
	has(t, found, doctor.Warning, "calls of these models use their other upstreams, because keys are missing: one (second)", "set the keys of these upstreams")
}
