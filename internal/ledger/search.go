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
	// maxPassages bounds what one text costs at its upload; what comes after is stored but not found.
	maxPassages   = 1000
	maxQueryTerms = 100
)

// Passage is a piece of a text asset that a search found. Score orders the passages of one answer, higher is better; it
// means nothing beyond it.
type Passage struct {
	AssetID string
	Text    string
	Score   float64
}

// putPassages makes a text findable. A posting handed in with a task is not: it says nothing about the person, and
// would be found first by the very words it is made of (T22).
func putPassages(ctx context.Context, tx *sql.Tx, a berth.Asset) error {
	if a.Name == berth.VarJobText {
		return nil
	}
	insert, err := tx.PrepareContext(ctx,
		`INSERT INTO passages (asset_id, user_id, position, text, terms) VALUES ($1, $2, $3, $4, $5)`)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }() // ends with the transaction anyway
	for i, text := range cut(plain(string(a.Content))) {
		if i == maxPassages {
			break
		}
		if _, err := insert.ExecContext(ctx, a.ID, a.UserID, i, text, strings.Join(terms(text), " ")); err != nil {
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

// SearchPassages answers the passages of the user's own texts that share most with the query, the best first
// (T22). The query is plain text of any length and has no syntax. limit is at most 50.
func (l *Ledger) SearchPassages(ctx context.Context, userID, query string, limit int) ([]Passage, error) {
	wanted := queryTerms(query)
	if len(wanted) == 0 || !storableID(userID) {
		return nil, nil
	}
	rows, err := l.read.QueryContext(ctx, l.dialect.search, l.dialect.match(userID, wanted), userID, clamp(limit, 50))
	return collect("search passages", rows, err, func(row scanner) (Passage, error) {
		var p Passage
		err := row.Scan(&p.AssetID, &p.Text, &p.Score)
		return p, err
	})
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

// matchSQLite is any of the terms in a passage of this owner, in the query language of FTS5. Terms hold no quotes.
func matchSQLite(userID string, terms []string) string {
	owner := strings.ToUpper(hex.EncodeToString([]byte(userID)))
	return `owner : "` + owner + `" AND terms : ("` + strings.Join(terms, `" OR "`) + `")`
}

// matchPostgres is any of the terms as a tsquery. Terms hold no quotes.
func matchPostgres(_ string, terms []string) string {
	return `'` + strings.Join(terms, `' | '`) + `'`
}
