// Package identity states who a caller is: it issues and verifies bearer tokens and stream tickets. Tokens are JSON Web Tokens
// signed with one of the operator's own secrets, or by an OpenID Connect provider. Signatures are checked by golang-jwt, keys
// are decoded by go-jose.
package identity

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth"
)

// The scopes of a token. Each has a row in the table scopes.
const (
	ScopeUser     = "user"
	ScopeNode     = "node"
	ScopeOperator = "operator"
	ScopeModels   = "models"
	ScopeTeam     = "team"
)

// Scope is a scope with what it allows, for documentation.
type Scope struct{ Name, Allows string }

var scopes = []Scope{
	{ScopeUser, "submit work and read one's own"},
	{ScopeNode, "run the nodes and media units that the token names: register, send heartbeats, report"},
	{ScopeOperator, "see every user's work and manage the fleet"},
	{ScopeModels, "call models by OpenAI's protocol, as API keys do"},
	{ScopeTeam, "manage the API keys of the caller's team and the budgets of these keys"},
}

// Scopes returns all scopes, in the order of documentation.
func Scopes() []Scope { return scopes }

// ScopeNames returns the names of all scopes.
func ScopeNames() []string {
	var names []string
	for _, s := range scopes {
		names = append(names, s.Name)
	}
	return names
}

// Principal is an authenticated caller.
type Principal struct {
	UserID string
	// TenantID is the tenant on whose behalf the caller works; empty for none.
	TenantID string
	// TeamID and AppID are the team and the application for which the caller's requests count, see ledger.FindGroup; empty for none.
	TeamID, AppID string
	Scopes        []string
	// Nodes are the patterns of the ids of the nodes that the caller may act for, see ValidNodePattern.
	Nodes     []string
	ExpiresAt time.Time
}

// Has reports whether the caller has the scope.
func (p Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

// Operator reports whether the caller may see every user's work.
func (p Principal) Operator() bool { return p.Has(ScopeOperator) }

// ActsFor reports whether the caller may act for the node.
func (p Principal) ActsFor(nodeID string) bool {
	return slices.ContainsFunc(p.Nodes, func(pattern string) bool { return matches(pattern, nodeID) })
}

// Verifier returns the owner of a bearer token. It returns CodeUnauthenticated for a token that is not valid, and
// CodeUnavailable when that cannot be decided now.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

var nodePattern = regexp.MustCompile(`^[A-Za-z0-9_.@*-]{1,128}$`)

// ValidNodePattern returns CodeInvalid for the field unless v is the id of a node, in which each * matches any characters.
func ValidNodePattern(field, v string) error {
	if !nodePattern.MatchString(v) {
		return berth.Invalid(field, "must be the id of a node, with * for any characters")
	}
	return nil
}

// matches reports whether id matches the pattern. An invalid pattern matches nothing.
func matches(pattern, id string) bool {
	if !nodePattern.MatchString(pattern) {
		return false
	}
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return id == pattern
	}
	if len(id) < len(first)+len(last) || !strings.HasPrefix(id, first) || !strings.HasSuffix(id, last) {
		return false
	}
	rest := id[len(first) : len(id)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return true
}
