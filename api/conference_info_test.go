package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// info returns a report of unit u1 about a conference under epoch 1.
func info(live any, change ...func(doc)) doc {
	d := doc{"nodeId": "u1", "generation": 1, "epoch": 1, "live": live}
	for _, c := range change {
		c(d)
	}
	return d
}

func (h *harness) report(e164 string, body any) answer {
	h.t.Helper()
	return h.call(http.MethodPost, "/v1/conferences/"+e164+"/info", h.nodeToken(), body)
}

func (h *harness) live() any {
	h.t.Helper()
	return h.conference(http.MethodGet, number, h.token("alice")).json(h.t)["info"].(doc)["live"]
}

func (h *harness) dropped() any {
	h.t.Helper()
	a := h.call(http.MethodGet, "/v1/stats/conferences", h.operator(), nil)
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	return a.json(h.t)["stale"]
}

func TestConferenceInfo_NotOwner_IsRejected(t *testing.T) { // C20
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting(with("metadata", doc{"room": "A"}))).status)
	require.Equal(t, doc{}, h.dropped())
	a := h.report(number, info(doc{"participants": []any{"ana"}, "locked": false}, with("full", true)))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, http.StatusOK, h.report(number, info(doc{"locked": nil, "recording": doc{}, "speaker": "ana"})).status)
	reported := doc{"participants": []any{"ana"}, "recording": doc{}, "speaker": "ana"}
	require.Equal(t, reported, h.live(), "merged")

	for name, change := range map[string]func(doc){
		"another unit":       with("nodeId", "u2"),
		"another generation": with("generation", 2),
		"a later epoch":      with("epoch", 2),
	} {
		a := h.report(number, info(doc{"participants": []any{}}, change, with("full", true)))
		require.Equal(t, http.StatusConflict, a.status, name)
		require.Equal(t, berth.CodeConflict, a.problem.Code, name)
		require.Equal(t, reported, h.live(), name)
	}
	require.Equal(t, doc{"u1": 2.0, "u2": 1.0}, h.dropped())
	log := h.log.String()
	require.Contains(t, log, `"unit":"u2","generation":1,"epoch":1,"owner":"u1","ownerGeneration":1,"ownerEpoch":1`)

	h.change(number, func(c *berth.Conference) {
		c.Epoch, c.Owner = 2, berth.ConferenceOwner{NodeID: "u2", Generation: 5, Epoch: 2}
	})
	require.Equal(t, doc{"former": []any{"ana"}}, h.live(), "only the participants of the former owner are kept, and the basic data")
	require.Equal(t, doc{"room": "A"}, h.conference(http.MethodGet, number, h.token("alice")).json(t)["info"].(doc)["basic"])
	require.Equal(t, http.StatusConflict, h.report(number, info(doc{"speaker": "ana"})).status, "the epoch of the report is superseded")
	require.Equal(t, http.StatusOK, h.report(number, info(doc{"speaker": "ben"}, with("nodeId", "u2"), with("generation", 5), with("epoch", 2))).status)
	require.Equal(t, doc{"speaker": "ben", "former": []any{"ana"}}, h.live())

	h.conference(http.MethodDelete, number, h.token("alice"))
	gone := h.report(number, info(doc{}, with("nodeId", "u2"), with("generation", 5), with("epoch", 2)))
	require.Equal(t, http.StatusNotFound, gone.status)
	require.Equal(t, http.StatusNotFound, h.report("8613800138009", info(doc{})).status)
	require.Equal(t, doc{"u1": 3.0, "u2": 1.0}, h.dropped())
}

func TestConferenceInfo_EndedByUnit_EndsConference(t *testing.T) { // C15, C19
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
	h.change(number, func(c *berth.Conference) { c.Owner.Incarnation = berth.Incarnation{Host: "h", PID: 7, StartedAt: 9} })
	ended := with("ended", true)
	require.Equal(t, http.StatusConflict, h.report(number, info(nil, ended, with("epoch", 2))).status)
	require.Equal(t, http.StatusConflict, h.report(number, info(nil, ended, with("nodeId", "u2"))).status)
	a := h.report(number, info(doc{}, ended))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	b, unlock := h.starter.open()
	defer unlock()
	require.Equal(t, []workflows.UnitNotice{{
		NodeID: "u1", Generation: 1, Incarnation: berth.Incarnation{Host: "h", PID: 7, StartedAt: 9}, Missing: true, Epoch: 1,
	}}, b.notices, "only its owner ends it")
}

func TestConferenceInfo_InvalidBody_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
	known := doc{"a": strings.Repeat("a", 100)}
	require.Equal(t, http.StatusOK, h.report(number, info(known)).status)
	fields := doc{}
	for i := range 1001 {
		fields[fmt.Sprint("f", i)] = i
	}
	for name, c := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"no unit":              {info(doc{}, without("nodeId")), 400, "nodeId"},
		"odd unit":             {info(doc{}, with("nodeId", "a b")), 400, "nodeId"},
		"no generation":        {info(doc{}, without("generation")), 400, "generation"},
		"generation 0":         {info(doc{}, with("generation", 0)), 400, "generation"},
		"no epoch":             {info(doc{}, without("epoch")), 400, "epoch"},
		"epoch as text":        {info(doc{}, with("epoch", "1")), 400, "epoch"},
		"no information":       {info(nil, without("live")), 400, "live"},
		"null":                 {info(nil), 400, "live"},
		"a list":               {info([]any{1}), 400, "live"},
		"a text":               {info("{}"), 400, "live"},
		"too many fields":      {info(fields), 400, "live"},
		"too large":            {info(doc{"a": strings.Repeat("x", berth.MaxConferenceInfo)}), 413, "live"},
		"too large in all":     {info(doc{"b": strings.Repeat("x", berth.MaxConferenceInfo-10)}), 413, "live"},
		"unknown field":        {info(doc{}, with("incarnation", doc{})), 400, "incarnation"},
		"live of broken JSON":  {`{"nodeId": "u1", "generation": 1, "epoch": 1, "live": {]}`, 400, "body"},
		"larger than any body": {info(doc{"a": strings.Repeat("x", 5<<20)}), 413, "body"},
	} {
		a := h.report(number, c.body)
		require.Equal(t, c.status, a.status, "%s: %.300s", name, a.body)
		require.Equal(t, c.field, a.problem.Field, "%s: %.300s", name, a.body)
	}
	require.Equal(t, http.StatusBadRequest, h.report("x", info(doc{})).status)
	require.Equal(t, known, h.live(), "no partial write")
	h.redis.Kill()
	a := h.report(number, info(doc{}))
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.NotEmpty(t, a.header.Get("Retry-After"))
}

func TestReportConferences_RegisteredUnits_AreRequested(t *testing.T) { // C18
	t.Parallel()
	h := newHarness(t)
	report := func() doc {
		a := h.call(http.MethodPost, "/v1/conferences/report", h.operator(), nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		d := a.json(t)
		delete(d, "$schema")
		return d
	}
	require.Equal(t, doc{"units": 0.0, "conferences": 0.0, "lost": 0.0}, report())
	for i, unit := range []string{"u1", "u1", "u2", "lost", ""} {
		e164 := fmt.Sprint("861380013800", i)
		require.Equal(t, http.StatusCreated, h.meet("alice", meeting(with("e164", e164))).status)
		h.change(e164, func(c *berth.Conference) { c.Owner.NodeID = unit })
	}
	g1, g2 := h.join("u1", with("kind", "media")), h.join("u2", with("kind", "media"))
	h.join("idle", with("kind", "media"))
	waitFor(t, "the units to be known", func() bool { return len(h.fleet.Snapshot().Nodes) == 3 })
	require.Equal(t, doc{"units": 2.0, "conferences": 3.0, "lost": 1.0}, report())
	b, unlock := h.starter.open()
	require.Equal(t, [][]berth.NodeRef{{{NodeID: "u1", Generation: g1}, {NodeID: "u2", Generation: g2}}}, b.reports)
	b.failure = errDown
	unlock()
	require.Equal(t, http.StatusServiceUnavailable, h.call(http.MethodPost, "/v1/conferences/report", h.operator(), nil).status)
}
