package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth"
)

var assetEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// AssetID returns the id of a content: equal content of one user and kind is one asset.
func AssetID(userID string, kind berth.AssetKind, content []byte) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(userID), []byte(kind), content} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part))) // hashes do not fail
		h.Write(part)
	}
	return "a_" + strings.ToLower(assetEncoding.EncodeToString(h.Sum(nil)))
}

// IsAssetID reports whether a text has the form of AssetID.
func IsAssetID(text string) bool {
	rest, ok := strings.CutPrefix(text, "a_")
	return ok && len(rest) == assetEncoding.EncodedLen(sha256.Size) && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// PutAsset stores content and returns the asset with its id, size and hash. Content that is already stored is unchanged and
// keeps its first name and media type. Until ClaimAssets the asset is unused: no search finds it, and DeleteUnusedAssets deletes
// it when it was not stored again for a time. Results of tasks are always used.
func (l *Ledger) PutAsset(ctx context.Context, a berth.Asset) (berth.Asset, error) {
	var out berth.Asset
	err := l.inTx(ctx, "put asset", func(tx *sql.Tx) error {
		var err error
		out, err = putAsset(ctx, tx, a)
		return err
	})
	return out, err
}

var assetColumns = columns[berth.Asset]{
	{"id", func(a *berth.Asset) any { return &a.ID }},
	{"user_id", func(a *berth.Asset) any { return &a.UserID }},
	{"kind", func(a *berth.Asset) any { return &a.Kind }},
	{"media_type", func(a *berth.Asset) any { return &a.MediaType }},
	{"name", func(a *berth.Asset) any { return &a.Name }},
	{"size", func(a *berth.Asset) any { return &a.Size }},
	{"sha256", func(a *berth.Asset) any { return &a.SHA256 }},
	{"created_at", func(a *berth.Asset) any { return storedTime{&a.CreatedAt} }},
	{"content", func(a *berth.Asset) any { return &a.Content }},
	{"erased_at", func(a *berth.Asset) any { return storedTime{&a.ErasedAt} }},
}

var describedColumns = slices.DeleteFunc(slices.Clone(assetColumns), func(c column[berth.Asset]) bool { return c.name == "content" })

// Content that was erased can be stored again. The tasks from which it was erased stay without it. The creation time of an
// unused asset is that of its last upload.
const (
	restoreErased = ` ON CONFLICT (id) DO UPDATE SET media_type = excluded.media_type, name = excluded.name,
		created_at = excluded.created_at, content = excluded.content, used_at = excluded.used_at, erased_at = 0
		WHERE assets.erased_at > 0`
	restoreUnused = ` ON CONFLICT (id) DO UPDATE SET
		media_type = CASE WHEN assets.erased_at > 0 THEN excluded.media_type ELSE assets.media_type END,
		name = CASE WHEN assets.erased_at > 0 THEN excluded.name ELSE assets.name END,
		created_at = excluded.created_at, content = excluded.content, used_at = 0, erased_at = 0
		WHERE assets.used_at = 0 OR assets.erased_at > 0`
)

var (
	insertUnused   = assetColumns.insert("assets", [2]string{"used_at", "0"}) + restoreUnused
	insertUsed     = assetColumns.insert("assets", [2]string{"used_at", "$8"}) + restoreErased // $8 is created_at
	selectAsset    = `SELECT ` + assetColumns.names("") + ` FROM assets WHERE id = $1 AND user_id = $2`
	describeAssets = `SELECT ` + describedColumns.names("") + ` FROM assets WHERE id IN`
	selectAssets   = `SELECT ` + assetColumns.names("") + ` FROM assets WHERE user_id = $1 AND erased_at = 0 AND id IN`
)

func putAsset(ctx context.Context, tx *sql.Tx, a berth.Asset) (berth.Asset, error) {
	if !storableID(a.UserID) {
		return a, berth.Invalid("userId", "must not be empty")
	}
	if !slices.Contains([]berth.AssetKind{berth.AssetImage, berth.AssetText, berth.AssetResult, berth.AssetTitle}, a.Kind) {
		return a, berth.Invalid("kind", "unknown kind of asset")
	}
	if a.Content == nil {
		a.Content = []byte{} // an empty text is not NULL
	}
	sum := sha256.Sum256(a.Content)
	a.ID, a.Size, a.SHA256 = AssetID(a.UserID, a.Kind, a.Content), int64(len(a.Content)), hex.EncodeToString(sum[:])
	a.Name, a.MediaType = plain(a.Name), plain(a.MediaType)
	a.CreatedAt, a.ErasedAt = fromMillis(time.Now().UnixMilli()), time.Time{}
	insert := insertUnused
	if a.Kind == berth.AssetResult {
		insert = insertUsed
	}
	res, err := tx.ExecContext(ctx, insert, assetColumns.values(&a)...)
	if err != nil {
		return a, err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 && a.Kind == berth.AssetResult {
		return a, err
	}
	// The stored row has the name and media type of the first upload.
	return scan(tx.QueryRowContext(ctx, selectAsset, a.ID, a.UserID), assetColumns.fields)
}

// GetAsset returns an asset with its content; CodeNotFound when it does not exist or belongs to another user, CodeErased when its
// content was erased.
func (l *Ledger) GetAsset(ctx context.Context, userID, id string) (berth.Asset, error) {
	a, err := find(ctx, l, "get asset", assetColumns.fields, selectAsset, id, userID)
	if err == nil && !a.ErasedAt.IsZero() {
		return berth.Asset{}, berth.Errorf(berth.CodeErased, "the content was erased on %s", a.ErasedAt.Format(time.DateOnly))
	}
	return a, err
}

// GetAssets returns the user's assets with these ids, with content. Ids without an asset or with erased content are omitted.
func (l *Ledger) GetAssets(ctx context.Context, userID string, ids []string) (map[string]berth.Asset, error) {
	args, places := []any{userID}, make([]string, 0, len(ids))
	for _, id := range ids {
		if storableID(id) {
			args = append(args, id)
			places = append(places, "$"+strconv.Itoa(len(args)))
		}
	}
	all := make(map[string]berth.Asset, len(places))
	if len(places) == 0 || !storableID(userID) {
		return all, nil
	}
	found, err := list(ctx, l, "get assets", assetColumns.fields, selectAssets+" ("+strings.Join(places, ", ")+")", args...)
	for _, a := range found {
		all[a.ID] = a
	}
	return all, err
}

// DescribeAssets returns assets without their content, also those whose content was erased. Ids without an asset are omitted.
func (l *Ledger) DescribeAssets(ctx context.Context, ids []string) (map[string]berth.Asset, error) {
	found := make(map[string]berth.Asset, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	args, places := make([]any, 0, 2*len(ids)), make([]string, 0, 2*len(ids))
	// The number of places is a power of two, so that there are few statements.
	for i := 0; i < len(ids) || i&(i-1) != 0; i++ {
		args = append(args, ids[min(i, len(ids)-1)])
		places = append(places, "$"+strconv.Itoa(i+1))
	}
	rows, err := list(ctx, l, "describe assets", describedColumns.fields, describeAssets+" ("+strings.Join(places, ", ")+")", args...)
	for _, a := range rows {
		found[a.ID] = a
	}
	return found, err
}

// ClaimAssets marks the assets of an accepted task's variables as used, and makes the texts of the variables that are evidence searchable.
// It is idempotent. The error has CodeInvalid and names the variable of an asset that was deleted since it was checked.
func (l *Ledger) ClaimAssets(ctx context.Context, userID string, variables map[string]string, evidence []string) error {
	if len(variables) == 0 {
		return nil
	}
	// In one order, because concurrent claims of the same assets wait for each other.
	ids := slices.Compact(slices.Sorted(maps.Values(variables)))
	args, places := []any{userID}, make([]string, len(ids))
	for i, id := range ids {
		args = append(args, id)
		places[i] = "$" + strconv.Itoa(len(args))
	}
	in := " (" + strings.Join(places, ", ") + ")"
	return l.inTx(ctx, "claim assets", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, selectStates+in+" ORDER BY a.id", args...)
		found, err := collect("read assets", rows, err, func(s *assetState) []any { return []any{&s.id, &s.kind, &s.used, &s.indexed} })
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			if !slices.ContainsFunc(found, func(s assetState) bool { return s.id == variables[name] }) {
				return berth.Invalid("variables."+name, "the asset of variable %s no longer exists; upload it again", name)
			}
		}
		for _, s := range found {
			if err := claim(ctx, tx, userID, s, variables, evidence); err != nil {
				return err
			}
		}
		return nil
	})
}

// assetState is what a claim has to know of an asset.
type assetState struct {
	id            string
	kind          berth.AssetKind
	used, indexed bool
}

const selectStates = `SELECT a.id, a.kind, a.used_at > 0, EXISTS (SELECT 1 FROM passages p WHERE p.asset_id = a.id)
	FROM assets a WHERE a.user_id = $1 AND a.erased_at = 0 AND a.id IN`

func claim(ctx context.Context, tx *sql.Tx, userID string, s assetState, variables map[string]string, evidence []string) error {
	if !s.used {
		res, err := tx.ExecContext(ctx, `UPDATE assets SET used_at = $2 WHERE id = $1`, s.id, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 { // deleted since it was read
			return errors.Join(err, berth.Errorf(berth.CodeUnavailable, "an asset was deleted while it was needed; retry"))
		}
	}
	searched := slices.ContainsFunc(evidence, func(name string) bool { return variables[name] == s.id })
	if !searched || s.indexed || s.kind != berth.AssetText {
		return nil
	}
	a, err := scan(tx.QueryRowContext(ctx, selectAsset, s.id, userID), assetColumns.fields)
	if err != nil {
		return err
	}
	return putPassages(ctx, tx, a)
}

const deleteUnused = `DELETE FROM assets WHERE id IN
	(SELECT id FROM assets WHERE used_at = 0 AND created_at < $1 AND NOT EXISTS (SELECT 1 FROM task_assets t WHERE t.asset_id = assets.id)
	ORDER BY created_at LIMIT CAST($2 AS BIGINT)) AND used_at = 0`

// DeleteUnusedAssets deletes up to limit assets that were last stored before a time and that no accepted task uses, the oldest
// first. It returns their number.
func (l *Ledger) DeleteUnusedAssets(ctx context.Context, before time.Time, limit int) (int64, error) {
	return l.exec(ctx, "delete unused assets", deleteUnused, before.UnixMilli(), limit)
}

// limitThree bounds a query by its third argument. With a bare argument SQLite would plan the query again at each call.
const limitThree = `LIMIT CAST($3 AS BIGINT)`

var selectResults = `SELECT ` + assetColumns.names("a.") + `
	FROM tasks t JOIN assets a ON a.id = t.result_asset_id
	WHERE t.user_id = $1 AND t.template = $2 AND t.status = 'COMPLETED' AND t.erased_at = 0 AND a.erased_at = 0 ORDER BY t.ended_at DESC ` + limitThree

// LatestResults returns the results of the user's completed tasks of a template, the newest first, with content. limit is
// at most 50.
func (l *Ledger) LatestResults(ctx context.Context, userID string, template berth.Template, limit int) ([]berth.Asset, error) {
	return list(ctx, l, "list latest results", assetColumns.fields, selectResults, userID, template, clamp(limit, 50))
}
