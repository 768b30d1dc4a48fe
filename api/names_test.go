package api_test

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testnames"
)

// FR3: names, titles and identities of all languages are kept in their stored form by every response, by records and by exports.
func TestNames_OfTheWorld_SameInResponsesRecordsAndExports(t *testing.T) { // B9, C22, C23
	t.Parallel()
	h := newHarness(t)
	h.conferenceOf("alice", numberOne)
	path := "/v1/conferences/" + numberOne
	link := h.call(http.MethodPost, path+"/links", h.token("alice"), doc{"maxUses": 100})
	require.Equal(t, http.StatusCreated, link.status, string(link.body))
	joined := time.Now().UTC().Truncate(time.Millisecond)
	var legs []doc
	names := map[string]string{}
	for _, n := range testnames.All() {
		added := h.call(http.MethodPost, path+"/participants", h.token("alice"), doc{"identity": n.Identity, "name": n.Name})
		require.Equal(t, http.StatusCreated, added.status, "%s: %s", n.Language, added.body)
		require.Equal(t, n.Identity, added.json(t)["identity"], n.Language)
		guest := h.call(http.MethodPost, "/v1/invitations", "", doc{"link": link.json(t)["secret"], "name": n.Name})
		require.Equal(t, http.StatusOK, guest.status, "%s: %s", n.Language, guest.body)
		names[guest.json(t)["identity"].(string)], names[n.Identity] = n.Stored(), n.Stored()
		legs = append(legs, doc{"id": "PA_" + n.Identity, "identity": n.Identity, "name": n.Stored(), "joinedAt": joined, "leftAt": joined, "reason": "left"})
	}
	found := map[string]string{}
	for cursor := ""; ; {
		page := h.call(http.MethodGet, path+"/participants?limit=20&cursor="+url.QueryEscape(cursor), h.token("alice"), nil)
		for _, p := range page.json(t)["participants"].([]any) {
			name, _ := p.(doc)["name"].(string)
			found[p.(doc)["identity"].(string)] = name
		}
		next, more := page.json(t)["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	require.Equal(t, names, found)
	a := h.call(http.MethodPost, path+"/info", h.token("u1", "node"), doc{"nodeId": "u1", "generation": 1, "epoch": 1, "live": doc{}, "legs": legs})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	h.change(numberOne, func(c *berth.Conference) {
		c.Status, c.End, c.EndedAt = berth.ConferenceEnded, berth.EndReleased, joined
	})
	get := func(accept string) string {
		a := h.call(http.MethodGet, path+"/record", h.token("alice"), nil, "Accept", accept)
		require.Equal(t, http.StatusOK, a.status)
		return string(a.body)
	}
	exported, table := map[string]string{}, map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(get("application/x-ndjson")), "\n") {
		var leg berth.ConferenceLeg
		require.NoError(t, json.Unmarshal([]byte(line), &leg))
		exported[leg.Identity] = leg.Name
	}
	rows, err := csv.NewReader(strings.NewReader(get("text/csv"))).ReadAll()
	require.NoError(t, err)
	for _, row := range rows[1:] {
		require.NotContains(t, "=+-@\t＝＋－＠", string([]rune(row[1])[:1]), "what a spreadsheet runs")
		table[strings.TrimPrefix(row[1], "'")] = strings.TrimPrefix(row[2], "'")
	}
	for _, n := range testnames.All() {
		require.Equal(t, n.Stored(), exported[n.Identity], n.Language)
		require.Equal(t, n.Stored(), table[n.Identity], n.Language)
	}
}

func TestNames_TitlesOfTheWorld_AreKept(t *testing.T) { // C10
	t.Parallel()
	h := newHarness(t)
	for i, n := range testnames.All() {
		e164 := "86138000001" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		zone := []rune(n.Title)
		made := h.meet("alice", meeting(with("e164", e164), with("title", n.Title), with("zone", string(zone[:min(len(zone), 128)]))))
		require.Equal(t, http.StatusCreated, made.status, "%s: %s", n.Language, made.body)
		require.Equal(t, testnames.Stored(n.Title), made.json(t)["title"], n.Language)
		require.Equal(t, testnames.Stored(n.Title), h.conference(http.MethodGet, e164, h.token("alice")).json(t)["title"])
	}
}

// FR3: "too long" and "not allowed" are two errors that name the field and the character, wherever a name is given.
func TestNames_NotAllowed_ErrorsNameFieldAndCharacter(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	h.session("alice", "s1")
	h.conferenceOf("alice", numberOne)
	path := "/v1/conferences/" + numberOne
	link := h.call(http.MethodPost, path+"/links", h.token("alice"), doc{"maxUses": 100}).json(t)["secret"]
	for where, c := range map[string]struct {
		field string
		limit int
		send  func(name string) answer
	}{
		"a participant": {"name", 200, func(name string) answer {
			return h.call(http.MethodPost, path+"/participants", h.token("alice"), doc{"identity": "x", "name": name})
		}},
		"a guest": {"name", 200, func(name string) answer {
			return h.call(http.MethodPost, "/v1/invitations", "", doc{"link": link, "name": name})
		}},
		"a title": {"title", 200, func(name string) answer { return h.meet("alice", meeting(with("title", name))) }},
		"a zone":  {"zone", 128, func(name string) answer { return h.meet("alice", meeting(with("zone", name))) }},
		"a speaker": {"speakerId", 200, func(name string) answer {
			return h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), job("r1", with("speakerId", name)))
		}},
		"a host": {"hostname", 128, func(name string) answer {
			return h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n2", with("hostname", name)))
		}},
		"a reason": {"reason", 500, func(name string) answer {
			return h.call(http.MethodPost, "/v1/accounts/bob/credits", h.operator(), doc{"amount": 5, "reason": name}, "Idempotency-Key", "k")
		}},
		"an execution's zone": {"zone", 128, func(name string) answer {
			return h.call(http.MethodPost, "/v1/executions", h.token("alice"), doc{"executor": "ocr", "zone": name})
		}},
		"a pool's zone": {"zone", 128, func(name string) answer {
			return h.call(http.MethodPut, "/v1/pools/p1", h.operator(), doc{"capabilities": []string{"ocr"}, "zone": name})
		}},
	} {
		for name, message := range map[string]string{
			"a\nb": "U+000A", "a\u202eb": "U+202E", "a\u2067b": "U+2069", "a\x07b": "U+0007", "a\U000e0041": "U+E0041",
			strings.Repeat("田", c.limit+1): "is too long",
		} {
			a := c.send(name)
			require.Equal(t, http.StatusBadRequest, a.status, "%s: %q: %s", where, name, a.body)
			require.Equal(t, c.field, a.problem.Field, "%s: %q", where, name)
			require.Contains(t, a.problem.Detail, message, "%s: %q", where, name)
		}
		a := c.send(strings.Repeat("田", c.limit))
		require.NotEqual(t, http.StatusBadRequest, a.status, "%s: %s", where, a.body)
	}
}
