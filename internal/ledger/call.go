package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"berth"
)

// DirectCall is a call that a process makes itself, without a workflow. While it waits for a slot or runs, it has a row and what it may cost is
// reserved. Afterwards it is in the usage log.
type DirectCall struct {
	ID string
	// UserID is that of the usage log, of a key the key's id. KeyID is empty for a call with the token of a user.
	UserID, KeyID            string
	ServiceID, TeamID, AppID string
	Model                    string
	Queue                    berth.Queue
	Operation                berth.StepName // what is called, such as chat
	// Process makes the call, see MarkProcess. After Timeout it has ended, with all its waiting: the reconciliation settles it then, too.
	Process string
	Timeout time.Duration
	// Reserved is what the call may cost at most. The budgets of its key and team are reduced by it, and the account of its user if Account is
	// set.
	Reserved berth.Credits
	Account  bool
}

// Ref returns what the usage log and the entries of an account have in place of a task. It is not the id of any task, which users choose.
func (c DirectCall) Ref() berth.TaskRef {
	return berth.TaskRef{UserID: c.UserID, TaskID: "call:" + c.ID}
}

func (c DirectCall) validate() error {
	switch {
	case !storableID(c.UserID):
		return berth.Invalid("userId", "must not be empty")
	case c.Reserved < 0 || c.Reserved > berth.MaxCredits:
		return berth.Invalid("reserved", "must be from 0 to %s", berth.MaxCredits)
	case c.Timeout <= 0:
		return berth.Invalid("timeout", "must be positive")
	}
	return errors.Join(berth.ValidID("callId", c.ID), berth.ValidID("process", c.Process))
}

// usage returns the usage log's row of an attempt at the call.
func (c DirectCall) usage(attempt int, outcome ModelCall) ModelCall {
	u, ref := outcome, c.Ref()
	u.UserID, u.TaskID, u.Step, u.Name, u.Fence, u.Call = ref.UserID, ref.TaskID, 0, c.Operation, 1, attempt
	u.ServiceID, u.TeamID, u.AppID, u.Queue, u.Model = c.ServiceID, c.TeamID, c.AppID, c.Queue, c.Model
	u.Credits, u.FinishReason, u.At = 0, plain(u.FinishReason), time.Now()
	return u
}

// reservation is the row of a call. Its settlement returns the rest to where it was taken from.
type reservation struct {
	DirectCall

	Budgets    []berth.BudgetUse
	Acceptance int64
}

const setCallBody = `UPDATE calls SET body = $2 WHERE id = $1`

// ReserveCall records a call that begins, and takes what it may cost from the budgets of its key and team, where these have one, and from the
// account. CodeBudgetExceeded when one of them has less: then nothing is changed. It is idempotent. After another error the caller repeats it
// or calls EndCall, because the call may have been recorded.
func (l *Ledger) ReserveCall(ctx context.Context, c DirectCall) error {
	if err := c.validate(); err != nil {
		return err
	}
	insert := `INSERT INTO calls (id, process, reserved, body, created_at, deadline_at)
		VALUES ($1, $2, $3, '', ` + l.dialect.nowMillis + `, ` + l.dialect.nowMillis + ` + $4) ON CONFLICT (id) DO NOTHING`
	return l.inTx(ctx, "reserve call", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, insert, c.ID, c.Process, c.Reserved, c.Timeout.Milliseconds())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		u := c.usage(0, ModelCall{})
		if _, err := tx.ExecContext(ctx, reserveUsage, usageColumns.values(&u)...); err != nil {
			return err
		}
		p := payer{Ref: c.Ref(), KeyID: c.KeyID, TeamID: c.TeamID, Account: c.Account}
		if err := l.take(ctx, tx, &p, c.Reserved); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, setCallBody, c.ID, storedJSON{reservation{c, p.Budgets, p.Acceptance}})
		return err
	})
}

// payer is from what the price of a call is taken.
type payer struct {
	Ref           berth.TaskRef // of the entries of the account
	KeyID, TeamID string        // whose budgets pay
	Account       bool          // that of the user pays, too
	// Budgets and Acceptance are what the price was taken from, see berth.Task and Entry.
	Budgets    []berth.BudgetUse
	Acceptance int64
}

// take takes an amount from the budgets of the payer's key and team, where these have one, and from the account. CodeBudgetExceeded when one of them has less:
// then the transaction must not be committed.
func (l *Ledger) take(ctx context.Context, tx *sql.Tx, p *payer, amount berth.Credits) (err error) {
	if amount == 0 {
		return nil
	}
	if p.Budgets, err = l.takeFromBudgets(ctx, tx, *p, amount); err != nil || !p.Account {
		return err
	}
	var ok bool
	if p.Acceptance, ok, err = l.charge(ctx, tx, p.Ref, amount); err == nil && !ok {
		err = berth.Errorf(berth.CodeBudgetExceeded, "your account has less than the %s credits that the call may cost: a smaller limit of its output tokens lowers that", amount)
	}
	return err
}

// takeFromBudgets raises the use of budgets. They are locked in one order by all calls.
func (l *Ledger) takeFromBudgets(ctx context.Context, tx *sql.Tx, p payer, amount berth.Credits) (taken []berth.BudgetUse, err error) {
	rows, err := tx.QueryContext(ctx, l.selectBudgets()+`kind = '`+string(berth.BudgetKey)+`' AND id = $1 OR kind = '`+string(berth.BudgetTeam)+`' AND id = $2
		ORDER BY kind`+l.dialect.forUpdate, p.KeyID, p.TeamID)
	found, err := collect("lock budgets", rows, err, budgetFields)
	if err != nil {
		return nil, err
	}
	for _, b := range found {
		b.begin()
		if b.Used+amount > b.Credits {
			return nil, exceeded(b, amount)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE budgets SET began_at = $3, used = $4, counter = $5 WHERE kind = $1 AND id = $2`,
			b.Kind, b.ID, millis(b.began), b.Used+amount, b.counter); err != nil {
			return nil, err
		}
		taken = append(taken, berth.BudgetUse{Kind: b.Kind, ID: b.ID, Counter: b.counter})
	}
	return taken, nil
}

func exceeded(b budget, wanted berth.Credits) error {
	period, until := "in total", "an operator can raise it"
	if ends := b.Period.Ends(b.now); !ends.IsZero() {
		period, until = "a "+string(b.Period), "it begins again at "+ends.Format(time.RFC3339)
	}
	return berth.Errorf(berth.CodeBudgetExceeded, "the budget of %s %s is %s credits %s, of which %s are left, and the call may cost %s, less with a smaller limit of its output tokens; %s",
		b.Kind, b.ID, b.Credits, period, max(0, b.Credits-b.Used), wanted, until)
}

// EndCall settles a call: charged, at most what is reserved, is what its user pays, and the rest is returned. outcomes are its calls of
// upstreams in their order, for the usage log; the last one is the one that is charged. Without outcomes no upstream was called, and nothing is
// charged. A call that the reconciliation has settled stays so, and the usage log gets the outcomes. It is idempotent.
func (l *Ledger) EndCall(ctx context.Context, c DirectCall, outcomes []ModelCall, charged berth.Credits) error {
	if err := c.validate(); err != nil {
		return err
	}
	return l.inTx(ctx, "end call", func(tx *sql.Tx) error {
		r, open, err := takeCall(ctx, tx, `id = $1`, c.ID)
		if err != nil {
			return err
		}
		var settled berth.Credits
		if open && len(outcomes) > 0 {
			settled = min(max(charged, 0), r.Reserved)
		}
		for i, o := range outcomes {
			u := c.usage(i, o)
			u.FinishedAt = u.At
			if i == len(outcomes)-1 {
				u.Credits = settled
			}
			if _, err := tx.ExecContext(ctx, recordUsage, usageColumns.values(&u)...); err != nil {
				return err
			}
		}
		if len(outcomes) == 0 {
			if _, err := tx.ExecContext(ctx, dropUsage, c.Ref().UserID, c.Ref().TaskID); err != nil {
				return err
			}
		}
		return r.giveBack(ctx, tx, r.Reserved-settled)
	})
}

// dropUsage removes the row of a call that called no upstream.
const dropUsage = `DELETE FROM usage_log WHERE user_id = $1 AND task_id = $2 AND call_no = 0
	AND (finished_at = 0 OR error_code = '` + string(berth.CodeInterrupted) + `')`

// takeCall removes the row of a call that meets a condition, so that it is settled once. It reports whether there was one.
func takeCall(ctx context.Context, tx *sql.Tx, condition string, args ...any) (r reservation, ok bool, err error) {
	err = tx.QueryRowContext(ctx, `DELETE FROM calls WHERE `+condition+` RETURNING body`, args...).Scan(storedJSON{&r})
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, err
}

// giveBack returns a part of what was reserved.
func (r reservation) giveBack(ctx context.Context, tx *sql.Tx, rest berth.Credits) error {
	if err := returnToBudgets(ctx, tx, r.Budgets, rest); err != nil || rest == 0 || !r.Account {
		return err
	}
	ref := r.Ref()
	if _, err := addEntry(ctx, tx, Entry{UserID: ref.UserID, Kind: EntryRefund, Amount: rest, TaskID: ref.TaskID}, r.Acceptance, ""); err != nil {
		return fmt.Errorf("refund: %w", err)
	}
	return nil
}

// returnToBudgets returns a part of what was taken from budgets. One whose period has ended, or that was replaced, gets nothing.
func returnToBudgets(ctx context.Context, tx *sql.Tx, budgets []berth.BudgetUse, rest berth.Credits) error {
	if rest == 0 {
		return nil
	}
	for _, b := range budgets {
		if _, err := tx.ExecContext(ctx, `UPDATE budgets SET used = used - $4 WHERE kind = $1 AND id = $2 AND counter = $3`,
			b.Kind, b.ID, b.Counter, rest); err != nil {
			return err
		}
	}
	return nil
}
