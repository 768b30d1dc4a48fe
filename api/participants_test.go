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
	"berth/internal/identity"
)

// conferenceOf opens a conference of a user and returns its id.
func (h *harness) conferenceOf(user, e164 string) string {
	h.t.Helper()
	h.join("u1", with("kind", "media"), with("capabilities", []string{"conference"}))
	a := h.call(http.MethodPost, "/v1/conferences", h.token(user), doc{"e164": e164, "durationMs": 3_600_000})
	require.Equal(h.t, http.StatusCreated, a.status, string(a.body))
	return a.json(h.t)["conferenceId"].(string)
}

const numberOne = "8613800000001"

// B9, C23: the user who opened a conference admits participants, who get berth's own token, and removes them.
func TestParticipants_OfOwnConference_AdmittedListedRemoved(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	id := h.conferenceOf("alice", numberOne)
	path := "/v1/conferences/" + numberOne + "/participants"
	add := func(user string, body doc) answer { return h.call(http.MethodPost, path, h.token(user), body) }
	a := add("alice", doc{"identity": "ann@example.com", "name": "Ann", "role": "host"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	got := a.json(t)
	require.Equal(t, strings.Replace(h.base, "http", "ws", 1), got["url"])
	require.Equal(t, true, got["urlFromRequest"])
	require.Equal(t, id, got["conferenceId"])
	require.EqualValues(t, 1, got["epoch"])
	require.Equal(t, false, got["direct"])
	of, err := identity.Participants{Secrets: identity.Secrets{secret}}.Verify(got["token"].(string))
	require.NoError(t, err)
	require.Equal(t, identity.Participation{ConferenceID: id, E164: numberOne, Identity: "ann@example.com", Name: "Ann", Role: berth.RoleHost}, of)
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, "/v1/me", got["token"].(string), nil).status, "it does not replace a bearer token")
	require.Equal(t, "participant", add("alice", doc{"identity": "bob"}).json(t)["role"])
	require.Equal(t, "listener", add("alice", doc{"identity": "ann@example.com", "role": "listener"}).json(t)["role"], "the same identity again")

	listed := h.call(http.MethodGet, path, h.operator(), nil).json(t)["participants"].([]any)
	require.Len(t, listed, 2)
	require.Equal(t, "ann@example.com", listed[0].(doc)["identity"])
	page := h.call(http.MethodGet, path+"?limit=1", h.token("alice"), nil).json(t)
	require.Len(t, page["participants"], 1)
	next := h.call(http.MethodGet, path+"?limit=1&cursor="+url.QueryEscape(page["nextCursor"].(string)), h.token("alice"), nil).json(t)
	require.Equal(t, "bob", next["participants"].([]any)[0].(doc)["identity"])
	require.NotContains(t, next, "nextCursor")

	for field, body := range map[string]doc{
		"identity": {"identity": "guest-1"}, "role": {"identity": "x", "role": "admin"}, "name": {"identity": "x", "name": "a\nb"},
	} {
		a := add("alice", body)
		require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
		require.Equal(t, field, a.problem.Field)
	}
	for _, user := range []string{"bob", "ann@example.com"} { // who may join may not admit
		require.Equal(t, http.StatusNotFound, add(user, doc{"identity": "x"}).status)
		require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path+"/bob", h.token(user), nil).status)
	}

	gone := h.call(http.MethodDelete, path+"/"+url.PathEscape("ann@example.com"), h.token("alice"), nil)
	require.Equal(t, http.StatusServiceUnavailable, gone.status, "the fake unit cannot confirm it")
	require.Contains(t, gone.problem.Detail, "cannot join again")
	again := add("alice", doc{"identity": "ann@example.com"})
	require.Equal(t, http.StatusConflict, again.status, string(again.body))
	listed = h.call(http.MethodGet, path, h.token("alice"), nil).json(t)["participants"].([]any)
	require.Equal(t, "alice", listed[0].(doc)["removedBy"])
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path+"/unknown", h.token("alice"), nil).status)

	require.Equal(t, http.StatusOK, h.call(http.MethodDelete, "/v1/conferences/"+numberOne, h.token("alice"), nil).status)
	ended := add("alice", doc{"identity": "bob"})
	require.Equal(t, http.StatusConflict, ended.status)
	require.Equal(t, berth.CodeEnded, ended.problem.Code)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path+"/bob", h.token("alice"), nil).status, "for the record")
	require.NotContains(t, h.log.String(), got["token"].(string)[100:])
}

// B9: a link admits as many guests as it states, each with an identity of its own, until it is revoked; it is stored as a hash.
func TestLinks_Redeemed_AdmitGuestsUntilUsedOrRevoked(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	id := h.conferenceOf("alice", numberOne)
	path := "/v1/conferences/" + numberOne + "/links"
	link := func(body doc) (linkID, secret string) {
		t.Helper()
		a := h.call(http.MethodPost, path, h.token("alice"), body)
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		return a.json(t)["linkId"].(string), a.json(t)["secret"].(string)
	}
	redeem := func(body doc) answer { return h.call(http.MethodPost, "/v1/invitations", "", body) }

	lookUp := func(body doc) answer { return h.call(http.MethodPost, "/v1/invitations/lookup", "", body) }

	_, once := link(doc{})
	for range 2 {
		seen := lookUp(doc{"link": once})
		require.Equal(t, http.StatusOK, seen.status, string(seen.body))
		require.Equal(t, "participant", seen.json(t)["role"])
		require.NotEmpty(t, seen.json(t)["endAt"])
	}
	first := redeem(doc{"link": once, "name": "Eve"})
	require.Equal(t, http.StatusOK, first.status, string(first.body))
	eve := first.json(t)
	require.True(t, strings.HasPrefix(eve["identity"].(string), berth.GuestPrefix))
	require.Equal(t, id, eve["conferenceId"])
	require.Equal(t, "participant", eve["role"])
	used := redeem(doc{"link": once})
	require.Equal(t, http.StatusGone, used.status)
	require.Equal(t, berth.CodeLinkUsed, used.problem.Code)
	require.Equal(t, used.problem.Code, lookUp(doc{"link": once}).problem.Code)
	require.Equal(t, http.StatusOK, lookUp(doc{"guest": eve["guest"]}).status)
	back := redeem(doc{"guest": eve["guest"]})
	require.Equal(t, http.StatusOK, back.status, string(back.body))
	require.Equal(t, eve["identity"], back.json(t)["identity"], "a reload is the same guest")
	require.NotContains(t, back.json(t), "guest")

	linkID, many := link(doc{"maxUses": 3, "role": "listener"})
	seen := map[any]bool{}
	for range 2 {
		a := redeem(doc{"link": many})
		require.Equal(t, http.StatusOK, a.status)
		require.Equal(t, "listener", a.json(t)["role"])
		seen[a.json(t)["identity"]] = true
	}
	require.Len(t, seen, 2)
	listed := h.call(http.MethodGet, path, h.token("alice"), nil)
	newest := listed.json(t)["links"].([]any)[0].(doc)
	require.EqualValues(t, 2, newest["uses"])
	require.NotContains(t, string(listed.body), many)
	require.NotContains(t, string(listed.body), "secret")
	for range 2 {
		require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path+"/"+linkID, h.token("alice"), nil).status)
	}
	require.Equal(t, berth.CodeLinkRevoked, redeem(doc{"link": many}).problem.Code)
	require.Equal(t, berth.CodeLinkRevoked, lookUp(doc{"link": many}).problem.Code)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path+"/l-x", h.token("alice"), nil).status)

	// Removing a guest can revoke the link that it came with.
	_, third := link(doc{"maxUses": 5})
	guest := redeem(doc{"link": third}).json(t)
	h.call(http.MethodDelete, "/v1/conferences/"+numberOne+"/participants/"+guest["identity"].(string)+"?revokeLink=true", h.token("alice"), nil)
	removed := redeem(doc{"guest": guest["guest"]})
	require.Equal(t, http.StatusForbidden, removed.status)
	require.Equal(t, berth.CodeRemoved, removed.problem.Code)
	require.Equal(t, berth.CodeRemoved, lookUp(doc{"guest": guest["guest"]}).problem.Code)
	require.Equal(t, berth.CodeLinkRevoked, redeem(doc{"link": third}).problem.Code)

	for _, wrong := range []doc{{}, {"link": "a", "guest": "b"}, {"link": "a", "name": "a\nb"}} {
		require.Equal(t, http.StatusBadRequest, redeem(wrong).status)
	}
	for _, wrong := range []doc{{"link": "x"}, {"guest": "x"}, {"guest": once}, {"link": eve["guest"]}} {
		require.Equal(t, http.StatusUnauthorized, redeem(wrong).status)
		require.Equal(t, http.StatusUnauthorized, lookUp(wrong).status)
	}
	for body, field := range map[*doc]string{{"role": "host"}: "role", {"maxUses": 0}: "maxUses", {"maxUses": 10_001}: "maxUses"} {
		a := h.call(http.MethodPost, path, h.token("alice"), *body)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, field, a.problem.Field)
	}
	_, late := link(doc{})
	require.Equal(t, http.StatusOK, h.call(http.MethodDelete, "/v1/conferences/"+numberOne, h.token("alice"), nil).status)
	require.Equal(t, berth.CodeEnded, redeem(doc{"link": late}).problem.Code)
	require.Equal(t, berth.CodeEnded, lookUp(doc{"link": late}).problem.Code)
	h.conferenceOf("alice", numberOne) // the number's next conference
	require.Equal(t, berth.CodeEnded, redeem(doc{"link": late}).problem.Code, "a link is bound to its conference")
	log := h.log.String()
	for _, text := range []string{once, many, eve["guest"].(string)} {
		require.NotContains(t, log, text)
	}
}

// B9: a participant's ticket opens a reduced stream of its conference and nothing else.
func TestParticipationEvents_Ticket_OpensReducedStreamOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	conf := h.opened()
	id, path := conf.ID, "/v1/conferences/"+number
	join := func(identity string) doc {
		return h.call(http.MethodPost, path+"/participants", h.token("alice"), doc{"identity": identity}).json(t)
	}
	ann, bob := join("ann"), join("bob")
	ticket := url.QueryEscape(ann["ticket"].(string))
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, path+"/events?ticket="+ticket, "", nil).status)
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, "/v1/participations/c-x/events?ticket="+ticket, "", nil).status)
	h.call(http.MethodDelete, path+"/participants/bob", h.token("alice"), nil)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, bob["eventsUrl"].(string), "", nil).status, "it was removed")
	for _, user := range []string{"eve", "ann"} { // FA11: the user ann is not the participant ann
		require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/participations/"+id+"/events", h.token(user), nil).status, user)
	}
	owner := join("alice")
	h.call(http.MethodDelete, path+"/participants/alice", h.token("alice"), nil)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, owner["eventsUrl"].(string), "", nil).status, "it was removed, also with the id of the user")
	h.announce(h.change(number, ends), 2)
	for _, a := range []answer{
		h.call(http.MethodGet, ann["eventsUrl"].(string), "", nil), h.call(http.MethodGet, "/v1/participations/"+id+"/events", h.token("alice"), nil),
	} {
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Contains(t, string(a.body), "event: conference")
		require.Contains(t, string(a.body), `"epoch":1`)
		require.Contains(t, string(a.body), "event: done")
		for _, private := range []string{"u1", "owner", "incarnation"} {
			require.NotContains(t, string(a.body), private)
		}
	}
}

// B9: without the proxy there are no routes of it, and participants wait for a unit.
func TestParticipants_Direct_NeedUnit(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.SignallingDirect = true })
	h.conferenceOf("alice", numberOne)
	a := h.call(http.MethodPost, "/v1/conferences/"+numberOne+"/participants", h.token("alice"), doc{"identity": "ann"})
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.NotContains(t, string(h.call(http.MethodGet, "/openapi.yaml", "", nil).body), "/rtc")

	link := h.call(http.MethodPost, "/v1/conferences/"+numberOne+"/links", h.token("alice"), doc{}).json(t)["secret"]
	for range 2 {
		a = h.call(http.MethodPost, "/v1/invitations", "", doc{"link": link})
		require.Equal(t, http.StatusServiceUnavailable, a.status, "a link is not used by a guest who cannot join: %s", a.body)
	}
}

// B9: pages of any origin may use the signalling routes, which need a token in any case.
func TestSignal_Preflight_AllowsEveryOrigin(t *testing.T) {
	t.Parallel()
	for _, h := range []*harness{newHarness(t), newHarness(t, func(d *api.Deps) { d.Config.CORSOrigins = []string{"https://app.test"} })} {
		for _, path := range []string{"/rtc", "/rtc/validate", "/rtc/v1", "/rtc/v1/validate"} {
			a := h.call(http.MethodOptions, path, "", nil, "Origin", "https://other.test", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization")
			require.Equal(t, http.StatusNoContent, a.status, path)
			require.Equal(t, []string{"*"}, a.header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, "Authorization", a.header.Get("Access-Control-Allow-Headers"))
			a = h.call(http.MethodGet, path+"?access_token=x&sdk=js", "", nil, "Origin", "https://other.test")
			require.Equal(t, http.StatusUnauthorized, a.status)
			require.Equal(t, []string{"*"}, a.header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, "cross-origin", a.header.Get("Cross-Origin-Resource-Policy"))
		}
	}
}

// B9: the token of a participant outlives every end time: the state of the conference decides.
func TestParticipantToken_LongestConference_StillValid(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, identity.ParticipantTTL, 30*24*time.Hour)
}
