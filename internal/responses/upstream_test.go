package responses

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth/internal/llm"
	"berth/internal/openai"
)

// asUpstream changes events of berth to those of an upstream, which has ids and numbers of its own.
var asUpstream = strings.NewReplacer(`"resp_abc"`, `"resp_upstream"`, `_abc_`, `_up_`, `"model":"large"`, `"model":"large-1"`, `"created_at":7`, `"created_at":9`,
	`"service_tier":"flex"`, `"service_tier":"default"`, `"sequence_number":`, `"obfuscation":"xyz","sequence_number":1`)

// upstreamEvents returns the events of a kind as an upstream sends them, without the one that states a failure or that it was cancelled.
func (k kind) upstreamEvents() (events []string) {
	for line := range strings.Lines(k.events()) {
		if typ := gjson.Get(line, "type").Str; k.err == nil && !k.cancel || !terminal(typ) {
			events = append(events, asUpstream.Replace(strings.TrimSpace(line)))
		}
	}
	return events
}

// serve answers with the kind, as events or as a chat, and breaks off if the kind is a failure. left is called when the client of one that is cancelled,
// without having read anything, leaves.
func (k kind) serve(w http.ResponseWriter, r *http.Request, left func()) {
	if k.err != nil && k.err.Status == http.StatusBadRequest {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if strings.HasSuffix(r.URL.Path, "/responses") {
		for _, e := range k.upstreamEvents() {
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", gjson.Get(e, "type").Str, e)
		}
	} else {
		for _, c := range k.chunks {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", c)
		}
	}
	w.(http.Flusher).Flush()
	switch {
	case k.cancel:
		if k.chunks == nil {
			left()
		}
		<-r.Context().Done()
	case k.err != nil:
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

// made is a response that an upstream has made.
type made struct {
	events  string
	usage   llm.Result
	cause   llm.Cause
	request []string // path and body
}

// make makes the response of a request. setting is a field of the model.
func (k kind) make(t *testing.T, setting string) (m made) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	requests := make(chan []string, 2) // a request that is refused is made again without stream_options
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- []string{r.URL.Path, string(body)}
		k.serve(w, r, leave)
	}))
	defer server.Close()
	content, err := llm.ParseContent("routing.yaml", "providers: {p: {baseURL: \""+server.URL+"\"}}\nmodels: {large: {provider: p, id: large-1"+setting+"}}\n")
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	r := k.parsed()
	request, err := r.Forwarded(nil)
	require.NoError(t, err)
	call := request.Call("large", llm.Shown{ID: head.ID, Created: head.Created, ServiceTier: head.ServiceTier})
	var l log
	w := NewWriter(r, head, l.add)
	began := false
	begin := func() error {
		if began {
			return nil
		}
		began = true
		return begun(w)
	}
	client := llm.NewClient(llm.Fixed(catalog), nil, slog.New(slog.DiscardHandler))
	m.usage, err = client.Forward(ctx, call, func(object []byte) error {
		if err := begin(); err != nil {
			return err
		}
		err := w.Take(object)
		if k.cancel && strings.Contains(l.String(), `"delta":"lo"`) { // the last one
			leave()
		}
		return err
	})
	m.request = <-requests
	m.usage.FirstToken, m.usage.Took = 0, 0
	require.NoError(t, begin())
	switch {
	case k.cancel:
		require.Error(t, err)
		require.NoError(t, w.Cancel())
	case err != nil:
		var failed *llm.CallError
		require.ErrorAs(t, err, &failed)
		m.cause = failed.Cause
		require.NoError(t, w.End(openai.ErrorOf(err)))
	default:
		require.NoError(t, w.End(nil))
	}
	m.events = l.String()
	return m
}

// An upstream that speaks responses and one that speaks only chats give the same events, through the client that calls them, and the same usage.
func TestForwarded_EachKindFromBothUpstreams_SameEvents(t *testing.T) { // O8
	t.Parallel()
	require.GreaterOrEqual(t, len(kinds), 49)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			byChat, byEvents := k.make(t, ""), k.make(t, ", responses: true")
			require.Equal(t, "/chat/completions", byChat.request[0])
			require.Equal(t, "/responses", byEvents.request[0])
			require.Equal(t, "large-1", gjson.Get(byEvents.request[1], "model").Str)
			if k.name == "nothing" { // with which only a response can end
				require.Equal(t, llm.CauseEmpty, byChat.cause)
			} else {
				require.Equal(t, byChat.events, byEvents.events)
				if k.chunks != nil || !k.cancel { // else the provider is left before the header of its response has arrived, or after that
					require.Equal(t, byChat.usage, byEvents.usage)
				}
				require.Equal(t, byChat.cause, byEvents.cause)
			}
			last := requireRules(t, byEvents.events)
			requireDecodes(t, byEvents.events)
			require.Equal(t, k.last, last.Get("type").Str)
		})
	}
}

// A provider that does not stream gives the events of a stream.
func TestForwarded_WholeResponse_EventsOfAStream(t *testing.T) { // O8
	t.Parallel()
	for _, k := range kinds {
		if k.err != nil || k.cancel {
			continue
		}
		response := Final([]byte(k.events()))
		var l log
		w := NewWriter(k.parsed(), head, l.add)
		require.NoError(t, begun(w))
		require.NoError(t, w.Take([]byte(asUpstream.Replace(`{"type":"response.`+gjson.GetBytes(response, "status").Str+`","response":`+string(response)+`}`))))
		require.NoError(t, w.End(nil))
		last := requireRules(t, l.String())
		requireDecodes(t, l.String())
		require.JSONEq(t, string(response), last.Get("response").Raw, k.name)
	}
}
