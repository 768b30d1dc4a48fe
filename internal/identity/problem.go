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

// The settings that problems name.
const (
	settingIssuer = "BERTH_OIDC_ISSUER"
	settingKeys   = "BERTH_JWKS_URL"
)

// problem returns why the tokens of a provider cannot be verified. The text has no addresses, unlike err.
func problem(r health.Reason, err error) *health.Problem {
	return &health.Problem{Reason: r, Said: r.Text + ": " + err.Error(), Advice: r.Text, Err: err}
}

// advice returns what a caller can do about a problem.
func advice(r health.Reason) string {
	if r.Lasting {
		return r.Text + "; the operator has to change that, see " + r.Setting
	}
	return r.Text + "; retry later"
}

// broken returns the problem of a provider that has to be set up differently.
func broken(code, setting, text, format string, args ...any) *health.Problem {
	return problem(health.Reason{Code: code, Setting: setting, Lasting: true, Text: text}, fmt.Errorf(format, args...))
}

// unreachable returns the problem of a request without a response.
func unreachable(setting string, err error) *health.Problem {
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
		return problem(health.Reason{Code: "proxy", Setting: proxy, Text: "the proxy to the identity provider is unreachable"}, err)
	case errors.As(err, &untrusted):
		return broken("certificate", setting,
			"the certificate of the identity provider is not trusted: add its authority to those of the system, or set SSL_CERT_FILE", "%w", err)
	case errors.As(err, &redirected):
		return broken("redirect", setting, "the identity provider redirects to an address without TLS", "%w", err)
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"), strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return broken("no_tls", setting, "the identity provider does not speak TLS at this address", "%w", err)
	case errors.As(err, &notFound) && notFound.IsNotFound:
		return problem(health.Reason{Code: "unreachable", Setting: setting, Text: "the host of the identity provider is not found"}, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problem(health.Reason{Code: "timeout", Setting: setting, Text: "the identity provider does not respond"}, err)
	}
	return problem(health.Reason{Code: "unreachable", Setting: setting, Text: "the identity provider is unreachable"}, err)
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
