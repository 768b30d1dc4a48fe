package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"berth/internal/health"
	"berth/internal/secret"
)

// The settings that faults name.
const (
	settingIssuer = "BERTH_OIDC_ISSUER"
	settingKeys   = "BERTH_JWKS_URL"
)

// Fault is why the tokens of a provider cannot be verified.
type Fault struct {
	Code    string // stable
	Setting string // of berth, that names what failed
	// Temporary: the provider does not work now. Otherwise a setting has to be changed, or the provider itself.
	Temporary bool
	// Summary states what is wrong and what to do, for any caller: it has no addresses.
	Summary string
	Err     error // the details, with addresses; nil for none
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return f.Summary
	}
	return f.Summary + ": " + f.Err.Error()
}

func (f *Fault) Unwrap() error { return f.Err }

// Reason states the fault to operators.
func (f *Fault) Reason() health.Reason {
	return health.Reason{Code: f.Code, Setting: f.Setting, Text: f.Summary}
}

// advice returns what a caller can do about the fault.
func (f *Fault) advice() string {
	if f.Temporary {
		return f.Summary + "; retry later"
	}
	return f.Summary + "; the operator has to change that, see " + f.Setting
}

// broken returns the fault of a provider that has to be set up differently.
func broken(code, setting, summary, format string, args ...any) *Fault {
	return &Fault{Code: code, Setting: setting, Summary: summary, Err: fmt.Errorf(format, args...)}
}

// unreachable returns the fault of a request without a response.
func unreachable(setting string, err error) *Fault {
	proxy := "HTTP_PROXY"
	if call, ok := errors.AsType[*url.Error](err); ok { // it has the address as it was set
		if strings.HasPrefix(call.URL, "https:") {
			proxy = "HTTPS_PROXY"
		}
		err = fmt.Errorf("%s: %w", secret.Masked(call.URL), call.Err)
	}
	var untrusted *tls.CertificateVerificationError
	var redirected redirectError
	var notFound *net.DNSError
	var connecting *net.OpError
	var timeout net.Error
	switch {
	case errors.As(err, &connecting) && connecting.Op == "proxyconnect":
		return &Fault{Code: "proxy", Setting: proxy, Temporary: true, Summary: "the proxy to the identity provider is unreachable", Err: err}
	case errors.As(err, &untrusted):
		return broken("certificate", setting,
			"the certificate of the identity provider is not trusted: add its authority to those of the system, or set SSL_CERT_FILE", "%w", err)
	case errors.As(err, &redirected):
		return broken("redirect", setting, "the identity provider redirects to an address without TLS", "%w", err)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"), strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return broken("no_tls", setting, "the identity provider does not speak TLS at this address", "%w", err)
	case errors.As(err, &notFound) && notFound.IsNotFound:
		return &Fault{Code: "unreachable", Setting: setting, Temporary: true, Summary: "the host of the identity provider is not found", Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Fault{Code: "timeout", Setting: setting, Temporary: true, Summary: "the identity provider does not respond", Err: err}
	}
	return &Fault{Code: "unreachable", Setting: setting, Temporary: true, Summary: "the identity provider is unreachable", Err: err}
}

// redirectError is the refusal of a redirect from https to http, whose response anyone in the network could write.
type redirectError string

func (e redirectError) Error() string { return string(e) }

func checkRedirect(req *http.Request, via []*http.Request) error {
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return redirectError("redirect to " + req.URL.Scheme + "://" + req.URL.Host + " refused")
	}
	if len(via) >= 5 {
		return errors.New("stopped after 5 redirects")
	}
	return nil
}
