package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth"
)

// Audience is the default audience of bearer tokens, and issuer the issuer of the tokens of Issue.
const (
	Audience = "berth"
	issuer   = "berth"
)

// DefaultLeeway is the default tolerance for differences between clocks.
const DefaultLeeway = 5 * time.Second

// MinSecret is the minimum length of a secret in bytes (RFC 7518, section 3.2).
const MinSecret = 32

// Grant states what a token of Issue allows.
type Grant struct {
	UserID   string
	Scopes   []string
	TenantID string   // empty: none
	Nodes    []string // patterns, see ValidNodePattern; required with ScopeNode
	TTL      time.Duration
	Audience string // empty: Audience
}

// Validate returns CodeInvalid for the first invalid field.
func (g Grant) Validate() error {
	if err := berth.ValidUserID("user", g.UserID); err != nil {
		return err
	}
	if g.TenantID != "" {
		if err := berth.ValidID("tenant", g.TenantID); err != nil {
			return err
		}
	}
	for _, pattern := range g.Nodes {
		if err := ValidNodePattern("node", pattern); err != nil {
			return err
		}
	}
	if (Principal{Scopes: g.Scopes}).Has(ScopeNode) && len(g.Nodes) == 0 {
		return berth.Invalid("node", "is required with the scope %s: the ids of the nodes that the token is for, such as tokyo-*", ScopeNode)
	}
	return nil
}

// Issue returns an HS256 bearer token signed with the secret.
func Issue(secret string, g Grant) (string, error) {
	if err := g.Validate(); err != nil {
		return "", err
	}
	g.Audience = cmp.Or(g.Audience, Audience)
	now := time.Now()
	c := jwt.MapClaims{
		"iss": issuer, "sub": g.UserID, "aud": g.Audience, "iat": now.Unix(), "exp": now.Add(g.TTL).Unix(),
		ownClaims.Scope: strings.Join(g.Scopes, " "),
	}
	if g.TenantID != "" {
		c[ownClaims.Tenant] = g.TenantID
	}
	if len(g.Nodes) > 0 {
		c[ownClaims.Nodes] = g.Nodes
	}
	return sign([]byte(secret), c)
}

func sign(secret []byte, c jwt.Claims) (string, error) {
	if len(secret) == 0 {
		return "", errors.New("sign token: empty secret")
	}
	t, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return t, nil
}

// Secrets are the operator's HS256 secrets. The first signs, all verify, so that a secret can be replaced without a pause.
type Secrets []string

// SecretSource returns the secrets that are in use now, at least one.
type SecretSource interface{ Current() Secrets }

// Current makes Secrets a SecretSource that does not change.
func (s Secrets) Current() Secrets { return s }

// ParseSecrets returns the secrets of a list that is separated by commas or lines.
func ParseSecrets(list string) Secrets {
	var s Secrets
	for secret := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == '\n' }) {
		if secret = strings.TrimSpace(secret); secret != "" {
			s = append(s, secret)
		}
	}
	return s
}

// Validate returns an error unless there is a secret and all have sufficient length.
func (s Secrets) Validate() error {
	if len(s) == 0 {
		return fmt.Errorf("is not set: use %d random bytes, the same for every process", MinSecret)
	}
	for i, secret := range s {
		switch n := len(secret); {
		case n < MinSecret && len(s) == 1:
			return fmt.Errorf("must have at least %d bytes, got %d", MinSecret, n)
		case n < MinSecret:
			return fmt.Errorf("secret %d must have at least %d bytes, got %d", i+1, MinSecret, n)
		}
	}
	return nil
}

func (s Secrets) keys() jwt.VerificationKeySet {
	var set jwt.VerificationKeySet
	for _, secret := range s {
		set.Keys = append(set.Keys, []byte(secret))
	}
	return set
}

// Tokens verifies bearer tokens. It accepts HS256 with a secret, and the algorithms for public keys with a key of the
// provider: a kind of key is used with its own algorithms only.
type Tokens struct {
	Secrets   SecretSource
	Audiences []string         // the token must have one of them; at least one is required
	Leeway    time.Duration    // tolerance for differences between clocks
	Clock     func() time.Time // nil: the system's
	Provider  *Provider        // nil: only Secrets
}

// Verify implements Verifier. It rejects tickets, whose audience differs.
func (t *Tokens) Verify(ctx context.Context, token string) (Principal, error) {
	methods := []string{jwt.SigningMethodHS256.Alg()}
	if t.Provider != nil {
		methods = append(methods, publicKeyMethods...)
	}
	byProvider := false
	c, err := parse(token, func(token *jwt.Token) (any, error) {
		if byProvider = token.Method != jwt.SigningMethodHS256; byProvider {
			return t.Provider.keysFor(ctx, token)
		}
		return t.Secrets.Current().keys(), nil
	}, jwt.WithValidMethods(methods), jwt.WithAudience(t.Audiences...), jwt.WithLeeway(t.Leeway), jwt.WithTimeFunc(t.Clock))
	switch {
	case err != nil:
		return Principal{}, err
	case !byProvider:
		return ownClaims.principal(c)
	case t.Provider.issuer != "" && c["iss"] != t.Provider.issuer:
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the token has another issuer")
	default:
		return t.Provider.claims.principal(c)
	}
}

// parse verifies a token. The reason of a rejection is for the caller; it does not contain the token.
func parse(token string, keys jwt.Keyfunc, options ...jwt.ParserOption) (jwt.MapClaims, error) {
	c := jwt.MapClaims{}
	options = append(options, jwt.WithExpirationRequired(), jwt.WithStrictDecoding())
	_, err := jwt.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical { // RFC 7515, section 4.1.11: no extension is understood
			return nil, jwt.ErrTokenUnverifiable
		}
		return keys(t)
	}, options...)
	var known *berth.Error
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &known):
		return nil, known
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, berth.Errorf(berth.CodeUnauthenticated, "the token has expired")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return nil, berth.Errorf(berth.CodeUnauthenticated, "the token has another audience")
	default:
		return nil, berth.Errorf(berth.CodeUnauthenticated, "the token is invalid")
	}
}
