package main

import (
	"os"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/devserver"
	"berth/internal/doctor"
	"berth/internal/secret"
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
	found, err := server{DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8081", found.url)
	requireDevToken(t, found.token)

	agent := agentServer{DataDir: dir}
	agent.Temporal.Addr = defaultTemporalAddr
	_, err = agent.client()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:7234", agent.Temporal.Addr)
	agent.Temporal.Addr = "temporal:7233"
	_, err = agent.client()
	require.NoError(t, err)
	require.Equal(t, "temporal:7233", agent.Temporal.Addr, "a setting takes precedence")
}

func TestServer_SettingsExist_TheyTakePrecedence(t *testing.T) {
	t.Parallel()
	dir, _ := develop(t)
	got, err := server{URL: "https://berth.example/", Token: "t", DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: "https://berth.example", token: "t"}, got)

	got, err = server{Token: "t", DataDir: dir}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: "http://127.0.0.1:8081", token: "t", temporal: "127.0.0.1:7234"}, got)

	got, err = server{Token: "t", DataDir: t.TempDir()}.target("--url")
	require.NoError(t, err)
	require.Equal(t, target{url: defaultURL, token: "t"}, got)

	got, err = server{URL: "http://127.0.0.1:8081", DataDir: dir}.target("--url")
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
		server
		want []string
	}{
		"nothing":            {server{DataDir: empty}, []string{"no server address: set BERTH_URL and BERTH_TOKEN, or start `make run`", "no development server runs in " + empty}},
		"a stopped server":   {server{DataDir: stopped}, []string{"set BERTH_URL", "(pid 123) has stopped"}},
		"no token":           {server{URL: "http://x", DataDir: empty}, []string{"no token: set BERTH_TOKEN"}},
		"a token for others": {server{URL: "http://x", DataDir: dir}, []string{"no token: set BERTH_TOKEN", "http://127.0.0.1:8081", "not at http://x"}},
		"an invalid URL":     {server{URL: "localhost:8080", Token: "t"}, []string{"--url (BERTH_URL): invalid URL localhost:8080; it must start with http"}},
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
	_, err := server{DataDir: dir}.ProvideClient()
	require.ErrorContains(t, err, "runs without its API")
}

func TestCommands_EnumFlags_AcceptTheDomainsValues(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) error {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(args)
		return err
	}
	for _, template := range berth.Templates() {
		require.NoError(t, parse("task", "submit", "--template", string(template)))
	}
	for _, status := range berth.ConferenceStatuses() {
		require.NoError(t, parse("conference", "list", "--status", string(status)))
	}
	require.NoError(t, parse("conference", "list"))
	require.NoError(t, parse("token", "--user", "u", "--scopes", "node,operator"))
	require.ErrorContains(t, parse("task", "submit", "--template", "poem"), "job_summary")
	require.Error(t, parse("node", "--id", "n", "--driver", "sim", "--kind", string(berth.NodeMedia)))
}

func TestDoctor_InvalidSetting_IsAFinding(t *testing.T) { // B7
	t.Parallel()
	parse := func(command string) (*commands, error) {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse([]string{command, "--auth-secret=short", "--http-addr=nowhere"})
		return &cmd, err
	}
	_, err := parse("api")
	require.ErrorContains(t, err, "BERTH_AUTH_SECRET")
	cmd, err := parse("doctor")
	require.NoError(t, err)
	cmd.Doctor.Redis.Addr, cmd.Doctor.Temporal.Addr, cmd.Doctor.Database.URL = "127.0.0.1:1", "127.0.0.1:1", secret.Address("sqlite:"+t.TempDir()+"/berth.db")
	var texts []string
	for _, f := range doctor.Run(t.Context(), cmd.Doctor.Config, nil, time.Now) {
		if f.Subject == "settings" {
			texts = append(texts, string(f.Level)+" "+f.Text)
		}
	}
	require.Len(t, texts, 1, "each setting is named once")
	require.Contains(t, texts[0], "error ")
	require.Contains(t, texts[0], "BERTH_AUTH_SECRET): must have at least 32 bytes, got 5")
	require.Contains(t, texts[0], "BERTH_HTTP_ADDR")
}

// Where make run serves, doctor checks its servers, whatever their ports are.
func TestDoctor_DevelopmentServerRuns_ItsServersAreChecked(t *testing.T) { // FP6
	t.Parallel()
	dir, stop := develop(t)
	require.NoError(t, devserver.Ready{
		PID: 123, HTTPAddr: "127.0.0.1:8081", TemporalAddr: "127.0.0.1:7234", RedisAddr: "127.0.0.1:6380", ModelAddr: "127.0.0.1:8091", Database: "sqlite:/x/berth.db",
	}.Write(dir))
	parse := func(args ...string) *doctorCommand {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(append([]string{"doctor", "--data-dir=" + dir}, args...))
		require.NoError(t, err)
		return &cmd.Doctor
	}
	c := parse()
	found := c.development()
	require.Equal(t, []doctor.Finding{{Level: doctor.OK, Subject: "settings", Text: "those of the development server in " + c.DataDir}}, found)
	require.Equal(t, "127.0.0.1:6380", string(c.Redis.Addr))
	require.Equal(t, "127.0.0.1:7234", c.Temporal.Addr)
	require.Equal(t, "sqlite:/x/berth.db", string(c.Database.URL))
	require.Equal(t, "http://127.0.0.1:8091/v1", string(c.Model.LocalURL))
	require.Equal(t, devSecret, c.Identity.Secret())
	for _, set := range []string{"--redis-addr=redis:6379", "--temporal-addr=temporal:7233", "--database=postgres://h/d"} {
		require.Empty(t, parse(set).development(), "servers that are set are checked")
	}
	stop()
	require.Empty(t, parse().development())
}
