package api

import (
	"cmp"
	"context"
	"fmt"

	"berth"
	"berth/client"
	"berth/internal/apikey"
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

// inTeam returns the team that a request is about: an administrator's own if it names none. CodeForbidden for another one.
func inTeam(ctx context.Context, teamID string) (string, error) {
	own := callOf(ctx).managed
	if own != "" && teamID != "" && teamID != own {
		return "", &berth.Error{Code: berth.CodeForbidden, Field: "teamId", Message: "you manage the team " + own + " only"}
	}
	return cmp.Or(teamID, own), nil
}

// hasApp returns CodeForbidden unless the caller manages the team of an application; also where there is none, so that those of other teams
// are not disclosed.
func (s *server) hasApp(ctx context.Context, appID string) error {
	own := callOf(ctx).managed
	if own == "" || appID == "" {
		return nil
	}
	app, err := s.Ledger.App(ctx, appID)
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && app.TeamID != own {
		return &berth.Error{Code: berth.CodeForbidden, Field: "appId", Message: fmt.Sprintf("your team %s has no application %q", own, appID)}
	}
	return err
}

// managedKey returns a key that the caller manages, CodeNotFound for any other.
func (s *server) managedKey(ctx context.Context, id string) (berth.APIKey, error) {
	own := callOf(ctx).managed
	k, err := s.Ledger.GetKey(ctx, id)
	if berth.CodeOf(err) == berth.CodeNotFound || err == nil && own != "" && k.TeamID != own {
		return berth.APIKey{}, berth.Errorf(berth.CodeNotFound, "API key not found")
	}
	return k, err
}

func (s *server) createKey(ctx context.Context, in *createKeyInput) (*client.NewKey, error) {
	b := in.Body
	team, err := inTeam(ctx, b.TeamID)
	if err != nil {
		return nil, err
	}
	if err := s.hasApp(ctx, b.AppID); err != nil {
		return nil, err
	}
	if team == "" && b.AppID == "" {
		return nil, berth.Invalid("teamId", "is required, unless appId is given")
	}
	settings, err := s.keySettings(b.KeySpec)
	if err != nil {
		return nil, err
	}
	secret := apikey.NewSecret()
	settings.Hint = apikey.Hint(secret)
	if own := callOf(ctx).managed; own != "" { // tokens may name teams that operators have not defined
		if err := s.Ledger.AddTeam(ctx, own); err != nil {
			return nil, err
		}
	}
	k, err := s.Ledger.CreateKey(ctx, berth.APIKey{
		ID: berth.NewID(berth.KeyIDPrefix), TeamID: team, AppID: b.AppID, KeySettings: settings, CreatedBy: callOf(ctx).user.UserID, ExpiresAt: b.ExpiresAt,
	}, apikey.Hash(secret))
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "API key created", "key", k.ID, "team", k.TeamID, "app", k.AppID, "by", k.CreatedBy)
	return &client.NewKey{Key: viewKey(k), Secret: secret}, nil
}

func (s *server) listKeys(ctx context.Context, in *keysInput) (*keysOutputBody, error) {
	team, err := inTeam(ctx, in.TeamID)
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
	if err := cmp.Or(fixed("keyId", "key", b.KeyID, old.ID), fixed("teamId", "key", b.TeamID, old.TeamID), fixed("appId", "key", b.AppID, old.AppID)); err != nil {
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

// fixed returns CodeInvalid for a field that is given and differs from what the key or webhook has.
func fixed(field, of, given, has string) error {
	if given != "" && given != has {
		return berth.Invalid(field, "cannot be changed: the %s has %q; create another one", of, has)
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
		Durability: berth.Durability(spec.Durability), Retention: berth.KeyRetention(spec.Retention), ReplaceResponses: spec.ReplaceResponses,
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
			ReplaceResponses: k.ReplaceResponses, ExpiresAt: k.ExpiresAt,
		},
		Hint: k.Hint, CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokedAt: k.RevokedAt, RevokedBy: k.RevokedBy,
	}
}
