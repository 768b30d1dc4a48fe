//go:build faults

package tests

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/testcert"
	"berth/internal/testdocs"
	"berth/internal/testprocess"
)

// reverseProxy is a real nginx or HAProxy in front of a stack's API.
type reverseProxy struct {
	*testprocess.Process
	tb      testing.TB
	s       *stack
	dir     string
	program string
	addr    string
	// base is the address of the API for its clients, without a slash at the end.
	base string
	// ca verifies the proxy's certificate; nil without TLS.
	ca *testcert.Authority
	// limited: the proxy forwards neither 10 MB nor WebSockets, as nginx without settings.
	limited bool
	client  *http.Client
}

// proxyGuide has the configurations that the guide gives.
const proxyGuide = "../docs/deploy.md"

// recipe returns the guide's configuration of a program, for the root or for the prefix /berth.
func recipe(t testing.TB, program string, prefix bool) string {
	t.Helper()
	blocks := testdocs.CodeBlocks(t, proxyGuide, "## Behind a proxy", program)
	config := blocks[0]
	switch {
	case !prefix:
	case program == "nginx":
		before, after, found := strings.Cut(config, "    location / {")
		_, after, closed := strings.Cut(after, "    }\n")
		require.True(t, found && closed, "the configuration has no location /")
		config = blocks[1] + before + blocks[2] + after
	default:
		before, _, found := strings.Cut(config, "    default_backend")
		require.True(t, found, "the configuration has no default_backend")
		config = before + blocks[1]
	}
	return config
}

// reverseProxy starts a program with a configuration of the guide, or one of the test's own, in which the addresses and files of the guide are
// replaced. Where the configuration has a certificate, the proxy speaks TLS.
func (s *stack) reverseProxy(t testing.TB, program, config, prefix string) *reverseProxy {
	t.Helper()
	p := &reverseProxy{
		Process: testprocess.New(t, program), tb: t, s: s, dir: t.TempDir(), program: program, addr: freeAddr(t),
		limited: !strings.Contains(config, "Upgrade") && program == "nginx",
	}
	scheme, transport := "http", &http.Transport{ForceAttemptHTTP2: true}
	if strings.Contains(config, "/etc/ssl/berth/") {
		scheme, p.ca = "https", testcert.New(t)
		pair := p.ca.Issue(t, "localhost")
		authority, err := os.ReadFile(p.ca.File)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(authority))
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		var both []byte
		for name, file := range map[string]string{"berth.pem": pair.Cert, "berth.key": pair.Key} {
			content, err := os.ReadFile(file) //nolint:gosec // of this test
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), content, 0o600))
			both = append(both, content...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, "both.pem"), both, 0o600))
	}
	t.Cleanup(transport.CloseIdleConnections)
	p.client, p.base = &http.Client{Transport: transport}, scheme+"://"+p.addr+prefix
	config = strings.NewReplacer(
		"127.0.0.1:8080", s.httpAddr, "listen 443", "listen "+p.addr, "bind :443", "bind "+p.addr, "/etc/ssl/berth", p.dir, "server_name berth.example;", "",
		"127.0.0.1:443", p.addr,
	).Replace(config)
	if program == "nginx" { // conf.d is included within http
		var temp strings.Builder
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			fmt.Fprintf(&temp, "\t%s_temp_path %s;\n", kind, filepath.Join(p.dir, kind))
		}
		config = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\n\taccess_log off;\n" + temp.String() + config + "}\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "config"), []byte(config), 0o600))
	p.start()
	return p
}

// start starts the proxy, which a test may have killed.
func (p *reverseProxy) start() {
	p.tb.Helper()
	args := []string{"-db", "-f", "config"}
	if p.program == "nginx" {
		args = []string{"-p", p.dir, "-c", filepath.Join(p.dir, "config")}
	}
	path, err := exec.LookPath(p.program)
	if err != nil {
		path = "/usr/sbin/" + p.program // Debian's users do not have it in PATH
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = p.dir
	p.Start(cmd, time.Minute, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// environment has what programs need to reach the API through the proxy.
func (p *reverseProxy) environment() []string {
	env := []string{"BERTH_URL=" + p.base}
	if p.ca != nil {
		env = append(env, "SSL_CERT_FILE="+p.ca.File)
	}
	return env
}

// get makes a call through the proxy.
func (p *reverseProxy) get(ctx context.Context, path, token string, header ...string) *http.Response {
	p.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, http.NoBody)
	require.NoError(p.tb, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	require.NoError(p.tb, err)
	p.tb.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// text reads a response.
func text(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}

// berth runs the command line through the proxy, and returns what it printed.
func (p *reverseProxy) berth(token string, args ...string) (string, error) {
	p.tb.Helper()
	path, err := filepath.Abs("../bin/berth")
	require.NoError(p.tb, err)
	cmd := exec.Command(path, args...) //nolint:gosec // built from this repository
	cmd.Env = append(append(os.Environ(), p.environment()...), "BERTH_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
