package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"berth"
)

// ClaimMap names the claims of a token from which a Principal is made. A name is that of a claim, or a path with dots into
// nested objects, such as realm_access.roles. The values of Scope and Nodes are lists, or texts with spaces between values.
type ClaimMap struct {
	Scope, Tenant, Nodes string
	Team, App            string // the team and the application for which the caller's requests count
	// Scopes maps values of the claim Scope to berth's scopes, separated by commas; the key * matches every token. team:ID among them
	// names the team, as the claim Team does. Other values grant nothing. Without it, the values themselves are scopes.
	Scopes map[string]string
}

// ownClaims are the claims of the tokens of Issue.
var ownClaims = ClaimMap{Scope: "scope", Tenant: "tenant", Nodes: "nodes", Team: "team", App: "app"}

// teamPrefix precedes the id of a team in ClaimMap.Scopes.
const teamPrefix = "team:"

// Validate returns an error unless every scope exists and every team can.
func (m ClaimMap) Validate() error {
	for value, granted := range m.Scopes {
		for scope := range strings.SplitSeq(granted, ",") {
			team, isTeam := strings.CutPrefix(scope, teamPrefix)
			if isTeam && berth.ValidID("", team) != nil || !isTeam && !slices.Contains(ScopeNames(), scope) {
				return fmt.Errorf("unknown scope %q of %q: must be one of %s, or %s and the id of a team", scope, value, strings.Join(ScopeNames(), ", "), teamPrefix)
			}
		}
	}
	return nil
}

// principal returns the owner of a token whose signature and times have been verified.
func (m ClaimMap) principal(c jwt.MapClaims) (Principal, error) {
	granted := m.granted(values(m.scopes(c)))
	p := Principal{Scopes: known(granted)}
	p.UserID, _ = c["sub"].(string)
	if berth.ValidUserID("sub", p.UserID) != nil {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the token's subject must be 1 to %d bytes of printable text", berth.MaxUserID)
	}
	if berth.IsKeyID(p.UserID) {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the token's subject must not be the id of an API key")
	}
	if expires, err := c.GetExpirationTime(); err == nil && expires != nil {
		p.ExpiresAt = expires.Time
	}
	var err error
	for _, f := range []struct {
		claim string
		id    *string
	}{{m.Tenant, &p.TenantID}, {m.Team, &p.TeamID}, {m.App, &p.AppID}} {
		if *f.id, err = single(c, f.claim); err != nil {
			return Principal{}, err
		}
	}
	if p.TeamID, err = m.team(p.TeamID, granted); err != nil {
		return Principal{}, err
	}
	p.Nodes = values(find(c, m.Nodes))
	for _, pattern := range p.Nodes {
		if err := ValidNodePattern("", pattern); err != nil {
			return Principal{}, badClaim(m.Nodes, "must contain ids of nodes, with * for any characters")
		}
	}
	return p, nil
}

// single returns the id that a claim has, empty for none. A claim in another form is rejected: to ignore it could give a caller the rights
// of another tenant, or of none.
func single(c jwt.MapClaims, name string) (id string, err error) {
	switch claim := find(c, name).(type) {
	case nil:
	case string:
		id = claim
	case []any:
		one := values(claim)
		if len(claim) != 1 || len(one) != 1 {
			return "", badClaim(name, "must have one value")
		}
		id = one[0]
	default:
		return "", badClaim(name, "must be a text")
	}
	if id != "" && berth.ValidID("", id) != nil {
		return "", badClaim(name, "must match "+berth.IDPattern)
	}
	return id, nil
}

func badClaim(name, problem string) error {
	return berth.Errorf(berth.CodeUnauthenticated, "the token's claim %s %s", name, problem)
}

// scopes returns the claim with the scopes. Azure and Okta name the scope claim of RFC 9068 scp.
func (m ClaimMap) scopes(c jwt.MapClaims) any {
	if v := find(c, m.Scope); v != nil || m.Scope != "scope" {
		return v
	}
	return c["scp"]
}

// granted returns what the values of the claim grant: scopes, unknown ones among them, and teams.
func (m ClaimMap) granted(values []string) []string {
	if len(m.Scopes) == 0 {
		return values
	}
	var granted []string
	for _, v := range append([]string{"*"}, values...) {
		granted = append(granted, strings.Split(m.Scopes[v], ",")...)
	}
	return granted
}

// known returns the scopes that exist, in the order of documentation.
func known(granted []string) (scopes []string) {
	for _, scope := range ScopeNames() {
		if slices.Contains(granted, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// team returns the team of a token: that of its claim, empty for none, or the one that the map grants. A token of several is rejected: each could
// be the one whose keys its user manages, or whose share its tasks have.
func (m ClaimMap) team(claimed string, granted []string) (string, error) {
	if len(m.Scopes) == 0 {
		return claimed, nil
	}
	team := claimed
	for _, g := range granted {
		switch id, isTeam := strings.CutPrefix(g, teamPrefix); {
		case !isTeam || id == team:
		case team != "":
			return "", badClaim(m.Scope, fmt.Sprintf("must be of one team, but is of %s and %s", team, id))
		default:
			team = id
		}
	}
	return team, nil
}

// find returns a claim, nil if the token does not have it. A claim whose whole name has dots precedes a path: such names are
// URLs at some providers.
func find(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok || name == "" {
		return v
	}
	for i, c := range name {
		if c != '.' {
			continue
		}
		if inner, ok := claims[name[:i]].(map[string]any); ok {
			if v := find(inner, name[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// values returns the texts of a claim.
func values(claim any) []string {
	switch v := claim.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		var out []string
		for _, item := range v {
			if s, ok := item.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}
