package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/identity"
	"berth/internal/testoidc"
)

// withOIDC returns the API that accepts the tokens of a provider beside those of the secret.
func withOIDC(t *testing.T) (*harness, *testoidc.Server) {
	t.Helper()
	s := testoidc.Start(t)
	return newHarness(t, func(d *api.Deps) {
		p, err := identity.NewProvider(identity.ProviderOptions{
			Issuer: s.Issuer(), Logger: d.Logger,
			Claims: identity.ClaimMap{
				Scope: "realm_access.roles", Tenant: "org_id", Nodes: "berth_nodes", Team: "team",
				Scopes: map[string]string{
					"berth-operator": "operator", "berth-node": "node", "*": "user",
					"a": "team:a", "b": "team:b", "a-leads": "team,team:a", "b-leads": "team,team:b", "leads": "team",
				},
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
		d.Verifier = &identity.Tokens{
			Secrets: d.Config.Secrets, Audiences: []string{identity.Audience, testoidc.Audience}, Leeway: identity.DefaultLeeway, Provider: p,
		}
	}), s
}

func TestOIDC_SignIn_ReadsOwnWorkOnly(t *testing.T) { // X5, B7
	t.Parallel()
	h, s := withOIDC(t)
	// The ids of these users are the same where their parts are joined with colons.
	h.finish(h.task("auth0|a:svc", "t1"), "the answer for a:svc")
	h.finish(h.task("auth0|a", "svc.t1"), "the answer for a")
	owner := s.SignIn(t, "auth0|a:svc", nil)
	other := s.SignIn(t, "auth0|a", nil)

	me := h.call(http.MethodGet, "/v1/me", owner, nil).json(t)
	require.Equal(t, "auth0|a:svc", me["userId"])
	require.Equal(t, []any{"user"}, me["scopes"])
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/tasks/t1", owner, nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/tasks/t1", other, nil).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/tasks/svc.t1", other, nil).status)

	ticket := h.call(http.MethodPost, "/v1/tickets", owner, doc{"taskId": "t1"})
	require.Equal(t, http.StatusCreated, ticket.status, string(ticket.body))
	events := h.call(http.MethodGet, ticket.json(t)["eventsUrl"].(string), "", nil)
	require.Contains(t, string(events.body), "the answer for a:svc")
	expires, err := time.Parse(time.RFC3339Nano, ticket.json(t)["expiresAt"].(string))
	require.NoError(t, err)
	require.WithinRange(t, expires, time.Now(), time.Now().Add(30*time.Second))

	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/pools", owner, nil).status)
	operator := s.SignIn(t, "olga", jwt.MapClaims{"realm_access": map[string]any{"roles": []string{"berth-operator"}}})
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/pools", operator, nil).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/me", h.token("alice"), nil).status, "own secrets work beside the provider")
	for _, token := range []string{owner, other, operator, ticket.json(t)["ticket"].(string)} {
		require.NotContains(t, h.log.String(), token[len(token)-12:], "a token is in the log")
	}
}

func TestOIDC_NodeAndTenantClaims_AreEnforced(t *testing.T) { // B8
	t.Parallel()
	h, s := withOIDC(t)
	node := s.SignIn(t, "svc|tokyo", jwt.MapClaims{
		"realm_access": map[string]any{"roles": []string{"berth-node"}}, "berth_nodes": []string{"tokyo-*"},
	})
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/nodes", node, agent("tokyo-1")).status)
	a := h.call(http.MethodPost, "/v1/nodes", node, agent("osaka-1"))
	require.Equal(t, http.StatusForbidden, a.status)
	require.Equal(t, "nodeId", a.problem.Field)

	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/pools/own", h.operator(),
		doc{"capabilities": []string{"translate:en-es"}, "tenants": []string{"org_1"}}).status)
	execute := func(org string) answer {
		token := s.SignIn(t, "auth0|"+org, jwt.MapClaims{"org_id": org})
		return h.call(http.MethodPost, "/v1/executions", token, doc{"executor": "echo", "poolId": "own"})
	}
	require.Equal(t, http.StatusAccepted, execute("org_1").status)
	hidden := execute("org_2").problem
	require.Equal(t, berth.CodeInvalid, hidden.Code, "as a pool that does not exist")
	require.Equal(t, "poolId", hidden.Field)
}

func TestOIDC_ProviderUnavailable_Returns503(t *testing.T) { // X5
	t.Parallel()
	h, s := withOIDC(t)
	known := s.SignIn(t, "alice", nil)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/me", known, nil).status)
	s.Rotate(t)
	token := s.SignIn(t, "alice", nil)
	s.Stop()
	a := h.call(http.MethodGet, "/v1/me", token, nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.Contains(t, a.problem.Detail, "identity provider")
	require.Empty(t, a.header.Get("WWW-Authenticate"), "the token may be valid")
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/me", known, nil).status)
}
