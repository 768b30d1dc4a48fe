package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
)

const number = "8613800138000"

// meeting returns a valid request for a conference of half an hour.
func meeting(change ...func(doc)) doc {
	d := doc{"e164": number, "title": "stand-up", "durationMs": 1_800_000}
	for _, c := range change {
		c(d)
	}
	return d
}

func (h *harness) meet(user string, body any) answer {
	h.t.Helper()
	return h.call(http.MethodPost, "/v1/conferences", h.token(user), body)
}

func (h *harness) conference(method, path, token string) answer {
	h.t.Helper()
	return h.call(method, "/v1/conferences/"+path, token, nil)
}

func TestConference_Lifecycle_IsVisible(t *testing.T) { // C16, C10, C22
	t.Parallel()
	h := newHarness(t)
	alice, operator := h.token("alice"), h.operator()
	before := time.Now()
	a := h.meet("alice", meeting(with("maxParticipants", 20), with("zone", "z1"), with("metadata", doc{"room": "A"})))
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	require.Equal(t, "conferences/"+number, a.header.Get("Location"))
	d := a.json(t)
	require.Equal(t, "open", d["status"])
	require.Equal(t, number, d["e164"])
	require.Equal(t, "/v1/conferences/"+number+"/events", d["eventsUrl"])
	require.Equal(t, true, d["recoverable"])
	require.Equal(t, "u1", d["owner"].(doc)["nodeId"])
	require.Equal(t, []any{}, d["segments"])
	require.Equal(t, []any{}, d["orders"])
	require.NotContains(t, d, "replay")
	ends, err := time.Parse(time.RFC3339, d["endAt"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, before.Add(30*time.Minute), ends, time.Minute)

	for name, token := range map[string]string{"owner": alice, "operator": operator} {
		got := h.conference(http.MethodGet, number, token)
		require.Equal(t, http.StatusOK, got.status, name)
		g := got.json(t)
		require.Equal(t, d["conferenceId"], g["conferenceId"], name)
		require.Equal(t, doc{"room": "A"}, g["info"].(doc)["basic"], name)
		require.Equal(t, doc{}, g["info"].(doc)["live"], name)
		require.Equal(t, false, g["stale"], name)
		require.Equal(t, "http://ui.test:8233/namespaces/default/workflows/conference:"+number, g["links"].(doc)["temporal"])
		require.Equal(t, http.StatusNotFound, h.conference(http.MethodGet, number+"/record", token).status, "the conference has not ended")
	}
	bob := h.token("bob")
	for _, path := range []string{number, number + "/record", number + "/events"} {
		require.Equal(t, http.StatusNotFound, h.conference(http.MethodGet, path, bob).status, path)
	}
	require.Equal(t, http.StatusNotFound, h.conference(http.MethodDelete, number, bob).status)

	slow := func(is bool) {
		b, unlock := h.starter.open()
		defer unlock()
		b.slow = is
	}
	slow(true)
	ending := h.conference(http.MethodDelete, number, alice)
	require.Equal(t, http.StatusAccepted, ending.status, "its unit does not respond")
	require.Equal(t, "open", ending.json(t)["status"])
	slow(false)
	ended := h.conference(http.MethodDelete, number, operator)
	require.Equal(t, http.StatusOK, ended.status, string(ended.body))
	require.Equal(t, "ended", ended.json(t)["status"])
	require.Equal(t, "released", ended.json(t)["end"])
	b, unlock := h.starter.open()
	require.Equal(t, []string{"alice", "olga"}, b.releasedBy)
	unlock()
	again := h.conference(http.MethodDelete, number, alice)
	require.Equal(t, http.StatusConflict, again.status)
	record := h.conference(http.MethodGet, number+"/record", alice)
	require.Equal(t, http.StatusOK, record.status)
	require.Equal(t, d["conferenceId"], record.json(t)["conferenceId"])
	require.NotContains(t, h.conference(http.MethodGet, number, alice).json(t), "info")

	second := h.meet("bob", meeting())
	require.Equal(t, http.StatusCreated, second.status, "the number is free again")
	require.Equal(t, d["conferenceId"], h.conference(http.MethodGet, number, alice).json(t)["conferenceId"], "the user's own conference")
	require.Equal(t, second.json(t)["conferenceId"], h.conference(http.MethodGet, number, operator).json(t)["conferenceId"], "the latest conference")
	first := url.QueryEscape(d["conferenceId"].(string))
	require.Equal(t, http.StatusOK, h.conference(http.MethodGet, number+"/record?conferenceId="+first, operator).status)
	require.Equal(t, http.StatusNotFound, h.conference(http.MethodGet, number+"/record?conferenceId="+first, bob).status)
	require.Equal(t, http.StatusConflict, h.conference(http.MethodDelete, number, alice).status, "bob's conference is unchanged")
}

func TestCreateConference_SameBody_IsReplay(t *testing.T) { // C16
	t.Parallel()
	h := newHarness(t)
	first := h.meet("alice", meeting(with("metadata", `{"a": 1}`))).json(t)
	again := h.meet("alice", `{"metadata": "{\"a\": 1}", "durationMs": 1800000, "title": "stand-up", "e164": "`+number+`"}`)
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.Equal(t, true, again.json(t)["replay"])
	require.Equal(t, first["conferenceId"], again.json(t)["conferenceId"])
	require.Equal(t, first["endAt"], again.json(t)["endAt"], "the end of the first request")
	for name, a := range map[string]answer{
		"another title":    h.meet("alice", meeting(with("title", "retro"))),
		"another user":     h.meet("bob", meeting(with("metadata", `{"a": 1}`))),
		"another duration": h.meet("alice", meeting(with("durationMs", 1))),
		"not recoverable":  h.meet("alice", meeting(with("recoverable", false))),
	} {
		require.Equal(t, http.StatusConflict, a.status, name)
		require.Equal(t, "e164", a.problem.Field, name)
		require.NotContains(t, string(a.body), "alice", name)
	}
	h.conference(http.MethodDelete, number, h.token("alice"))
	next := h.meet("alice", meeting(with("metadata", `{"a": 1}`)))
	require.Equal(t, http.StatusCreated, next.status, "the same request after the end creates another conference")
}

func TestCreateConference_NoNumber_AssignsOne(t *testing.T) { // C16
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.NumbersFrom = "9990" })
	taken := h.meet("bob", meeting(with("e164", "9992")))
	require.Equal(t, http.StatusCreated, taken.status)
	var got []any
	for range 3 {
		a := h.meet("alice", doc{"durationMs": 1000})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		got = append(got, a.json(t)["e164"])
	}
	require.Equal(t, []any{"9990", "9991", "9993"}, got)
	for range 6 {
		require.Equal(t, http.StatusCreated, h.meet("alice", doc{"durationMs": 1000}).status)
	}
	full := h.meet("alice", doc{"durationMs": 1000})
	require.Equal(t, http.StatusServiceUnavailable, full.status, string(full.body))
	require.Equal(t, berth.CodeUnavailable, full.problem.Code)
}

func TestCreateConference_NoUnit_StatesReasons(t *testing.T) { // C16
	t.Parallel()
	h := newHarness(t)
	refuse := func(err error) {
		b, unlock := h.starter.open()
		defer unlock()
		b.refuse = err
	}
	refuse(&berth.Refusal{Code: berth.CodeNodeFull, Reasons: map[berth.ExcludeReason]int{berth.ExcludeFull: 2}})
	a := h.meet("alice", meeting())
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, berth.CodeNodeFull, a.problem.Code)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 2}, a.problem.Reasons)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	refuse(&berth.Refusal{Code: berth.CodeNoNode, Missing: []string{berth.CapabilityConference}})
	a = h.meet("alice", meeting())
	require.Equal(t, berth.CodeNoNode, a.problem.Code)
	require.Equal(t, []string{berth.CapabilityConference}, a.problem.Missing)
	refuse(berth.Errorf(berth.CodeNoLicence, "all 2 licences are in use")) // C22
	a = h.meet("alice", meeting())
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, berth.CodeNoLicence, a.problem.Code)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	refuse(berth.Errorf(berth.CodeUnitRefused, "unit u1 refused: licence"))
	a = h.meet("alice", meeting())
	require.Equal(t, http.StatusBadGateway, a.status)
	require.Equal(t, berth.CodeUnitRefused, a.problem.Code)
	require.Contains(t, a.problem.Detail, "licence")
	require.NotContains(t, h.log.String(), `"level":"ERROR"`, "not an internal error")
	record := h.conference(http.MethodGet, number+"/record", h.token("alice"))
	require.Equal(t, "deleted", record.json(t)["status"])
	refuse(nil)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
}

func TestCreateConference_InvalidBody_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	endAt := func(d time.Duration) func(doc) {
		return func(b doc) {
			delete(b, "durationMs")
			b["endAt"] = time.Now().Add(d).Format(time.RFC3339Nano)
		}
	}
	for name, c := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"empty":                   {``, 400, "body"},
		"no end":                  {meeting(without("durationMs")), 400, "endAt"},
		"two ends":                {meeting(endAt(time.Minute), with("durationMs", 1)), 400, "durationMs"},
		"end in the past":         {meeting(endAt(-time.Second)), 400, "endAt"},
		"end over 30 days":        {meeting(endAt(30*24*time.Hour + time.Minute)), 400, "endAt"},
		"invalid end":             {meeting(without("durationMs"), with("endAt", "soon")), 400, "endAt"},
		"no time":                 {meeting(with("durationMs", -1)), 400, "durationMs"},
		"too much time":           {meeting(with("durationMs", int64(2592000001))), 400, "durationMs"},
		"a number with a plus":    {meeting(with("e164", "+"+number)), 400, "e164"},
		"a number with a zero":    {meeting(with("e164", "0"+number)), 400, "e164"},
		"a number too short":      {meeting(with("e164", "123")), 400, "e164"},
		"a number too long":       {meeting(with("e164", "1234567890123456")), 400, "e164"},
		"a number with letters":   {meeting(with("e164", "86abc")), 400, "e164"},
		"a number as JSON number": {meeting(with("e164", 8613800138000)), 400, "e164"},
		"title with a line break": {meeting(with("title", "a\nb")), 400, "title"},
		"title too long":          {meeting(with("title", strings.Repeat("x", berth.MaxConferenceTitle+1))), 400, "title"},
		"participants under 0":    {meeting(with("maxParticipants", -1)), 400, "maxParticipants"},
		"too many participants":   {meeting(with("maxParticipants", berth.MaxParticipants+1)), 400, "maxParticipants"},
		"odd zone":                {meeting(with("zone", "a\rb")), 400, "zone"},
		"long zone":               {meeting(with("zone", strings.Repeat("z", 200))), 400, "zone"},
		"metadata too large":      {meeting(with("metadata", strings.Repeat("x", berth.MaxConferenceMetadata))), 413, "metadata"},
		"recoverable as text":     {meeting(with("recoverable", "yes")), 400, "recoverable"},
		"unknown field":           {meeting(with("epoch", 7)), 400, "epoch"},
		"an end in 30 days":       {meeting(with("e164", "8613800138001"), endAt(30*24*time.Hour-time.Minute)), 201, ""},
		"maximum metadata":        {meeting(with("e164", "8613800138002"), with("metadata", strings.Repeat("x", berth.MaxConferenceMetadata-2))), 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.meet("alice", c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
		})
	}
	b, unlock := h.starter.open()
	require.Len(t, b.conferences, 2, "no partial write")
	unlock()
	for _, path := range []string{"x", "+86", "0123456", number + "?conferenceId=a%20b"} {
		require.Equal(t, http.StatusBadRequest, h.conference(http.MethodGet, path, h.token("alice")).status, path)
	}
	require.Equal(t, http.StatusBadRequest, h.conference(http.MethodDelete, "x", h.token("alice")).status)
	require.Equal(t, http.StatusNotFound, h.conference(http.MethodDelete, number, h.token("alice")).status)
}

func TestListConferences_Filters_SelectOwnConferences(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var mine []string
	for range 5 {
		d := h.meet("alice", doc{"durationMs": 60_000}).json(t)
		mine = append([]string{d["e164"].(string)}, mine...)
	}
	bobs := h.meet("bob", meeting()).json(t)["e164"].(string)
	h.change(mine[1], func(c *berth.Conference) {
		c.Status, c.Owner = berth.ConferenceAwaitingRecovery, berth.ConferenceOwner{}
	})
	h.change(mine[2], func(c *berth.Conference) { c.Owner.NodeID = "u2" })
	list := func(token string, q url.Values) []string {
		q.Set("limit", "2")
		ids, calls := h.pagesAs(token, "/v1/conferences", "conferences", "e164", q)
		require.LessOrEqual(t, len(ids), 2*calls)
		return ids
	}
	require.ElementsMatch(t, mine, list(h.token("alice"), url.Values{}))
	require.Equal(t, []string{bobs}, list(h.token("bob"), url.Values{}))
	require.Empty(t, list(h.token("carol"), url.Values{}))
	require.ElementsMatch(t, append([]string{bobs}, mine...), list(h.operator(), url.Values{}))
	require.Equal(t, mine[1:2], list(h.token("alice"), url.Values{"status": {"awaiting-recovery"}}))
	require.Equal(t, mine[2:3], list(h.operator(), url.Values{"unit": {"u2"}}))
	require.Empty(t, list(h.token("bob"), url.Values{"unit": {"u2"}}), "bob has no conference there")
	for q, field := range map[string]string{"?status=lost": "status", "?unit=a%20b": "unit", "?limit=101": "limit", "?cursor=x": "cursor"} {
		a := h.call(http.MethodGet, "/v1/conferences"+q, h.token("alice"), nil)
		require.Equal(t, http.StatusBadRequest, a.status, q)
		require.Equal(t, field, a.problem.Field, q)
	}
}

func TestConferences_DependencyUnavailable_Return503(t *testing.T) { // L11
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
	b, unlock := h.starter.open()
	b.failure = errDown
	unlock()
	for _, a := range []answer{
		h.meet("alice", doc{"durationMs": 1000}),
		h.conference(http.MethodDelete, number, h.token("alice")),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
		require.Equal(t, berth.CodeUnavailable, a.problem.Code)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	h.redis.Kill()
	a := h.conference(http.MethodGet, number, h.token("alice"))
	require.Equal(t, http.StatusOK, a.status, "served from the database")
	require.Equal(t, true, a.json(t)["stale"])
	require.Equal(t, "open", a.json(t)["status"])
	require.NotContains(t, a.json(t), "info")
	waitFor(t, "Redis to be missed", func() bool { return h.fleet.Writable() != nil })
	a = h.meet("alice", doc{"durationMs": 1000})
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	b, unlock = h.starter.open()
	defer unlock()
	require.Len(t, b.conferences, 1)
}
