package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth"
)

// keyColumns are the columns of api_keys without the hash of the secret, which is read nowhere.
var keyColumns = columns[berth.APIKey]{
	{"id", func(k *berth.APIKey) any { return &k.ID }},
	{"team_id", func(k *berth.APIKey) any { return &k.TeamID }},
	{"app_id", func(k *berth.APIKey) any { return &k.AppID }},
	{"body", func(k *berth.APIKey) any { return storedJSON{&k.KeySettings} }},
	{"created_at", func(k *berth.APIKey) any { return storedTime{&k.CreatedAt} }},
	{"created_by", func(k *berth.APIKey) any { return &k.CreatedBy }},
	{"expires_at", func(k *berth.APIKey) any { return storedTime{&k.ExpiresAt} }},
	{"revoked_at", func(k *berth.APIKey) any { return storedTime{&k.RevokedAt} }},
	{"revoked_by", func(k *berth.APIKey) any { return &k.RevokedBy }},
}

var (
	insertKey  = keyColumns.insert("api_keys", [2]string{"secret", fmt.Sprintf("$%d", len(keyColumns)+1)})
	selectKeys = "SELECT " + keyColumns.names("") + " FROM api_keys WHERE "
	// selectAccess reads the settings of the team and of the application beside the key; NULL for one that does not exist.
	selectAccess = "SELECT " + keyColumns.names("k.") + `, t.body, a.body FROM api_keys k
		LEFT JOIN settings t ON t.kind = 'team' AND t.id = k.team_id
		LEFT JOIN settings a ON a.kind = 'app' AND a.id = k.app_id WHERE k.secret = $1`
)

// KeyTitles returns the titles of API keys by their ids. Ids of others, and of keys without a title, are left out. There may be MaxUsageSums ids.
func (l *Ledger) KeyTitles(ctx context.Context, ids []string) (map[string]string, error) {
	titles := map[string]string{}
	if len(ids) == 0 {
		return titles, nil
	}
	places, args := make([]string, len(ids)), make([]any, len(ids))
	for i, id := range ids {
		places[i], args[i] = fmt.Sprintf("$%d", i+1), plain(id)
	}
	keys, err := list(ctx, l, "read titles of keys", keyColumns.fields, selectKeys+"id IN ("+strings.Join(places, ", ")+")", args...)
	for _, k := range keys {
		if k.Title != "" {
			titles[k.ID] = k.Title
		}
	}
	return titles, err
}

// CreateKey stores a new key with the hash of its secret, and returns it as it is stored. The team of a key with an application is that of
// the application. CodeInvalid where the team or the application does not exist, or one is not of the other.
func (l *Ledger) CreateKey(ctx context.Context, k berth.APIKey, secretHash string) (berth.APIKey, error) {
	if err := k.Normalize(); err != nil {
		return berth.APIKey{}, err
	}
	if k.AppID != "" {
		app, err := l.App(ctx, k.AppID)
		switch {
		case berth.CodeOf(err) == berth.CodeNotFound:
			return berth.APIKey{}, berth.Invalid("appId", "application %q not found; define it first", k.AppID)
		case err != nil:
			return berth.APIKey{}, err
		case app.TeamID == "":
			return berth.APIKey{}, berth.Invalid("appId", "application %q has no team; add it to one first", k.AppID)
		case k.TeamID != "" && k.TeamID != app.TeamID:
			return berth.APIKey{}, berth.Invalid("appId", "application %q is of team %s, not of %s", k.AppID, app.TeamID, k.TeamID)
		}
		k.TeamID = app.TeamID
	}
	if k.TeamID == "" {
		return berth.APIKey{}, berth.Invalid("teamId", "is required: the team whose share the calls of the key have")
	}
	k.CreatedAt, k.CreatedBy, k.ExpiresAt = asStored(time.Now()), plain(k.CreatedBy), asStored(k.ExpiresAt)
	return k, l.inTx(ctx, "create key", func(tx *sql.Tx) error {
		if err := l.lockTeam(ctx, tx, k.TeamID); err != nil {
			return err
		}
		if k.AppID != "" {
			if err := l.lockApp(ctx, tx, k.AppID, k.TeamID); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, insertKey, append(keyColumns.values(&k), secretHash)...)
		return err
	})
}

// asStored returns a time as it is read again.
func asStored(t time.Time) time.Time { return fromMillis(millis(t)) }

// lockTeam locks a team until the transaction ends, so that it is not deleted meanwhile. CodeInvalid where it does not exist.
func (l *Ledger) lockTeam(ctx context.Context, tx *sql.Tx, id string) error {
	err := l.lockLevel(ctx, tx, SettingTeam, id)
	if errors.Is(err, sql.ErrNoRows) {
		return berth.Invalid("teamId", "team %q not found; define it first", id)
	}
	return err
}

// lockApp locks an application of a team, whose row is locked, until the transaction ends. CodeConflict where it no longer belongs to the team.
func (l *Ledger) lockApp(ctx context.Context, tx *sql.Tx, id, team string) error {
	var owner string
	err := l.lockLevel(ctx, tx, SettingApp, id)
	if err == nil {
		err = tx.QueryRowContext(ctx, `SELECT owner FROM team_members WHERE kind = $1 AND member = $2`, memberApp, id).Scan(&owner)
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && owner != team {
		return berth.Errorf(berth.CodeConflict, "application %q was moved or deleted meanwhile; retry", id)
	}
	return err
}

func (l *Ledger) lockLevel(ctx context.Context, tx *sql.Tx, kind SettingKind, id string) error {
	return tx.QueryRowContext(ctx, `SELECT id FROM settings WHERE kind = $1 AND id = $2 AND body <> ''`+l.dialect.forUpdate, kind, id).Scan(&id)
}

// GetKey returns a key; CodeNotFound where there is none.
func (l *Ledger) GetKey(ctx context.Context, id string) (berth.APIKey, error) {
	return find(ctx, l, "read key", keyColumns.fields, selectKeys+`id = $1`, id)
}

// KeyQuery selects keys. An empty field matches all.
type KeyQuery struct {
	Team, App string
	// Revoked includes keys that were revoked.
	Revoked bool
}

// Keys returns a page of keys, the oldest first, and the cursor of the next page, empty after the last. limit is at most 200; CodeInvalid
// for an invalid cursor.
func (l *Ledger) Keys(ctx context.Context, q KeyQuery, cursor string, limit int) ([]berth.APIKey, string, error) {
	at, id := int64(0), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.text("team_id", q.Team)
	p.text("app_id", q.App)
	if !q.Revoked {
		p.add("revoked_at =", 0)
	}
	return listPage(ctx, l, p, "list keys", keyColumns.fields, selectKeys, `(created_at, id) > ($1, $2) ORDER BY created_at, id LIMIT CAST($3 AS BIGINT)`,
		func(k berth.APIKey) []any { return []any{millis(k.CreatedAt), k.ID} })
}

// PutKey replaces the settings of a key except for its hint, and when it expires; the zero time for never. CodeNotFound where there is no such
// key, CodeConflict for one that was revoked.
func (l *Ledger) PutKey(ctx context.Context, id string, settings berth.KeySettings, expiresAt time.Time) (berth.APIKey, error) {
	if err := settings.Normalize(); err != nil {
		return berth.APIKey{}, err
	}
	if !storableID(id) {
		return berth.APIKey{}, translate("put key", sql.ErrNoRows)
	}
	var k berth.APIKey
	err := l.inTx(ctx, "put key", func(tx *sql.Tx) (err error) {
		if k, err = scan(tx.QueryRowContext(ctx, selectKeys+`id = $1`+l.dialect.forUpdate, id), keyColumns.fields); err != nil {
			return err
		}
		if !k.RevokedAt.IsZero() {
			return berth.Errorf(berth.CodeConflict, "the key was revoked; create another one")
		}
		settings.Hint = k.Hint
		k.KeySettings, k.ExpiresAt = settings, asStored(expiresAt)
		_, err = tx.ExecContext(ctx, `UPDATE api_keys SET body = $2, expires_at = $3 WHERE id = $1`,
			id, storedJSON{&k.KeySettings}, millis(k.ExpiresAt))
		return err
	})
	return k, err
}

// RevokeKey revokes a key for all time; again without effect. CodeNotFound where there is none.
func (l *Ledger) RevokeKey(ctx context.Context, id, by string) error {
	if !storableID(id) {
		return translate("revoke key", sql.ErrNoRows)
	}
	revoked, err := l.exec(ctx, "revoke key", `UPDATE api_keys SET revoked_at = $2, revoked_by = $3 WHERE id = $1 AND revoked_at = 0`,
		id, time.Now().UnixMilli(), plain(by))
	if err == nil && revoked == 0 {
		_, err = l.GetKey(ctx, id)
	}
	return err
}

// KeyAccess is what a call with a key is checked against.
type KeyAccess struct {
	Key berth.APIKey
	// Team and App are the settings of the key's team and application; the defaults for a key that is an application of its own.
	Team, App berth.LevelSettings
}

// KeyBySecret returns the key whose secret has the hash, whether or not it was revoked or has expired; CodeNotFound where there is none.
func (l *Ledger) KeyBySecret(ctx context.Context, hash string) (KeyAccess, error) {
	return find(ctx, l, "read key", func(a *KeyAccess) []any {
		return append(keyColumns.fields(&a.Key), storedLevel{&a.Team}, storedLevel{&a.App})
	}, selectAccess, hash)
}

// storedLevel reads the settings of a level, and the defaults from NULL or the empty text of one that is not defined.
type storedLevel struct{ v *berth.LevelSettings }

func (s storedLevel) Scan(src any) error {
	*s.v = berth.DefaultLevel()
	var body sql.NullString
	if err := body.Scan(src); err != nil || body.String == "" {
		return err
	}
	return json.Unmarshal([]byte(body.String), s.v)
}

// refuseWithKeys returns CodeConflict while a team or application, whose row is locked, has keys that were not revoked.
func refuseWithKeys(ctx context.Context, tx *sql.Tx, kind SettingKind, id string) error {
	var keys int
	var key sql.NullString
	err := tx.QueryRowContext(ctx, `SELECT count(*), min(id) FROM api_keys WHERE `+string(kind)+`_id = $1 AND revoked_at = 0`, id).Scan(&keys, &key)
	if err == nil && keys > 0 {
		return berth.Errorf(berth.CodeConflict, "the %s has API keys, such as %s; revoke each first", levelNames[kind], key.String)
	}
	return err
}

// moveKeys moves the keys of an application, whose row is locked, to its team. CodeConflict where it has none any more.
func moveKeys(ctx context.Context, tx *sql.Tx, app, team string) error {
	if team == "" {
		if err := refuseWithKeys(ctx, tx, SettingApp, app); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE api_keys SET team_id = $2 WHERE app_id = $1 AND revoked_at = 0 AND team_id <> $2`, app, team)
	return err
}
