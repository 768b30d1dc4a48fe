package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/lua"
)

// publishTurn appends events of a turn of alice's session s1, as its workflow does, numbered from first.
func (h *harness) publishTurn(turn string, first int, events ...berth.SessionEvent) {
	h.t.Helper()
	data := make([]string, len(events))
	for i, ev := range events {
		ev.SessionID, ev.TurnID, ev.TS = "s1", turn, time.Now().UnixMilli()
		b, err := json.Marshal(ev)
		require.NoError(h.t, err)
		data[i] = string(b)
	}
	res, err := h.scripts.AppendEvents(h.t.Context(), lua.SessionChannel("alice", "s1"), lua.Append{
		Producer: turn, First: first, Confirmed: first - 1, TTL: time.Hour, Events: lua.StreamEntries(data...),
	})
	require.NoError(h.t, err)
	require.Equal(h.t, lua.StreamOK, res.Code)
}

// publishWholeTurn publishes a complete turn of n segments.
func (h *harness) publishWholeTurn(turn string, n int) {
	h.t.Helper()
	events := []berth.SessionEvent{{Type: berth.EventTurn}}
	for i := range n {
		events = append(events, berth.SessionEvent{Type: berth.EventTranslation, Index: &i, Text: fmt.Sprint(turn, " ", i), NodeID: "n1"})
	}
	h.publishTurn(turn, 1, append(events, berth.SessionEvent{Type: berth.EventDone, Reason: berth.FinalizeManual, Jobs: n})...)
}

func (s *sse) take(n int) []message {
	s.t.Helper()
	all := make([]message, 0, n)
	for range n {
		m, ok := s.next()
		require.True(s.t, ok, "the stream was closed after %v", names(all))
		all = append(all, m)
	}
	return all
}

func withStoredSession(t *testing.T, change ...func(*api.Deps)) *harness {
	t.Helper()
	h := newHarness(t, change...)
	_, err := h.ledger.PutSession(t.Context(), berth.Session{ID: "s1", UserID: "alice", SrcLang: "en", TgtLang: "es"})
	require.NoError(t, err)
	return h
}

const s1Events = "/v1/sessions/s1/events"

func TestSessionEvents_SeveralTurns_ShareOneStream(t *testing.T) { // A8, A10
	t.Parallel()
	h := withStoredSession(t)
	early := h.open(s1Events, h.token("alice")) // before the first turn
	require.Equal(t, http.StatusOK, early.res.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", early.res.Header.Get("Content-Type"))
	h.publishWholeTurn("t-a", 2)
	got := early.take(4)
	require.Equal(t, []string{"turn", "translation", "translation", "done"}, names(got))
	var ev berth.SessionEvent
	require.NoError(t, json.Unmarshal([]byte(got[2].data), &ev))
	require.Equal(t, "t-a", ev.TurnID)
	require.Equal(t, "t-a 1", ev.Text)
	require.Equal(t, 1, *ev.Index)

	late := h.open(s1Events, h.token("alice"))
	latest := h.open(s1Events+"?fromLatest=1", h.token("alice"))
	h.publishTurn("t-b", 1, berth.SessionEvent{Type: berth.EventTurn, SpeakerID: "bob"})
	h.publishWholeTurn("t-c", 1)
	h.publishTurn("t-b", 2, berth.SessionEvent{Type: berth.EventTranslationFailed, Code: berth.CodeNodeFailed}, berth.SessionEvent{Type: berth.EventDone})
	whole := append(got, early.take(6)...)
	require.Equal(t, []string{"turn", "turn", "translation", "done", "translation_failed", "done"}, names(whole[4:]))
	require.Equal(t, whole, late.take(10))
	require.Equal(t, whole[4:], latest.take(6), "the done event does not close the stream")
}

func TestSessionEvents_Resume_LosesNothing(t *testing.T) { // T15
	t.Parallel()
	h := withStoredSession(t)
	h.publishWholeTurn("t-a", 4)
	h.publishWholeTurn("t-b", 4)
	all := h.open(s1Events, h.token("alice")).take(12)
	for i, m := range all[:11] {
		require.Equal(t, all[i+1:], h.open(s1Events, h.token("alice"), "Last-Event-ID", m.id).take(11-i))
		require.Equal(t, all[i+1:], h.open(s1Events+"?lastEventId="+m.id, h.token("alice")).take(11-i))
	}
	behind := h.open(s1Events, h.token("alice"), "Last-Event-ID", all[11].id)
	h.publishWholeTurn("t-c", 0)
	require.Equal(t, []string{"turn", "done"}, names(behind.take(2)), "the stream stays open after done")
	for _, id := range []string{"garbage", "end", "1-2-3"} {
		a := h.do(h.request(http.MethodGet, s1Events, h.token("alice"), nil, "Last-Event-ID", id))
		require.Equal(t, http.StatusBadRequest, a.status, id)
		require.Equal(t, "Last-Event-ID", a.problem.Field)
	}
	future := h.open(s1Events, h.token("alice"), "Last-Event-ID", "99999999999999-1").take(3)
	require.Equal(t, []string{"gap", "turn", "translation"}, names(future), "a future id receives all stored events")
}

func TestSessionEvents_HistoryTrimmedOrLost_SendGap(t *testing.T) { // T15, P5
	t.Parallel()
	h := withStoredSession(t)
	h.publishWholeTurn("t-a", 8)
	s := h.open(s1Events, h.token("alice"))
	first := s.take(10)[0]
	ch := lua.SessionChannel("alice", "s1")
	require.NoError(t, h.client.XTrimMaxLen(t.Context(), h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), 3).Err())
	got := h.open(s1Events, h.token("alice"), "Last-Event-ID", first.id).take(4)
	require.Equal(t, []string{"gap", "translation", "translation", "done"}, names(got))
	var gap berth.SessionEvent
	require.NoError(t, json.Unmarshal([]byte(got[0].data), &gap))
	require.Equal(t, berth.SessionEvent{Type: berth.EventGap, SessionID: "s1", TurnID: "t-a", TS: gap.TS}, gap)
	require.NotZero(t, gap.TS)

	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.publishWholeTurn("t-b", 1)
	require.Equal(t, []string{"gap", "turn", "translation", "done"}, names(s.take(4)), "the same client continues")
}

func TestSessionEvents_StreamLost_ReturningClientGetsGapFirst(t *testing.T) { // T15, P5
	t.Parallel()
	h := withStoredSession(t)
	h.publishWholeTurn("t-a", 2)
	last := h.open(s1Events, h.token("alice")).take(4)[3]
	for _, id := range []string{last.id, "99999999999999-1"} {
		require.NoError(t, h.client.FlushAll(t.Context()).Err())
		first := h.open(s1Events, h.token("alice"), "Last-Event-ID", id) // opens the stream again
		gap := first.take(1)[0]
		require.Equal(t, "gap", gap.event)
		var ev berth.SessionEvent
		require.NoError(t, json.Unmarshal([]byte(gap.data), &ev))
		require.Equal(t, berth.SessionEvent{Type: berth.EventGap, SessionID: "s1", TS: ev.TS}, ev)
		second := h.open(s1Events, h.token("alice"), "Last-Event-ID", id) // finds it empty
		require.Equal(t, []string{"gap"}, names(second.take(1)))
		h.publishWholeTurn("t-b", 1)
		for _, s := range []*sse{first, second, h.open(s1Events, h.token("alice"), "Last-Event-ID", gap.id)} {
			require.Equal(t, []string{"turn", "translation", "done"}, names(s.take(3)), "only one gap is sent")
		}
	}
}

// L12: after a failover to a master that lacks events which clients have, the next event of the turn follows a gap, for a client that
// had read the lost ones, for one that returns, and for one that had not.
func TestSessionEvents_OlderMaster_SendGap(t *testing.T) { // T15, P5
	t.Parallel()
	h := withStoredSession(t)
	ch := lua.SessionChannel("alice", "s1")
	keys := []string{h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), h.scripts.Keys().StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID)}
	say := func(n int) {
		t.Helper()
		i := n - 1
		h.publishTurn("t-a", n, berth.SessionEvent{Type: berth.EventTranslation, Index: &i, Text: fmt.Sprint("text ", n), NodeID: "n1"})
	}
	s := h.open(s1Events, h.token("alice"))
	for n := range 2 {
		say(n + 1)
	}
	for _, key := range keys {
		require.NoError(t, h.client.Copy(t.Context(), key, key+":older", 0, false).Err())
	}
	say(3)
	say(4)
	read := s.take(4)
	for _, key := range keys {
		require.NoError(t, h.client.Rename(t.Context(), key+":older", key).Err())
	}
	say(5)
	for name, c := range map[string]*sse{
		"connected": s, "returns": h.open(s1Events, h.token("alice"), "Last-Event-ID", read[3].id),
		"behind": h.open(s1Events, h.token("alice"), "Last-Event-ID", read[1].id),
	} {
		got := c.take(2)
		require.Equal(t, []string{"gap", "translation"}, names(got), name)
		require.Contains(t, got[0].data, `"turnId":"t-a"`, name)
		require.Contains(t, got[1].data, "text 5", name)
	}
}

func TestSessionEvents_RedisRestarts_Continue(t *testing.T) { // L11
	t.Parallel()
	h := withStoredSession(t)
	h.publishWholeTurn("t-a", 1)
	s := h.open(s1Events, h.token("alice"))
	s.take(3)
	h.redis.Kill()
	a := h.do(h.request(http.MethodGet, s1Events, h.token("alice"), nil))
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	h.redis.Restart()
	h.publishWholeTurn("t-b", 1)
	require.Equal(t, []string{"gap", "turn", "translation", "done"}, names(s.take(4)))
	require.Equal(t, []string{"turn", "translation", "done"}, names(h.open(s1Events, h.token("alice")).take(3)))
}

func TestSessionEvents_NoEvents_SendHeartbeats(t *testing.T) {
	t.Parallel()
	h := withStoredSession(t)
	s := h.open(s1Events, h.token("alice"))
	require.True(t, s.quiet(2))
	h.publishWholeTurn("t-a", 0)
	require.Equal(t, []string{"turn", "done"}, names(s.take(2)))
}

func TestTicket_Session_OpensItsEventsOnly(t *testing.T) { // X5
	t.Parallel()
	h := withStoredSession(t)
	h.task("alice", "s1") // a task of the same name
	h.publishWholeTurn("t-a", 1)
	a := h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"sessionId": "s1"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	d := a.json(t)
	require.Equal(t, "s1", d["sessionId"])
	require.NotContains(t, d, "taskId")
	target, _ := d["eventsUrl"].(string)
	require.Equal(t, []string{"turn", "translation", "done"}, names(h.open(target, "").take(3)))

	ticket := url.QueryEscape(d["ticket"].(string))
	_, err := h.ledger.PutSession(t.Context(), berth.Session{ID: "s2", UserID: "alice", SrcLang: "en", TgtLang: "es"})
	require.NoError(t, err)
	for _, path := range []string{"/v1/sessions/s2/events", "/v1/tasks/s1/events", "/v1/sessions/s1", "/v1/me"} {
		require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, path+"?ticket="+ticket, "", nil).status, path)
	}
	task := url.QueryEscape(h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"taskId": "s1"}).json(t)["ticket"].(string))
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, s1Events+"?ticket="+task, "", nil).status, "the ticket of a task")

	for name, c := range map[string]struct {
		body   doc
		status int
		field  string
	}{
		"foreign": {doc{"sessionId": "s1"}, 404, ""},
		"unknown": {doc{"sessionId": "s9"}, 404, ""},
		"neither": {doc{}, 400, "taskId"},
		"both":    {doc{"taskId": "s1", "sessionId": "s1"}, 400, "sessionId"},
		"odd":     {doc{"sessionId": "a b"}, 400, "sessionId"},
	} {
		a := h.call(http.MethodPost, "/v1/tickets", h.token("bob"), c.body)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Equal(t, c.field, a.problem.Field, name)
	}
}

func TestSubmit_ReservedService_IsRejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, service := range []string{lua.SessionService, lua.ConferenceService, lua.OperatorService} {
		a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(with("taskId", "s1"), with("serviceId", service)))
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, "serviceId", a.problem.Field)
	}
}

func TestSessionEvents_Shutdown_End(t *testing.T) { // X7
	t.Parallel()
	h := withStoredSession(t, func(d *api.Deps) { d.Config.HeartbeatInterval = time.Minute })
	h.publishWholeTurn("t-a", 0)
	s := h.open(s1Events, h.token("alice"))
	s.take(2)
	require.NoError(t, h.server.Shutdown(t.Context()), "an open stream does not delay the shutdown")
	require.Empty(t, s.rest())
}
