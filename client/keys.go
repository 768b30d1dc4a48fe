package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// KeySpec are the settings of an API key.
type KeySpec struct {
	Title        string   `json:"title,omitempty" doc:"At most 100 characters"`
	Models       []string `json:"models,omitempty" maxItems:"200" doc:"Models that the key may call, by name or alias; all if there are none"`
	RPM          int      `json:"rpm,omitempty" doc:"Maximum number of requests per minute; 0 for no limit"`
	TPM          int      `json:"tpm,omitempty" doc:"Maximum number of tokens per minute; 0 for no limit"`
	MaxCalls     int      `json:"maxCalls,omitempty" doc:"Maximum number of unfinished calls; 0 for no limit"`
	ServiceTiers []string `json:"serviceTiers,omitempty" maxItems:"10" doc:"Values of service_tier that choose another queue: flex, priority, scale. Calls with others are in the default queue"`
	// Durability is "durable" or "direct".
	Durability string `json:"durability,omitempty" enum:"durable,direct" doc:"How chats are made: durable, by a workflow that survives the death of any process and that retries of the client join; or direct, which ends with the connection of the client. Default: durable"`
	Retention  string `json:"retention,omitempty" maxLength:"32" doc:"How long the requests and answers of calls are kept: all, as those of tasks; errors, of failed calls only; metadata, until no retry of the client can join the call; none, nothing is stored, for direct calls only; or a duration such as 24h. Default: all, none for direct calls"`
	// ReplaceResponses needs durable calls.
	ReplaceResponses bool      `json:"replaceResponses,omitempty" doc:"A stored response that breaks off after its client may have read a part is made again from the beginning, as a new response that names the old one, up to twice. Otherwise it fails. What had arrived of each is charged"`
	EndUsers         bool      `json:"endUsers,omitempty" doc:"The user that a request names shares the slots with the other users of the key, rather than being one with them"`
	ExpiresAt        time.Time `json:"expiresAt,omitzero" doc:"When the key expires; absent for never"`
}

// Key is an API key: its settings, which are what PUT takes, and its state.
type Key struct {
	KeyID  string `json:"keyId,omitempty" readOnly:"true"`
	TeamID string `json:"teamId,omitempty" maxLength:"128" doc:"Team whose share the calls of the key have; that of the application if it has one. It cannot be changed"`
	AppID  string `json:"appId,omitempty" maxLength:"128" doc:"Application whose share the calls of the key have; absent for a key that is an application of its own. It cannot be changed"`
	KeySpec
	Hint      string    `json:"hint,omitempty" readOnly:"true" doc:"The last characters of the secret"`
	CreatedAt time.Time `json:"createdAt,omitzero" readOnly:"true"`
	CreatedBy string    `json:"createdBy,omitempty" readOnly:"true"`
	RevokedAt time.Time `json:"revokedAt,omitzero" readOnly:"true" doc:"Absent while the key is not revoked"`
	RevokedBy string    `json:"revokedBy,omitempty" readOnly:"true"`
}

// NewKey is a key in the response of its creation.
type NewKey struct {
	Key
	Secret string `json:"secret" readOnly:"true" doc:"What programs send as bearer token. It is not stored, and returned only here"`
}

// KeyQuery selects API keys. An empty field matches all.
type KeyQuery struct {
	TeamID, AppID string
	// Revoked includes keys that were revoked.
	Revoked bool
}

// newKeySpec is the body of POST.
type newKeySpec struct {
	TeamID string `json:"teamId,omitempty"`
	AppID  string `json:"appId,omitempty"`
	KeySpec
}

// CreateKey creates an API key of a team or an application.
func (c *Client) CreateKey(ctx context.Context, k Key) (NewKey, error) {
	return fetch[NewKey](ctx, c, http.MethodPost, "/v1/keys", newKeySpec{k.TeamID, k.AppID, k.KeySpec})
}

// Keys yields the API keys, the oldest first.
func (c *Client) Keys(ctx context.Context, q KeyQuery) iter.Seq2[Key, error] {
	query := url.Values{"teamId": {q.TeamID}, "appId": {q.AppID}, "limit": {"200"}}
	if q.Revoked {
		query.Set("revoked", "true")
	}
	return pages[Key](ctx, c, "/v1/keys", query, "keys")
}

// Key returns an API key.
func (c *Client) Key(ctx context.Context, id string) (Key, error) {
	return fetch[Key](ctx, c, http.MethodGet, keyPath(id), nil)
}

// PutKey replaces the settings of an API key.
func (c *Client) PutKey(ctx context.Context, id string, spec KeySpec) (Key, error) {
	return fetch[Key](ctx, c, http.MethodPut, keyPath(id), spec)
}

// RevokeKey revokes an API key for all time.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, keyPath(id), nil, nil, nil)
}

func keyPath(id string) string { return "/v1/keys/" + url.PathEscape(id) }
