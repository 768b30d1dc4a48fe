package agent

import (
	"os"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/devserver"
)

const devSecret = "a-secret-of-a-development-server"

// develop pretends that a development server runs in a new data directory.
func develop(t *testing.T) (dir string, stop func()) {
	t.Helper()
	dir = t.TempDir()
	release, err := devserver.Claim(dir)
	require.NoError(t, err)
	t.Cleanup(release)
	require.NoError(t, os.WriteFile(devserver.SecretFile(dir), []byte(devSecret+"\n"), 0o600))
	require.NoError(t, devserver.Ready{PID: 123, HTTPAddr: "127.0.0.1:8081", TemporalAddr: "127.0.0.1:7234"}.Write(dir))
	return dir, release
}

// requireDevToken checks that the token is signed with the development server's secret.
func requireDevToken(t *testing.T, token string) {
	t.Helper()
	claims := jwt.RegisteredClaims{}
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return []byte(devSecret), nil })
	require.NoError(t, err)
	require.Equal(t, devUser, claims.Subject)
}

func TestServer_NothingIsSet_DevelopmentServerIsFound(t *testing.T) {
	t.Parallel()
	dir, _ := develop(t)
	found, err := Server{DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8081", found.url)
	requireDevToken(t, found.token)

	c := Connection{DataDir: dir}
	c.Temporal.Addr = "127.0.0.1:7233"
	_, err = c.client()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:7234", c.Temporal.Addr)
	c.Temporal.Addr = "temporal:7233"
	_, err = c.client()
	require.NoError(t, err)
	require.Equal(t, "temporal:7233", c.Temporal.Addr, "a setting takes precedence")
}

func TestServer_SettingsExist_TheyTakePrecedence(t *testing.T) {
	t.Parallel()
	dir, _ := develop(t)
	got, err := Server{URL: "https://berth.example/", Token: "t", DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: "https://berth.example", token: "t"}, got)

	got, err = Server{Token: "t", DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: "http://127.0.0.1:8081", token: "t", temporal: "127.0.0.1:7234"}, got)

	got, err = Server{Token: "t", DataDir: t.TempDir()}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: defaultURL, token: "t"}, got)

	got, err = Server{URL: "http://127.0.0.1:8081", DataDir: dir}.target("--url")
	require.NoError(t, err)
	requireDevToken(t, got.token)
}

func TestServer_AddressOrTokenIsMissing_ErrorNamesTheVariable(t *testing.T) {
	t.Parallel()
	dir, _ := develop(t)
	stopped, stop := develop(t)
	stop()
	empty := t.TempDir()
	for name, c := range map[string]struct {
		Server
		want []string
	}{
		"nothing":            {Server{DataDir: empty}, []string{"no server address: set BERTH_URL and BERTH_TOKEN, or start `make run`", "no development server runs in " + empty}},
		"a stopped server":   {Server{DataDir: stopped}, []string{"set BERTH_URL", "(pid 123) has stopped"}},
		"no token":           {Server{URL: "http://x", DataDir: empty}, []string{"no token: set BERTH_TOKEN"}},
		"a token for others": {Server{URL: "http://x", DataDir: dir}, []string{"no token: set BERTH_TOKEN", "http://127.0.0.1:8081", "not at http://x"}},
		"an invalid URL":     {Server{URL: "localhost:8080", Token: "t"}, []string{"--url (BERTH_URL): invalid URL localhost:8080; it must start with http"}},
	} {
		_, err := c.ProvideClient()
		for _, want := range c.want {
			require.ErrorContains(t, err, want, name)
		}
	}
}

func TestServer_APIIsNotRunning_ErrorSaysSo(t *testing.T) {
	t.Parallel()
	dir, _ := develop(t)
	require.NoError(t, devserver.Ready{PID: 123, TemporalAddr: "127.0.0.1:7234"}.Write(dir))
	_, err := Server{DataDir: dir}.ProvideClient()
	require.ErrorContains(t, err, "runs without its API")
}
