package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth"
	"berth/internal/health"
)

// ProviderOptions are the settings of a Provider. Issuer, JWKSURL or both are required.
type ProviderOptions struct {
	// Issuer is the URL of an OpenID Connect provider, and the required issuer of its tokens. Empty: any issuer.
	Issuer string
	// JWKSURL has the provider's keys. Empty: the provider's discovery document names it.
	JWKSURL string
	Claims  ClaimMap
	Logger  *slog.Logger
	Client  *http.Client // nil: one that follows no redirect from https to http
}

// Provider has the public keys of an OpenID Connect provider. Run reads them at the start, every five minutes, and when a token
// has a key that is not known. While the provider is unavailable, the keys that were read last are used.
type Provider struct {
	issuer, jwksURL string
	claims          ClaimMap
	client          *http.Client
	log             *slog.Logger
	wait            time.Duration // maxWait
	last            atomic.Pointer[reading]
	first           chan struct{}               // closed after the first reading
	requests        chan chan<- *health.Problem // of a reading; the channels have room for its result
}

// reading is what is known after a reading.
type reading struct {
	keys  *keySet         // nil before the first that succeeded
	at    time.Time       // when they were read
	wrong *health.Problem // of the last one; nil if it succeeded
}

const (
	refreshEvery = 5 * time.Minute
	// retryEvery is the pause after a failed reading, minPause the least pause between two: unknown keys in forged tokens
	// must not become requests to the provider.
	retryEvery = 10 * time.Second
	minPause   = time.Second
	// readTimeout limits a reading, maxWait how long a request waits for one.
	readTimeout = 5 * time.Second
	maxWait     = 2 * time.Second
	// replacedAfter is how long a known key is not read again after a token that it does not verify.
	replacedAfter = 30 * time.Second
)

// NewProvider returns a provider without keys; Run reads them.
func NewProvider(o ProviderOptions) (*Provider, error) {
	if o.Issuer == "" && o.JWKSURL == "" {
		return nil, errors.New("identity provider: issuer or JWKS URL is required")
	}
	if err := o.Claims.Validate(); err != nil {
		return nil, fmt.Errorf("identity provider: %w", err)
	}
	if o.Client == nil {
		o.Client = &http.Client{CheckRedirect: checkRedirect}
	}
	p := &Provider{
		issuer: o.Issuer, jwksURL: o.JWKSURL, claims: o.Claims, client: o.Client, log: o.Logger, wait: maxWait,
		first: make(chan struct{}), requests: make(chan chan<- *health.Problem),
	}
	p.last.Store(&reading{})
	return p, nil
}

// Run reads the keys until ctx ends. It is the only goroutine that does.
func (p *Provider) Run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	var last time.Time
	var waiting []chan<- *health.Problem
	for {
		select {
		case <-ctx.Done():
			return nil
		case done := <-p.requests:
			waiting = append(waiting, done)
			next.Reset(time.Until(last.Add(minPause)))
			continue
		case <-next.C:
		}
		wrong := p.refreshKeys(ctx)
		for _, done := range waiting {
			done <- wrong
		}
		if last.IsZero() {
			close(p.first)
		}
		waiting, last = nil, time.Now()
		if wrong != nil {
			next.Reset(retryEvery)
			continue
		}
		next.Reset(refreshEvery)
	}
}

// refreshKeys replaces the keys, and keeps those that were read before where that fails. Check reports the problem.
func (p *Provider) refreshKeys(ctx context.Context) *health.Problem {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	was := p.last.Load()
	found, wrong := p.discover(ctx)
	if wrong != nil {
		p.last.Store(&reading{keys: was.keys, at: was.at, wrong: wrong})
		return wrong
	}
	if ids := found.set.ids(); was.keys == nil || !slices.Equal(ids, was.keys.ids()) {
		p.log.InfoContext(ctx, "identity provider's keys read", "issuer", found.Issuer, "keys", strings.Join(ids, " "), "before", strings.Join(was.keys.ids(), " "))
	}
	if was.keys == nil || !slices.Equal(found.Unused, was.keys.unused) {
		level := slog.LevelInfo
		if len(found.Faulty) > 0 {
			level = slog.LevelWarn
		}
		if len(found.Unused) > 0 {
			p.log.Log(ctx, level, "identity provider's keys not used", "keys", strings.Join(found.Unused, ", "))
		}
	}
	p.last.Store(&reading{keys: found.set, at: time.Now()})
	return nil
}

// Check returns a *health.Problem while the keys cannot be read. It waits for the first reading.
func (p *Provider) Check(ctx context.Context) error {
	select {
	case <-p.first:
	case <-ctx.Done():
		return unreachable(settingIssuer, ctx.Err())
	}
	wrong := p.last.Load().wrong
	if wrong == nil {
		return nil // not the nil *health.Problem, which would be an error
	}
	return wrong
}

// refresh returns after the next reading. Where the last one failed it does not wait for the next, which it requests: a provider that hangs
// does not delay calls.
func (p *Provider) refresh(ctx context.Context) *health.Problem {
	if wrong := p.last.Load().wrong; wrong != nil {
		select {
		case p.requests <- make(chan *health.Problem, 1):
		default: // there is one now
		}
		return wrong
	}
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	done := make(chan *health.Problem, 1)
	select {
	case p.requests <- done:
	case <-ctx.Done():
		return unreachable(settingIssuer, ctx.Err())
	}
	select {
	case wrong := <-done:
		return wrong
	case <-ctx.Done():
		return unreachable(settingIssuer, ctx.Err())
	}
}

// keysFor returns the keys that can have signed the token. It reads the keys again when none is known.
func (p *Provider) keysFor(ctx context.Context, token *jwt.Token, claims jwt.MapClaims) (any, error) {
	if stated, _ := claims["iss"].(string); p.issuer != "" && !sameIssuer(stated, p.issuer) {
		return nil, berth.Errorf(berth.CodeUnauthenticated, "the token's issuer is %s, and not that of %s", quoted(stated), settingIssuer)
	}
	if set := p.last.Load().keys.matching(token); len(set.Keys) > 0 {
		return set, nil
	}
	return p.nextKeys(ctx, token)
}

// nextKeys returns the keys that can have signed the token after the next reading.
func (p *Provider) nextKeys(ctx context.Context, token *jwt.Token) (any, error) {
	wrong := p.refresh(ctx)
	if set := p.last.Load().keys.matching(token); len(set.Keys) > 0 {
		return set, nil
	}
	if wrong != nil {
		return nil, berth.Errorf(berth.CodeUnavailable, "%s", advice(wrong.Reason)).With(wrong)
	}
	id, _ := token.Header["kid"].(string)
	return nil, berth.Errorf(berth.CodeUnauthenticated, "the token is signed with a key that the identity provider does not publish: kid %s, alg %s",
		quoted(id), token.Method.Alg())
}

// replaced reports whether another key may have taken the place of those that do not verify the token: they are not of its key id, or were
// read some time ago.
func (p *Provider) replaced(token *jwt.Token) bool {
	last := p.last.Load()
	return !last.keys.named(token) || time.Since(last.at) > replacedAfter
}

// quoted returns what a token states, for a message.
func quoted(stated string) string { return fmt.Sprintf("%.100q", stated) }
