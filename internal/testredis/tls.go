package testredis

import (
	"strconv"
	"testing"

	"berth/internal/clienttls"
	"berth/internal/testcert"
)

// StartTLS runs a server that accepts only TLS connections with a client certificate, and returns the files of its clients.
func StartTLS(tb testing.TB, extra ...string) (*Server, clienttls.Files) {
	tb.Helper()
	ca := testcert.New(tb)
	pair := ca.Issue(tb, "redis.test")
	files := clienttls.Files{CA: ca.File, Cert: pair.Cert, Key: pair.Key}
	port := findPorts(tb, 1)[0]
	s := newServer(tb, port, tb.TempDir(), append([]string{
		"--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", files.CA, "--tls-cert-file", files.Cert, "--tls-key-file", files.Key,
	}, extra...)...)
	var err error
	if s.tls, err = files.Config("TLS"); err != nil {
		tb.Fatal(err)
	}
	s.Restart()
	return s, files
}
