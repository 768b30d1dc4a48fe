package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// announce appends the state of a conference to its number's stream, as its workflow does; n numbers its events from 1.
func (h *harness) announce(c berth.Conference, n int) {
	h.t.Helper()
	b, err := json.Marshal(c.Event(time.Now()))
	require.NoError(h.t, err)
	res, err := h.scripts.AppendEvents(h.t.Context(), lua.ConferenceChannel(c.UserID, c.E164), lua.Append{
		Producer: c.ID, First: n, Confirmed: n - 1, TTL: time.Hour, Events: lua.StreamEntries(string(b)),
	})
	require.NoError(h.t, err)
	require.Equal(h.t, lua.StreamOK, res.Code)
}

// opened returns an open conference of alice whose state has been published.
func (h *harness) opened() berth.Conference {
	h.t.Helper()
	require.Equal(h.t, http.StatusCreated, h.meet("alice", meeting()).status)
	c := h.change(number, func(*berth.Conference) {})
	h.announce(c, 1)
	return c
}

func ends(c *berth.Conference) {
	c.Status, c.End, c.EndedAt, c.Owner = berth.ConferenceEnded, berth.EndTime, time.Now().UTC(), berth.ConferenceOwner{}
}

const eventsPath = "/v1/conferences/" + number + "/events"

func TestConferenceEvents_Conference_StreamsUntilDone(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.opened()
	owner, operator := h.open(eventsPath, h.token("alice")), h.open(eventsPath, h.operator())
	require.Equal(t, "text/event-stream; charset=utf-8", owner.res.Header.Get("Content-Type"))
	first := owner.take(1)
	c := h.change(number, func(c *berth.Conference) {
		c.Status, c.Owner, c.Waiting = berth.ConferenceAwaitingRecovery, berth.ConferenceOwner{}, "no unit has a free slot"
	})
	h.announce(c, 2)
	h.announce(h.change(number, ends), 3)
	got := append(first, owner.rest()...)
	require.Equal(t, []string{"conference", "conference", "done"}, names(got), "the stream is closed after done")
	require.Equal(t, got, operator.rest())
	var ev berth.ConferenceEvent
	require.NoError(t, json.Unmarshal([]byte(got[0].data), &ev))
	require.Equal(t, berth.ConferenceEvent{
		Type: berth.EventConference, E164: number, ConferenceID: c.ID, TS: ev.TS, Status: berth.ConferenceOpen,
		Owner: &berth.ConferenceOwner{NodeID: "u1", Generation: 1, Epoch: 1},
	}, ev)
	require.Contains(t, got[1].data, "no unit has a free slot")
	require.Contains(t, got[2].data, `"end":"end_time"`)

	require.Equal(t, got, h.open(eventsPath, h.token("alice")).rest(), "also after it has ended")
	require.Equal(t, got[1:], h.open(eventsPath, h.token("alice"), "Last-Event-ID", got[0].id).rest())
	for _, id := range []string{got[2].id, "end"} {
		require.Equal(t, http.StatusNoContent, h.do(h.request(http.MethodGet, eventsPath, h.token("alice"), nil, "Last-Event-ID", id)).status)
	}
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, eventsPath, h.token("bob"), nil).status)
	bad := h.do(h.request(http.MethodGet, eventsPath+"?fromLatest=no", h.token("alice"), nil))
	require.Equal(t, "fromLatest", bad.problem.Field)
}

func TestConferenceEvents_NumberReused_ContinueInItsStream(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	first := h.opened()
	h.announce(h.change(number, ends), 2)
	second := h.opened()
	require.NotEqual(t, first.ID, second.ID)
	s := h.open(eventsPath, h.token("alice"))
	require.Equal(t, []string{"conference", "done", "conference"}, names(s.take(3)), "the end of the first conference does not close the stream")
	h.announce(h.change(number, ends), 2)
	require.Equal(t, []string{"done"}, names(s.rest()))
}

func TestConferenceEvents_RedisLostStream_SendStoredEnd(t *testing.T) { // P5, L11
	t.Parallel()
	h := newHarness(t)
	h.opened()
	s := h.open(eventsPath, h.token("alice"))
	s.take(1)
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	c := h.change(number, func(c *berth.Conference) { c.Status = berth.ConferenceAwaitingConnection })
	h.announce(c, 2)
	got := s.take(2)
	require.Equal(t, []string{"gap", "conference"}, names(got), "the same client continues")
	var gap berth.ConferenceEvent
	require.NoError(t, json.Unmarshal([]byte(got[0].data), &gap))
	require.Equal(t, berth.ConferenceEvent{Type: berth.EventGap, E164: number, TS: gap.TS}, gap)
	h.change(number, ends)
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	for _, m := range [][]message{s.rest(), h.open(eventsPath, h.token("alice")).rest()} {
		require.Equal(t, []string{"done"}, names(m), "the end is read from the record")
		require.Equal(t, "end", m[0].id)
		require.Contains(t, m[0].data, `"end":"end_time"`)
	}
	h.redis.Kill()
	for _, id := range []string{"", "17-3"} {
		require.Equal(t, []string{"done"}, names(h.open(eventsPath, h.token("alice"), "Last-Event-ID", id).rest()), "also while Redis is unavailable")
	}
}

func TestTicket_Conference_OpensItsEventsOnly(t *testing.T) { // X5
	t.Parallel()
	h := newHarness(t)
	h.opened()
	h.announce(h.change(number, ends), 2)
	for name, token := range map[string]string{"owner": h.token("alice"), "operator": h.operator()} {
		a := h.call(http.MethodPost, "/v1/tickets", token, doc{"e164": number})
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", name, a.body)
		require.Equal(t, number, a.json(t)["e164"])
		require.Equal(t, []string{"conference", "done"}, names(h.open(a.json(t)["eventsUrl"].(string), "").rest()), name)
		ticket := url.QueryEscape(a.json(t)["ticket"].(string))
		for _, path := range []string{"/v1/conferences/8613800138001/events", "/v1/conferences/" + number, "/v1/tasks/" + number + "/events", "/v1/nodes"} {
			require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, path+"?ticket="+ticket, "", nil).status, path)
		}
	}
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/tickets", h.token("bob"), doc{"e164": number}).status)
	two := h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"e164": number, "taskId": "t1"})
	require.Equal(t, "e164", two.problem.Field)
	require.Equal(t, "e164", h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"e164": "x"}).problem.Field)
}
