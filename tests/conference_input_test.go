package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"berth"
	"berth/lua"
)

// X6: an invalid call about conferences is rejected with the wrong field and has no effect: no run, no row, no slot, no change.
func TestConference_InvalidInput_RejectedWithoutEffect(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	u1, m := s.media("u1", 2), s.conferences()
	c := m.open("8684000001").Conference
	u1.setParticipants(c, 3)
	m.awaitParticipants(c.E164, 3)
	tokens := map[string]string{
		"alice": s.token("alice"), "bob": s.token("bob"), "node": s.token("units", "node"), "operator": s.token("op", "operator"), "unknown": "no.such.token",
	}
	type doc = map[string]any
	with := func(d doc, field string, v any) doc {
		out := doc{}
		for name, value := range d {
			out[name] = value
		}
		out[field] = v
		return out
	}
	const one, all = "/v1/conferences/8684000001", "/v1/conferences"
	wanted := doc{"e164": "8684000002", "durationMs": 60_000}
	sent := doc{"nodeId": "u1", "generation": c.Owner.Generation, "epoch": c.Owner.Epoch, "live": doc{"participantCount": 9}}
	for name, bad := range map[string]struct {
		who, method, path string
		body              any
		status            int
		code              berth.Code
		field             string
	}{
		"a number with a plus":           {"alice", "POST", all, with(wanted, "e164", "+8684000002"), 400, berth.CodeInvalid, "e164"},
		"a number with a zero":           {"alice", "POST", all, with(wanted, "e164", "08684000002"), 400, berth.CodeInvalid, "e164"},
		"a number of another type":       {"alice", "POST", all, with(wanted, "e164", 8684000002), 400, berth.CodeInvalid, "e164"},
		"an end in the past":             {"alice", "POST", all, doc{"e164": "8684000002", "endAt": time.Now().Add(-time.Minute)}, 400, berth.CodeInvalid, "endAt"},
		"an end that is far":             {"alice", "POST", all, doc{"e164": "8684000002", "endAt": time.Now().Add(31 * 24 * time.Hour)}, 400, berth.CodeInvalid, "endAt"},
		"no end":                         {"alice", "POST", all, doc{"e164": "8684000002"}, 400, berth.CodeInvalid, "endAt"},
		"two ends":                       {"alice", "POST", all, with(wanted, "endAt", time.Now().Add(time.Hour)), 400, berth.CodeInvalid, "durationMs"},
		"a duration of text":             {"alice", "POST", all, with(wanted, "durationMs", "long"), 400, berth.CodeInvalid, "durationMs"},
		"too many participants":          {"alice", "POST", all, with(wanted, "maxParticipants", berth.MaxParticipants+1), 400, berth.CodeInvalid, "maxParticipants"},
		"a long title":                   {"alice", "POST", all, with(wanted, "title", strings.Repeat("x", berth.MaxConferenceTitle+1)), 400, berth.CodeInvalid, "title"},
		"too much metadata":              {"alice", "POST", all, with(wanted, "metadata", strings.Repeat("x", berth.MaxConferenceMetadata)), 413, berth.CodeTooLarge, "metadata"},
		"an unknown field":               {"alice", "POST", all, with(wanted, "owner", "u1"), 400, berth.CodeInvalid, "owner"},
		"a zone without units":           {"alice", "POST", all, with(wanted, "zone", "moon"), 503, berth.CodeNoNode, ""},
		"a number that is in use":        {"bob", "POST", all, with(wanted, "e164", "8684000001"), 409, berth.CodeConflict, "e164"},
		"a node opens one":               {"node", "POST", all, wanted, 403, berth.CodeForbidden, ""},
		"an unknown user opens one":      {"unknown", "POST", all, wanted, 401, berth.CodeUnauthenticated, ""},
		"another user reads it":          {"bob", "GET", one, nil, 404, berth.CodeNotFound, ""},
		"another user follows it":        {"bob", "GET", one + "/events", nil, 404, berth.CodeNotFound, ""},
		"another user reads its record":  {"bob", "GET", one + "/record", nil, 404, berth.CodeNotFound, ""},
		"another user ends it":           {"bob", "DELETE", one, nil, 404, berth.CodeNotFound, ""},
		"a node ends it":                 {"node", "DELETE", one, nil, 403, berth.CodeForbidden, ""},
		"a record before the end":        {"alice", "GET", one + "/record", nil, 404, berth.CodeNotFound, ""},
		"no such conference":             {"alice", "DELETE", all + "/8684000009", nil, 404, berth.CodeNotFound, ""},
		"a look at no number":            {"alice", "GET", all + "/x", nil, 400, berth.CodeInvalid, "e164"},
		"an end of no number":            {"alice", "DELETE", all + "/+86", nil, 400, berth.CodeInvalid, "e164"},
		"an odd id":                      {"alice", "GET", one + "?conferenceId=a%20b", nil, 400, berth.CodeInvalid, "conferenceId"},
		"no such status":                 {"alice", "GET", all + "?status=lost", nil, 400, berth.CodeInvalid, "status"},
		"an odd unit":                    {"alice", "GET", all + "?unit=a%20b", nil, 400, berth.CodeInvalid, "unit"},
		"too long a page":                {"alice", "GET", all + "?limit=101", nil, 400, berth.CodeInvalid, "limit"},
		"a report of an unknown unit":    {"node", "POST", one + "/info", with(sent, "nodeId", "stranger"), 409, berth.CodeConflict, "epoch"},
		"a report of another generation": {"node", "POST", one + "/info", with(sent, "generation", 7), 409, berth.CodeConflict, "epoch"},
		"a report under another epoch":   {"node", "POST", one + "/info", with(sent, "epoch", c.Epoch+1), 409, berth.CodeConflict, "epoch"},
		"the end, by an unknown unit":    {"node", "POST", one + "/info", with(with(sent, "nodeId", "stranger"), "ended", true), 409, berth.CodeConflict, "epoch"},
		"a report of no conference":      {"node", "POST", all + "/8684000009/info", sent, 404, berth.CodeNotFound, ""},
		"a report of no number":          {"node", "POST", all + "/x/info", sent, 400, berth.CodeInvalid, "e164"},
		"a report without a unit":        {"node", "POST", one + "/info", with(sent, "nodeId", ""), 400, berth.CodeInvalid, "nodeId"},
		"a report under no epoch":        {"node", "POST", one + "/info", with(sent, "epoch", 0), 400, berth.CodeInvalid, "epoch"},
		"an epoch of text":               {"node", "POST", one + "/info", with(sent, "epoch", "1"), 400, berth.CodeInvalid, "epoch"},
		"a report that is a list":        {"node", "POST", one + "/info", with(sent, "live", []int{1}), 400, berth.CodeInvalid, "live"},
		"too large a report":             {"node", "POST", one + "/info", with(sent, "live", doc{"a": strings.Repeat("x", berth.MaxConferenceInfo)}), 413, berth.CodeTooLarge, "live"},
		"a user reports":                 {"alice", "POST", one + "/info", sent, 403, berth.CodeForbidden, ""},
		"a node asks all to report":      {"node", "POST", all + "/report", nil, 403, berth.CodeForbidden, ""},
		"a user reads the operators'":    {"alice", "GET", "/v1/stats/conferences", nil, 403, berth.CodeForbidden, ""},
	} {
		status, p := s.send(bad.method, bad.path, tokens[bad.who], bad.body)
		require.Equal(t, bad.status, status, "%s: %v", name, p)
		require.EqualValues(t, bad.code, p["code"], "%s: %v", name, p)
		require.NotEmpty(t, p["detail"], "%s: %v", name, p)
		if bad.field == "" {
			require.NotContains(t, p, "field", "%s: %v", name, p)
		} else {
			require.Equal(t, bad.field, p["field"], "%s: %v", name, p)
		}
		require.NotContains(t, p["detail"], "alice", name)
	}

	s.awaitEnd("conference:8684000002") // of the zone without units: it was withdrawn (C16)
	runs, err := s.temporal().ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: `WorkflowType = "Conference"`})
	require.NoError(t, err)
	require.LessOrEqual(t, len(runs.GetExecutions()), 2)
	scripts := lua.New(s.redis(), lua.Keys{})
	for _, e164 := range []string{"8684000002", "8684000009"} {
		_, there, err := scripts.ConferenceRow(t.Context(), e164)
		require.NoError(t, err)
		require.False(t, there, e164)
	}
	m.awaitParticipants(c.E164, 3)
	current, err := m.Conference(t.Context(), c.E164, "")
	require.NoError(t, err)
	require.Equal(t, c.Revision, current.Revision, "no call had an effect")
	require.Equal(t, c.Owner, current.Owner)
	nodes, err := scripts.ReadNodes(t.Context(), "u1")
	require.NoError(t, err)
	require.Equal(t, 1, nodes["u1"].Leases)
	m.end(c.E164, "conference-released")
	status, p := s.send(http.MethodDelete, one, tokens["alice"], nil)
	require.Equal(t, http.StatusConflict, status, "it has ended: %v", p)
	s.noSlots("u1")
}
