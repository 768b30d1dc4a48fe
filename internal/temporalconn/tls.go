package temporalconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS configures the connection to Temporal. It is used if Enabled is true or any other field is set.
type TLS struct {
	// Enabled turns TLS on with the system's certificate authorities.
	Enabled bool
	// CA is a PEM file of the authorities that the server's certificate is verified with, instead of the system's.
	CA string
	// Cert and Key are PEM files that authenticate this client. They are read for every connection, so that a renewed
	// certificate is used without a restart.
	Cert, Key string
	// ServerName is the name in the server's certificate, if it differs from the host of the address.
	ServerName string
}

// config returns nil if TLS is off.
func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities (BERTH_TEMPORAL_TLS_CA): %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authorities (BERTH_TEMPORAL_TLS_CA): %s contains no PEM certificate", t.CA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, errors.New("set both or neither of BERTH_TEMPORAL_TLS_CERT and BERTH_TEMPORAL_TLS_KEY")
	}
	if t.Cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("load client certificate (BERTH_TEMPORAL_TLS_CERT, BERTH_TEMPORAL_TLS_KEY): %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}
