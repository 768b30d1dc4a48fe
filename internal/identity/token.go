package identity

import (
	"cmp"
	"context"
	"encoding/json"
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
	TenantID string // empty: none, as the next two
	TeamID   string
	AppID    string
	Nodes    []string // patterns, see ValidNodePattern; required with ScopeNode
	TTL      time.Duration
	Audience string // empty: Audience
}

// Validate returns CodeInvalid for the first invalid field.
func (g Grant) Validate() error {
	if err := berth.ValidUserID("user", g.UserID); err != nil {
		return err
	}
	if berth.IsKeyID(g.UserID) {
		return berth.Invalid("user", "must not be the id of an API key")
	}
	for _, f := range []struct{ field, id string }{{"tenant", g.TenantID}, {"team", g.TeamID}, {"app", g.AppID}} {
		if f.id == "" {
			continue
		}
		if err := berth.ValidID(f.field, f.id); err != nil {
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
	for claim, id := range map[string]string{ownClaims.Tenant: g.TenantID, ownClaims.Team: g.TeamID, ownClaims.App: g.AppID} {
		if id != "" {
			c[claim] = id
		}
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
	var signed *jwt.Token // of the provider
	read := t.Provider.keysFor
	keys := func(token *jwt.Token, c jwt.MapClaims) (any, error) {
		if token.Method == jwt.SigningMethodHS256 {
			return t.Secrets.Current().keys(), nil
		}
		signed = token
		return read(ctx, token, c)
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithAudience(t.Audiences...), jwt.WithLeeway(t.Leeway), jwt.WithTimeFunc(t.Clock)}
	c, err := parse(token, keys, options...)
	if signed != nil && errors.Is(err, jwt.ErrTokenSignatureInvalid) && t.Provider.replaced(signed) {
		read = func(ctx context.Context, token *jwt.Token, _ jwt.MapClaims) (any, error) {
			return t.Provider.nextKeys(ctx, token)
		}
		c, err = parse(token, keys, options...)
	}
	switch {
	case err != nil:
		return Principal{}, rejection(err, c, t.Leeway)
	case signed == nil:
		return ownClaims.principal(c)
	default:
		return t.Provider.claims.principal(c)
	}
}

// maxEarly is how long before its time a token is accepted: many providers set nbf to the time of their own clock, and an early token
// grants nothing that it would not grant a minute later.
const maxEarly = time.Minute

// claims are those of a token, accepted maxEarly before nbf. iat is not checked.
type claims struct{ jwt.MapClaims }

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &c.MapClaims) }

// GetNotBefore implements jwt.Claims.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) {
	at, err := c.MapClaims.GetNotBefore()
	if at != nil {
		at = jwt.NewNumericDate(at.Add(-maxEarly))
	}
	return at, err
}

// parse verifies a token. The claims of one that is rejected may be incomplete or forged.
func parse(token string, keys func(*jwt.Token, jwt.MapClaims) (any, error), options ...jwt.ParserOption) (jwt.MapClaims, error) {
	c := &claims{}
	options = append(options, jwt.WithExpirationRequired(), jwt.WithStrictDecoding())
	_, err := jwt.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical { // RFC 7515, section 4.1.11: no extension is understood
			return nil, jwt.ErrTokenUnverifiable
		}
		return keys(t, c.MapClaims)
	}, options...)
	return c.MapClaims, err //nolint:wrapcheck // the callers translate it
}

// rejection returns the error for the caller whose token was not accepted. It does not contain the token.
func rejection(err error, c jwt.MapClaims, leeway time.Duration) error {
	var known *berth.Error
	if errors.As(err, &known) {
		return known
	}
	reason := "is invalid"
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		reason = "is not a complete JSON Web Token; if the identity provider issues others, see BERTH_OIDC_TOKEN"
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenUnverifiable):
		reason = "has a signature that is not valid, or of an algorithm that is not accepted"
	case errors.Is(err, jwt.ErrTokenExpired):
		reason = "has expired"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		reason = "has another audience than those of BERTH_AUTH_AUDIENCE"
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		reason = "is not valid yet: its nbf is ahead of this server's clock by more than " + (maxEarly + leeway).String()
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing) && c["exp"] == nil:
		reason = "has no exp"
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing) && c["aud"] == nil:
		reason = "has no aud, which must be one of BERTH_AUTH_AUDIENCE"
	case errors.Is(err, jwt.ErrInvalidType), errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		reason = "has a claim of another type: exp and nbf are numbers, aud is a text or a list of texts"
	}
	return berth.Errorf(berth.CodeUnauthenticated, "the token %s", reason)
}
