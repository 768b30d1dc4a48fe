package main

import (
	"os"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/devserver"
	"berth/internal/doctor"
	"berth/internal/secret"
)

func TestCommands_EnumFlags_AcceptTheDomainsValues(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) error {
		var cmd commands
		k, err := kong.New(&cmd, enums())
		require.NoError(t, err)
		_, err = k.Parse(args)
		return err
	}
	require.NoError(t, parse("task", "submit", "--template", "any", "-v", "a=b,c", "--var", "d=@e"), "the server knows the templates")
	for _, status := range berth.ConferenceStatuses() {
		require.NoError(t, parse("conference", "list", "--status", string(status)))
	}
	require.NoError(t, parse("conference", "list"))
	require.NoError(t, parse("token", "--user", "u", "--scopes", "node,operator"))
	require.Error(t, parse("node", "--id", "n", "--driver", "exec", "--kind", string(berth.NodeMedia)))
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
	const secretText = "a-secret-of-a-development-server"
	dir := t.TempDir()
	stop, err := devserver.Claim(dir)
	require.NoError(t, err)
	t.Cleanup(stop)
	require.NoError(t, os.WriteFile(devserver.SecretFile(dir), []byte(secretText+"\n"), 0o600))
	require.NoError(t, devserver.Ready{
		PID: 123, HTTPAddr: "127.0.0.1:8081", TemporalAddr: "127.0.0.1:7234", RedisAddr: "127.0.0.1:6380", ModelAddr: "127.0.0.1:8091", Database: "sqlite:/x/berth.db",
		TemplatesDir: "/x/templates", RoutingFile: "/x/models.yaml",
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
	require.Equal(t, doctor.OK, found.Level)
	require.Contains(t, found.Text, "those of the development server in "+c.DataDir+", and all others those of this command, such as keys of providers")
	require.Equal(t, "127.0.0.1:6380", string(c.Redis.Addr))
	require.Equal(t, "127.0.0.1:7234", c.Temporal.Addr)
	require.Equal(t, "sqlite:/x/berth.db", string(c.Database.URL))
	require.Equal(t, "http://127.0.0.1:8091/v1", string(c.Model.LocalURL))
	require.Equal(t, []string{"/x/templates", "/x/models.yaml"}, []string{c.Model.TemplatesDir, c.Model.RoutingFile})
	require.Equal(t, secretText, c.Identity.Secret())
	for _, set := range []string{"--temporal-addr=127.0.0.1:7234", "--redis-addr=127.0.0.1:6380", "--database=sqlite:/x/berth.db"} {
		exported := parse(set)
		require.Equal(t, found, exported.development(), "those of the running server are not others")
		require.Equal(t, []any{c.Redis.Addr, c.Temporal.Addr, c.Database.URL, secretText},
			[]any{exported.Redis.Addr, exported.Temporal.Addr, exported.Database.URL, exported.Identity.Secret()}, set)
	}
	for _, set := range []string{"--redis-addr=redis:6379", "--temporal-addr=temporal:7233", "--database=postgres://h/d"} {
		require.Contains(t, parse(set).development().Text, "those of this command are checked", "servers that are set are checked")
	}
	mixed := parse("--routing-file=/y/models.yaml").development()
	require.Equal(t, doctor.Warning, mixed.Level)
	require.Contains(t, mixed.Text, "and BERTH_ROUTING_FILE, of which the server has another value")
	stop()
	require.Contains(t, parse().development().Text, "those of this command are checked")
}
