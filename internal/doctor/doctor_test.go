package doctor_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"berth/internal/config"
	"berth/internal/doctor"
	"berth/internal/testredis"
)

// settings returns the settings of a command with these arguments.
func settings(t *testing.T, args ...string) config.Config {
	t.Helper()
	var c struct {
		config.Config `embed:""`
	}
	p, err := kong.New(&c, config.Clean())
	require.NoError(t, err)
	_, err = p.Parse(append([]string{
		"--temporal-addr=127.0.0.1:1", "--database=sqlite:" + filepath.Join(t.TempDir(), "berth.db"),
		"--auth-secret=0123456789012345678901234567890123456789",
	}, args...))
	require.NoError(t, err)
	return c.Config
}

// run returns the findings about one subject.
func run(t *testing.T, subject string, now func() time.Time, args ...string) (found []doctor.Finding) {
	t.Helper()
	for _, f := range doctor.RunOnly(t.Context(), settings(t, args...), now, subject) {
		if f.Subject == subject {
			found = append(found, f)
		}
	}
	require.NotEmpty(t, found)
	return found
}

// has requires a finding with a text and an advice that contain these.
func has(t *testing.T, found []doctor.Finding, level doctor.Level, text, advice string) {
	t.Helper()
	for _, f := range found {
		if f.Level == level && strings.Contains(f.Text, text) && strings.Contains(f.Advice, advice) {
			return
		}
	}
	require.Fail(t, "no such finding", "%s %q %q in %+v", level, text, advice, found)
}

func TestRun_Redis_WrongSetupsAreNamed(t *testing.T) { // B7
	t.Parallel()
	server := testredis.Start(t)
	found := run(t, "redis", time.Now, "--redis-addr="+server.Addr())
	require.False(t, doctor.Failed(found), "%+v", found)
	has(t, found, doctor.OK, "mode single", "")
	has(t, found, doctor.OK, "scripts run", "")
	has(t, found, doctor.Warning, "no persistence", "appendonly")
	server.Do("CONFIG", "SET", "appendonly", "yes")
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr()), doctor.OK, "append-only file", "")

	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr()), doctor.Error, "maxmemory-policy is allkeys-lru", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")

	ahead := func() time.Time { return time.Now().Add(90 * time.Second) }
	has(t, run(t, "redis", ahead, "--redis-addr="+server.Addr()), doctor.Warning, "clock differs from this host's by -1m", "NTP")

	server.Do("ACL", "SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all", "-info")
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr(), "--redis-user=limited", "--redis-password=secret"),
		doctor.Error, "NOPERM", "BERTH_REDIS_USER")
	server.Do("ACL", "SETUSER", "silent", "on", ">secret", "~*", "&*", "+@all", "-publish")
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr(), "--redis-user=silent", "--redis-password=secret"),
		doctor.Error, "The user executing the script can't run this command", "BERTH_REDIS_USER")
	server.Do("ACL", "SETUSER", "publisher", "on", ">secret", "~*", "&*", "+@all", "-subscribe")
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr(), "--redis-user=publisher", "--redis-password=secret"),
		doctor.Error, "NOPERM", "BERTH_REDIS_USER")

	server.Kill()
	has(t, run(t, "redis", time.Now, "--redis-addr="+server.Addr()), doctor.Error, "refused", "BERTH_REDIS_ADDR")
}

// FI3: doctor finds before the start what a process would find after it, and says it in the same words.
func TestRun_RedisCannotBeWorkedWith_ServersReasonComesFirst(t *testing.T) { // B7
	t.Parallel()
	for _, state := range testredis.States() {
		t.Run(state.Name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			state.Set(server.Admin())
			found := run(t, "redis", time.Now, "--redis-addr="+server.Addr())
			has(t, found, doctor.Error, state.Reply, state.Setting+": ")
			require.True(t, doctor.Failed(found))
		})
	}
	master, replica := testredis.Start(t), testredis.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica.Do("REPLICAOF", host, port)
	require.Eventually(t, func() bool { return strings.Contains(master.Do("INFO", "replication"), "connected_slaves:1") }, 10*time.Second, 10*time.Millisecond)
	has(t, run(t, "redis", time.Now, "--redis-addr="+master.Addr()), doctor.Warning, "min-replicas-to-write is 0", "min-replicas-max-lag")
}

func TestRun_ClusterWithoutCell_IsNamed(t *testing.T) { // B7
	t.Parallel()
	cluster := testredis.StartCluster(t, false)
	has(t, run(t, "redis", time.Now, "--redis-addr="+cluster.Addr()), doctor.Error, "BERTH_CELL is not set", "")
	has(t, run(t, "redis", time.Now, "--redis-addr="+cluster.Addr(), "--cell=c"), doctor.OK, "mode cluster", "")
}

func TestRun_OtherServers_StateWhatToChange(t *testing.T) { // B7
	t.Parallel()
	has(t, run(t, "settings", time.Now, "--redis-addr=127.0.0.1:1", "--auth-secret="), doctor.Error, "BERTH_AUTH_SECRET", "")
	has(t, run(t, "temporal", time.Now, "--redis-addr=127.0.0.1:1"), doctor.Error, "", "BERTH_TEMPORAL_ADDR")
	has(t, run(t, "database", time.Now, "--redis-addr=127.0.0.1:1"), doctor.Warning, "does not exist", "BERTH_DATABASE")
	has(t, run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database=sqlite:/proc/none/berth.db"), doctor.Error, "/proc", "let the user of berth write")
	file := filepath.Join(t.TempDir(), "berth.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	has(t, run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database=sqlite:"+file), doctor.OK, "schema version 0; berth migrates it", "")
	has(t, run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database=postgres://127.0.0.1:1/berth"), doctor.Error, "", "BERTH_DATABASE")
}

// Files that a process refuses at its start are errors here, too.
func TestRun_FileThatAProcessRefuses_IsNamed(t *testing.T) { // FP6
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct{ arg, want string }{
		"no routing file":     {"--routing-file=/none.yaml", "BERTH_ROUTING_FILE"},
		"a directory":         {"--routing-file=" + t.TempDir(), "BERTH_ROUTING_FILE"},
		"not YAML":            {"--routing-file=" + file("{"), "BERTH_ROUTING_FILE"},
		"empty":               {"--routing-file=" + file(""), "BERTH_ROUTING_FILE"},
		"unknown field":       {"--routing-file=" + file("provider: {}"), "BERTH_ROUTING_FILE"},
		"no keys of units":    {"--livekit-keys-file=/none", "BERTH_LIVEKIT_KEYS_FILE"},
		"keys without format": {"--livekit-keys-file=" + file("hidden"), "BERTH_LIVEKIT_KEYS_FILE"},
	} {
		found := run(t, "settings", time.Now, "--redis-addr=127.0.0.1:1", c.arg)
		require.True(t, doctor.Failed(found), name)
		has(t, found, doctor.Error, c.want, "")
		for _, f := range found {
			require.NotContains(t, f.Text, "hidden", name)
			require.NotEqual(t, "valid", f.Text, name)
		}
	}
}

func TestRun_KeysOfProviders_ModelsWithoutOneAreNamed(t *testing.T) { // FP6
	t.Parallel()
	none := run(t, "models", time.Now, "--redis-addr=127.0.0.1:1")
	has(t, none, doctor.Warning, "no model can be called", "BERTH_LOCAL_MODEL_URL")
	has(t, none, doctor.Warning, "DEEPSEEK_API_KEY", "")
	has(t, run(t, "models", time.Now, "--redis-addr=127.0.0.1:1", "--local-model-url=http://127.0.0.1:1"), doctor.OK, "all", "")
	text, err := os.ReadFile("../llm/routing.yaml") // with addresses of this host
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, regexp.MustCompile(`(?m)^(    baseURL: ).*`).ReplaceAll(text, []byte("${1}http://127.0.0.1:1")), 0o600))
	one := run(t, "models", time.Now, "--redis-addr=127.0.0.1:1", "--deepseek-api-key=hidden", "--routing-file="+file)
	has(t, one, doctor.Warning, "ZHIPUAI_API_KEY", "")
	require.NotContains(t, one[0].Text, "hidden")
	require.NotContains(t, one[0].Text, "deepseek-chat")
}
