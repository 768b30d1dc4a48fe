package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
)

func TestConferenceRecord_Legs_AreExported(t *testing.T) { // C22
	t.Parallel()
	h := newHarness(t)
	made := h.meet("alice", meeting()).json(t)
	joined := time.Now().UTC().Truncate(time.Millisecond)
	report := func(epoch int64, legs ...doc) answer {
		return h.call(http.MethodPost, "/v1/conferences/"+number+"/info", h.token("u1", "node"),
			doc{"nodeId": "u1", "generation": 1, "epoch": epoch, "live": doc{}, "legs": legs})
	}
	anna := doc{"id": "PA_1", "identity": "anna", "name": "=cmd()", "joinedAt": joined, "leftAt": joined.Add(time.Minute), "reason": "left"}
	ben := doc{"id": "PA_2", "identity": "ben", "joinedAt": joined.Add(time.Second)}
	require.Equal(t, http.StatusOK, report(1, anna, ben).status)
	require.Equal(t, http.StatusConflict, report(2, doc{"id": "PA_3", "identity": "eve", "joinedAt": joined}).status, "not the owner")
	require.Equal(t, http.StatusBadRequest, report(1, doc{"id": "", "identity": "x", "joinedAt": joined}).status)
	ended := joined.Add(time.Hour)
	h.change(number, func(c *berth.Conference) {
		c.Segments = []berth.ConferenceSegment{{NodeID: "u1", Epoch: 1, StartedAt: joined, EndedAt: ended, Reason: berth.EndUnitLost}}
		c.Status, c.End, c.EndedAt = berth.ConferenceEnded, berth.EndReleased, ended.Add(time.Hour)
	})
	get := func(accept string) answer {
		return h.call(http.MethodGet, "/v1/conferences/"+number+"/record", h.token("alice"), nil, "Accept", accept)
	}
	record := get("").json(t)
	require.Equal(t, made["conferenceId"], record["conferenceId"])
	legs := record["legs"].([]any)
	require.Len(t, legs, 2)
	require.Equal(t, "left", legs[0].(doc)["reason"])
	require.Equal(t, "unit_lost", legs[1].(doc)["reason"], "its unit could not end it")
	require.Equal(t, ended.Format(time.RFC3339Nano), legs[1].(doc)["leftAt"])

	lines := strings.Split(strings.TrimSpace(string(get("application/x-ndjson").body)), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], `"identity":"ben"`)
	table := get("text/csv, application/json")
	require.Equal(t, "text/csv", table.header.Get("Content-Type"))
	rows := strings.Split(strings.TrimSpace(string(table.body)), "\n")
	require.Equal(t, "id,identity,name,nodeId,epoch,joinedAt,leftAt,reason", rows[0])
	require.Contains(t, rows[1], "PA_1,anna,'=cmd(),u1,1,", "no formula")
	require.Len(t, rows, 3)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/conferences/"+number+"/record", h.token("bob"), nil).status)
}

// A record is sent again on request, once a URL is set and the conference has ended; the record shows its last delivery.
func TestSendRecord_EndedConference_IsStartedAgain(t *testing.T) { // C22
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.RecordWithin = time.Hour })
	made := h.meet("alice", meeting()).json(t)
	id := made["conferenceId"].(string)
	send := func() answer {
		return h.call(http.MethodPost, "/v1/conferences/"+number+"/record/send", h.token("op", "operator"), nil)
	}
	require.Equal(t, http.StatusNotFound, send().status, "it has not ended")
	h.change(number, func(c *berth.Conference) {
		c.Status, c.End, c.EndedAt = berth.ConferenceEnded, berth.EndReleased, time.Now()
	})
	record := func() doc {
		return h.call(http.MethodGet, "/v1/conferences/"+number+"/record", h.token("alice"), nil).json(t)
	}
	require.NotContains(t, record(), "delivery")
	sent := send()
	require.Equal(t, http.StatusAccepted, sent.status, string(sent.body))
	require.Equal(t, "record-"+id, sent.json(t)["webhookId"])
	require.Equal(t, []string{id}, h.starter.sentRecords())
	require.NoError(t, h.ledger.SaveDelivery(t.Context(), id, berth.RecordDelivery{
		State: berth.DeliveryFailed, Attempts: 3, Error: "the server returned 500", UpdatedAt: time.Now(),
	}))
	delivery := record()["delivery"].(doc)
	require.Equal(t, "failed", delivery["state"])
	require.Equal(t, "the server returned 500", delivery["error"])
	b, unlock := h.starter.open()
	b.failure = errDown
	unlock()
	require.Equal(t, http.StatusServiceUnavailable, send().status)
	require.Equal(t, "failed", record()["delivery"].(doc)["state"], "it is not sent")

	without := newHarness(t)
	without.meet("alice", meeting())
	without.change(number, func(c *berth.Conference) {
		c.Status, c.End, c.EndedAt = berth.ConferenceEnded, berth.EndReleased, time.Now()
	})
	require.Equal(t, http.StatusConflict,
		without.call(http.MethodPost, "/v1/conferences/"+number+"/record/send", without.token("op", "operator"), nil).status, "no URL is set")
}

func TestConferenceInfo_Owner_ReadsFormerParticipants(t *testing.T) { // B9
	t.Parallel()
	h := newHarness(t)
	h.meet("alice", meeting())
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/conferences/"+number+"/info", h.token("u1", "node"),
		doc{"nodeId": "u1", "generation": 1, "epoch": 1, "full": true, "live": doc{"participants": []any{doc{"identity": "anna"}}}}).status)
	h.change(number, func(c *berth.Conference) {
		c.Epoch, c.Owner = 2, berth.ConferenceOwner{NodeID: "u2", Generation: 5, Epoch: 2}
	})
	get := func(query string) answer {
		return h.call(http.MethodGet, "/v1/conferences/"+number+"/info?"+query, h.token("u2", "node"), nil)
	}
	a := get("nodeId=u2&generation=5&epoch=2")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, doc{"former": []any{doc{"identity": "anna"}}}, a.json(t)["live"])
	require.Equal(t, http.StatusConflict, get("nodeId=u2&generation=5&epoch=1").status)
	require.Equal(t, http.StatusConflict, get("nodeId=u1&generation=5&epoch=2").status)
}
