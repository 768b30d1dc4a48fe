package api_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/llm"
	"berth/internal/routing"
)

const aliasedModels = "providers: {own: {baseURL: \"http://127.0.0.1:9/v1\"}}\nmodels:\n  large: {provider: own, aliases: [gpt-5]}\n  small: {provider: own}\n" +
	"routes: {default: {paid: large, free: small}}\n"

// withModels is a change of the dependencies: the models large, with the alias gpt-5, and small.
func withModels(t *testing.T) func(*api.Deps) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "models.yaml")
	require.NoError(t, os.WriteFile(path, []byte(aliasedModels), 0o600))
	catalog, err := llm.LoadCatalog(path)
	require.NoError(t, err)
	return func(d *api.Deps) { d.Routing = routing.Fixed(catalog) }
}

// O3: an operator creates a key whose secret is shown once, reads and changes it, and revokes it.
func TestKeys_CreatedChangedAndRevoked_SecretShownOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.define("/v1/teams/search", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "search"})
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	a := h.call(http.MethodPost, "/v1/keys", h.operator(), doc{
		"appId": "chat", "title": " Nightly ", "models": []string{"gpt-5", "small", "large"}, "rpm": 10, "tpm": 2000, "maxCalls": 3,
		"serviceTiers": []string{"flex"}, "endUsers": true, "replaceResponses": true, "expiresAt": end,
	})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	created := a.json(t)
	secret, _ := created["secret"].(string)
	require.Regexp(t, `^sk-berth-[A-Za-z0-9_-]{43}$`, secret)
	id, _ := created["keyId"].(string)
	require.NoError(t, berth.ValidID("keyId", id))
	require.True(t, strings.HasPrefix(id, "key_"))
	at, err := time.Parse(time.RFC3339Nano, created["createdAt"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)
	delete(created, "secret")
	key := doc{
		"keyId": id, "teamId": "search", "appId": "chat", "title": "Nightly", "models": []any{"large", "small"}, "rpm": 10.0, "tpm": 2000.0, "maxCalls": 3.0,
		"serviceTiers": []any{"flex"}, "endUsers": true, "expiresAt": end.Format(time.RFC3339Nano), "hint": secret[len(secret)-4:],
		"createdAt": created["createdAt"], "createdBy": "olga", "durability": "durable", "retention": "all", "replaceResponses": true,
	}
	require.Equal(t, key, created)
	path := "/v1/keys/" + id
	get := func() doc {
		t.Helper()
		a := h.call(http.MethodGet, path, h.operator(), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	require.Equal(t, key, get())
	require.Equal(t, key, h.define(path, get()), "the response of GET is a valid body")
	access, err := apikey.New(h.ledger).Find(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, id, access.Key.ID)

	changed := h.define(path, doc{"rpm": 20})
	require.Equal(t, doc{
		"keyId": id, "teamId": "search", "appId": "chat", "rpm": 20.0, "hint": key["hint"], "createdAt": key["createdAt"], "createdBy": "olga", "durability": "durable", "retention": "all",
	}, changed)

	for range 2 {
		require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path, h.operator(), nil).status)
	}
	revoked := get()
	require.Equal(t, "olga", revoked["revokedBy"])
	require.NotEmpty(t, revoked["revokedAt"])
	a = h.call(http.MethodPut, path, h.operator(), doc{})
	require.Equal(t, http.StatusConflict, a.status)
	require.Contains(t, a.problem.Detail, "was revoked")
	_, err = apikey.New(h.ledger).Find(t.Context(), secret)
	require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err))

	rows := h.actions("action=create-key")
	require.Len(t, rows, 1)
	require.Equal(t, http.StatusCreated, rows[0].Status)
	require.Contains(t, string(rows[0].Detail), `"appId":"chat"`)
	audit := h.call(http.MethodGet, "/v1/audit?limit=200", h.operator(), nil)
	for _, text := range []string{string(audit.body), h.log.String(), string(h.call(http.MethodGet, "/v1/keys?revoked=true", h.operator(), nil).body)} {
		require.NotContains(t, text, secret)
		require.NotContains(t, text, secret[9:30])
		require.NotContains(t, text, apikey.Hash(secret))
	}
	require.Contains(t, h.log.String(), "API key revoked")
}

// O3: what is wrong with a key is named by its field.
func TestKeys_InvalidBody_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.define("/v1/teams/search", doc{})
	h.define("/v1/teams/ads", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "search"})
	a := h.call(http.MethodPost, "/v1/keys", h.operator(), doc{"teamId": "search"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	path := "/v1/keys/" + a.json(t)["keyId"].(string)
	for _, tc := range []struct {
		method string
		body   doc
		field  string
		detail string
	}{
		{http.MethodPost, doc{}, "teamId", "is required, unless appId is given"},
		{http.MethodPost, doc{"teamId": "none"}, "teamId", `team "none" not found`},
		{http.MethodPost, doc{"teamId": "a b"}, "teamId", "letters"},
		{http.MethodPost, doc{"appId": "none"}, "appId", `application "none" not found`},
		{http.MethodPost, doc{"appId": "chat", "teamId": "ads"}, "appId", "is of team search, not of ads"},
		{http.MethodPut, doc{"teamId": "ads"}, "teamId", "cannot be changed"},
		{http.MethodPut, doc{"appId": "chat"}, "appId", "cannot be changed"},
		{http.MethodPut, doc{"keyId": "key_other"}, "keyId", "cannot be changed"},
		{"", doc{"models": []string{"small", "gpt-6"}}, "models[1]", `no model "gpt-6"`},
		{"", doc{"durability": "eternal"}, "durability", "durable"},
		{"", doc{"retention": "forever"}, "retention", "a duration such as 24h"},
		{"", doc{"retention": "none", "durability": "durable"}, "retention", "durable calls"},
		{"", doc{"retention": "all", "durability": "direct"}, "retention", "store nothing"},
		{"", doc{"models": slices.Repeat([]string{"small"}, 201)}, "models", "at most 200"},
		{"", doc{"serviceTiers": []string{"flex", "default"}}, "serviceTiers[1]", "must be one of flex, priority, scale"},
		{"", doc{"rpm": -1}, "rpm", "from 0, for no limit"},
		{"", doc{"tpm": 1_000_000_001}, "tpm", "to 1000000000"},
		{"", doc{"maxCalls": -1}, "maxCalls", "from 0, for no limit"},
		{"", doc{"rpm": 1.5}, "rpm", "integer"},
		{"", doc{"title": strings.Repeat("x", 101)}, "title", "at most 100 are allowed"},
		{"", doc{"expiresAt": time.Now().Add(-time.Minute)}, "expiresAt", "must be in the future"},
		{"", doc{"expiresAt": "tomorrow"}, "expiresAt", "must be a time such as"},
		{"", doc{"budget": 1}, "budget", "unknown field"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut} {
			if tc.method != "" && tc.method != method {
				continue
			}
			to, body := path, doc{}
			if method == http.MethodPost {
				to = "/v1/keys"
				if tc.method == "" {
					body["teamId"] = "search"
				}
			}
			for k, v := range tc.body {
				body[k] = v
			}
			a := h.call(method, to, h.operator(), body)
			require.Equal(t, http.StatusBadRequest, a.status, "%s %v: %s", method, tc.body, a.body)
			require.Equal(t, tc.field, a.problem.Field, "%s %v: %s", method, tc.body, a.body)
			require.Contains(t, a.problem.Detail, tc.detail, "%s %v", method, tc.body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		a := h.call(method, "/v1/keys/none", h.operator(), doc{})
		require.Equal(t, http.StatusNotFound, a.status, method)
		require.Equal(t, "API key not found", a.problem.Detail)
	}
	require.Len(t, h.call(http.MethodGet, "/v1/keys", h.operator(), nil).json(t)["keys"], 1, "refused calls create nothing")
}

// O3: operators list the keys of a team or an application, and those that were revoked if they ask for them.
func TestKeys_ManyKeys_ListedInPages(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	h.define("/v1/teams/ads", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "search"})
	var ids []string
	for _, body := range []doc{{"teamId": "search"}, {"appId": "chat"}, {"teamId": "ads"}, {"teamId": "search"}} {
		a := h.call(http.MethodPost, "/v1/keys", h.operator(), body)
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		ids = append(ids, a.json(t)["keyId"].(string))
	}
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/keys/"+ids[3], h.operator(), nil).status)
	for query, want := range map[string][]string{
		"": ids[:3], "revoked=true": ids, "teamId=search": ids[:2], "teamId=search&revoked=true": {ids[0], ids[1], ids[3]}, "appId=chat": ids[1:2], "teamId=none": nil,
	} {
		values, err := url.ParseQuery(query + "&limit=1")
		require.NoError(t, err)
		got, _ := h.pages("/v1/keys", "keys", "keyId", values)
		require.ElementsMatch(t, want, got, query)
	}
	a := h.call(http.MethodDelete, "/v1/teams/ads", h.operator(), nil)
	require.Equal(t, http.StatusConflict, a.status)
	require.Regexp(t, `has API keys, such as key_\w+; revoke each first`, a.problem.Detail)
}
