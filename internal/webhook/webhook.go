// Package webhook sends events to a server of the operator, signed as Standard Webhooks specifies
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"berth/internal/secret"
)

const (
	// secretPrefix begins secrets, which are 24 to 64 bytes in base64.
	secretPrefix = "whsec_"
	minSecret    = 24
	maxSecret    = 64
	// timeout bounds one attempt.
	timeout = 20 * time.Second
)

// Options identify the server.
type Options struct {
	URL string
	// Secrets sign each event. Several are for a change of the secret: a receiver accepts any of the signatures.
	Secrets []string
	// SecretsFile names a file with the secrets instead, separated by commas or lines. It is read for each event.
	SecretsFile string
	// AllowPrivate permits http, and loopback, private and link-local addresses.
	AllowPrivate bool
}

// Validate returns an error for a URL or a secret that cannot be used.
func (o Options) Validate() error {
	if err := ValidURL(o.URL, o.AllowPrivate); err != nil {
		return fmt.Errorf("invalid URL: %w", err)
	}
	_, err := o.signer()
	return err
}

// ValidURL returns why a URL cannot be used. A name is not resolved: what it leads to is checked when an event is sent.
func ValidURL(text string, allowPrivate bool) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must have only printable characters of ASCII: encode others by percent signs, and names of hosts by Punycode")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL such as https://host/path")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("must begin with https://")
	case u.Hostname() == "":
		return errors.New("must have a host: https://host/path")
	case u.User != nil:
		return errors.New("must not have a user or password")
	case u.Fragment != "":
		return errors.New("must not have a fragment, which is not sent")
	case u.Port() != "" && !isPort(u.Port()):
		return fmt.Errorf("has the port %s, which must be 1 to 65535", u.Port())
	case allowPrivate:
		return nil
	case u.Scheme == "http":
		return errors.New("must be https")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !public(a) {
		return &privateError{a}
	}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// NewSecret returns a secret that signs events.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: see crypto/rand
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// signer returns what signs events.
func (o Options) signer() (*Signer, error) {
	return NewSigner(secret.NewLines("BERTH_RECORD_SECRETS", strings.Join(o.Secrets, ","), o.SecretsFile))
}

// Signer signs messages. A file with its secrets is read for each message.
type Signer struct{ from secret.Secret }

// NewSigner returns a Signer with one signature for each secret, separated by commas or lines. Its errors, and those of Sign, contain no
// secret.
func NewSigner(from secret.Secret) (*Signer, error) {
	if err := from.Validate(); err != nil {
		return nil, err
	}
	s := &Signer{from}
	_, err := s.signers()
	return s, err
}

// signers returns what signs a message now. Its errors are *secret.Error.
func (s *Signer) signers() (signers []*standardwebhooks.Webhook, err error) {
	text, err := s.from.Read()
	if err != nil {
		return nil, err
	}
	for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, secretPrefix))
		if err != nil || len(key) < minSecret || len(key) > maxSecret {
			return nil, s.from.Invalid("invalid secret: must be %s and %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)
		}
		signer, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, s.from.Invalid("invalid secret") // the error may contain it
		}
		signers = append(signers, signer)
	}
	if len(signers) == 0 {
		return nil, s.from.Invalid("a secret is required")
	}
	return signers, nil
}

// Sign adds the headers webhook-id, webhook-timestamp and webhook-signature of a message that is sent now. The id is the same whenever
// the message is sent again.
func (s *Signer) Sign(h http.Header, id string, body []byte) error {
	signers, err := s.signers()
	if err != nil {
		return err
	}
	now := time.Now()
	signatures := make([]string, len(signers))
	for i, signer := range signers {
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return fmt.Errorf("sign the message: %w", err)
		}
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// Sender sends events.
type Sender struct {
	url    string
	signer *Signer
	http   *http.Client
}

// New returns a Sender for valid options.
func New(o Options) (*Sender, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sender{url: o.URL}
	var err error
	if s.signer, err = o.signer(); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: timeout / 2}
	if !o.AllowPrivate {
		dialer.Control = refusePrivate // after the name was resolved, so that no name can lead there
	}
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.DialContext, t.Proxy, t.DisableKeepAlives = dialer.DialContext, nil, true
	s.http = &http.Client{
		Transport: t, Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s, nil
}

// Error is why an attempt has failed. Its text has neither the URL nor anything that the server has sent.
type Error struct {
	Message    string
	Status     int           // of the response; 0 without one
	RetryAfter time.Duration // requested by the server; 0 without
	Err        error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether the server wants no further attempt.
func (e *Error) Permanent() bool { return e.Status == http.StatusGone }

// Send makes one attempt to send a JSON event, and returns the status of the response, 0 without one. The id is the same in all attempts. Its errors are
// *Error.
func (s *Sender) Send(ctx context.Context, id string, event []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(event))
	if err != nil {
		return 0, &Error{Message: "invalid URL", Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berth")
	if err := s.signer.Sign(req.Header, id, event); err != nil {
		return 0, &Error{Message: "event not signed: " + err.Error(), Err: err}
	}
	res, err := s.http.Do(req)
	if err != nil {
		return 0, failed(err)
	}
	_ = res.Body.Close() // only the status matters
	if res.StatusCode/100 == 2 {
		return res.StatusCode, nil
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return res.StatusCode, &Error{
		Message: fmt.Sprintf("the server returned %d", res.StatusCode), Status: res.StatusCode, RetryAfter: time.Duration(max(seconds, 0)) * time.Second,
	}
}

// failed returns the error of a request without a response.
func failed(err error) *Error {
	return &Error{Message: reason(err), Err: err}
}

// reason returns why there is no response. Where the server may have processed the event, it says that it was reached.
func reason(err error) string {
	var private *privateError
	var timedOut interface{ Timeout() bool }
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &private):
		return private.Error()
	case errors.As(err, &name) && name.IsNotFound:
		return "the name of the server was not found"
	case errors.As(err, &timedOut) && timedOut.Timeout():
		return "the server did not respond in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the server refused the connection"
	case errors.As(err, &certificate):
		return "the certificate of the server is not valid"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"): // net/http has no name for it
		return "the server closed the connection without a response"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "the server's response is not HTTP"
	}
	return "the server is unreachable"
}

// privateError is the error of an address that is not allowed.
type privateError struct{ address netip.Addr }

func (e *privateError) Error() string {
	return "the server's address " + e.address.String() + " is not public"
}

func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address of the server: %w", err)
	}
	if !public(at.Addr()) {
		return &privateError{at.Addr()}
	}
	return nil
}

// special are the networks for particular purposes that netip does not name: RFC 6890, and the ranges of IPv6 that contain an
// address of IPv4.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
}

// public reports whether an address is on the public internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
