package identity_test

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/identity"
	"berth/internal/testoidc"
)

// O3: a map of scopes grants scopes that exist and names teams that can.
func TestClaimMap_Scopes_KnownOnesAndTeams(t *testing.T) {
	t.Parallel()
	for granted, valid := range map[string]bool{
		"user": true, "user,operator": true, "team": true, "team:search": true, "team,team:search": true, "team:a.b@c_1": true,
		"": false, "admin": false, "user, operator": false, "team:": false, "team:a b": false, "team:a/b": false, "team:..": false, "teams:a": false, "user,": false,
	} {
		err := identity.ClaimMap{Scopes: map[string]string{"staff": granted}}.Validate()
		if valid {
			require.NoError(t, err, granted)
		} else {
			require.ErrorContains(t, err, `of "staff"`, granted)
		}
	}

	s := testoidc.Start(t)
	mapped := withProvider(t, s, func(o *identity.ProviderOptions) {
		o.Claims = identity.ClaimMap{Scope: "groups", Team: "team", Scopes: map[string]string{"leads": "team", "a": "team:a", "b": "user,team:b", "*": "models"}}
	})
	plain := withProvider(t, s, func(o *identity.ProviderOptions) { o.Claims = identity.ClaimMap{Scope: "groups", Team: "team"} })
	for name, c := range map[string]struct {
		v      identity.Verifier
		groups any
		claim  any
		team   string
		scopes []string
		bad    bool // it is refused
	}{
		"none":                 {mapped, nil, nil, "", []string{"models"}, false},
		"one":                  {mapped, []string{"b"}, nil, "b", []string{"user", "models"}, false},
		"text":                 {mapped, "leads a", nil, "a", []string{"models", "team"}, false},
		"unknown beside it":    {mapped, []string{"x", "a", "a"}, nil, "a", []string{"models"}, false},
		"claim only":           {mapped, []string{"leads"}, "c", "c", []string{"models", "team"}, false},
		"claim of the same":    {mapped, []string{"a"}, []string{"a"}, "a", []string{"models"}, false},
		"two":                  {mapped, []string{"a", "b"}, nil, "", nil, true},
		"claim of another":     {mapped, []string{"a"}, "b", "", nil, true},
		"names of grants":      {mapped, []string{"team", "team:a", "operator"}, nil, "", []string{"models"}, false},
		"names without a map":  {plain, []string{"team:a", "team", "user"}, nil, "", []string{"user", "team"}, false},
		"claim without a map":  {plain, []string{"team:a", "team"}, "b", "b", []string{"team"}, false},
		"nothing without any":  {plain, nil, nil, "", nil, false},
		"two claims, no group": {mapped, nil, []string{"a", "b"}, "", nil, true},
	} {
		claims := jwt.MapClaims{"iss": s.Issuer(), "aud": testoidc.Audience, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
		if c.groups != nil {
			claims["groups"] = c.groups
		}
		if c.claim != nil {
			claims["team"] = c.claim
		}
		token := s.Sign(t, claims)
		if c.bad {
			requireRejected(t, c.v, token, name)
			continue
		}
		p, err := c.v.Verify(t.Context(), token)
		require.NoError(t, err, name)
		require.Equal(t, c.team, p.TeamID, name)
		require.Equal(t, c.scopes, p.Scopes, name)
	}
}
