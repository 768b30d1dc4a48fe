package ledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"strings"

	"berth"
)

const (
	// maxPassages bounds the cost of one acceptance; text behind them is stored but not searchable.
	maxPassages   = 1000
	maxQueryTerms = 100
)

// Passage is a piece of a text asset that a search found. Score orders the passages of one search, higher is better; scores
// of different searches are not comparable.
type Passage struct {
	AssetID string
	Text    string
	Score   float64
}

// putPassages makes a text searchable. It is idempotent.
func putPassages(ctx context.Context, tx *sql.Tx, a berth.Asset) error {
	for i, text := range cut(plain(string(a.Content))) {
		if i == maxPassages {
			break
		}
		if _, err := tx.ExecContext(ctx,
			`INSERT INTO passages (asset_id, user_id, position, text, terms) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (asset_id, position) DO NOTHING`,
			a.ID, a.UserID, i, text, strings.Join(terms(text), " ")); err != nil {
			return err
		}
	}
	return nil
}

const (
	searchSQLite = `SELECT p.asset_id, p.text, -bm25(passage_index, 0.0, 1.0) AS score
		FROM passage_index JOIN passages p ON p.id = passage_index.rowid
		WHERE passage_index MATCH $1 AND p.user_id = $2 ORDER BY score DESC, p.id ` + limitThree
	searchPostgres = `SELECT asset_id, text, ts_rank(terms, CAST($1 AS tsquery), 1) AS score
		FROM passages WHERE terms @@ CAST($1 AS tsquery) AND user_id = $2 ORDER BY score DESC, id ` + limitThree
)

// SearchPassages returns the passages of the user's evidence, as ClaimAssets received it, that have most in common with the query, the best first. The query
// is plain text of any length without syntax. limit is at most 50.
func (l *Ledger) SearchPassages(ctx context.Context, userID, query string, limit int) ([]Passage, error) {
	wanted := queryTerms(query)
	if len(wanted) == 0 || !storableID(userID) {
		return nil, nil
	}
	return list(ctx, l, "search passages", func(p *Passage) []any { return []any{&p.AssetID, &p.Text, &p.Score} },
		l.dialect.search, l.dialect.match(userID, wanted), userID, clamp(limit, 50))
}

func queryTerms(query string) []string {
	var out []string
	for _, t := range terms(query) {
		if len(out) == maxQueryTerms {
			break
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// matchSQLite returns the FTS5 query for any of the terms in a passage of this owner. Terms contain no quotes.
func matchSQLite(userID string, terms []string) string {
	owner := strings.ToUpper(hex.EncodeToString([]byte(userID)))
	return `owner : "` + owner + `" AND terms : ("` + strings.Join(terms, `" OR "`) + `")`
}

// matchPostgres returns the tsquery for any of the terms. Terms contain no quotes.
func matchPostgres(_ string, terms []string) string {
	return `'` + strings.Join(terms, `' | '`) + `'`
}
