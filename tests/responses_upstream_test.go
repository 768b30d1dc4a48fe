package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth/internal/testprovider"
)

// newResponders is newDurable, with a model m of two upstreams: one that speaks responses, and one of lower rank that speaks only chats.
func newResponders(t *testing.T, settings ...string) (d *durable, chats *testprovider.Server) {
	t.Helper()
	events, chats := testprovider.Start(t), testprovider.Start(t)
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {events: {baseURL: "`+events.URL+`"}, chats: {baseURL: "`+chats.URL+`"}}
models:
  m:
    maxOutputTokens: 1000
    credits: {input: 10, output: 100}
    upstreams: [{provider: events, responses: true, cap: 2}, {provider: chats, cap: 2, rank: 2}]
routes: {default: {paid: m, free: m}}
`), 0o600))
	d = newDurable(t, append(settings, "BERTH_ROUTING_FILE="+file)...)
	d.provider = events
	return d, chats
}

// O8: a durable response has the same events from an upstream that speaks responses and from one that speaks only chats. What the first one fails before
// anything was read, the other one answers, within the same call.
func TestResponses_UpstreamSpeaksThem_SameEventsOrTheOther(t *testing.T) {
	t.Parallel()
	d, chats := newResponders(t)
	for _, p := range []*testprovider.Server{d.provider, chats} {
		p.Answer(testprovider.Write(0, "One", " two"))
	}
	failed := `{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}}`
	var want []string
	for i, fault := range []http.HandlerFunc{nil, testprovider.Status(500, "server_error"), testprovider.Events(failed), testprovider.Cut("")} {
		if fault != nil {
			d.provider.Fail(fault)
		}
		d.resumeModel(t)
		before := chats.Calls.Load()
		for _, more := range []string{`,"stream":true`, `,"background":true,"stream":true`, `,"background":true`, ``} {
			var id string
			if more == "" || more == `,"background":true` {
				id = d.response(t, 200, "POST", "", responseBody(more)).Get("id").Str
				d.eventually("the end", func() bool { return d.response(t, 200, "GET", "/"+id, "").Get("status").Str == "completed" })
			} else {
				streamed := all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(more)))
				id = gjson.Get(streamed[0], "response.id").Str
				require.NotEmpty(t, id, "%v", streamed)
			}
			events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
			numbered(t, events, 0, "response.completed")
			require.Equal(t, "One two", gjson.Get(events[len(events)-1], "response.output.0.content.0.text").Str)
			var shape []string
			for _, e := range events {
				if typ := gjson.Get(e, "type").Str; typ != "response.queued" {
					shape = append(shape, fmt.Sprint(typ, gjson.Get(e, "delta"), gjson.Get(e, "response.usage").Raw))
				}
			}
			if want == nil {
				want = shape
			}
			require.Equal(t, want, shape, "%d: %s", i, more)
		}
		require.Equal(t, fault != nil, chats.Calls.Load() > before)
	}
	require.Positive(t, d.settled(t))
}

// O8: a conversation continues at either upstream.
func TestResponses_ConversationOverBothProtocols_Continued(t *testing.T) {
	t.Parallel()
	d, chats := newResponders(t)
	first := d.response(t, 200, "POST", "", responseBody("")).Get("id").Str
	d.provider.Fail(testprovider.Status(500, "server_error"))
	second := d.response(t, 200, "POST", "", responseBody(`,"previous_response_id":"`+first+`"`)).Get("id").Str
	require.EqualValues(t, 1, chats.Calls.Load())
	d.provider.Fail(nil)
	d.resumeModel(t)
	third := d.response(t, 200, "POST", "", responseBody(`,"previous_response_id":"`+second+`"`))
	require.Equal(t, "completed", third.Get("status").Str)
	d.settled(t)
}

// O7, O8: a response that is cancelled ends the provider's work within a second, and keeps what had arrived.
func TestResponses_CancelledAtUpstreamThatSpeaksThem_EndsWithinSecond(t *testing.T) {
	t.Parallel()
	d, _ := newResponders(t, "BERTH_CALL_HOLD=1ms")
	d.provider.Answer(testprovider.Hang("The beginning"))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	seen := follows(t, d.events(ctx, t, d.httpAddr, "POST", "", responseBody(`,"background":true,"stream":true`)), "The beginning")
	id := gjson.Get(seen[0], "response.id").Str
	require.Equal(t, 1, d.provider.InFlight())
	began := time.Now()
	cancelled := d.response(t, 200, "POST", "/"+id+"/cancel", "")
	d.eventually("the provider's call to end", func() bool { return d.provider.InFlight() == 0 })
	require.Less(t, time.Since(began), 2*time.Second)
	require.Equal(t, "cancelled", cancelled.Get("status").Str)
	require.Contains(t, cancelled.Get("output").Raw, "The beginning")
	events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
	numbered(t, events, 0, "response.cancelled")
	require.Equal(t, seen, events[:len(seen)])
	d.settled(t)
}

// O8: an answer that breaks off is made again if nothing of it was read, at the other upstream too, and fails with what had arrived if something was.
func TestResponses_UpstreamThatSpeaksThemBreaksOff_MadeAgainUnlessRead(t *testing.T) {
	t.Parallel()
	d, chats := newResponders(t)
	for more, status := range map[string]string{"": "completed", `,"stream":true,"background":true`: "failed"} {
		d.resumeModel(t)
		d.provider.Fail(testprovider.Cut("One"))
		before := chats.Calls.Load()
		var id string
		if status == "failed" {
			id = gjson.Get(all(d.events(t.Context(), t, d.httpAddr, "POST", "", responseBody(more)))[0], "response.id").Str
		} else {
			id = d.response(t, 200, "POST", "", responseBody(more)).Get("id").Str
		}
		events := all(d.events(t.Context(), t, d.httpAddr, "GET", "/"+id+"?stream=true", ""))
		numbered(t, events, 0, "response."+status)
		text := ""
		for _, e := range events {
			text += gjson.Get(e, "delta").Str
		}
		require.Equal(t, map[string]string{"completed": testprovider.Text, "failed": "One"}[status], text)
		require.Equal(t, status == "completed", chats.Calls.Load() > before)
	}
	d.settled(t)
}
