package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"berth/internal/identity"
	"berth/internal/secret"
)

// Identity holds the settings of bearer tokens. Secrets and a provider can be used beside each other.
type Identity struct {
	Secrets     secret.Text       `help:"HS256 secrets for bearer tokens and tickets, separated by commas: the first signs, all verify. At least 32 bytes each." name:"auth-secret" env:"BERTH_AUTH_SECRET"`
	SecretsFile string            `help:"File with these secrets, separated by commas or lines; a change applies within a second." name:"auth-secret-file" env:"BERTH_AUTH_SECRET_FILE"`
	Audiences   []string          `help:"Accepted audiences of bearer tokens." name:"auth-audience" env:"BERTH_AUTH_AUDIENCE" default:"berth"`
	Issuer      secret.Address    `help:"URL of an OpenID Connect provider whose tokens are accepted; empty for none." name:"oidc-issuer" env:"BERTH_OIDC_ISSUER"`
	JWKSURL     secret.Address    `help:"URL of the provider's keys. Default: from the provider's discovery document." name:"jwks-url" env:"BERTH_JWKS_URL"`
	ClientID    string            `help:"Id of berth's page as a public client of the provider, with which users sign in; empty: by token only." name:"oidc-client-id" env:"BERTH_OIDC_CLIENT_ID"`
	Parameters  map[string]string `help:"Parameters of the page's authorization request: scope=openid offline_access;audience=https://berth.example." name:"oidc-parameters" env:"BERTH_OIDC_PARAMETERS" mapsep:";" default:"scope=openid"`
	Token       string            `help:"Which of the provider's tokens the page sends: ${enum}." name:"oidc-token" env:"BERTH_OIDC_TOKEN" enum:"access,id" default:"access"`
	ScopeClaim  string            `help:"Claim with the scopes in the provider's tokens, such as realm_access.roles." name:"oidc-scope-claim" env:"BERTH_OIDC_SCOPE_CLAIM" default:"scope"`
	ScopeMap    map[string]string `help:"Scopes for the values of that claim, and the team: staff=user,operator;search-leads=team,team:search;*=user. Other values grant nothing; * matches every token. Default: the values are scopes." name:"oidc-scope-map" env:"BERTH_OIDC_SCOPE_MAP" mapsep:";"`
	TenantClaim string            `help:"Claim with the tenant in the provider's tokens." name:"oidc-tenant-claim" env:"BERTH_OIDC_TENANT_CLAIM" default:"tenant"`
	TeamClaim   string            `help:"Claim with the team in the provider's tokens, for which requests count." name:"oidc-team-claim" env:"BERTH_OIDC_TEAM_CLAIM" default:"team"`
	AppClaim    string            `help:"Claim with the application in the provider's tokens, for which requests count, such as azp." name:"oidc-app-claim" env:"BERTH_OIDC_APP_CLAIM" default:"app"`
	NodesClaim  string            `help:"Claim with the ids of nodes in the provider's tokens of scope node." name:"oidc-nodes-claim" env:"BERTH_OIDC_NODES_CLAIM" default:"nodes"`
}

func (c Identity) secrets() secret.Secret {
	return secret.NewLines("BERTH_AUTH_SECRET", string(c.Secrets), c.SecretsFile)
}

// HasSecret reports whether a secret is set.
func (c Identity) HasSecret() bool { return c.secrets().IsSet() }

// Secret returns the secret that signs, empty without one.
func (c Identity) Secret() string {
	text, _ := c.secrets().Read() // NeedSecret returns the error
	if all := identity.ParseSecrets(text); len(all) > 0 {
		return all[0]
	}
	return ""
}

// Source returns the secrets that are in use, which change with their file. There may be none.
func (c Identity) Source(logger *slog.Logger) (identity.SecretSource, error) {
	return secret.NewCached(c.secrets(), func(text string) (identity.Secrets, error) {
		secrets := identity.ParseSecrets(text)
		if c.SecretsFile == "" { // Validate has checked them
			return secrets, nil
		}
		return secrets, secrets.Validate()
	}, logger)
}

// Audience returns the audience of the tokens that berth issues, empty for the default.
func (c Identity) Audience() string {
	if len(c.Audiences) > 0 {
		return c.Audiences[0]
	}
	return ""
}

// Claims returns the claims of the provider's tokens.
func (c Identity) Claims() identity.ClaimMap {
	return identity.ClaimMap{Scope: c.ScopeClaim, Tenant: c.TenantClaim, Nodes: c.NodesClaim, Team: c.TeamClaim, App: c.AppClaim, Scopes: c.ScopeMap}
}

// Provider returns the options of the provider, and whether there is one.
func (c Identity) Provider(logger *slog.Logger) (o identity.ProviderOptions, ok bool) {
	return identity.ProviderOptions{Issuer: string(c.Issuer), JWKSURL: string(c.JWKSURL), Claims: c.Claims(), Logger: logger}, c.Issuer != "" || c.JWKSURL != ""
}

func (c *Identity) validate(p *problems, production bool) {
	if err := c.needSecret(); err != nil && c.HasSecret() {
		p.secret(err)
	}
	if len(c.Audiences) == 0 {
		p.bad(&c.Audiences, "must not be empty")
	}
	for _, a := range c.Audiences {
		if a == "" || a == identity.TicketAudience {
			p.bad(&c.Audiences, "invalid audience %q: must not be empty or %s, the audience of tickets", a, identity.TicketAudience)
		}
	}
	for _, u := range []*secret.Address{&c.Issuer, &c.JWKSURL} {
		switch parsed, err := url.Parse(string(*u)); {
		case *u == "":
		case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
			p.bad(u, "invalid URL %s", *u)
		case production && parsed.Scheme != "https":
			p.bad(u, "must start with https:// in production, got %s", *u)
		}
	}
	if issuer, is := strings.CutSuffix(strings.TrimRight(string(c.Issuer), "/"), identity.WellKnown); is {
		p.bad(&c.Issuer, "must be the issuer %s, not the address of its discovery document", issuer)
	}
	if c.ClientID != "" && c.Issuer == "" {
		p.bad(&c.ClientID, "needs --oidc-issuer, with which users sign in")
	}
	if c.ClientID != "" && !slices.Contains(strings.Fields(c.Parameters["scope"]), "openid") {
		p.bad(&c.Parameters, "scope must contain openid, got %q", c.Parameters["scope"])
	}
	if c.ScopeClaim == "" {
		p.bad(&c.ScopeClaim, "must not be empty")
	}
	if err := c.Claims().Validate(); err != nil {
		p.bad(&c.ScopeMap, "%s", err)
	}
}

// needSecret returns an error unless there are secrets of sufficient length.
func (c Identity) needSecret() error {
	if err := c.secrets().Validate(); err != nil {
		return err
	}
	text, err := c.secrets().Read()
	if err != nil {
		return err
	}
	if err := identity.ParseSecrets(text).Validate(); err != nil {
		return c.secrets().Invalid("%s", err)
	}
	return nil
}

// NeedSecret returns an error if the secret for bearer tokens is missing or too short.
func (c *Config) NeedSecret() error {
	p := &problems{fields: fieldsOf(c)}
	p.secret(c.Identity.needSecret())
	return p.err()
}

// ReadSecretFile sets the secret from the file in which a development server stores it, unless a secret is set or the
// file does not exist.
func (c *Config) ReadSecretFile(path string) error {
	if c.Identity.HasSecret() {
		return nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own path
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read secret file: %w", err)
	}
	c.Identity.Secrets = secret.Text(strings.TrimSpace(string(b)))
	return nil
}

// validateOrigins checks the origins from which browsers may call the API.
func validateOrigins(origins *[]string, problems *problems) {
	for _, o := range *origins {
		p, err := url.Parse(o)
		if o != "*" && (err != nil || p.Host == "" || o != p.Scheme+"://"+p.Host || p.Scheme != "http" && p.Scheme != "https") {
			problems.bad(origins, "invalid origin %s: must be https://host[:port] without a path, or *", secret.Address(o))
		}
	}
}
