package ledger

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"time"

	"berth"
)

// RoutingSource is where a revision of the routing comes from.
type RoutingSource string

// The sources of revisions.
const (
	RoutingBuiltIn RoutingSource = "builtin"
	RoutingFile    RoutingSource = "file"
	RoutingAPI     RoutingSource = "api"
)

// RoutingRevision is a content of the routing file that a process or an operator has published. The highest revision is in use.
type RoutingRevision struct {
	Revision  int64
	Hash      string // of what the content means
	Source    RoutingSource
	Origin    string // host and path of the file; empty for others
	CreatedAt time.Time
	CreatedBy string // the operator; empty for a process
	Content   string // empty in lists
	// Models are the names of the models that it has. They are written, and not read.
	Models []string
}

var routingColumns = columns[RoutingRevision]{
	{"revision", func(r *RoutingRevision) any { return &r.Revision }},
	{"hash", func(r *RoutingRevision) any { return &r.Hash }},
	{"source", func(r *RoutingRevision) any { return &r.Source }},
	{"origin", func(r *RoutingRevision) any { return &r.Origin }},
	{"created_at", func(r *RoutingRevision) any { return storedTime{&r.CreatedAt} }},
	{"created_by", func(r *RoutingRevision) any { return &r.CreatedBy }},
}

var (
	selectRouting = `SELECT ` + routingColumns.names("") + ` FROM routing_revisions`
	insertRouting = `INSERT INTO routing_revisions (revision, hash, source, origin, created_at, created_by, content)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (revision) DO NOTHING`
	markRoutingModel = `INSERT INTO routing_models (model, revision) VALUES ($1, $2)
		ON CONFLICT (model) DO UPDATE SET revision = excluded.revision WHERE routing_models.revision < excluded.revision`
)

// OfferedRouting is the outcome of offering a content.
type OfferedRouting struct {
	Newest RoutingRevision
	// Own is the highest revision of the content, 0 if it was not published. Published: it is new, and the newest.
	Own       int64
	Published bool
}

// OfferRouting publishes a content that a process has, unless it was published before: processes with different files do not alternate between
// them, and one that starts with an old file does not replace a newer one. changed: the file has just got this content, so that a known one is
// published again, unless an operator has published the present one. The content of the program is for an installation without another one.
func (l *Ledger) OfferRouting(ctx context.Context, r RoutingRevision, changed bool) (OfferedRouting, error) {
	return l.publishRouting(ctx, r, 0, func(o OfferedRouting) bool {
		own := o.Newest.CreatedBy == "" // no operator has decided
		switch {
		case o.Newest.Revision == 0:
			return true
		case r.Source == RoutingBuiltIn:
			return o.Own == 0 && own && o.Newest.Source == RoutingBuiltIn
		}
		return o.Own == 0 || changed && own
	})
}

// PutRouting publishes a content of an operator, also one that was published before. The newest one stays as it is.
func (l *Ledger) PutRouting(ctx context.Context, r RoutingRevision) (OfferedRouting, error) {
	return l.publishRouting(ctx, r, 0, func(OfferedRouting) bool { return true })
}

// RaiseRouting publishes a content with a number above one that processes have used and the database has lost, as after an older backup was restored:
// limits of lower numbers would have no effect. A newest one that is at least as high stays.
func (l *Ledger) RaiseRouting(ctx context.Context, r RoutingRevision, above int64) (OfferedRouting, error) {
	return l.publishRouting(ctx, r, above, func(o OfferedRouting) bool { return o.Newest.Revision < above })
}

// publishRouting makes a content the newest, unless it is, with a number above another one, if the present state permits it.
func (l *Ledger) publishRouting(ctx context.Context, r RoutingRevision, above int64, permits func(OfferedRouting) bool) (out OfferedRouting, err error) {
	for again := true; again && err == nil; {
		err = l.inTx(ctx, "publish routing", func(tx *sql.Tx) (err error) {
			again, out = false, OfferedRouting{}
			newest, err := scan(tx.QueryRowContext(ctx, selectRouting+` ORDER BY revision DESC LIMIT 1`), routingColumns.fields)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			out.Newest = newest
			if err := tx.QueryRowContext(ctx, `SELECT COALESCE(max(revision), 0) FROM routing_revisions WHERE hash = $1`, r.Hash).Scan(&out.Own); err != nil {
				return err
			}
			if newest.Hash == r.Hash && newest.Revision >= above || !permits(out) {
				return nil
			}
			next := r
			next.Revision, next.CreatedAt, next.CreatedBy, next.Origin = max(newest.Revision, above)+1, time.UnixMilli(time.Now().UnixMilli()).UTC(), plain(r.CreatedBy), plain(r.Origin)
			res, err := tx.ExecContext(ctx, insertRouting, next.Revision, next.Hash, next.Source, next.Origin, millis(next.CreatedAt), next.CreatedBy, plain(next.Content))
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				again = true // another process was first
				return err
			}
			for _, model := range slices.Sorted(slices.Values(r.Models)) {
				if _, err := tx.ExecContext(ctx, markRoutingModel, model, next.Revision); err != nil {
					return err
				}
			}
			out = OfferedRouting{Newest: next, Own: next.Revision, Published: true}
			return nil
		})
	}
	return out, err
}

// NewestRouting returns the number of the revision in use, 0 if there is none.
func (l *Ledger) NewestRouting(ctx context.Context) (int64, error) {
	return find(ctx, l, "read routing", value[int64], `SELECT COALESCE(max(revision), 0) FROM routing_revisions`)
}

// Routing returns a revision with its content; CodeNotFound for an unknown one.
func (l *Ledger) Routing(ctx context.Context, revision int64) (RoutingRevision, error) {
	found, err := list(ctx, l, "read routing", func(r *RoutingRevision) []any { return append(routingColumns.fields(r), &r.Content) },
		`SELECT `+routingColumns.names("")+`, content FROM routing_revisions WHERE revision = $1`, revision)
	if err == nil && len(found) == 0 {
		err = berth.Errorf(berth.CodeNotFound, "the routing has no revision %d", revision)
	}
	if err != nil {
		return RoutingRevision{}, err
	}
	return found[0], nil
}

// KnownRouting returns the highest revision of a content by its hash, 0 if it was never published.
func (l *Ledger) KnownRouting(ctx context.Context, hash string) (int64, error) {
	return find(ctx, l, "find routing", value[int64], `SELECT COALESCE(max(revision), 0) FROM routing_revisions WHERE hash = $1`, hash)
}

// RoutingRevisions returns a page of the revisions, the newest first.
func (l *Ledger) RoutingRevisions(ctx context.Context, cursor string, limit int) ([]RoutingRevision, string, error) {
	before := int64(math.MaxInt64)
	p := pageBehind(cursor, limit, &before)
	return listPage(ctx, l, p, "list routing", routingColumns.fields, selectRouting+` WHERE `, `revision < $1 ORDER BY revision DESC LIMIT $2`,
		func(r RoutingRevision) []any { return []any{r.Revision} })
}

// RoutingModels returns the models of all revisions, with the last one that had each.
func (l *Ledger) RoutingModels(ctx context.Context) (map[string]int64, error) {
	type row struct {
		model    string
		revision int64
	}
	rows, err := list(ctx, l, "list models of the routing", func(r *row) []any { return []any{&r.model, &r.revision} }, `SELECT model, revision FROM routing_models`)
	models := make(map[string]int64, len(rows))
	for _, r := range rows {
		models[r.model] = r.revision
	}
	return models, err
}

// OpenModels returns for each model how many open tasks have a call of it before them, or in progress.
func (l *Ledger) OpenModels(ctx context.Context) (map[string]int, error) {
	type row struct {
		steps []berth.Step
		begin int
		tasks int
	}
	// Most tasks of a template have the same steps: the database counts them, instead of sending them.
	rows, err := list(ctx, l, "list models of open tasks", func(r *row) []any { return []any{storedJSON{&r.steps}, &r.begin, &r.tasks} },
		`SELECT steps, step_index, count(*) FROM tasks WHERE ended_at = 0 GROUP BY steps, step_index`)
	models := map[string]int{}
	for _, r := range rows {
		seen := map[string]bool{}
		for _, step := range r.steps[min(max(r.begin, 0), len(r.steps)):] {
			if !seen[step.Model] {
				seen[step.Model] = true
				models[step.Model] += r.tasks
			}
		}
	}
	return models, err
}
