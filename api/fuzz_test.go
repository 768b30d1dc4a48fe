package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/identity"
	"berth/internal/llm"
	"berth/internal/testtemplate"
)

// oddities are values that no endpoint may fail on.
func oddities() []any {
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	return []any{
		nil, true, 0, -1, 1e308, "", " ", "a", "../../etc/passwd", "a\x00b", "\u202e", "'; DROP TABLE tasks; --", "<script>",
		strings.Repeat("x", 100_000),
		[]any{},
		[]any{nil},
		doc{},
		doc{"assetId": nil},
		doc{"assetId": doc{}},
		doc{"$ref": "#"},
		json.RawMessage(deep), json.RawMessage(`1e999`), json.RawMessage(`{"a":1,"a":2}`), "t1", "alice", "2026-01-01T00:00:00Z",
	}
}

// fuzzer makes requests from the OpenAPI description.
type fuzzer struct {
	rng  *rand.Rand
	spec doc
	odd  []any
}

func (f *fuzzer) pick() any { return f.odd[f.rng.IntN(len(f.odd))] }

// value returns a value that mostly matches the schema.
func (f *fuzzer) value(schema doc, depth int) any {
	if ref, ok := schema["$ref"].(string); ok {
		parts := strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		at := f.spec
		for _, p := range parts {
			at, _ = at[p].(doc)
		}
		schema = at
	}
	if f.rng.IntN(5) == 0 || depth > 5 {
		return f.pick()
	}
	if enum, ok := schema["enum"].([]any); ok {
		return enum[f.rng.IntN(len(enum))]
	}
	if one, ok := schema["oneOf"].([]any); ok {
		s, _ := one[f.rng.IntN(len(one))].(doc)
		return f.value(s, depth+1)
	}
	switch schema["type"] {
	case "object":
		out := doc{}
		props, _ := schema["properties"].(doc)
		for name, p := range props {
			if s, ok := p.(doc); ok && f.rng.IntN(6) > 0 {
				out[name] = f.value(s, depth+1)
			}
		}
		if more, ok := schema["additionalProperties"].(doc); ok {
			for _, name := range []string{"resume", "jobText", "jobImage", "notes", "odd"} {
				if f.rng.IntN(3) == 0 {
					out[name] = f.value(more, depth+1)
				}
			}
		}
		if f.rng.IntN(10) == 0 {
			out["extra"] = f.pick()
		}
		return out
	case "integer", "number":
		return f.rng.IntN(200) - 50
	default:
		return []any{"t1", "svc", "alice", "some text"}[f.rng.IntN(4)]
	}
}

func (f *fuzzer) text() string {
	v := f.pick()
	if raw, ok := v.(json.RawMessage); ok {
		v = string(raw)
	}
	s := fmt.Sprint(v)
	return s[:min(len(s), 3000)]
}

// printable removes what the HTTP client itself would reject.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

func (f *fuzzer) path(path string, op doc) string {
	path = braces.ReplaceAllStringFunc(path, func(name string) string {
		if f.rng.IntN(2) == 0 {
			return url.PathEscape(f.text())
		}
		if name == "{e164}" {
			return "8613800000001"
		}
		return "t1"
	})
	q := url.Values{}
	params, _ := op["parameters"].([]any)
	for _, p := range params {
		if d, ok := p.(doc); ok && d["in"] == "query" && f.rng.IntN(2) == 0 {
			name, _ := d["name"].(string)
			q.Add(name, f.text())
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// body returns JSON that mostly matches, or is truncated, garbled or of another type.
func (f *fuzzer) body(op doc) (content, mediaType string) {
	kinds, _ := dig(op, "requestBody", "content")
	for mediaType, k := range kinds {
		if mediaType != "application/json" {
			return f.text(), mediaType + "; boundary=x"
		}
		d, _ := k.(doc)
		schema, _ := d["schema"].(doc)
		b, err := json.Marshal(f.value(schema, 0))
		if err != nil {
			b = []byte(`{`)
		}
		content = string(b)
		if f.rng.IntN(10) == 0 {
			content = content[:f.rng.IntN(len(content))]
		}
	}
	if f.rng.IntN(10) == 0 {
		return content, []string{"", "text/plain", "application/json; charset=utf-16", "+;", "application/cbor"}[f.rng.IntN(5)]
	}
	return content, "application/json"
}

func dig(d doc, path ...string) (doc, bool) {
	for _, p := range path {
		next, ok := d[p].(doc)
		if !ok {
			return nil, false
		}
		d = next
	}
	return d, true
}

func TestServer_RandomRequests_NeverFail(t *testing.T) { // P14
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "answer")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	spec := h.do(h.request(http.MethodGet, "/openapi.json", "", nil)).json(t)
	require.NoError(t, h.ledger.SaveConference(t.Context(), berth.Conference{
		ID: "c-1", UserID: "alice", Status: berth.ConferenceEnded, ConferenceSpec: berth.ConferenceSpec{E164: "8613800000001"},
	}))
	f := &fuzzer{rng: rand.New(rand.NewPCG(seed, 1)), spec: spec, odd: oddities()}
	h.join("t1", with("maxConcurrentJobs", 1000))
	paths, _ := spec["paths"].(doc)
	catalog, err := llm.LoadCatalog("")
	require.NoError(t, err)
	const perOperation = 120
	statuses := map[int]int{}
	for path, item := range paths {
		ops, _ := item.(doc)
		for method, o := range ops {
			op, _ := o.(doc)
			for _, model := range catalog.UsedModels(testtemplate.All()) { // as workers do
				require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{berth.ModelTaskQueue(model)}))
			}
			token := h.token("alice", identity.ScopeUser, identity.ScopeNode, identity.ScopeOperator)
			if path == "/v1/sessions/{id}/events" || path == "/v1/events" { // the events never end: use a user without a session or the scope
				token = h.token("eve")
			}
			for range perOperation {
				target := f.path(path, op)
				content, mediaType := f.body(op)
				req := h.request(strings.ToUpper(method), target, token, strings.NewReader(content), "Content-Type", mediaType)
				for _, name := range []string{"Idempotency-Key", "Last-Event-ID", "Accept", "X-Request-Id", "traceparent"} {
					if f.rng.IntN(4) == 0 {
						req.Header.Set(name, printable(f.text()))
					}
				}
				a := h.do(req)
				statuses[a.status]++
				if a.problem.Code == berth.CodeNodeFull || a.problem.Code == berth.CodeNoNode {
					continue // the fleet is full: 503 is correct
				}
				require.Less(t, a.status, 500, "seed %d: %s %s %.200s: %s", seed, method, target, content, a.body)
				if a.status >= 400 {
					require.Equal(t, a.status, a.problem.Status, "seed %d: %s %s: %s", seed, method, target, a.body)
				}
				if a.status == http.StatusAccepted && path == "/v1/tasks" { // the events of an open task would never end
					id, _ := a.json(t)["taskId"].(string)
					h.finish(berth.Task{TaskPlan: berth.TaskPlan{TaskRequest: berth.TaskRequest{ID: id}, UserID: "alice"}}, "answer")
				}
				drainCancels(h)
			}
		}
	}
	t.Logf("responses by status: %v", statuses)
	require.NotContains(t, h.log.String(), `"level":"ERROR"`)
}

func drainCancels(h *harness) {
	select {
	case <-h.starter.cancels:
	default:
	}
}

func TestServer_OversizedRequest_IsRejected(t *testing.T) { // P14
	t.Parallel()
	h := newHarness(t)
	eleven := strings.Repeat("a", 11<<20)
	token := h.token("alice")
	for name, body := range map[string]io.Reader{
		"with its length": strings.NewReader(eleven),
		"chunked":         io.MultiReader(strings.NewReader(`{"serviceId": "`), strings.NewReader(eleven)),
	} {
		for _, path := range []string{"/v1/tasks", "/v1/tickets"} {
			a := h.do(h.request(http.MethodPost, path, token, body, "Content-Type", "application/json"))
			require.Equal(t, http.StatusRequestEntityTooLarge, a.status, "%s %s", name, path)
			require.Equal(t, "too_large", string(a.problem.Code))
			body = strings.NewReader(eleven)
		}
	}
	body, ct := form(t, "file", "big.txt", []byte(eleven))
	a := h.do(h.request(http.MethodPost, "/v1/assets", token, io.MultiReader(body), "Content-Type", ct))
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status, "chunked upload")

	a = h.do(h.request(http.MethodGet, "/v1/me", token, nil, "X-Long", strings.Repeat("a", 100_000)))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, a.status)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/me", token, nil).status)
}

// A client that reads nothing until it has sent everything, as most do, reads why its request was refused.
func TestServer_RefusedBeforeItsBodyWasRead_ClientReadsWhy(t *testing.T) { // P14
	t.Parallel()
	h := newHarness(t)
	const size = 20 << 20
	for name, c := range map[string]struct {
		path, token, mediaType string
		status                 int
	}{
		"too large":  {"/v1/tasks", h.token("alice"), "application/json", http.StatusRequestEntityTooLarge},
		"upload":     {"/v1/assets", h.token("alice"), "multipart/form-data; boundary=x", http.StatusRequestEntityTooLarge},
		"no token":   {"/v1/tasks", "", "application/json", http.StatusUnauthorized},
		"media type": {"/v1/assets", h.token("alice"), "image/png", http.StatusUnsupportedMediaType},
	} {
		for _, chunked := range []bool{false, true} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
			require.NoError(t, err)
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n", c.path, c.token, c.mediaType)
			start := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
			body := start + strings.Repeat("a", size-len(start))
			if chunked {
				_, err = fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, size, body)
			} else {
				_, err = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, size, body)
			}
			require.NoError(t, err, "%s: the server reads what is sent", name)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, name)
			require.Equal(t, c.status, res.StatusCode, name)
			require.True(t, res.Close, "the connection is not used again")
			b, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Contains(t, string(b), `"requestId"`)
			require.NoError(t, conn.Close())
		}
	}

	// A client that waits for 100 Continue gets the refusal instead, and sends nothing.
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", h.token("alice"), size)
	require.NoError(t, err)
	b, err := io.ReadAll(conn)
	require.NoError(t, err, "the server closes the connection")
	require.True(t, bytes.HasPrefix(b, []byte("HTTP/1.1 413 ")), string(b))
	require.NoError(t, conn.Close())
}

func TestServer_SlowBody_TimesOut(t *testing.T) { // P14
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.BodyTimeout = 100 * time.Millisecond })
	for _, path := range []string{"/v1/tasks", "/v1/assets"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000\r\n\r\n--x\r\n", path, h.token("alice"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		b, err := io.ReadAll(conn)
		require.NoError(t, err, "the connection is closed")
		require.True(t, bytes.HasPrefix(b, []byte("HTTP/1.1 408 ")), string(b))
		require.NoError(t, conn.Close())
	}
}
