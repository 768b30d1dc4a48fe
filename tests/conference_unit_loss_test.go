package tests

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/lua"
)

// C3: a unit with many conferences dies, and all are recovered by one other unit, which runs a few commands at a time. Each
// conference is requested once, and those that wait for others are not given up.
func TestConference_LargeUnitDies_RecoveryIsPaced(t *testing.T) {
	const conferences, takes = 60, 400 * time.Millisecond
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("large-u1", conferences)
	var all []string
	for i := range conferences {
		all = append(all, m.open(fmt.Sprint(8680000001+i)).E164)
	}
	u2 := s.observedUnit("large-u2", conferences, takes)
	u1.kill()
	began := time.Now()
	for _, e164 := range all {
		current := m.await(e164, "on u2", on("large-u2"))
		require.Len(t, current.Orders, 2, "C3: %v", current.Orders)
		require.Equal(t, berth.ActivityRecoverConference, current.Orders[1].Command)
		require.Equal(t, "acknowledged", current.Orders[1].Outcome)
	}
	t.Logf("%d conferences were created by one unit in %s, at most %d concurrently", conferences, time.Since(began).Round(100*time.Millisecond), u2.peak.Load())
	require.LessOrEqual(t, u2.peak.Load(), int64(unit.MaxCommands))
	require.Greater(t, u2.peak.Load(), int64(unit.MaxCommands/2), "recoveries run concurrently")
	require.Len(t, u2.made, conferences, "each conference was created once")
	order := make([]string, 0, conferences)
	for range conferences {
		order = append(order, (<-u2.made).E164)
	}
	require.ElementsMatch(t, all, order)
}

// C6: a recovered conference keeps its end time, is recovered by RecoverConference, and continues without participants
// until then.
func TestConference_Recovered_KeepsItsEndTime(t *testing.T) {
	s := shareStack(t)
	m := s.conferences()
	u1 := s.media("time-u1", 2)
	c := m.open("8681000001", func(c *client.ConferenceSpec) { c.DurationMs = 12_000 }).Conference
	lasts := m.open("8681000002").Conference
	u2 := s.observedUnit("time-u2", 2, 0)
	u1.kill()
	for _, previous := range []berth.Conference{c, lasts} {
		current := m.await(previous.E164, "on u2", on("time-u2"))
		require.Equal(t, previous.EndAt, current.EndAt)
		require.Equal(t, previous.ID, current.ID)
		var sent []string
		for _, o := range current.Orders {
			sent = append(sent, o.Command+" "+o.NodeID)
		}
		require.Equal(t, []string{"CreateConference time-u1", "RecoverConference time-u2"}, sent)
	}
	for range 2 {
		sent := <-u2.made
		require.Equal(t, map[string]time.Time{c.E164: c.EndAt, lasts.E164: lasts.EndAt}[sent.E164], sent.EndAt, "its unit gets the end time")
	}
	current := m.await(c.E164, "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndTime, current.End, "it did not end because it was empty")
	require.False(t, current.EndedAt.Before(c.EndAt))
	require.WithinDuration(t, c.EndAt, current.EndedAt, maxWait)
	require.Equal(t, berth.ConferenceOpen, m.await(lasts.E164, "on u2", on("time-u2")).Status)
	require.Len(t, u2.Copies(), 1)
}

// C18: Redis lost the information about conferences. Each owner is requested to send a full report. A unit with an old copy
// of another unit's conference also reports it, and that report is dropped.
func TestConference_ReportRequested_EveryOwnerReports(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	units := map[string]*media{"u1": s.media("u1", 2), "u2": s.media("u2", 2)}
	former := m.open("8682000001").Conference
	m.end(former.E164, "conference-released")
	var all []berth.Conference
	for i := range 4 {
		c := m.open(fmt.Sprint(8682000001 + i)).Conference
		units[c.Owner.NodeID].setParticipants(c, i+1)
		m.awaitParticipants(c.E164, i+1)
		all = append(all, c)
	}
	other := otherUnit[all[0].Owner.NodeID]
	units[other].setParticipants(former, 99)
	scripts := lua.New(s.redis(), lua.Keys{})
	dropped := func() int64 {
		n, err := scripts.StaleInfo(t.Context())
		require.NoError(t, err)
		return n[other]
	}
	s.eventually("the old copy to be reported and dropped", func() bool { return dropped() > 0 })

	for _, c := range all {
		require.NoError(t, s.redis().Del(t.Context(), scripts.Keys().ConferenceInfo(c.E164)).Err())
	}
	before := dropped()
	status, reply := s.send(http.MethodPost, "/v1/conferences/report", s.token("alice"), nil)
	require.Equal(t, http.StatusForbidden, status, "%v", reply)
	status, reply = s.send(http.MethodPost, "/v1/conferences/report", s.token("op", "operator"), nil)
	require.Equal(t, http.StatusAccepted, status, "%v", reply)
	require.EqualValues(t, 2, reply["units"])
	require.EqualValues(t, 4, reply["conferences"])
	require.EqualValues(t, 0, reply["lost"])
	for i, c := range all {
		m.awaitParticipants(c.E164, i+1)
		got, err := m.Conference(t.Context(), c.E164, "")
		require.NoError(t, err)
		require.Contains(t, string(got.Info.Live), `"simulated":true`, "a full report includes unchanged fields")
	}
	s.eventually("the old copy to be reported again and dropped", func() bool { return dropped() > before })
	m.awaitParticipants(all[0].E164, 1)
	for _, c := range all {
		m.end(c.E164, "conference-released")
	}
}

// C19: a unit cannot reach the data proxy. When the connection is restored it reports everything again, and removes
// conferences that ended meanwhile.
func TestConference_EndsWhileAPIUnreachable_IsRemoved(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	status, out := s.send(http.MethodPut, "/v1/config/strategy", s.token("op", "operator"), map[string]any{"times": map[string]any{
		"media": map[string]any{"heartbeatIntervalMs": 1000, "suspectAfterMs": 60_000, "failureDetectionTimeoutMs": 90_000},
	}})
	require.Equal(t, http.StatusOK, status, "%v", out)
	way := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "api", "127.0.0.1:0", s.httpAddr)
	require.NoError(t, way.Start())
	t.Cleanup(way.Stop)
	m := s.conferences()
	direct := s.httpAddr
	s.httpAddr = way.Listen
	u1 := s.media("u1", 5)
	s.httpAddr = direct
	stays, quiet, vanishes := m.open("8683000001").Conference, m.open("8683000002").Conference, m.open("8683000003").Conference
	u1.setParticipants(stays, 3)
	m.awaitParticipants(stays.E164, 3)
	m.awaitParticipants(quiet.E164, 0)

	way.Stop()
	u1.setParticipants(stays, 5)
	s.eventually("it to be missed", func() bool { return bytes.Contains(u1.output(), []byte("data proxy unavailable")) })
	u1.ask(http.MethodDelete, "/conferences/"+vanishes.E164, nil)
	keys := lua.Keys{}
	require.NoError(t, s.redis().Del(t.Context(), keys.ConferenceInfo(stays.E164), keys.ConferenceInfo(quiet.E164)).Err())
	require.Equal(t, berth.ConferenceOpen, m.await(vanishes.E164, "known as open", on("u1")).Status, "no process can detect it")
	require.NoError(t, way.Start())

	m.awaitParticipants(stays.E164, 5)
	m.awaitParticipants(quiet.E164, 0)
	current := m.await(vanishes.E164, "removed", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndByUnit, current.End)
	_, there, err := lua.New(s.redis(), keys).ConferenceRow(t.Context(), vanishes.E164)
	require.NoError(t, err)
	require.False(t, there)
	for _, c := range []berth.Conference{stays, quiet} {
		require.Equal(t, c.Owner, m.await(c.E164, "as it was", on("u1")).Owner)
	}
	require.True(t, maps.Equal(u1.runs(), map[string]int64{stays.E164: stays.Owner.Epoch, quiet.E164: quiet.Owner.Epoch}))
}
