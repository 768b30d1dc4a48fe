package ledger

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"berth"
)

// Expiry is one kind of data that is removed by age.
type Expiry struct {
	Name string
	// Text is content of users; the rest are rows, which are kept longer.
	Text bool
	// Remove removes up to limit items from before a time, in short transactions. It reports how many, and whether there may be more.
	// A list of Expiries is used for one pass.
	Remove func(ctx context.Context, before time.Time, limit int) (removed int64, more bool, err error)
}

// UnusedAge is how long an upload that no accepted task uses is kept at most. The user may still be filling in the form.
const UnusedAge = 24 * time.Hour

// Expiries returns what is removed by age, in the order in which it has to be removed.
func (l *Ledger) Expiries() []Expiry {
	var last assetPosition
	return []Expiry{
		{"unused uploads", true, func(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
			if day := time.Now().Add(-UnusedAge); day.After(before) {
				before = day
			}
			n, err := l.DeleteUnusedAssets(ctx, before, limit)
			return n, n >= int64(limit), err
		}},
		{"texts of calls", true, func(ctx context.Context, _ time.Time, limit int) (int64, bool, error) {
			return l.eraseTasks(ctx, selectErasable, time.Now(), limit)
		}},
		{"texts of tasks", true, func(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
			return l.eraseTasks(ctx, selectExpiredTasks, before, limit)
		}},
		{"assets", true, func(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
			return l.eraseExpiredAssets(ctx, &last, before, limit)
		}},
		{"participants", true, l.deleting("delete participants", deleteParticipants)},
		{"invitation links", true, l.deleting("delete links", deleteLinks)},
		{"ledger entries", false, l.sumEntries},
		{"usage rows", false, l.deleting("delete usage rows", deleteUsage)},
		{"tasks", false, l.deleting("delete tasks", deleteTasks)},
		{"empty assets", false, l.deleting("delete empty assets", deleteAssets)},
		{"executions", false, l.deleting("delete executions", deleteExecutions)},
		{"legs of conferences", false, l.deleting("delete legs", deleteLegs)},
		{"deliveries of records", false, l.deleting("delete deliveries", deleteDeliveries)},
		{"deliveries of webhooks", false, l.deleting("delete deliveries of webhooks", deleteWebhookDeliveries)},
		{"conferences", false, l.deleting("delete conferences", deleteConferences)},
		{"keys of conferences", false, l.deleting("delete conference keys", deleteConferenceKeys)},
		{"epochs", false, l.deleting("delete epochs", deleteEpochs)},
		{"sessions", false, l.deleting("delete sessions", deleteSessions)},
		{"template versions", false, l.deleting("delete template versions", deleteTemplateVersions)},
		{"idempotency keys", false, l.deleting("delete idempotency keys", deleteKeys)},
		{"audit rows", false, l.deleting("delete audit rows", deleteAudit)},
	}
}

// In PostgreSQL, a row that is changed while a statement waits for it is checked again, but without the subquery: age conditions on rows
// that may be used again are therefore repeated outside of it.
const (
	// Rows of tasks go after their texts and their entries, which are found by them, and after their calls in the usage log: the id of a task whose
	// key is removed, too, may be derived again, and what is logged for it is what that task is charged for.
	deleteTasks = `DELETE FROM tasks WHERE (user_id, id) IN (SELECT t.user_id, t.id FROM tasks t
		WHERE t.ended_at > 0 AND t.ended_at < $1 AND t.erased_at > 0
		AND NOT t.unsettled AND NOT EXISTS (SELECT 1 FROM credit_entries e WHERE e.user_id = t.user_id AND e.task_id = t.id AND e.task_id <> '')
		ORDER BY t.ended_at LIMIT CAST($2 AS BIGINT))`
	deleteAssets = `DELETE FROM assets WHERE id IN (SELECT a.id FROM assets a WHERE a.erased_at > 0 AND a.erased_at < $1
		AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.output_asset_id = a.id)
		AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.result_asset_id = a.id)
		ORDER BY a.erased_at LIMIT CAST($2 AS BIGINT)) AND erased_at > 0 AND erased_at < $1`
	// A key outlives its task: without it, the task's id would be derived again.
	deleteKeys = `DELETE FROM idempotency_keys WHERE (user_id, key) IN (SELECT k.user_id, k.key FROM idempotency_keys k
		WHERE k.accepted_at < $1 AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.user_id = k.user_id AND t.id = k.task_id)
		ORDER BY k.accepted_at LIMIT CAST($2 AS BIGINT)) AND accepted_at < $1`
	// The row of a conference goes after its legs and its delivery, which are found by it.
	deleteConferences = `DELETE FROM conferences WHERE id IN (SELECT c.id FROM conferences c
		WHERE c.status IN ('ended', 'deleted') AND c.created_at < $1 AND c.ended_at < $1
		AND NOT EXISTS (SELECT 1 FROM record_deliveries d WHERE d.conference_id = c.id)
		ORDER BY c.created_at LIMIT CAST($2 AS BIGINT))`
	deleteConferenceKeys = `DELETE FROM conference_keys WHERE id IN (SELECT k.id FROM conference_keys k
		WHERE k.used_at < $1 AND NOT EXISTS (SELECT 1 FROM conferences c WHERE c.id = k.conference_id)
		ORDER BY k.used_at LIMIT CAST($2 AS BIGINT)) AND used_at < $1`
	// The next epoch of a number without a row is the database's time, which is later than the one removed here.
	deleteEpochs = `DELETE FROM conference_epochs WHERE e164 IN (SELECT e.e164 FROM conference_epochs e
		WHERE e.epoch < $1 AND NOT EXISTS (SELECT 1 FROM conferences c WHERE c.e164 = e.e164)
		ORDER BY e.epoch LIMIT CAST($2 AS BIGINT)) AND epoch < $1`
	deleteSessions = `DELETE FROM sessions WHERE key IN (SELECT key FROM sessions WHERE updated_at < $1
		ORDER BY updated_at LIMIT CAST($2 AS BIGINT)) AND updated_at < $1`
	deleteUsage = `DELETE FROM usage_log WHERE (user_id, task_id, step, fence, call_no) IN (
		SELECT user_id, task_id, step, fence, call_no FROM usage_log WHERE created_at < $1
		ORDER BY created_at LIMIT CAST($2 AS BIGINT))`
	deleteAudit = `DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE created_at < $1
		ORDER BY created_at, id LIMIT CAST($2 AS BIGINT))`
)

// deleting returns the Remove of one statement with a time and a limit.
func (l *Ledger) deleting(what, query string) func(context.Context, time.Time, int) (int64, bool, error) {
	return func(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
		n, err := l.exec(ctx, what, query, before.UnixMilli(), limit)
		return n, n >= int64(limit), err
	}
}

const (
	selectExpiredTasks = `SELECT user_id, id FROM tasks WHERE ended_at > 0 AND erased_at = 0 AND ended_at < $1
	ORDER BY ended_at LIMIT CAST($2 AS BIGINT)`
	selectErasable = `SELECT user_id, id FROM tasks WHERE erase_at > 0 AND erased_at = 0 AND erase_at < $1 ORDER BY erase_at LIMIT CAST($2 AS BIGINT)`
)

// eraseTasks erases the texts of the tasks that a query finds.
func (l *Ledger) eraseTasks(ctx context.Context, query string, before time.Time, limit int) (removed int64, more bool, err error) {
	found, err := list(ctx, l, "find expired tasks", refFields, query, before.UnixMilli(), limit)
	if err != nil {
		return 0, false, err
	}
	for _, t := range found {
		if err := l.EraseTask(ctx, t); err != nil && berth.CodeOf(err) != berth.CodeNotFound {
			return removed, false, err
		}
		removed++
	}
	return removed, len(found) >= limit, nil
}

// assetPosition is a position in the order of assets by age.
type assetPosition struct {
	at int64
	id string
}

const selectExpiredAssets = `SELECT created_at, id FROM assets WHERE erased_at = 0 AND created_at < $1 AND (created_at, id) > ($2, $3)
	ORDER BY created_at, id LIMIT CAST($4 AS BIGINT)`

// eraseExpiredAssets erases old assets that no task needs any more. Those that newer tasks use are passed once in each pass.
func (l *Ledger) eraseExpiredAssets(ctx context.Context, last *assetPosition, before time.Time, limit int) (removed int64, more bool, err error) {
	fields := func(a *assetPosition) []any { return []any{&a.at, &a.id} }
	found, err := list(ctx, l, "find expired assets", fields, selectExpiredAssets, before.UnixMilli(), last.at, last.id, limit)
	if err != nil {
		return 0, false, err
	}
	for _, a := range found {
		if err := l.inTx(ctx, "erase expired asset", func(tx *sql.Tx) error { return l.eraseExpired(ctx, tx, a, &removed) }); err != nil {
			return removed, false, err
		}
		*last = a
	}
	return removed, len(found) >= limit, nil
}

func (l *Ledger) eraseExpired(ctx context.Context, tx *sql.Tx, a assetPosition, removed *int64) error {
	var used bool
	err := tx.QueryRowContext(ctx, selectAssetInUse+` AND a.erased_at = 0 AND a.created_at = $2`+l.dialect.forUpdate, a.id, a.at).Scan(&used)
	if errors.Is(err, sql.ErrNoRows) { // erased or stored again meanwhile
		return nil
	}
	if err != nil || used {
		return err
	}
	*removed++
	return eraseContent(ctx, tx, a.id)
}

// selectOldEntries excludes those of tasks that are open or not settled, whose charges can be refunded, and those of operators, whose keys never expire:
// without them a repeated request would change the account again.
const selectOldEntries = `SELECT e.user_id, e.id FROM credit_entries e WHERE e.kind <> 'carried' AND e.request_key = '' AND e.created_at < $1
	AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.user_id = e.user_id AND t.id = e.task_id AND (t.ended_at = 0 OR t.unsettled))
	ORDER BY e.created_at LIMIT CAST($2 AS BIGINT)`

// sumEntries replaces old entries of each user by one with their sum, in the place of the newest of them.
func (l *Ledger) sumEntries(ctx context.Context, before time.Time, limit int) (removed int64, more bool, err error) {
	type entry struct {
		user string
		id   int64
	}
	fields := func(e *entry) []any { return []any{&e.user, &e.id} }
	found, err := list(ctx, l, "find old entries", fields, selectOldEntries, before.UnixMilli(), limit)
	if err != nil {
		return 0, false, err
	}
	newest := map[string]int64{}
	var users []string
	for _, e := range found {
		if _, ok := newest[e.user]; !ok {
			users = append(users, e.user)
		}
		newest[e.user] = max(newest[e.user], e.id)
	}
	slices.Sort(users)
	for _, user := range users {
		if err := l.sumEntriesOf(ctx, user, newest[user]); err != nil {
			return removed, false, err
		}
	}
	return int64(len(found)), len(found) >= limit, nil
}

// settled excludes the same entries.
const settled = ` AND request_key = '' AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.user_id = credit_entries.user_id AND t.id = credit_entries.task_id AND (t.ended_at = 0 OR t.unsettled))`

func (l *Ledger) sumEntriesOf(ctx context.Context, user string, newest int64) error {
	return l.inTx(ctx, "sum entries", func(tx *sql.Tx) error {
		if _, err := l.lockAccount(ctx, tx, user); err != nil {
			return err
		}
		var sum berth.Credits
		if err := tx.QueryRowContext(ctx, `SELECT CAST(COALESCE(sum(amount), 0) AS BIGINT) FROM credit_entries
			WHERE user_id = $1 AND id <= $2`+settled, user, newest).Scan(&sum); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM credit_entries WHERE user_id = $1 AND id < $2`+settled, user, newest); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE credit_entries SET kind = $3, amount = $4, task_id = '', acceptance = 0
			WHERE user_id = $1 AND id = $2`, user, newest, EntryCarried, sum)
		return err
	})
}
