package tests

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testcert"
	"berth/internal/testredis"
)

// environment is a wrong environment, with what berth doctor and the API at its start report.
type environment struct {
	name    string
	env     []string
	doctor  string
	process string
	// status is that of the process: 2 where something has to be changed, 1 where a later start may succeed, -1 if it does not end and logs
	// the problem.
	status int
	// unread: no command can read the setting.
	unread bool
}

// A process at its start and berth doctor name the setting of a wrong environment, and what to change.
func TestEnvironment_Wrong_DoctorAndProcessNameTheSetting(t *testing.T) { // FI5, FI8
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "file-*")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	ca, other := testcert.New(t), testcert.New(t)
	own, foreign := ca.Issue(t, "worker"), other.Issue(t, "worker")
	noMap, unknown, text := file("providers: {"), file("provider: {}"), file(strings.Repeat("This is a text. ", 100))
	same := func(env, text string) environment {
		return environment{name: env, env: []string{env}, doctor: text, process: text, status: 2}
	}
	unread := func(e environment) environment {
		e.unread = true
		return e
	}
	waits := func(e environment) environment {
		e.status = -1
		return e
	}
	redis := func(name string, server *testredis.Server, cause, advice string, env ...string) environment { // D6, D8
		e := environment{name: name, env: append(env, "BERTH_REDIS_ADDR="+server.Addr()), status: 2}
		e.doctor, e.process = cause+" -> "+advice, cause+": "+advice
		return e
	}
	plain, sentinel := testredis.Start(t), testredis.StartSentinel(t).Sentinels()[0]
	secured, _ := testredis.StartTLS(t)
	for _, e := range []environment{
		unread(same("BERTH_DATABASE=\"sqlite:berth.db\"", "--database: has quotes around it, which are a part of the value here; remove them")),
		unread(same("BERTH_DATABASE=sqlite:a\rb.db", "contains a carriage return")),
		same("BERTH_TEMPORAL_ADDR=temporal", "--temporal-addr (BERTH_TEMPORAL_ADDR): invalid address: must be host:port; the port is missing"),
		same("BERTH_TEMPORAL_ADDR=::1:7233", "an IPv6 address must be in brackets: [::1]:7233"),
		same("BERTH_TEMPORAL_ADDR=https://temporal:7233", "must be host:port without a scheme"),
		waits(same("BERTH_TEMPORAL_ADDR=temporal..invalid:7233", "no such host")), // no resolver is asked for this name
		waits(same("BERTH_TEMPORAL_ADDR=127.0.0.1:1", "connection refused")),
		same("BERTH_TEMPORAL_TLS_CA=/none.pem", "read certificate authorities (BERTH_TEMPORAL_TLS_CA): open /none.pem: no such file"),
		same("BERTH_TEMPORAL_TLS_CA="+dir, "is a directory"),
		same("BERTH_TEMPORAL_TLS_CA="+file("no certificate"), "contains no PEM certificate"),
		same("BERTH_TEMPORAL_TLS_CERT="+own.Cert, "set both or neither of BERTH_TEMPORAL_TLS_CERT and BERTH_TEMPORAL_TLS_KEY"),
		{
			name: "key of another certificate", env: []string{"BERTH_TEMPORAL_TLS_CERT=" + own.Cert, "BERTH_TEMPORAL_TLS_KEY=" + foreign.Key},
			doctor: "private key does not match public key", process: "private key does not match public key", status: 2,
		},
		same("BERTH_ROUTING_FILE=/none.yaml", "--routing-file (BERTH_ROUTING_FILE): read routing: open /none.yaml: no such file"),
		same("BERTH_ROUTING_FILE="+dir, "is a directory"),
		same("BERTH_ROUTING_FILE="+noMap, "--routing-file (BERTH_ROUTING_FILE): "+noMap+": line 1: did not find expected node content"),
		same("BERTH_ROUTING_FILE="+unknown, "--routing-file (BERTH_ROUTING_FILE): "+unknown+" (line 1)"),
		same("BERTH_LOCAL_MODEL_URL=http://h/v1?a=b", "BERTH_LOCAL_MODEL_URL: must not contain a query"),
		{
			name: "no database", env: []string{"BERTH_DATABASE=sqlite:" + text}, doctor: "file is not a database (26) -> the file of BERTH_DATABASE is not a SQLite database",
			process: "file is not a database (26): the file of BERTH_DATABASE is not a SQLite database, or is damaged", status: 2,
		},
		{
			name: "no directory for the database", env: []string{"BERTH_DATABASE=sqlite:/proc/none/berth.db"},
			doctor: "let the user of berth write to the directory of BERTH_DATABASE", process: "BERTH_DATABASE: create the directory of the file: mkdir /proc/none: no such file or directory", status: 2,
		},
		same("BERTH_AUTH_SECRET_FILE="+file(""), "set one of BERTH_AUTH_SECRET and BERTH_AUTH_SECRET_FILE"),
		same("BERTH_REDIS_PASSWORD_FILE="+file("\r\n"), "BERTH_REDIS_PASSWORD_FILE): the secret cannot be read: the file is empty"),
		same("BERTH_REDIS_PASSWORD_FILE=/none", "BERTH_REDIS_PASSWORD_FILE): the secret cannot be read: open /none: no such file"),
		same("BERTH_PAYLOAD_KEYS=a:c2hvcnQ=", "--payload-keys (BERTH_PAYLOAD_KEYS): entry 1: the key has 5 bytes; must have 32"),
		same("BERTH_TEMPORAL_API_KEY_FILE="+file("a\nb"), "BERTH_TEMPORAL_API_KEY_FILE): the secret cannot be read: the file has more than one line"),
		same("BERTH_LIVEKIT_KEYS_FILE=/none", "BERTH_LIVEKIT_KEYS_FILE"),
		unread(same("BERTH_DRAIN=10", "--drain")),
		redis("Sentinel without master", sentinel, "the server is a Sentinel", "BERTH_REDIS_SENTINEL_MASTER: ", "BERTH_REDIS_PASSWORD=secret"),
		redis("mode cluster on a Sentinel", sentinel, "the server is a Sentinel", "BERTH_REDIS_MODE: ", "BERTH_REDIS_MODE=cluster", "BERTH_CELL=c"),
		redis("master on a single server", plain, "the server is a Redis server", "BERTH_REDIS_ADDR: ", "BERTH_REDIS_SENTINEL_MASTER=mymaster"),
		redis("TLS to a Redis without", plain, "without TLS", "BERTH_REDIS_TLS: ", "BERTH_REDIS_TLS=true"),
		redis("no TLS to a Redis with it", secured, "which this process does not use", "BERTH_REDIS_TLS: "),
		{
			name: "port in use", env: []string{"BERTH_HTTP_ADDR=" + l.Addr().String()},
			doctor:  "BERTH_HTTP_ADDR: listen on " + l.Addr().String() + ": bind: address already in use by a program that is not berth",
			process: "BERTH_HTTP_ADDR: listen on " + l.Addr().String() + ": bind: address already in use; stop what uses the address, or set another one", status: 1,
		},
	} {
		t.Run(e.name, func(t *testing.T) {
			s := &search{t: t, dir: t.TempDir()}
			env := append([]string{"BERTH_AUTH_SECRET=" + secret, "BERTH_TEMPORAL_ADDR=127.0.0.1:1", "BERTH_REDIS_ADDR=127.0.0.1:1", "BERTH_DATABASE=sqlite:" + filepath.Join(s.dir, "berth.db")}, e.env...)
			one := func(b []byte) string {
				return strings.Join(strings.Fields(strings.ReplaceAll(string(b), `\"`, `"`)), " ")
			}
			out := one(s.runUntil(nil, e.name, "berth", []string{"doctor"}, env))
			require.Contains(t, out, e.doctor)
			require.Equal(t, map[bool]int{false: 1, true: 2}[e.unread], s.status)

			var enough []byte
			if e.status < 0 {
				enough = []byte("dependency unavailable\" dependency=temporal")
			}
			out = one(s.runUntil(enough, e.name, "berth", []string{"api"}, env))
			require.Contains(t, out, e.process)
			require.Equal(t, e.status, s.status)
			if e.status < 0 {
				return
			}
			// The log is JSON to its end.
			lines := bytes.Split(bytes.TrimSpace(s.runUntil(nil, e.name, "berth", []string{"api"}, append(env, "BERTH_LOG_FORMAT=json"))), []byte("\n"))
			require.Equal(t, e.status, s.status)
			var last struct{ Level, Msg, Error string }
			for _, line := range lines {
				require.NoError(t, json.Unmarshal(line, &last), "%s", line)
			}
			require.Equal(t, "ERROR command failed", last.Level+" "+last.Msg)
			require.Contains(t, one([]byte(last.Error)), e.process)
		})
	}
}
