package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

const recordSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of a server that runs only during the test

// recordServer receives detail records.
type recordServer struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	ids    []string
	events []berth.RecordEvent
}

// recordServer starts a server that accepts what has a valid signature, unless it is set to another status.
func newRecordServer(tb testing.TB) *recordServer {
	tb.Helper()
	receiver, err := standardwebhooks.NewWebhook(recordSecret)
	require.NoError(tb, err)
	r := &recordServer{status: http.StatusNoContent}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		var e berth.RecordEvent
		if err != nil || receiver.Verify(body, req.Header) != nil || json.Unmarshal(body, &e) != nil {
			http.Error(w, "invalid", http.StatusUnauthorized)
			return
		}
		r.ids = append(r.ids, req.Header.Get("webhook-id"))
		if r.status == http.StatusNoContent {
			r.events = append(r.events, e)
		}
		w.WriteHeader(r.status)
	}))
	tb.Cleanup(r.Close)
	return r
}

// respond sets the status of the next responses.
func (r *recordServer) respond(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// received returns the webhook ids of all attempts, and what was accepted.
func (r *recordServer) received() ([]string, []berth.RecordEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids), slices.Clone(r.events)
}

// C22: the detail record of an ended conference is sent by signed webhook, until it is accepted, with one id. One that is given up
// shows that, and is sent again on request.
func TestRecord_ConferenceEnds_SentUntilAccepted(t *testing.T) {
	t.Parallel()
	server := newRecordServer(t)
	s := newStack(t, with("BERTH_RECORD_URL="+server.URL, "BERTH_RECORD_SECRETS="+recordSecret, "BERTH_RECORD_ALLOW_PRIVATE=true"))
	m := s.conferences()
	s.media("u1", 5)
	const number = "8670000001"
	record := func(id string) (d berth.RecordDelivery) {
		status, out := s.send(http.MethodGet, "/v1/conferences/"+number+"/record?conferenceId="+id, s.token("alice"), nil)
		if status != http.StatusOK || out["delivery"] == nil {
			return d
		}
		b, err := json.Marshal(out["delivery"])
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &d))
		return d
	}
	first := m.open(number)
	server.respond(http.StatusServiceUnavailable)
	m.end(number, "conference-released")
	s.eventually("a failed attempt", func() bool { return record(first.ID).Attempts > 0 })
	d := record(first.ID)
	require.Equal(t, berth.DeliveryPending, d.State)
	require.Equal(t, "the server returned 503", d.Error)
	s.worker.kill() // the next attempt is another worker's
	server.respond(http.StatusNoContent)
	s.worker = s.startWorker()
	s.eventually("the record to be accepted", func() bool { return record(first.ID).State == berth.DeliveryDelivered })
	ids, events := server.received()
	require.Len(t, events, 1)
	require.Equal(t, berth.EventRecord, events[0].Type)
	require.Equal(t, first.ID, events[0].Data.ID)
	require.Equal(t, berth.EndReleased, events[0].Data.End)
	require.Len(t, events[0].Data.Segments, 1)
	require.WithinDuration(t, events[0].Timestamp, events[0].Data.EndedAt, 0)
	require.Equal(t, []string{"record-" + first.ID}, slices.Compact(ids), "one id for all attempts")
	s.succeeds(workflows.RecordWorkflowID(first.ID))
	s.saveHistory("record-accepted", workflows.RecordWorkflowID(first.ID))

	second := m.open(number)
	server.respond(http.StatusGone)
	m.end(number, "conference-released")
	s.eventually("the record to be given up", func() bool { return record(second.ID).State == berth.DeliveryFailed })
	s.eventually("the run to end", func() bool { return s.closed(workflows.RecordWorkflowID(second.ID)) })
	s.saveHistory("record-refused", workflows.RecordWorkflowID(second.ID))
	server.respond(http.StatusNoContent)
	status, out := s.send(http.MethodPost, "/v1/conferences/"+number+"/record/send", s.token("op", "operator"), nil)
	require.Equal(t, http.StatusAccepted, status, "%v", out)
	s.eventually("the record to be accepted", func() bool { return record(second.ID).State == berth.DeliveryDelivered })
	_, events = server.received()
	require.Len(t, events, 2)
	require.Equal(t, second.ID, events[1].Data.ID)
	log := string(s.worker.output()) + string(s.api.output())
	require.Contains(t, log, "detail record not delivered")
	require.NotContains(t, log, recordSecret)
	require.NotContains(t, log, server.URL)
}
