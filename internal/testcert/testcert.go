// Package testcert issues certificates for tests of TLS.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	// File is its certificate in PEM.
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair are the PEM files of a certificate and its key.
type Pair struct{ Cert, Key string }

// New returns an authority with files in a directory of the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	check(tb, err)
	a.File = filepath.Join(a.dir, "ca.pem")
	write(tb, a.File, "CERTIFICATE", der)
	return a
}

// Issue returns a certificate for servers and clients with the given common name, valid for that name, the other hosts and
// loopback addresses.
func (a *Authority) Issue(tb testing.TB, name string, hosts ...string) Pair {
	tb.Helper()
	return a.issue(tb, name, time.Now().Add(24*time.Hour), hosts...)
}

// IssueExpired is Issue for a certificate that has expired.
func (a *Authority) IssueExpired(tb testing.TB, name string) Pair {
	tb.Helper()
	return a.issue(tb, name, time.Now().Add(-time.Minute))
}

func (a *Authority) issue(tb testing.TB, name string, end time.Time, hosts ...string) Pair {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(tb, err)
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: append(hosts, name),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	check(tb, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(tb, err)
	file := filepath.Join(a.dir, name+"-"+serial.Text(36))
	p := Pair{Cert: file + ".pem", Key: file + ".key"}
	write(tb, p.Cert, "CERTIFICATE", der)
	write(tb, p.Key, "PRIVATE KEY", secret)
	return p
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	return key
}

func write(tb testing.TB, file, kind string, der []byte) {
	tb.Helper()
	check(tb, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
