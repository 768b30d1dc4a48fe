package temporalconn_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/clienttls"
	"berth/internal/health"
	"berth/internal/temporalconn"
	"berth/internal/testcert"
)

// problem returns the error of Check.
func problem(t *testing.T, o temporalconn.Options) error {
	t.Helper()
	c, err := temporalconn.Open(o)
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return temporalconn.NewChecker(o, c, nil).Check(ctx)
}

func TestCheck_Namespace_HasToExist(t *testing.T) { // L11, FI8
	t.Parallel()
	f := startFrontend(t, "127.0.0.1:0", nil)
	ask := func(namespace string) error {
		return problem(t, temporalconn.Options{Addr: f.addr, Namespace: namespace})
	}
	require.NoError(t, ask("default"))
	require.NoError(t, ask("denied"), "an account that may not describe the namespace may be able to use it")
	err := ask("absent")
	require.ErrorContains(t, err, "temporal: Namespace absent is not found.: BERTH_TEMPORAL_NAMESPACE: create the namespace")
	require.ErrorContains(t, err, "temporal operator namespace create --namespace absent")
	require.ErrorContains(t, ask("broken"), "temporal: database unavailable: BERTH_TEMPORAL_ADDR")
	f.server.Stop()
	require.ErrorContains(t, ask("default"), "connection refused: BERTH_TEMPORAL_ADDR: check that Temporal runs")
}

// security returns the settings of a server with this certificate, which requires clients' certificates of an authority unless it is nil.
func security(t *testing.T, own testcert.Pair, clients *testcert.Authority, version uint16) *tls.Config {
	t.Helper()
	if clients != nil {
		c := mutual(t, own, clients.File)
		c.MaxVersion = version
		return c
	}
	c := mutual(t, own, own.Cert)
	c.ClientAuth, c.MaxVersion = tls.NoClientCert, version
	return c
}

// The reason of the server or of the connection comes first, then the setting and what to change.
func TestCheck_WrongConnection_StatesReasonSettingAndAdvice(t *testing.T) { // FI8
	t.Parallel()
	ca, other := testcert.New(t), testcert.New(t)
	server, own := ca.Issue(t, "temporal.test"), ca.Issue(t, "worker")
	foreign, expiredClient := other.Issue(t, "worker"), ca.IssueExpired(t, "worker")
	plain := startFrontend(t, "127.0.0.1:0", nil).addr
	secured := startFrontend(t, "127.0.0.1:0", security(t, server, nil, tls.VersionTLS13)).addr
	expired := startFrontend(t, "127.0.0.1:0", security(t, ca.IssueExpired(t, "temporal.test"), nil, tls.VersionTLS13)).addr
	mutual12 := startFrontend(t, "127.0.0.1:0", security(t, server, ca, tls.VersionTLS12)).addr
	mutual13 := startFrontend(t, "127.0.0.1:0", security(t, server, ca, tls.VersionTLS13)).addr
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	free := l.Addr().String()
	require.NoError(t, l.Close())

	type row struct {
		name              string
		o                 temporalconn.Options
		reported, setting string
		code              string
	}
	rows := []row{
		{"TLS to a port without", temporalconn.Options{Addr: plain, TLS: clienttls.Files{Enabled: true}}, "does not look like a TLS handshake", "BERTH_TEMPORAL_TLS", "tls_not_served"},
		{"no TLS to a port with", temporalconn.Options{Addr: secured}, "begin with TLS", "BERTH_TEMPORAL_TLS", "tls_required"},
		{"no TLS to a port with mutual TLS", temporalconn.Options{Addr: mutual12}, "begin with TLS", "BERTH_TEMPORAL_TLS", "tls_required"},
		{"no TLS to a port with mutual TLS 1.3", temporalconn.Options{Addr: mutual13}, "begin with TLS", "BERTH_TEMPORAL_TLS", "tls_required"},
		{"another authority", temporalconn.Options{Addr: secured, TLS: clienttls.Files{CA: other.File}}, "signed by unknown authority", "BERTH_TEMPORAL_TLS_CA", "tls_authority"},
		{"system's authorities", temporalconn.Options{Addr: secured, TLS: clienttls.Files{Enabled: true}}, "signed by unknown authority", "BERTH_TEMPORAL_TLS_CA", "tls_authority"},
		{"another name", temporalconn.Options{Addr: secured, TLS: clienttls.Files{CA: ca.File, ServerName: "x.test"}}, "valid for temporal.test, not x.test", "BERTH_TEMPORAL_TLS_SERVER_NAME", "tls_name"},
		{"expired certificate", temporalconn.Options{Addr: expired, TLS: clienttls.Files{CA: ca.File}}, "expired", "", "tls_expired"},
		{"nothing listens", temporalconn.Options{Addr: free}, "connection refused", "BERTH_TEMPORAL_ADDR", "unavailable"},
		{"unknown host", temporalconn.Options{Addr: "temporal.invalid:7233"}, "no such host", "BERTH_TEMPORAL_ADDR", "unknown_host"},
		{"a web server", temporalconn.Options{Addr: strings.TrimPrefix(web.URL, "http://")}, "", "BERTH_TEMPORAL_ADDR", "not_temporal"},
	}
	for version, addr := range map[string]string{"TLS 1.2": mutual12, "TLS 1.3": mutual13} {
		rows = append(rows,
			row{version + ": no client certificate", temporalconn.Options{Addr: addr, TLS: clienttls.Files{CA: ca.File}}, "remote error: tls", "BERTH_TEMPORAL_TLS_CERT", "tls_client"},
			row{version + ": another authority's", temporalconn.Options{Addr: addr, TLS: clienttls.Files{CA: ca.File, Cert: foreign.Cert, Key: foreign.Key}}, "tls", "BERTH_TEMPORAL_TLS_CERT", "tls_client"},
			row{version + ": an expired one", temporalconn.Options{Addr: addr, TLS: clienttls.Files{CA: ca.File, Cert: expiredClient.Cert, Key: expiredClient.Key}}, "expired", "BERTH_TEMPORAL_TLS_CERT", "tls_client"},
		)
		require.NoError(t, problem(t, temporalconn.Options{Addr: addr, TLS: clienttls.Files{CA: ca.File, Cert: own.Cert, Key: own.Key}}), version)
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			err := problem(t, r.o)
			t.Log(err)
			require.ErrorContains(t, err, r.reported)
			reason, ok := health.ReasonOf(err)
			require.True(t, ok)
			require.Equal(t, r.code, reason.Code)
			require.Equal(t, r.setting, reason.Setting)
			require.NotContains(t, reason.Text, r.o.Addr, "/readyz shows no addresses")
			require.NotContains(t, err.Error(), "rpc error")
			require.Less(t, strings.Index(err.Error(), r.reported), strings.Index(err.Error(), reason.Text))
		})
	}
}

func TestCheck_APIKeyRefused_NamesItsSetting(t *testing.T) { // FI8
	t.Parallel()
	ca := testcert.New(t)
	f := startFrontend(t, "127.0.0.1:0", security(t, ca.Issue(t, "temporal.test"), nil, tls.VersionTLS13))
	f.key.Store(new("right"))
	file := t.TempDir() + "/key"
	require.NoError(t, os.WriteFile(file, []byte("wrong\n"), 0o600))
	use := clienttls.Files{CA: ca.File}
	require.NoError(t, problem(t, temporalconn.Options{Addr: f.addr, TLS: use, APIKey: "right"}))
	for want, o := range map[string]temporalconn.Options{
		"BERTH_TEMPORAL_API_KEY: the server refuses this API key":      {Addr: f.addr, TLS: use, APIKey: "wrong"},
		"BERTH_TEMPORAL_API_KEY_FILE: the server refuses this API key": {Addr: f.addr, TLS: use, APIKeyFile: file},
		"BERTH_TEMPORAL_API_KEY: the server requires an API key":       {Addr: f.addr, TLS: use},
	} {
		err := problem(t, o)
		require.ErrorContains(t, err, "temporal: Request unauthorized.: "+want)
		require.NotContains(t, err.Error(), "wrong")
	}
}
