package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testoidc"
	"berth/lua"
)

// X5, B7, FI7: the API starts without its identity provider, and is ready when that responds. A user with the longest id, which needs escaping, follows a task to its
// end.
func TestIdentity_ProviderStartsLater_UserCompletesTask(t *testing.T) {
	t.Parallel()
	addr, subject := freeAddr(t), "auth0|a:b"+strings.Repeat("<", berth.MaxUserID-len("auth0|a:b"))
	s := newStack(t, with("BERTH_OIDC_ISSUER="+testoidc.IssuerAt(addr), "BERTH_AUTH_AUDIENCE="+testoidc.Audience+",berth",
		"BERTH_OIDC_SCOPE_CLAIM=realm_access.roles", "BERTH_OIDC_SCOPE_MAP=berth-operator=operator;*=user"), func(s *stack) { s.readyPath = "/healthz" })
	other := testoidc.Start(t) // signs with the same key
	early := other.Sign(t, jwt.MapClaims{
		"iss": testoidc.IssuerAt(addr), "aud": testoidc.Audience, "sub": subject, "exp": time.Now().Add(time.Hour).Unix(),
	})
	status, problem := s.send(http.MethodGet, "/v1/me", early, nil)
	require.Equal(t, http.StatusServiceUnavailable, status, problem)
	status, _ = s.send(http.MethodGet, "/v1/me", s.token("alice"), nil)
	require.Equal(t, http.StatusOK, status, "tokens signed with the secret are accepted")

	status, report := s.send(http.MethodGet, "/readyz", "", nil)
	require.Equal(t, http.StatusServiceUnavailable, status, "FI7: not ready without the provider's keys")
	require.Contains(t, fmt.Sprint(report), "setting:BERTH_OIDC_ISSUER", "%v", report)

	provider := testoidc.StartAt(t, addr)
	s.eventually("the API to be ready", func() bool {
		status, _ := s.send(http.MethodGet, "/readyz", "", nil)
		return status == http.StatusOK
	})
	user := client.New("http://"+s.httpAddr, provider.SignIn(t, subject, nil))
	acc := submitMatch(t, user, berth.LocaleEN, "")
	require.EqualValues(t, berth.EventDone, watch(t, user, acc.TaskID, nil).last.Type)
	key := lua.Keys{}.Stream(subject, "career", acc.TaskID)
	require.Contains(t, key, "cs:events:auth0%7Ca%3Ab%3C%3C")
	found, err := s.redis().Exists(t.Context(), key).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, found)

	status, _ = s.send(http.MethodGet, "/v1/tasks/"+acc.TaskID, provider.SignIn(t, "auth0|a", nil), nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = s.send(http.MethodGet, "/v1/audit", provider.SignIn(t, "olga", jwt.MapClaims{
		"realm_access": map[string]any{"roles": []string{"berth-operator"}},
	}), nil)
	require.Equal(t, http.StatusOK, status)
	status, _ = s.send(http.MethodGet, "/v1/tasks/"+acc.TaskID, early[:len(early)-4], nil)
	require.Equal(t, http.StatusUnauthorized, status)
	require.NotContains(t, string(s.api.output()), early[len(early)-12:], "a token is in the log")
}
