package tests

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/lua"
)

// C20: reports of a former owner are dropped and counted, and a new owner starts with the basic data. C19: after an outage of
// the API, everything is reported again. C22: the record has a segment for each unit.
func TestConference_StaleUnitReports_AreDropped(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.media("u1", 5)
	c := m.open("8630000001", func(c *client.ConferenceSpec) { c.Metadata = json.RawMessage(`{"room":"A"}`) }).Conference
	u1.setParticipants(c, 3)
	basic := m.awaitParticipants(c.E164, 3)
	require.Contains(t, string(basic), `"room"`)

	u2 := s.media("u2", 5)
	u1.fail(unit.FaultUnresponsive)
	moved := m.await(c.E164, "on u2", on("u2"))
	require.JSONEq(t, string(basic), string(m.awaitParticipants(c.E164, 0)), "only the basic data are kept")
	units := s.user("units", "node")
	late := berth.ConferenceInfo{NodeID: "u1", Generation: c.Owner.Generation, Epoch: c.Owner.Epoch, Full: true, Live: json.RawMessage(`{"participantCount":3}`)}
	for range 2 {
		require.Equal(t, http.StatusConflict, problem(t, units.ReportConference(t.Context(), c.E164, late)).Status)
	}
	late.Live, late.Ended = json.RawMessage(`{}`), true
	require.Equal(t, http.StatusConflict, problem(t, units.ReportConference(t.Context(), c.E164, late)).Status, "a stale end notice ends nothing (C17)")
	dropped, err := lua.New(s.redis(), lua.Keys{}).StaleInfo(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, dropped["u1"], int64(3))
	m.awaitParticipants(c.E164, 0)

	s.api.kill()
	u2.setParticipants(moved, 2)
	require.NoError(t, s.redis().Del(t.Context(), lua.Keys{}.ConferenceInfo(c.E164)).Err())
	s.startAPI()
	m.awaitParticipants(c.E164, 2)
	u1.kill()
	m.end(c.E164, "conference-notified")

	got, err := m.Conference(t.Context(), c.E164, c.ID)
	require.NoError(t, err)
	current := got.Conference
	require.Equal(t, berth.EndReleased, current.End)
	require.Equal(t, c.EndAt, current.EndAt)
	require.Len(t, current.Segments, 2)
	require.Equal(t, "u1", current.Segments[0].NodeID)
	require.Equal(t, berth.EndUnitLost, current.Segments[0].Reason)
	require.Equal(t, "u2", current.Segments[1].NodeID)
	require.Equal(t, berth.EndReleased, current.Segments[1].Reason)
	require.False(t, current.Segments[1].StartedAt.Before(current.Segments[0].EndedAt))
	var sent []string
	for _, o := range current.Orders {
		sent = append(sent, o.Command+" "+o.NodeID+" "+o.Outcome)
	}
	require.Equal(t, []string{
		"CreateConference u1 acknowledged", "RecoverConference u2 acknowledged", "ReleaseConference u2 acknowledged",
	}, sent)
}

// C4, C16, P2: controller, Redis and Temporal are killed together with a unit: conferences on other units are not affected,
// and orphaned ones are recovered. C22: one that cannot be recovered ends at the failure, and keeps its planned end.
func TestConference_ControllerKilled_StaysOrRecovers(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.media("u1", 1)
	m.open("8630000001")
	_, err := m.CreateConference(t.Context(), client.ConferenceSpec{E164: "8630000004", DurationMs: 60_000})
	require.Equal(t, berth.CodeNodeFull, problem(t, err).Code, "C16")
	m.awaitEnd("8630000004", "conference-no-capacity")
	u2 := s.media("u2", 5, "--leave")
	stays := m.open("8630000002")
	require.Equal(t, "u2", stays.Owner.NodeID)
	for _, p := range []*process{s.worker, s.api, s.infra, u1.process} {
		p.kill()
	}
	s.startInfra()
	s.startAPI()
	s.worker = s.startWorker()
	m.await("8630000001", "recovered", on("u2"))
	m.await("8630000002", "open", on("u2"))
	require.Equal(t, stays.Owner.Epoch, u2.runs()["8630000002"], "the conference did not move")
	m.end("8630000001", "conference-controller-killed")

	lost := m.open("8630000003", func(c *client.ConferenceSpec) { c.DurationMs = 5000 })
	require.True(t, u2.stop(maxWait))
	current := m.await(lost.E164, "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndNotRecovered, current.End)
	require.Equal(t, lost.EndAt, current.EndAt)
	require.True(t, current.EndedAt.Before(current.EndAt), "the end is the time of the failure")
	m.awaitEnd(lost.E164, "conference-not-recovered")
	m.end("8630000002", "conference-ended-in-wait")
}
