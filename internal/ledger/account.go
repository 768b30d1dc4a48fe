package ledger

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"berth"
)

// EntryKind is the kind of an entry of an account.
type EntryKind string

// The kinds of entries. Grants and refunds are positive, charges negative.
const (
	EntryGrant      EntryKind = "grant"      // credits that an operator added
	EntryCorrection EntryKind = "correction" // credits that an operator removed
	EntryCharge     EntryKind = "charge"     // the price of an accepted task, or what is reserved for a metered one or a direct call
	// EntryRefund is of the charge of a task that failed, was cancelled or withdrawn, or what a metered one or a direct call did not use.
	EntryRefund  EntryKind = "refund"
	EntryCarried EntryKind = "carried" // the sum of older entries, which are no longer stored
)

// Entry is one change of an account. The sum of all entries is the balance.
type Entry struct {
	ID     int64
	UserID string
	Kind   EntryKind
	Amount berth.Credits
	// TaskID is the task of a charge or refund, or what DirectCall.Ref has in its place, and Reason an operator's text.
	TaskID, Reason string
	At             time.Time
}

var entryColumns = columns[Entry]{
	{"id", func(e *Entry) any { return &e.ID }},
	{"user_id", func(e *Entry) any { return &e.UserID }},
	{"kind", func(e *Entry) any { return &e.Kind }},
	{"amount", func(e *Entry) any { return &e.Amount }},
	{"task_id", func(e *Entry) any { return &e.TaskID }},
	{"reason", func(e *Entry) any { return &e.Reason }},
	{"created_at", func(e *Entry) any { return storedTime{&e.At} }},
}

const selectCredits = `SELECT credits FROM accounts WHERE user_id = $1`

// Credits returns the balance of a user, 0 for one without an account.
func (l *Ledger) Credits(ctx context.Context, userID string) (berth.Credits, error) {
	credits, _, err := berth.Found(find(ctx, l, "read credits", value[berth.Credits], selectCredits, userID))
	return credits, err
}

var selectEntries = `SELECT ` + entryColumns.names("") + ` FROM credit_entries WHERE `

const pageOfEntries = `id < $1 ORDER BY id DESC LIMIT CAST($2 AS BIGINT)`

// Entries returns a page of a user's entries, the newest first, and the cursor of the next page, empty after the last. limit is
// at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) Entries(ctx context.Context, userID, cursor string, limit int) (out []Entry, next string, err error) {
	before := int64(math.MaxInt64)
	p := pageBehind(cursor, limit, &before)
	p.add("user_id =", userID)
	return listPage(ctx, l, p, "list entries", entryColumns.fields, selectEntries, pageOfEntries, func(e Entry) []any { return []any{e.ID} })
}

// Grant is an operator's change of an account. Key identifies it: a repeated grant changes nothing.
type Grant struct {
	UserID string
	Amount berth.Credits
	Reason string
	Key    string
}

// AddCredits adds an entry and returns it with the balance. created is false for a grant whose key was used before.
// CodeIdempotencyMismatch when that was for another amount or reason, CodeConflict when the balance would become negative or
// exceed berth.MaxCredits.
func (l *Ledger) AddCredits(ctx context.Context, g Grant) (entry Entry, credits berth.Credits, created bool, err error) {
	switch {
	case !storableID(g.UserID):
		return entry, 0, false, berth.Invalid("userId", "must not be empty")
	case g.Key == "":
		return entry, 0, false, berth.Invalid("key", "must not be empty")
	case g.Amount == 0 || g.Amount > berth.MaxCredits || g.Amount < -berth.MaxCredits:
		return entry, 0, false, berth.Invalid("amount", "must not be 0, and at most %s", berth.MaxCredits)
	}
	g.Reason = plain(g.Reason)
	err = l.inTx(ctx, "add credits", func(tx *sql.Tx) error {
		var err error
		if credits, err = l.lockAccount(ctx, tx, g.UserID); err != nil {
			return err
		}
		entry, err = scan(tx.QueryRowContext(ctx, `SELECT `+entryColumns.names("")+
			` FROM credit_entries WHERE user_id = $1 AND request_key = $2`, g.UserID, g.Key), entryColumns.fields)
		if err == nil {
			if entry.Amount != g.Amount || entry.Reason != g.Reason {
				return berth.Errorf(berth.CodeIdempotencyMismatch, "the key was used for another amount or reason")
			}
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if credits+g.Amount < 0 || credits > berth.MaxCredits-g.Amount {
			return berth.Errorf(berth.CodeConflict, "the balance is %s; it must remain from 0 to %s", credits, berth.MaxCredits)
		}
		entry = Entry{UserID: g.UserID, Kind: EntryGrant, Amount: g.Amount, Reason: g.Reason}
		if g.Amount < 0 {
			entry.Kind = EntryCorrection
		}
		credits, created = credits+g.Amount, true
		entry, err = addEntry(ctx, tx, entry, 0, g.Key)
		return err
	})
	if err != nil {
		return Entry{}, 0, false, err
	}
	return entry, credits, created, nil
}

// lockAccount returns the balance of a user and locks the account, which it creates if there is none.
func (l *Ledger) lockAccount(ctx context.Context, tx *sql.Tx, userID string) (credits berth.Credits, err error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (user_id, credits) VALUES ($1, 0) ON CONFLICT (user_id) DO NOTHING`,
		userID); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, selectCredits+l.dialect.forUpdate, userID).Scan(&credits)
	return credits, err
}

// addEntry stores an entry and changes the balance by its amount. acceptance counts the earlier acceptances of its task.
func addEntry(ctx context.Context, tx *sql.Tx, e Entry, acceptance int64, key string) (Entry, error) {
	e.At = fromMillis(time.Now().UnixMilli())
	err := tx.QueryRowContext(ctx, `INSERT INTO credit_entries (user_id, kind, amount, task_id, acceptance, request_key, reason, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id`,
		e.UserID, e.Kind, e.Amount, e.TaskID, acceptance, key, e.Reason, millis(e.At)).Scan(&e.ID)
	if err != nil {
		return e, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE accounts SET credits = credits + $2 WHERE user_id = $1`, e.UserID, e.Amount)
	return e, err
}

// charge takes an amount for a task or a call from its user's account, and returns which acceptance of the task it is of. It reports whether
// the balance sufficed. The row of the task must be new: a charge of an earlier acceptance of the task was refunded when that was withdrawn.
func (l *Ledger) charge(ctx context.Context, tx *sql.Tx, t berth.TaskRef, amount berth.Credits) (acceptance int64, ok bool, err error) {
	var credits berth.Credits
	err = tx.QueryRowContext(ctx, selectCredits+l.dialect.forUpdate, t.UserID).Scan(&credits)
	if errors.Is(err, sql.ErrNoRows) || err == nil && credits < amount {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	// Entries of earlier acceptances may have been summed up: their number is not a count.
	if err := tx.QueryRowContext(ctx, `SELECT COALESCE(max(acceptance) + 1, 0) FROM credit_entries
		WHERE user_id = $1 AND task_id = $2 AND kind = $3`, t.UserID, t.TaskID, EntryCharge).Scan(&acceptance); err != nil {
		return 0, false, err
	}
	_, err = addEntry(ctx, tx, Entry{UserID: t.UserID, Kind: EntryCharge, Amount: -amount, TaskID: t.TaskID}, acceptance, "")
	return acceptance, err == nil, err
}

// refund returns a part of the price of a task, which the caller has ended, settled or deleted in this transaction. The database rejects
// a second refund of one charge.
func refund(ctx context.Context, tx *sql.Tx, t berth.Task, amount berth.Credits) error {
	if amount == 0 {
		return nil
	}
	if t.Forwarded != nil {
		return returnToBudgets(ctx, tx, t.Budgets, amount)
	}
	var acceptance int64
	if err := tx.QueryRowContext(ctx, `SELECT max(acceptance) FROM credit_entries WHERE user_id = $1 AND task_id = $2 AND kind = $3`,
		t.UserID, t.ID, EntryCharge).Scan(&acceptance); err != nil {
		return err
	}
	_, err := addEntry(ctx, tx, Entry{UserID: t.UserID, Kind: EntryRefund, Amount: amount, TaskID: t.ID}, acceptance, "")
	return err
}
