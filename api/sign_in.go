package api

import (
	"context"
	"errors"
	"net/url"
)

// SignIn is the provider with which users of the page sign in, as a public client.
type SignIn struct {
	Issuer   string `json:"issuer,omitempty" doc:"Issuer of the OpenID Connect provider; absent where users sign in by token only"`
	ClientID string `json:"clientId,omitempty" doc:"Id of the page as a public client of the provider"`
	// Parameters are those of the authorization request, such as scope.
	Parameters map[string]string `json:"parameters,omitempty" doc:"Parameters of the authorization request, such as scope"`
	Token      string            `json:"token,omitempty" enum:"access,id" doc:"Which of the provider's tokens this API accepts"`
}

// origin returns the origin of the provider, for the security policy of the page; empty where there is none.
func (p SignIn) origin() (string, error) {
	if p.Issuer == "" {
		return "", nil
	}
	u, err := url.Parse(p.Issuer)
	if err != nil || u.Host == "" {
		return "", errors.New("api: invalid issuer")
	}
	return u.Scheme + "://" + u.Host, nil
}

func (s *server) signInRoute() {
	register(s, "GET /v1/sign-in", rule{public: true}, s.getSignIn, op("get-sign-in", "account", "Get the provider with which users of the page sign in",
		"The page uses the authorization code flow with PKCE. Empty where no provider is configured for it."))
}

func (s *server) getSignIn(context.Context, *struct{}) (*SignIn, error) { return &s.Config.SignIn, nil }
