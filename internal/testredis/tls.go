package testredis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Certificates are the PEM files of an authority, and of a certificate for 127.0.0.1 that servers and clients use.
type Certificates struct {
	CA, Cert, Key string
	pool          *x509.CertPool
	pair          tls.Certificate
}

// StartTLS runs a server that accepts only TLS connections with a client certificate.
func StartTLS(tb testing.TB, extra ...string) (*Server, Certificates) {
	tb.Helper()
	c := NewCertificates(tb)
	port := findPorts(tb, 1)[0]
	s := newServer(tb, port, tb.TempDir(), append([]string{
		"--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", c.CA, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key,
	}, extra...)...)
	s.tls = &c
	s.Restart()
	return s, c
}

// NewCertificates writes the files of a new authority.
func NewCertificates(tb testing.TB) Certificates {
	tb.Helper()
	dir := tb.TempDir()
	c := Certificates{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	fatal := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		fatal(err)
		return k
	}
	write := func(file, kind string, der []byte) {
		fatal(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	caKey, leafKey := key(), key()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	fatal(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, caKey)
	fatal(err)
	keyDER, err := x509.MarshalECPrivateKey(leafKey)
	fatal(err)
	write(c.CA, "CERTIFICATE", caDER)
	write(c.Cert, "CERTIFICATE", leafDER)
	write(c.Key, "EC PRIVATE KEY", keyDER)
	parsed, err := x509.ParseCertificate(caDER)
	fatal(err)
	c.pool = x509.NewCertPool()
	c.pool.AddCert(parsed)
	c.pair = tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}
	return c
}

func (c *Certificates) config() *tls.Config {
	return &tls.Config{RootCAs: c.pool, Certificates: []tls.Certificate{c.pair}, MinVersion: tls.VersionTLS12}
}
