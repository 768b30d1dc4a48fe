package tests

import (
	"bytes"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/testcert"
	"berth/internal/testoidc"
)

// environments returns the wrong environments that any user can set up. The next one is one line.
func environments(p place) []mistake {
	same := func(user, setting, text string) mistake {
		return mistake{env: []string{setting}, doctor: text, process: text, user: user}
	}
	stops := func(setting, text string) mistake { return same(ends, setting, text) }
	works := func(name string, env ...string) mistake { return mistake{name: name, env: env, user: "202"} }
	own := func(file string) []string { // a database for this API alone
		return []string{"BERTH_CELL=wrong-environment", "BERTH_DATABASE=sqlite:" + file}
	}
	routing, issuer := p.routing(), p.issuer()
	cert, foreignKey := p.certificates()
	mistaken := p.directory("mistaken", 0o700)
	p.file("mistaken/reply.prompt", "---\ntitel: T\n---\nx", 0o600)
	const isDirectory, unreadable = "is a directory", "permission denied"
	return []mistake{
		// Settings, as files and shells bring them.
		stops("BERTH_DATABASE=\"sqlite:berth.db\"", "--database: has quotes around it, which are a part of the value here; remove them"),
		stops("BERTH_DATABASE=sqlite:a\rb.db", "contains a carriage return"),
		stops("BERTH_DRAIN=10", "--drain"),
		stops("BERTH_DRAIN=\"10s\"\r", "has quotes around it"),
		works("an environment file with CRLF", "BERTH_DRAIN=10s\r", "BERTH_TASK_DEADLINE= 15m\r\n", "BERTH_CORS_ORIGINS=\r"),
		stops("BERTH_PAYLOAD_KEYS=a:c2hvcnQ=", "--payload-keys (BERTH_PAYLOAD_KEYS): entry 1: the key has 5 bytes; must have 32"),

		// Secrets in files.
		{env: []string{"BERTH_AUTH_SECRET=", "BERTH_AUTH_SECRET_FILE=" + p.file("none.secret", "", 0o600)}, doctor: "the file is empty", process: "the file is empty", user: ends},
		stops("BERTH_AUTH_SECRET_FILE="+p.file("twice.secret", secret, 0o600), "set one of BERTH_AUTH_SECRET and BERTH_AUTH_SECRET_FILE"),
		stops("BERTH_REDIS_PASSWORD_FILE="+p.file("empty.secret", "\r\n", 0o600), "BERTH_REDIS_PASSWORD_FILE): the secret cannot be read: the file is empty"),
		stops("BERTH_REDIS_PASSWORD_FILE=/none", "BERTH_REDIS_PASSWORD_FILE): the secret cannot be read: open /none: no such file"),
		stops("BERTH_TEMPORAL_API_KEY_FILE="+p.file("lines.secret", "a\nb", 0o600), "BERTH_TEMPORAL_API_KEY_FILE): the secret cannot be read: the file has more than one line"),
		stops("BERTH_LIVEKIT_KEYS_FILE=/none", "BERTH_LIVEKIT_KEYS_FILE"),
		unprivileged(stops("BERTH_LIVEKIT_KEYS_FILE="+p.file("unreadable.secret", "key: "+secret, 0), unreadable)),
		unprivileged(stops("DEEPSEEK_API_KEY_FILE="+p.file("unreadable.key", "key", 0), "(DEEPSEEK_API_KEY_FILE): the secret cannot be read: open")),

		// Certificates.
		stops("BERTH_TEMPORAL_TLS_CA=/none.pem", "read certificate authorities (BERTH_TEMPORAL_TLS_CA): open /none.pem: no such file"),
		stops("BERTH_TEMPORAL_TLS_CA="+p.directory("directory.pem", 0o700), isDirectory),
		stops("BERTH_TEMPORAL_TLS_CA="+p.file("wrong.pem", "no certificate", 0o600), "contains no PEM certificate"),
		unprivileged(stops("BERTH_TEMPORAL_TLS_CA="+p.file("unreadable.pem", "x", 0), unreadable)),
		stops("BERTH_TEMPORAL_TLS_CERT="+cert, "set both or neither of BERTH_TEMPORAL_TLS_CERT and BERTH_TEMPORAL_TLS_KEY"),
		{
			name: "the key of another certificate", env: []string{"BERTH_TEMPORAL_TLS_CERT=" + cert, "BERTH_TEMPORAL_TLS_KEY=" + foreignKey},
			doctor: "private key does not match public key", process: "private key does not match public key", user: ends,
		},

		// The routing file.
		stops("BERTH_ROUTING_FILE=/none.yaml", "read routing: open /none.yaml: no such file"),
		stops("BERTH_ROUTING_FILE="+p.directory("directory.yaml", 0o700), isDirectory),
		unprivileged(stops("BERTH_ROUTING_FILE="+p.file("unreadable.yaml", routing, 0), unreadable)),
		stops("BERTH_ROUTING_FILE="+p.file("empty.yaml", "", 0o600), p.path("empty.yaml")+": empty file"),
		stops("BERTH_ROUTING_FILE="+p.file("broken.yaml", "providers: {", 0o600), "line 1"),
		stops("BERTH_ROUTING_FILE="+p.file("tab.yaml", strings.Replace(routing, "\n  ", "\n\t", 1), 0o600), "is indented with a tab (U+0009): indent with spaces"),
		stops("BERTH_ROUTING_FILE="+p.file("unknown.yaml", routing+"provider: {}\n", 0o600), "unknown.yaml: provider (line … unknown field; see docs/providers.md"),
		stops("BERTH_ROUTING_FILE="+p.file("twice.yaml", routing+"models: {}\n", 0o600), `mapping key "models" already defined at line`),
		stops("BERTH_ROUTING_FILE="+p.file("latin1.yaml", routing+"# caf\xe9\n", 0o600), "is not UTF-8: save the file in this encoding"),
		works("a routing file with a byte order mark and CRLF", "BERTH_ROUTING_FILE="+p.file("windows.yaml", "\ufeff"+strings.ReplaceAll(routing, "\n", "\r\n"), 0o600)),

		// The directory of templates.
		stops("BERTH_TEMPLATES_DIR=/none", "--templates-dir (BERTH_TEMPLATES_DIR): /none: no such file or directory"),
		stops("BERTH_TEMPLATES_DIR="+p.file("file.prompt", "x", 0o600), "--templates-dir (BERTH_TEMPLATES_DIR): … not a directory"),
		unprivileged(stops("BERTH_TEMPLATES_DIR="+p.directory("unreadable", 0), "--templates-dir (BERTH_TEMPLATES_DIR): … "+unreadable)),
		works("a directory of templates that is empty", "BERTH_TEMPLATES_DIR="+p.directory("templates", 0o700)),
		{
			name: "a template of the directory has a mistake", env: []string{"BERTH_TEMPLATES_DIR=" + mistaken},
			doctor: "reply.prompt:2: titel: unknown field: write title", process: "mistake in a template; its files are not used", user: "202",
		},

		// Addresses.
		stops("BERTH_TEMPORAL_ADDR=temporal", "--temporal-addr (BERTH_TEMPORAL_ADDR): invalid address: must be host:port; the port is missing"),
		stops("BERTH_TEMPORAL_ADDR=::1:7233", "an IPv6 address must be in brackets: [::1]:7233"),
		stops("BERTH_TEMPORAL_ADDR=https://temporal:7233", "must be host:port without a scheme"),
		same(unconfirmed, "BERTH_TEMPORAL_ADDR=temporal.invalid:7233", "no such host"),
		same(unconfirmed, "BERTH_TEMPORAL_ADDR=127.0.0.1:1", "connection refused"),
		same("503 unavailable, Retry-After 2: Redis is unavailable; retry later", "BERTH_REDIS_ADDR=127.0.0.1:1", "connection refused"),
		{name: "`BERTH_HTTP_ADDR` in use", env: []string{"BERTH_HTTP_ADDR=" + p.inUse()}, doctor: "BERTH_HTTP_ADDR: listen on … address already in use", process: "BERTH_HTTP_ADDR: listen on … bind: address already in use", user: ends},
		{
			env:    []string{"BERTH_HTTP_ADDR=192.0.2.1:8080"},
			doctor: "BERTH_HTTP_ADDR: listen on 192.0.2.1:8080: … cannot assign requested address", process: "BERTH_HTTP_ADDR: listen on 192.0.2.1:8080: … cannot assign requested address", user: ends,
		},
		{env: []string{"BERTH_HTTP_ADDR=host.invalid:8080"}, doctor: "BERTH_HTTP_ADDR: listen on host.invalid:8080: … no such host", process: "BERTH_HTTP_ADDR: listen on host.invalid:8080: … no such host", user: ends},
		{env: []string{"BERTH_METRICS_ADDR=192.0.2.1:9464"}, doctor: "BERTH_METRICS_ADDR: listen on 192.0.2.1:9464: … cannot assign requested address", process: "metrics not served; set BERTH_METRICS_ADDR to a free address or to off", user: "202"},

		// The database file.
		{name: "the directory of the database does not exist", env: own(p.path("new/deep/berth.db")), doctor: "the file does not exist; berth creates it", user: "201", upload: true},
		{
			name: "the directory of the database is a file", env: own(p.file("file", "", 0o600) + "/berth.db"),
			doctor: "not a directory", process: "directory … mkdir", user: ends,
		},
		unprivileged(mistake{
			name: "the directory of the database cannot be created", env: own(p.directory("closed", 0o500) + "/data/berth.db"),
			doctor: unreadable, process: "directory … mkdir", user: ends,
		}),
		unprivileged(mistake{
			name: "the directory of the database is not writable", env: own(p.directory("readonly", 0o500) + "/berth.db"),
			doctor: unreadable, process: "waiting for the database … BERTH_DATABASE … unable to open database file", user: waits,
		}),
		{name: "the file of the database is a directory", env: own(p.directory("berth.db", 0o700)), doctor: "unable to open database file", process: "waiting for the database … BERTH_DATABASE … unable to open database file", user: waits},
		{
			name: "the file of the database is something else", env: own(p.file("other.db", strings.Repeat("text", 1<<10), 0o600)),
			doctor: "file is not a database", process: "file is not a database", user: ends,
		},
		{
			name: "a limit of 256 kB for files (`ulimit -f`)", env: own(p.path("small.db")), under: []string{"prlimit", "--fsize=262144"},
			doctor: "file too large", process: "waiting for the database … BERTH_DATABASE … disk I/O error", user: waits,
		},
		{
			name: "a limit of 1 MB for files (`ulimit -f`)", env: own(p.path("limited.db")), under: []string{"prlimit", "--fsize=1048576"},
			process: "disk I/O error", user: "503 unavailable, Retry-After", upload: true,
		},

		// Identity and clocks.
		{name: "`BERTH_OIDC_ISSUER` with a slash too many", env: []string{"BERTH_OIDC_ISSUER=" + issuer + "/"}, doctor: "differs from BERTH_OIDC_ISSUER by a slash; berth accepts both", user: "202", token: tokenFrom(issuer)},
		{
			name: "the clock of who issues tokens is two hours ahead", process: "request failed … is not valid yet", token: tokenOf(time.Now().Add(2 * time.Hour)),
			user: "401 unauthenticated: the token is not valid yet: its nbf is ahead of this server's clock by more than",
		},
		{
			name: "the clock of who issues tokens is two hours behind", process: "request failed … has expired", token: tokenOf(time.Now().Add(-2 * time.Hour)),
			user: "401 unauthenticated: the token has expired",
		},

		// Proxies. Loopback addresses are never reached through one.
		works("a proxy that is unreachable, for servers on this host", "HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1"),
		{
			name: "a proxy that is unreachable, for the identity provider", env: []string{"BERTH_OIDC_ISSUER=http://login.invalid", "HTTP_PROXY=http://app:" + plantedFirst + "@127.0.0.1:1"},
			doctor: "check HTTP_PROXY", process: "the proxy to the identity provider is unreachable: http://login.invalid", token: tokenFrom("http://login.invalid"),
			user: "503 unavailable, Retry-After 2: the proxy to the identity provider is unreachable; retry later",
		},
		works("a proxy that is unreachable, with `NO_PROXY`", "BERTH_OIDC_ISSUER="+issuer, "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=127.0.0.1"),

		// The host.
		works("a time zone and a locale that do not exist", "TZ=Nowhere/None", "LANG=xx_XX", "LC_ALL=C"),
		works("a home directory and a directory for temporary files that do not exist", "HOME=/none", "TMPDIR=/none"),
		{
			name: "64 open files (`ulimit -n`)", under: []string{"prlimit", "--nofile=64"},
			doctor: "a process may have 64 open files", user: "202",
		},

		// OpenTelemetry.
		{env: []string{"OTEL_RESOURCE_ATTRIBUTES=a"}, process: "(OTEL_RESOURCE_ATTRIBUTES): error detecting resource", user: ends},
		{
			name:    "`OTEL_EXPORTER_OTLP_ENDPOINT` is not a URL, `OTEL_EXPORTER_OTLP_HEADERS` not a list",
			env:     []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://app:" + plantedFirst + "@127.0.0.1:1/%zz", "OTEL_EXPORTER_OTLP_HEADERS=" + plantedLast},
			process: `telemetry not configured as set; check the OTEL_ variables" problem="parse headers"`, user: "202",
		},
	}
}

// unconfirmed is what a user reads while Temporal is unavailable.
const unconfirmed = "503 unavailable, Retry-After 2: Temporal"

// environmentsOfRoot returns the wrong environments that only root can set up.
func environmentsOfRoot(p place) []mistake {
	own := func(dir string) []string {
		return []string{"BERTH_CELL=wrong-environment", "BERTH_DATABASE=sqlite:" + filepath.Join(dir, "berth.db")}
	}
	const full = "503 unavailable, Retry-After"
	before, during := p.disk("before"), p.disk("during")
	fill := func(dir string) {
		if p.t != nil {
			require.NoError(p.t, exec.CommandContext(p.t.Context(), "/bin/sh", "-c", "cat /dev/zero >"+filepath.Join(dir, "filler")+" || true").Run())
		}
	}
	fill(before)
	return []mistake{
		{name: "the disk of a new database is full", env: own(before), doctor: "no space left on device", process: "the disk of the database is full: free or add space", user: waits},
		{name: "the disk becomes full, and a user uploads a file", env: own(during), later: func(*testing.T) { fill(during) }, process: "database or disk is full", user: full, upload: true},
		{
			name: "the file system is read-only, except for the database", env: own(p.disk("readonly")),
			under: []string{"unshare", "--mount", "/bin/sh", "-c", `/bin/mount --bind / / && /bin/mount -o remount,bind,ro / && exec "$0" "$@"`}, user: "201", upload: true,
		},
	}
}

// unprivileged lets berth run without root's right to ignore the modes of files.
func unprivileged(e mistake) mistake {
	if os.Geteuid() == 0 {
		e.under = []string{"setpriv", "--bounding-set=-dac_override,-dac_read_search"}
	}
	return e
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }

// routing returns a correct routing file.
func (p place) routing() string {
	b, err := os.ReadFile("../internal/llm/routing.yaml")
	if err != nil && p.t != nil {
		p.t.Fatal(err)
	}
	return string(bytes.TrimSpace(b)) + "\n"
}

func (p place) certificates() (cert, foreignKey string) {
	if p.t == nil {
		return "worker.pem", "other.key"
	}
	return testcert.New(p.t).Issue(p.t, "worker").Cert, testcert.New(p.t).Issue(p.t, "worker").Key
}

// inUse returns an address that is listened on.
func (p place) inUse() string {
	if p.t == nil {
		return ""
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed below
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// issuer returns the issuer of a provider that works.
func (p place) issuer() string {
	if p.t == nil {
		return ""
	}
	return testoidc.Serve(p.t, "/realm", (*httptest.Server).Start).Issuer
}

// tokenFrom returns a valid token of a provider.
func tokenFrom(issuer string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return testoidc.Token(t, testoidc.Keys()[0], issuer, map[string]any{"aud": "berth"}, nil)
	}
}

// disk mounts a small file system.
func (p place) disk(name string) string {
	if p.t == nil {
		return name
	}
	dir := p.directory(name, 0o700)
	out, err := exec.CommandContext(p.t.Context(), "mount", "-t", "tmpfs", "-o", "size=6m", "berth", dir).CombinedOutput() //nolint:gosec // the test's own directory
	require.NoError(p.t, err, "%s", out)
	p.t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil { //nolint:gosec,noctx // mounted above
			p.t.Errorf("unmount the small disk: %v: %s", err, out)
		}
	})
	return dir
}

// tokenOf returns a valid token that is issued for an hour by a clock.
func tokenOf(clock time.Time) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "berth", "sub": "alice", "aud": "berth", "scope": "user", "iat": clock.Unix(), "nbf": clock.Unix(), "exp": clock.Add(time.Hour).Unix(),
		}).SignedString([]byte(secret))
		require.NoError(t, err)
		return token
	}
}
