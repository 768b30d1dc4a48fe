package temporalconn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"berth/internal/clienttls"
	"berth/internal/temporalconn"
	"berth/internal/testcert"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frontend is a Temporal frontend that only reports its health. Of each call it sends the API key and the client's
// certificate to calls.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	addr   string
	server *grpc.Server
	calls  chan call
	key    atomic.Pointer[string] // that calls require; nil for none
}

type call struct {
	authorization string
	certificate   *x509.Certificate
}

// startFrontend starts a frontend on addr; nil means plain text.
func startFrontend(t *testing.T, addr string, security *tls.Config) *frontend {
	t.Helper()
	f := &frontend{calls: make(chan call, 100)}
	options := []grpc.ServerOption{grpc.UnaryInterceptor(f.record)}
	if security != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(security)))
	}
	f.server = grpc.NewServer(options...)
	workflowservice.RegisterWorkflowServiceServer(f.server, f)
	status := health.NewServer()
	status.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(f.server, status)
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	f.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- f.server.Serve(l) }()
	t.Cleanup(func() {
		f.server.Stop()
		require.NoError(t, <-done)
	})
	return f
}

func (f *frontend) record(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	var c call
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		c.authorization = values[0]
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			c.certificate = info.State.PeerCertificates[0]
		}
	}
	if key := f.key.Load(); key != nil && c.authorization != "Bearer "+*key {
		return nil, serviceerror.ToStatus(serviceerror.NewPermissionDenied("Request unauthorized.", "")).Err()
	}
	f.calls <- c
	return next(ctx, req)
}

func (f *frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

// namespaces are the names that DescribeNamespace refuses, with the reason.
var namespaces = map[string]error{
	"absent": serviceerror.NewNamespaceNotFound("absent"),
	"denied": serviceerror.NewPermissionDenied("not permitted", ""),
	"broken": serviceerror.NewInternal("database unavailable"),
}

func (f *frontend) DescribeNamespace(_ context.Context, in *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	if err := namespaces[in.GetNamespace()]; err != nil {
		return nil, serviceerror.ToStatus(err).Err()
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

// last returns the most recent call.
func (f *frontend) last(t *testing.T) (c call) {
	t.Helper()
	require.NotEmpty(t, f.calls)
	for len(f.calls) > 0 {
		c = <-f.calls
	}
	return c
}

// mutual returns the settings of a server that requires clients' certificates.
func mutual(t *testing.T, own testcert.Pair, authority string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	pem, err := os.ReadFile(authority)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}
}

// check opens a client and checks the health of the server once.
func check(t *testing.T, o temporalconn.Options) error {
	t.Helper()
	c, err := temporalconn.Open(o)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.CheckHealth(ctx, nil)
	return err
}

func TestOpen_MutualTLS_BothSidesAreVerified(t *testing.T) { // B7
	t.Parallel()
	ca, other := testcert.New(t), testcert.New(t)
	f := startFrontend(t, "127.0.0.1:0", mutual(t, ca.Issue(t, "temporal.test"), ca.File))
	own, foreign := ca.Issue(t, "worker"), other.Issue(t, "worker")
	valid := clienttls.Files{CA: ca.File, Cert: own.Cert, Key: own.Key}
	require.NoError(t, check(t, temporalconn.Options{Addr: f.addr, TLS: valid}))
	require.Equal(t, "worker", f.last(t).certificate.Subject.CommonName)
	named := valid
	named.ServerName = "temporal.test"
	require.NoError(t, check(t, temporalconn.Options{Addr: f.addr, TLS: named}))
	f.last(t)

	for want, o := range map[string]clienttls.Files{
		"certificate signed by unknown authority": {CA: other.File, Cert: own.Cert, Key: own.Key},
		"certificate is valid for":                {CA: ca.File, Cert: own.Cert, Key: own.Key, ServerName: "elsewhere.test"},
		"x509: certificate signed by unknown":     {Enabled: true},
	} {
		require.ErrorContains(t, check(t, temporalconn.Options{Addr: f.addr, TLS: o}), want)
	}
	// In TLS 1.3 a server rejects a client after the handshake: the client may only see that the connection ends.
	for name, o := range map[string]clienttls.Files{
		"no certificate":                   {CA: ca.File},
		"certificate of another authority": {CA: ca.File, Cert: foreign.Cert, Key: foreign.Key},
		"no TLS":                           {},
	} {
		require.Error(t, check(t, temporalconn.Options{Addr: f.addr, TLS: o}), name)
	}
	require.Empty(t, f.calls)
}

func TestOpen_CertificateRenewed_NextConnectionUsesIt(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	security := mutual(t, ca.Issue(t, "temporal.test"), ca.File)
	f := startFrontend(t, "127.0.0.1:0", security)
	first, second := ca.Issue(t, "first"), ca.Issue(t, "second")
	dir := t.TempDir()
	files := testcert.Pair{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	install := func(p testcert.Pair) {
		for to, from := range map[string]string{files.Cert: p.Cert, files.Key: p.Key} {
			b, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, b, 0o600))
		}
	}
	install(first)
	c, err := temporalconn.Open(temporalconn.Options{Addr: f.addr, TLS: clienttls.Files{CA: ca.File, Cert: files.Cert, Key: files.Key}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CheckHealth(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "first", f.last(t).certificate.Subject.CommonName)

	install(second)
	f.server.Stop() // ends the connection
	f = startFrontend(t, f.addr, security)
	require.Eventually(t, func() bool {
		_, err := c.CheckHealth(t.Context(), nil)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, "second", f.last(t).certificate.Subject.CommonName)
}

func TestOpen_APIKey_IsSentOverTLSOnly(t *testing.T) { // B7
	t.Parallel()
	ca := testcert.New(t)
	security := mutual(t, ca.Issue(t, "temporal.test"), ca.File)
	security.ClientAuth = tls.NoClientCert
	f := startFrontend(t, "127.0.0.1:0", security)
	require.NoError(t, check(t, temporalconn.Options{Addr: f.addr, APIKey: "key-1", TLS: clienttls.Files{CA: ca.File}}))
	require.Equal(t, "Bearer key-1", f.last(t).authorization)

	open := startFrontend(t, "127.0.0.1:0", nil)
	require.Error(t, check(t, temporalconn.Options{Addr: open.addr, APIKey: "key-1"}))
	require.Empty(t, open.calls)
}

func TestOpen_APIKeyFileChanged_NextCallSendsNewKey(t *testing.T) { // B7
	t.Parallel()
	ca := testcert.New(t)
	security := mutual(t, ca.Issue(t, "temporal.test"), ca.File)
	security.ClientAuth = tls.NoClientCert
	f := startFrontend(t, "127.0.0.1:0", security)
	file := filepath.Join(t.TempDir(), "api-key")
	require.NoError(t, os.WriteFile(file, []byte("key-1\n"), 0o600))
	c, err := temporalconn.Open(temporalconn.Options{Addr: f.addr, APIKeyFile: file, TLS: clienttls.Files{CA: ca.File}})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.CheckHealth(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "Bearer key-1", f.last(t).authorization)
	require.NoError(t, os.WriteFile(file, []byte("key-2\n"), 0o600))
	_, err = c.CheckHealth(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "Bearer key-2", f.last(t).authorization)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = c.CheckHealth(t.Context(), nil)
	require.ErrorContains(t, err, "BERTH_TEMPORAL_API_KEY_FILE")
}

func TestOpen_InvalidOptions_ErrorNamesVariable(t *testing.T) { // X6
	t.Parallel()
	ca := testcert.New(t)
	pair, other := ca.Issue(t, "worker"), ca.Issue(t, "other")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, tc := range []struct {
		want string
		o    temporalconn.Options
	}{
		{"BERTH_TEMPORAL_TLS_CA", temporalconn.Options{TLS: clienttls.Files{CA: "/nonexistent"}}},
		{"BERTH_TEMPORAL_TLS_CA", temporalconn.Options{TLS: clienttls.Files{CA: empty}}},
		{"BERTH_TEMPORAL_TLS_KEY", temporalconn.Options{TLS: clienttls.Files{Cert: pair.Cert}}},
		{"BERTH_TEMPORAL_TLS_CERT", temporalconn.Options{TLS: clienttls.Files{Key: pair.Key}}},
		{"BERTH_TEMPORAL_TLS_CERT", temporalconn.Options{TLS: clienttls.Files{Cert: pair.Cert, Key: other.Key}}},
		{"BERTH_TEMPORAL_API_KEY_FILE", temporalconn.Options{APIKeyFile: "/nonexistent"}},
		{"BERTH_TEMPORAL_API_KEY_FILE", temporalconn.Options{APIKeyFile: empty}},
		{"BERTH_TEMPORAL_API_KEY_FILE", temporalconn.Options{APIKey: "k", APIKeyFile: empty}},
	} {
		_, err := temporalconn.Open(tc.o)
		require.ErrorContains(t, err, tc.want)
	}
}
