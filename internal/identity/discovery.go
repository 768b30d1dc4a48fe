package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/internal/health"
	"berth/internal/secret"
)

// WellKnown is the path of the discovery document behind an issuer (OpenID Connect Discovery 1.0, section 4).
const WellKnown = "/.well-known/openid-configuration"

const maxDocument = 1 << 20

// Found is what a provider publishes.
type Found struct {
	// Issuer is the one that the provider states; empty where its keys are read without discovery.
	Issuer string
	// Keys are the ids of the keys that verify tokens, Unused the others, each with the reason. Faulty are those of the unused ones that the
	// provider may have meant for tokens.
	Keys, Unused, Faulty []string
	// Clock is the provider's time; zero if it does not state it.
	Clock time.Time

	set *keySet
}

// Discover reads what the provider publishes. The error is a *health.Problem.
func (p *Provider) Discover(ctx context.Context) (Found, error) {
	found, wrong := p.discover(ctx)
	if wrong != nil {
		return found, wrong
	}
	return found, nil
}

func (p *Provider) discover(ctx context.Context) (found Found, wrong *health.Problem) {
	address, setting := p.jwksURL, settingKeys
	if address == "" {
		if address, wrong = p.findKeys(ctx, &found); wrong != nil {
			return found, wrong
		}
		setting = settingIssuer
	}
	body, wrong := p.read(ctx, &found, address, setting, "the keys")
	if wrong != nil {
		return found, wrong
	}
	set, err := parseKeys(body)
	if err != nil {
		return found, broken("keys", setting, "the identity provider publishes no JWK set", "%s: %w", secret.Masked(address), err)
	}
	found.set, found.Keys, found.Unused, found.Faulty = set, set.ids(), set.unused, set.faulty
	if len(set.keys) == 0 {
		reason := "it has no keys"
		if len(set.unused) > 0 {
			reason = strings.Join(set.unused, ", ")
		}
		return found, broken("keys", setting, "the identity provider publishes no key that verifies tokens", "%s: %s", secret.Masked(address), reason)
	}
	return found, nil
}

// findKeys returns the address of the keys from the discovery document.
func (p *Provider) findKeys(ctx context.Context, found *Found) (address string, wrong *health.Problem) {
	at := strings.TrimRight(p.issuer, "/") + WellKnown
	body, wrong := p.read(ctx, found, at, settingIssuer, "the discovery document")
	if wrong != nil {
		return "", wrong
	}
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURL string `json:"jwks_uri"`
	}
	shown := secret.Masked(at)
	if err := json.Unmarshal(body, &document); err != nil {
		return "", broken("discovery", settingIssuer, "the discovery document of the identity provider is malformed", "%s: %w", shown, err)
	}
	found.Issuer = document.Issuer
	switch {
	case strings.Contains(document.Issuer, "{"): // Azure's address for all tenants
		return "", broken("issuer", settingIssuer, "the issuer is that of all tenants of the identity provider: set the one of your tenant",
			"%s states %q; replace the part in braces by your tenant's id", shown, document.Issuer)
	case !sameIssuer(document.Issuer, p.issuer):
		return "", broken("issuer", settingIssuer, "the identity provider states another issuer: set exactly that",
			"%s states %q, and %s is %s", shown, document.Issuer, settingIssuer, secret.Masked(p.issuer))
	}
	keys, err := url.Parse(document.JWKSURL)
	if issuer, _ := url.Parse(p.issuer); err != nil || keys.Host == "" || keys.Scheme != "https" && (keys.Scheme != "http" || issuer == nil || issuer.Scheme == "https") {
		return "", broken("keys_address", settingKeys, "the discovery document of the identity provider has no usable address of the keys",
			"%s: jwks_uri is %q; it must begin with https://, or set %s", shown, document.JWKSURL, settingKeys)
	}
	return document.JWKSURL, nil
}

// read reads a document, without a byte order mark. Its media type does not matter.
func (p *Provider) read(ctx context.Context, found *Found, address, setting, what string) ([]byte, *health.Problem) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" { // the error has the address
		return nil, broken("address", setting, "the address of "+what+" of the identity provider is invalid",
			"%s must begin with https:// and a host, with special characters encoded", secret.Masked(address))
	}
	req.Header.Set("Accept", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return nil, unreachable(setting, err)
	}
	defer func() { _ = res.Body.Close() }() // an error cannot be handled
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		found.Clock = date
	}
	at := secret.Masked(address)
	if final := res.Request.URL.String(); final != address {
		at += ", which redirects to " + secret.Masked(final) + ","
	}
	switch status := res.StatusCode; {
	case status == http.StatusOK:
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return nil, problem(health.Reason{Code: "status", Setting: setting, Text: fmt.Sprintf("the identity provider responds with status %d", status)},
			fmt.Errorf("%s responded with %s", at, res.Status))
	default:
		return nil, broken("status", setting, fmt.Sprintf("the identity provider does not have %s there (status %d)", what, status), "%s responded with %s", at, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, unreachable(setting, err)
	}
	if len(body) > maxDocument {
		err = fmt.Errorf("more than %d bytes", maxDocument)
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if bytes.HasPrefix(body, []byte("<")) {
		err = errors.New("it is HTML or XML")
	}
	if err == nil && !json.Valid(body) {
		err = errors.New("it is not JSON")
	}
	if err != nil {
		return nil, broken("document", setting, "the identity provider has something else in place of "+what, "%s: %w (%s)", at, err, res.Header.Get("Content-Type"))
	}
	return body, nil
}

// sameIssuer reports whether two issuers are one. A slash at the end makes no difference: settings, discovery documents and tokens often
// differ by it, and it leads to no other provider.
func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }
