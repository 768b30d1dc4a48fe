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

var webhookColumns = columns[berth.Webhook]{
	{"id", func(w *berth.Webhook) any { return &w.ID }},
	{"team_id", func(w *berth.Webhook) any { return &w.TeamID }},
	{"app_id", func(w *berth.Webhook) any { return &w.AppID }},
	{"user_id", func(w *berth.Webhook) any { return &w.UserID }},
	{"body", func(w *berth.Webhook) any { return storedJSON{&w.WebhookSettings} }},
	{"secrets", func(w *berth.Webhook) any { return storedJSON{&w.Secrets} }},
	{"former_until", func(w *berth.Webhook) any { return storedTime{&w.FormerUntil} }},
	{"created_at", func(w *berth.Webhook) any { return storedTime{&w.CreatedAt} }},
	{"created_by", func(w *berth.Webhook) any { return &w.CreatedBy }},
	{"disabled_at", func(w *berth.Webhook) any { return storedTime{&w.DisabledAt} }},
	{"disabled_why", func(w *berth.Webhook) any { return &w.DisabledWhy }},
}

var (
	insertWebhook  = webhookColumns.insert("webhooks")
	selectWebhooks = "SELECT " + webhookColumns.names("") + " FROM webhooks WHERE "
	// selectWebhooksOf reads those that get the events of a team, an application and a user.
	selectWebhooksOf = selectWebhooks + `team_id IN ('', $1) AND user_id IN ('', $3) AND app_id IN ('', $2) AND disabled_at = 0`
)

// CreateWebhook stores a new webhook. CodeInvalid where its team does not exist or has no such application, CodeConflict where its owner has
// berth.MaxWebhooks.
func (l *Ledger) CreateWebhook(ctx context.Context, w berth.Webhook) (berth.Webhook, error) {
	if err := w.Normalize(); err != nil {
		return berth.Webhook{}, err
	}
	w.CreatedAt, w.CreatedBy = asStored(time.Now()), plain(w.CreatedBy)
	return w, l.inTx(ctx, "create webhook", func(tx *sql.Tx) error {
		if err := l.lockWebhookOwner(ctx, tx, w); err != nil {
			return err
		}
		var n int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM webhooks WHERE team_id = $1 AND user_id = $2 AND app_id = $3`,
			w.TeamID, w.UserID, w.AppID).Scan(&n)
		if err != nil {
			return err
		}
		if n >= berth.MaxWebhooks {
			return berth.Errorf(berth.CodeConflict, "there may be %d webhooks of the same team, application or user; delete one first", berth.MaxWebhooks)
		}
		_, err = tx.ExecContext(ctx, insertWebhook, webhookColumns.values(&w)...)
		return err
	})
}

// lockWebhookOwner locks the team and the application of a webhook, so that they are not deleted meanwhile.
func (l *Ledger) lockWebhookOwner(ctx context.Context, tx *sql.Tx, w berth.Webhook) error {
	if w.TeamID == "" {
		return nil
	}
	if err := l.lockTeam(ctx, tx, w.TeamID); err != nil || w.AppID == "" {
		return err
	}
	if err := l.lockApp(ctx, tx, w.AppID, w.TeamID); berth.CodeOf(err) == berth.CodeConflict {
		return berth.Invalid("appId", "team %s has no application %q", w.TeamID, w.AppID)
	} else if err != nil {
		return err
	}
	return nil
}

// GetWebhook returns a webhook; CodeNotFound where there is none.
func (l *Ledger) GetWebhook(ctx context.Context, id string) (berth.Webhook, error) {
	return find(ctx, l, "read webhook", webhookColumns.fields, selectWebhooks+`id = $1`, id)
}

// WebhookQuery selects webhooks. An empty field matches all.
type WebhookQuery struct{ Team, App, User string }

// Webhooks returns a page of webhooks, the oldest first, and the cursor of the next page, empty after the last. limit is at most 200;
// CodeInvalid for an invalid cursor.
func (l *Ledger) Webhooks(ctx context.Context, q WebhookQuery, cursor string, limit int) ([]berth.Webhook, string, error) {
	at, id := int64(0), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.text("team_id", q.Team)
	p.text("app_id", q.App)
	p.text("user_id", q.User)
	return listPage(ctx, l, p, "list webhooks", webhookColumns.fields, selectWebhooks, `(created_at, id) > ($1, $2) ORDER BY created_at, id LIMIT CAST($3 AS BIGINT)`,
		func(w berth.Webhook) []any { return []any{millis(w.CreatedAt), w.ID} })
}

// ChangeWebhook applies a change to a webhook and returns it. Only its settings, secrets and whether it is disabled can change. CodeNotFound
// where there is none.
func (l *Ledger) ChangeWebhook(ctx context.Context, id string, change func(*berth.Webhook) error) (w berth.Webhook, err error) {
	if !storableID(id) {
		return w, translate("change webhook", sql.ErrNoRows)
	}
	err = l.inTx(ctx, "change webhook", func(tx *sql.Tx) error {
		if w, err = scan(tx.QueryRowContext(ctx, selectWebhooks+`id = $1`+l.dialect.forUpdate, id), webhookColumns.fields); err != nil {
			return err
		}
		if err := change(&w); err != nil {
			return err
		}
		if err := w.Normalize(); err != nil {
			return err
		}
		w.FormerUntil, w.DisabledAt = asStored(w.FormerUntil), asStored(w.DisabledAt)
		_, err := tx.ExecContext(ctx, `UPDATE webhooks SET body = $2, secrets = $3, former_until = $4, disabled_at = $5, disabled_why = $6 WHERE id = $1`,
			id, storedJSON{&w.WebhookSettings}, storedJSON{&w.Secrets}, millis(w.FormerUntil), millis(w.DisabledAt), w.DisabledWhy)
		return err
	})
	return w, err
}

// DeleteWebhook deletes a webhook with its deliveries. CodeNotFound where there is none.
func (l *Ledger) DeleteWebhook(ctx context.Context, id string) error {
	if !storableID(id) {
		return translate("delete webhook", sql.ErrNoRows)
	}
	n, err := l.exec(ctx, "delete webhook", `DELETE FROM webhooks WHERE id = $1`, id)
	if err == nil && n == 0 {
		err = translate("delete webhook", sql.ErrNoRows)
	}
	return err
}

// moveWebhooks moves the webhooks of an application, whose row is locked, to its team, and deletes them where it has none any more.
func moveWebhooks(ctx context.Context, tx *sql.Tx, app, team string) error {
	query, args := `UPDATE webhooks SET team_id = $2 WHERE app_id = $1 AND team_id <> $2`, []any{app, team}
	if team == "" {
		query, args = `DELETE FROM webhooks WHERE app_id = $1`, []any{app}
	}
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// added are deliveries of a transaction. Their sending starts when it is committed.
type added []string

// OnDeliveries sets what is called with the ids of deliveries that were added. It returns without waiting: what it misses is found by
// UnsentDeliveries. It is set before the ledger is used.
func (l *Ledger) OnDeliveries(f func(ids []string)) { l.onDeliveries = f }

// announce calls what OnDeliveries has set.
func (l *Ledger) announce(ids added) {
	if len(ids) > 0 && l.onDeliveries != nil {
		l.onDeliveries(ids)
	}
}

// addEvent stores an event for each webhook that gets it, in the transaction of what it is about.
func addEvent(ctx context.Context, tx *sql.Tx, t berth.WebhookEventType, at time.Time, data berth.WebhookData) (added, error) {
	rows, err := tx.QueryContext(ctx, selectWebhooksOf, plain(data.TeamID), plain(data.AppID), plain(data.UserID))
	webhooks, err := collect("find webhooks", rows, err, webhookColumns.fields)
	if err != nil || len(webhooks) == 0 {
		return nil, err
	}
	d, err := newDelivery(berth.NewWebhookEvent(t, at, data))
	if err != nil {
		return nil, err
	}
	var ids added
	for _, w := range webhooks {
		if !w.Wants(t) {
			continue
		}
		if err := insertDelivery(ctx, tx, w.ID, &d); err != nil {
			return nil, err
		}
		ids = append(ids, d.ID)
	}
	return ids, nil
}

// eventType returns the type of the event with which work of a kind ends in a status.
func eventType(kind, status string) berth.WebhookEventType {
	return berth.WebhookEventType(kind + "." + strings.ToLower(status))
}

// addTaskEnd adds the event of a task that has ended. The clients of chats, and of other responses than those in the background, wait for the end: there
// are no events of these.
func addTaskEnd(ctx context.Context, tx *sql.Tx, t berth.Task) (added, error) {
	data := berth.WebhookData{ID: t.ID, UserID: t.UserID, TeamID: t.Team, AppID: t.App, Template: t.Template, Code: t.ErrorCode}
	f := t.Forwarded
	if f == nil {
		return addEvent(ctx, tx, eventType("task", string(t.Status)), t.EndedAt, data)
	}
	if f.Response == nil || !f.Response.Alone() {
		return nil, nil
	}
	data.KeyID, data.Template, data.ReplacedBy = f.KeyID, "", f.Response.ReplacedBy
	if data.AppID == f.KeyID { // the key is an application of its own
		data.AppID = ""
	}
	if t.Status == berth.TaskCompleted && t.Incomplete() {
		return addEvent(ctx, tx, berth.EventResponseIncomplete, t.EndedAt, data)
	}
	return addEvent(ctx, tx, eventType("response", string(t.Status)), t.EndedAt, data)
}

// teamOfUser returns the team to which operators have added a user; empty for none.
func teamOfUser(ctx context.Context, tx *sql.Tx, user string) (team string, err error) {
	err = tx.QueryRowContext(ctx, `SELECT owner FROM team_members WHERE kind = $1 AND member = $2 AND owner_kind = $3`,
		memberUser, plain(user), SettingTeam).Scan(&team)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return team, err
}

// addExecutionEnd adds the event of an execution that has ended.
func addExecutionEnd(ctx context.Context, tx *sql.Tx, e berth.Execution) (added, error) {
	team, err := teamOfUser(ctx, tx, e.UserID)
	if err != nil {
		return nil, err
	}
	return addEvent(ctx, tx, eventType("execution", string(e.Status)), e.EndedAt, berth.WebhookData{
		ID: e.ID, UserID: e.UserID, TeamID: team, Executor: e.Executor, Code: e.Code,
	})
}

// newDelivery returns a delivery of an event that is of no webhook yet.
func newDelivery(event berth.WebhookEvent) (d berth.WebhookDelivery, err error) {
	body, err := json.Marshal(event)
	if err != nil {
		return d, fmt.Errorf("encode event: %w", err)
	}
	now := asStored(time.Now())
	return berth.WebhookDelivery{
		EventID: event.ID, Type: event.Type, SubjectID: event.Data.ID, State: berth.DeliveryPending, Event: body, Log: []berth.WebhookAttempt{},
		CreatedAt: now, UpdatedAt: now,
	}, nil
}

// insertDelivery stores a delivery as one of a webhook, with an id of its own.
func insertDelivery(ctx context.Context, tx *sql.Tx, webhookID string, d *berth.WebhookDelivery) error {
	d.ID, d.WebhookID = berth.NewID(berth.DeliveryIDPrefix), webhookID
	_, err := tx.ExecContext(ctx, insertDeliveries, deliveryColumns.values(d)...)
	return err
}
