// Package clienttls builds the TLS configuration of a client from files.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"berth/internal/setting"
	"berth/internal/userfile"
)

// Files configure TLS. It is used if Enabled is true or any other field is set.
type Files struct {
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

// Config returns nil if TLS is off. Errors name the variables, which begin with prefix, such as BERTH_REDIS_TLS.
func (f Files) Config(prefix string) (*tls.Config, error) {
	c, err := f.config(prefix)
	return c, setting.Wrong(err)
}

func (f Files) config(prefix string) (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := userfile.Read(f.CA, userfile.MaxSettings)
		if err != nil {
			return nil, fmt.Errorf("read certificate authorities (%s_CA): %w", prefix, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authorities (%s_CA): %s contains no PEM certificate", prefix, f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("set both or neither of %[1]s_CERT and %[1]s_KEY", prefix)
	}
	if f.Cert == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("load client certificate (%[1]s_CERT, %[1]s_KEY): %[2]w", prefix, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, nil
}
