package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
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

// PutAsset stores content and returns the asset with its id, size and hash. Content that is already stored is unchanged and
// keeps its first name and media type. Texts are split into passages for SearchPassages.
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
}

var (
	insertAsset  = assetColumns.insert("assets") + ` ON CONFLICT (id) DO NOTHING`
	selectAsset  = `SELECT ` + assetColumns.names("") + ` FROM assets WHERE id = $1 AND user_id = $2`
	selectAssets = `SELECT ` + assetColumns.names("") + ` FROM assets WHERE user_id = $1 AND id IN`
)

func putAsset(ctx context.Context, tx *sql.Tx, a berth.Asset) (berth.Asset, error) {
	if !storableID(a.UserID) {
		return a, berth.Invalid("userId", "must not be empty")
	}
	if !slices.Contains([]berth.AssetKind{berth.AssetImage, berth.AssetText, berth.AssetResult}, a.Kind) {
		return a, berth.Invalid("kind", "unknown kind of asset")
	}
	if a.Content == nil {
		a.Content = []byte{} // an empty text is not NULL
	}
	sum := sha256.Sum256(a.Content)
	a.ID, a.Size, a.SHA256 = AssetID(a.UserID, a.Kind, a.Content), int64(len(a.Content)), hex.EncodeToString(sum[:])
	a.Name, a.MediaType = plain(a.Name), plain(a.MediaType)
	a.CreatedAt = fromMillis(time.Now().UnixMilli())
	res, err := tx.ExecContext(ctx, insertAsset, assetColumns.values(&a)...)
	if err != nil {
		return a, err
	}
	if n, err := res.RowsAffected(); err != nil {
		return a, err
	} else if n == 0 {
		return assetColumns.scan(tx.QueryRowContext(ctx, selectAsset, a.ID, a.UserID))
	}
	if a.Kind == berth.AssetText {
		return a, putPassages(ctx, tx, a)
	}
	return a, nil
}

// GetAsset returns an asset with its content; CodeNotFound when it does not exist or belongs to another user.
func (l *Ledger) GetAsset(ctx context.Context, userID, id string) (berth.Asset, error) {
	return find(ctx, l, "get asset", assetColumns.scan, selectAsset, id, userID)
}

// GetAssets returns the user's assets with these ids, with content. Ids without an asset are omitted.
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
	found, err := list(ctx, l, "get assets", assetColumns.scan, selectAssets+" ("+strings.Join(places, ", ")+")", args...)
	for _, a := range found {
		all[a.ID] = a
	}
	return all, err
}

// limitThree bounds a query by its third argument. With a bare argument SQLite would plan the query again at each call.
const limitThree = `LIMIT CAST($3 AS BIGINT)`

var selectResults = `SELECT ` + assetColumns.names("a.") + `
	FROM tasks t JOIN assets a ON a.id = t.result_asset_id
	WHERE t.user_id = $1 AND t.template = $2 AND t.status = 'COMPLETED' ORDER BY t.ended_at DESC ` + limitThree

// LatestResults returns the results of the user's completed tasks of a template, the newest first, with content. limit is
// at most 50.
func (l *Ledger) LatestResults(ctx context.Context, userID string, template berth.Template, limit int) ([]berth.Asset, error) {
	return list(ctx, l, "list latest results", assetColumns.scan, selectResults, userID, template, clamp(limit, 50))
}
