package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/golang-jwt/jwt/v5"

	"berth"
)

// ProviderOptions are the settings of a Provider. Issuer, JWKSURL or both are required.
type ProviderOptions struct {
	// Issuer is the URL of an OpenID Connect provider, and the required issuer of its tokens. Empty: any issuer.
	Issuer string
	// JWKSURL has the provider's keys. Empty: the provider's discovery document names it.
	JWKSURL string
	Claims  ClaimMap
	Logger  *slog.Logger
	Client  *http.Client // nil: one with a timeout of 5 s
}

// Provider has the public keys of an OpenID Connect provider. Run reads them at the start, every five minutes, and when a token
// has a key that is not known. While the provider is unavailable, the keys that were read last are used.
type Provider struct {
	issuer, jwksURL string
	claims          ClaimMap
	client          *http.Client
	log             *slog.Logger
	known           atomic.Pointer[keySet] // nil before the first successful reading
	requests        chan chan<- error      // of a reading; the channels have room for its result
}

const (
	refreshEvery = 5 * time.Minute
	// retryEvery is the pause after a failed reading, minPause the least pause between two: unknown keys in forged tokens
	// must not become requests to the provider.
	retryEvery = 10 * time.Second
	minPause   = time.Second
	// refreshTimeout limits how long a request waits for a reading.
	refreshTimeout  = 6 * time.Second
	providerTimeout = 5 * time.Second
	maxKeysBytes    = 1 << 20
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
		o.Client = &http.Client{Timeout: providerTimeout}
	}
	return &Provider{
		issuer: o.Issuer, jwksURL: o.JWKSURL, claims: o.Claims, client: o.Client, log: o.Logger, requests: make(chan chan<- error),
	}, nil
}

// Run reads the keys until ctx ends. It is the only goroutine that does.
func (p *Provider) Run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	var last time.Time
	var waiting []chan<- error
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
		err := p.read(ctx)
		for _, done := range waiting {
			done <- err
		}
		waiting, last = nil, time.Now()
		if err != nil {
			next.Reset(retryEvery)
			continue
		}
		next.Reset(refreshEvery)
	}
}

// refresh returns after the next reading.
func (p *Provider) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	done := make(chan error, 1)
	select {
	case p.requests <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read replaces the keys, and keeps those that were read before where that fails.
func (p *Provider) read(ctx context.Context) error {
	keys, err := p.fetch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "identity provider's keys not read", "known", p.known.Load().ids(), "error", err)
		}
		return err
	}
	if was := p.known.Swap(keys); was.ids() != keys.ids() {
		p.log.InfoContext(ctx, "identity provider's keys read", "keys", keys.ids(), "before", was.ids())
	}
	return nil
}

func (p *Provider) fetch(ctx context.Context) (*keySet, error) {
	ctx = oidc.ClientContext(ctx, p.client)
	address := p.jwksURL
	if address == "" {
		found, err := oidc.NewProvider(ctx, p.issuer)
		if err != nil {
			return nil, fmt.Errorf("discover %s: %w", p.issuer, err)
		}
		var document struct {
			JWKSURL string `json:"jwks_uri"`
		}
		if err := found.Claims(&document); err != nil {
			return nil, fmt.Errorf("discover %s: %w", p.issuer, err)
		}
		address = document.JWKSURL
		if issuer, err := url.Parse(p.issuer); err != nil || issuer.Scheme == "https" {
			if keys, err := url.Parse(address); err != nil || keys.Scheme != "https" {
				return nil, fmt.Errorf("discover %s: jwks_uri %q must start with https://", p.issuer, address)
			}
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read keys from %s: status %d", address, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeysBytes))
	if err != nil {
		return nil, fmt.Errorf("read keys from %s: %w", address, err)
	}
	keys, err := parseKeys(body)
	if err != nil {
		return nil, fmt.Errorf("read keys from %s: %w", address, err)
	}
	return keys, nil
}

// keysFor returns the keys that can have signed the token. It reads the keys again when none is known.
func (p *Provider) keysFor(ctx context.Context, token *jwt.Token) (any, error) {
	if set := p.known.Load().matching(token); len(set.Keys) > 0 {
		return set, nil
	}
	err := p.refresh(ctx)
	if set := p.known.Load().matching(token); len(set.Keys) > 0 {
		return set, nil
	}
	if err != nil {
		return nil, berth.Errorf(berth.CodeUnavailable, "the identity provider is unavailable; retry later").With(err)
	}
	return nil, jwt.ErrTokenUnverifiable
}
