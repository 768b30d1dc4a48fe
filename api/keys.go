package api

import (
	"cmp"
	"context"
	"fmt"

	"berth"
	"berth/client"
	"berth/internal/apikey"
	"berth/internal/identity"
	"berth/internal/ledger"
)

// KeyPath names an API key in a path.
type KeyPath struct {
	ID string `path:"id" maxLength:"128" doc:"Key id"`
}

type createKeyInput struct {
	Body client.Key
}

type putKeyInput struct {
	KeyPath
	Body client.Key
}

type keysInput struct {
	TeamID  string `query:"teamId" maxLength:"128" doc:"Only keys of this team"`
	AppID   string `query:"appId" maxLength:"128" doc:"Only keys of this application"`
	Revoked bool   `query:"revoked" doc:"Also keys that were revoked"`
	Limit   int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type keysOutputBody struct {
	Keys       []client.Key `json:"keys"`
	NextCursor string       `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) keyRoutes() {
	register(s, "POST /v1/keys", forTeam, s.createKey, withStatus(201, op("create-key", "keys", "Create an API key",
		"Programs send its `secret` to `/openai/v1`. It is in this response only: berth stores a hash. `teamId` or `appId` is required. "+
			"409: the application was moved meanwhile; retry.")))
	register(s, "GET /v1/keys", forTeam, s.listKeys, op("list-keys", "keys", "List the API keys, the oldest first",
		"With the scope `team`, those of the caller's team. Also the other calls of keys are then about these."))
	register(s, "GET /v1/keys/{id}", forTeam, s.getKey, op("get-key", "keys", "Get an API key", "Also one that was revoked."))
	register(s, "PUT /v1/keys/{id}", forTeam, s.putKey, op("put-key", "keys", "Replace the settings of an API key",
		"They apply to its calls within a second. Team and application cannot be changed. 409: the key was revoked."))
	registerOutput(s, "DELETE /v1/keys/{id}", forTeam, s.revokeKey, op("revoke-key", "keys", "Revoke an API key for all time",
		"It is refused within a second. Calls that run end as they would. Idempotent."))
}

// managedTeam returns the team to which the caller of a route for a team is restricted; empty for operators.
func (s *server) managedTeam(ctx context.Context) (string, error) {
	if callOf(ctx).user.Operator() {
		return "", nil
	}
	group, _, err := s.groupOf(ctx, "", "")
	if err == nil && group.Team == "" {
		err = berth.Errorf(berth.CodeForbidden, "the token has the scope %s, but no team: its claim must name one, or operators must add the user to one", identity.ScopeTeam)
	}
	return group.Team, err
}

// inTeam returns the team that a request is about: the caller's if it names none. CodeForbidden if it is another one than that of an administrator.
func (s *server) inTeam(ctx context.Context, teamID string) (team string, restricted bool, err error) {
	own, err := s.managedTeam(ctx)
	if own != "" && teamID != "" && teamID != own {
		err = berth.Errorf(berth.CodeForbidden, "teamId: you manage the team %s only", own)
	}
	return cmp.Or(teamID, own), own != "", err
}

// managedKey returns a key that the caller manages, CodeNotFound for any other.
func (s *server) managedKey(ctx context.Context, id string) (berth.APIKey, error) {
	own, err := s.managedTeam(ctx)
	if err != nil {
		return berth.APIKey{}, err
	}
	k, err := s.Ledger.GetKey(ctx, id)
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && own != "" && k.TeamID != own {
		return berth.APIKey{}, berth.Errorf(berth.CodeNotFound, "API key not found")
	}
	return k, err
}

func (s *server) createKey(ctx context.Context, in *createKeyInput) (*client.NewKey, error) {
	b := in.Body
	var restricted bool
	var err error
	if b.TeamID, restricted, err = s.inTeam(ctx, b.TeamID); err != nil {
		return nil, err
	}
	if restricted && b.AppID != "" {
		app, err := s.Ledger.App(ctx, b.AppID)
		if berth.CodeOf(err) == berth.CodeNotFound || err == nil && app.TeamID != b.TeamID {
			return nil, berth.Invalid("appId", "your team has no application %q", b.AppID)
		}
		if err != nil {
			return nil, err
		}
	}
	if b.TeamID == "" && b.AppID == "" {
		return nil, berth.Invalid("teamId", "is required, unless appId is given")
	}
	settings, err := s.keySettings(b.KeySpec)
	if err != nil {
		return nil, err
	}
	secret := apikey.NewSecret()
	settings.Hint = apikey.Hint(secret)
	k, err := s.Ledger.CreateKey(ctx, berth.APIKey{
		ID: berth.NewID(berth.KeyIDPrefix), TeamID: b.TeamID, AppID: b.AppID, KeySettings: settings, CreatedBy: callOf(ctx).user.UserID, ExpiresAt: b.ExpiresAt,
	}, apikey.Hash(secret))
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "API key created", "key", k.ID, "team", k.TeamID, "app", k.AppID, "by", k.CreatedBy)
	return &client.NewKey{Key: viewKey(k), Secret: secret}, nil
}

func (s *server) listKeys(ctx context.Context, in *keysInput) (*keysOutputBody, error) {
	team, _, err := s.inTeam(ctx, in.TeamID)
	if err != nil {
		return nil, err
	}
	keys, next, err := s.Ledger.Keys(ctx, ledger.KeyQuery{Team: team, App: in.AppID, Revoked: in.Revoked}, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &keysOutputBody{Keys: convert(keys, viewKey), NextCursor: next}, nil
}

func (s *server) getKey(ctx context.Context, in *KeyPath) (*client.Key, error) {
	k, err := s.managedKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v := viewKey(k)
	return &v, nil
}

func (s *server) putKey(ctx context.Context, in *putKeyInput) (*client.Key, error) {
	b := in.Body
	old, err := s.managedKey(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	settings, err := s.keySettings(b.KeySpec)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(fixed("keyId", b.KeyID, old.ID), fixed("teamId", b.TeamID, old.TeamID), fixed("appId", b.AppID, old.AppID)); err != nil {
		return nil, err
	}
	k, err := s.Ledger.PutKey(ctx, in.ID, settings, b.ExpiresAt)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "API key changed", "key", k.ID, "by", callOf(ctx).user.UserID)
	v := viewKey(k)
	return &v, nil
}

// fixed returns CodeInvalid for a field that is given and differs from what the key has.
func fixed(field, given, has string) error {
	if given != "" && given != has {
		return berth.Invalid(field, "cannot be changed: the key has %q; create another one", has)
	}
	return nil
}

func (s *server) revokeKey(ctx context.Context, in *KeyPath) (*struct{}, error) {
	by := callOf(ctx).user.UserID
	if _, err := s.managedKey(ctx, in.ID); err != nil {
		return nil, err
	}
	if err := s.Ledger.RevokeKey(ctx, in.ID, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "API key revoked", "key", in.ID, "by", by)
	return nil, nil
}

// keySettings returns the settings of a key without its hint, with the names of the models that are given by alias. The ledger checks the rest.
func (s *server) keySettings(spec client.KeySpec) (berth.KeySettings, error) {
	if !spec.ExpiresAt.IsZero() && !spec.ExpiresAt.After(s.Clock()) {
		return berth.KeySettings{}, berth.Invalid("expiresAt", "must be in the future; revoke the key to end it now")
	}
	settings := berth.KeySettings{
		Title: spec.Title, Models: make([]string, len(spec.Models)), RPM: spec.RPM, TPM: spec.TPM, MaxCalls: spec.MaxCalls,
		ServiceTiers: spec.ServiceTiers, EndUsers: spec.EndUsers,
		Durability: berth.Durability(spec.Durability), Retention: berth.KeyRetention(spec.Retention),
	}
	catalog := s.catalog()
	for i, name := range spec.Models {
		m, ok := catalog.Model(name)
		if !ok {
			return berth.KeySettings{}, berth.Invalid(fmt.Sprintf("models[%d]", i), "the routing has no model %q; GET /v1/models lists them", name)
		}
		settings.Models[i] = m.Name
	}
	return settings, nil
}

func viewKey(k berth.APIKey) client.Key {
	return client.Key{
		KeyID: k.ID, TeamID: k.TeamID, AppID: k.AppID, KeySpec: client.KeySpec{
			Title: k.Title, Models: k.Models, RPM: k.RPM, TPM: k.TPM, MaxCalls: k.MaxCalls, ServiceTiers: k.ServiceTiers, EndUsers: k.EndUsers,
			Durability: string(k.Durability), Retention: string(k.Retention),
			ExpiresAt: k.ExpiresAt,
		},
		Hint: k.Hint, CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokedAt: k.RevokedAt, RevokedBy: k.RevokedBy,
	}
}
