package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"berth"
)

// The kinds of members of teams and applications.
const (
	memberUser    = "user"
	memberService = "service"
	memberApp     = string(SettingApp)
)

// putLevel stores the settings of a team or an application, and locks them until the transaction ends.
func putLevel(ctx context.Context, tx *sql.Tx, kind SettingKind, id, by string, settings berth.LevelSettings) error {
	body, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("settings of %s %s: %w", kind, id, err)
	}
	_, err = tx.ExecContext(ctx, putSetting, kind, id, string(body), time.Now().UnixMilli(), plain(by))
	return err
}

// dropLevel marks the settings for deletion from Redis, and removes its users and services.
func dropLevel(ctx context.Context, tx *sql.Tx, kind SettingKind, id, by string) error {
	now := time.Now().UnixMilli()
	res, err := tx.ExecContext(ctx, `UPDATE settings SET body = '', version = CASE WHEN version < $3 THEN $3 ELSE version + 1 END,
		updated_by = $4, updated_at = $3 WHERE kind = $1 AND id = $2 AND body <> ''`, kind, id, now, plain(by))
	if err != nil {
		return err
	}
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return err
	case n == 0:
		return berth.Errorf(berth.CodeNotFound, "%s not found", levelNames[kind])
	}
	return clearMembers(ctx, tx, kind, id)
}

var levelNames = map[SettingKind]string{SettingTeam: "team", SettingApp: "application"}

func clearMembers(ctx context.Context, tx *sql.Tx, kind SettingKind, id string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM team_members WHERE owner_kind = $1 AND owner = $2 AND kind <> $3`, kind, id, memberApp)
	return err
}

// addMembers adds members of a team or an application. CodeConflict names the field where one belongs to another.
func addMembers(ctx context.Context, tx *sql.Tx, owner SettingKind, id, field, kind string, members ...string) error {
	for _, m := range members {
		res, err := tx.ExecContext(ctx, `INSERT INTO team_members (kind, member, owner_kind, owner) VALUES ($1, $2, $3, $4)
			ON CONFLICT (kind, member) DO NOTHING`, kind, m, owner, id)
		if err != nil {
			return err
		}
		added, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if added > 0 {
			continue
		}
		var otherKind SettingKind
		var other string
		if err := tx.QueryRowContext(ctx, `SELECT owner_kind, owner FROM team_members WHERE kind = $1 AND member = $2`, kind, m).
			Scan(&otherKind, &other); err != nil {
			return err
		}
		return &berth.Error{
			Code: berth.CodeConflict, Field: field, Message: fmt.Sprintf("%s %q belongs to %s %s; remove it there first", kind, m, levelNames[otherKind], other),
		}
	}
	return nil
}

// PutTeam defines a team, or replaces its settings and members. Its applications remain. CodeConflict where a member belongs to another
// team or application. Redis has the settings after fleet.ApplySetting.
func (l *Ledger) PutTeam(ctx context.Context, t berth.Team, by string) error {
	if err := t.Normalize(); err != nil {
		return err
	}
	return l.inTx(ctx, "put team", func(tx *sql.Tx) error {
		err := putLevel(ctx, tx, SettingTeam, t.ID, by, t.LevelSettings)
		if err == nil {
			err = clearMembers(ctx, tx, SettingTeam, t.ID)
		}
		if err == nil {
			err = addMembers(ctx, tx, SettingTeam, t.ID, "users", memberUser, t.Users...)
		}
		if err == nil {
			err = addMembers(ctx, tx, SettingTeam, t.ID, "services", memberService, t.Services...)
		}
		return err
	})
}

// AddTeam defines a team with default settings, unless it exists. Redis need not have these.
func (l *Ledger) AddTeam(ctx context.Context, id string) error {
	body, err := json.Marshal(berth.DefaultLevel())
	if err != nil {
		return fmt.Errorf("settings of team %s: %w", id, err)
	}
	_, err = l.exec(ctx, "add team", `INSERT INTO settings (kind, id, body, version, applied, updated_by, updated_at)
		VALUES ($1, $2, $3, $4, $4, '', $4) ON CONFLICT (kind, id) DO NOTHING`, SettingTeam, id, string(body), time.Now().UnixMilli())
	return err
}

// DeleteTeam deletes a team with its lists of users and services, its budget and its webhooks. CodeConflict while it has applications or API keys,
// CodeNotFound where there is none. Redis has no settings of it after fleet.ApplySetting.
func (l *Ledger) DeleteTeam(ctx context.Context, id, by string) error {
	return l.inTx(ctx, "delete team", func(tx *sql.Tx) error {
		if err := dropLevel(ctx, tx, SettingTeam, id, by); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, deleteBudget, berth.BudgetTeam, id); err != nil {
			return err
		}
		var apps int
		var app sql.NullString
		err := tx.QueryRowContext(ctx, `SELECT count(*), min(member) FROM team_members WHERE owner_kind = $1 AND owner = $2 AND kind = $3`,
			SettingTeam, id, memberApp).Scan(&apps, &app)
		if err == nil && apps > 0 {
			return berth.Errorf(berth.CodeConflict, "the team has applications, such as %s; delete each or move it to another team first", app.String)
		}
		if err == nil {
			err = refuseWithKeys(ctx, tx, SettingTeam, id)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM webhooks WHERE team_id = $1`, id)
		}
		return err
	})
}

// PutApp defines an application, or replaces its settings, team and services. Its API keys belong to its team. CodeInvalid where the team
// does not exist, CodeConflict where a service belongs to another team or application, and where it has keys and no team. Redis has the
// settings after fleet.ApplySetting.
func (l *Ledger) PutApp(ctx context.Context, a berth.App, by string) error {
	if err := a.Normalize(); err != nil {
		return err
	}
	return l.inTx(ctx, "put application", func(tx *sql.Tx) error {
		if a.TeamID != "" {
			if err := l.lockTeam(ctx, tx, a.TeamID); err != nil {
				return err
			}
		}
		err := putLevel(ctx, tx, SettingApp, a.ID, by, a.LevelSettings)
		if err == nil {
			err = clearMembers(ctx, tx, SettingApp, a.ID)
		}
		if err == nil {
			err = leaveTeam(ctx, tx, a.ID)
		}
		if err == nil && a.TeamID != "" {
			err = addMembers(ctx, tx, SettingTeam, a.TeamID, "teamId", memberApp, a.ID)
		}
		if err == nil {
			err = addMembers(ctx, tx, SettingApp, a.ID, "services", memberService, a.Services...)
		}
		if err == nil {
			err = moveKeys(ctx, tx, a.ID, a.TeamID)
		}
		if err == nil {
			err = moveWebhooks(ctx, tx, a.ID, a.TeamID)
		}
		return err
	})
}

// leaveTeam removes an application from its team.
func leaveTeam(ctx context.Context, tx *sql.Tx, app string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM team_members WHERE kind = $1 AND member = $2`, memberApp, app)
	return err
}

// DeleteApp deletes an application with its webhooks. CodeConflict while it has API keys, CodeNotFound where there is none. Redis has no settings of it after fleet.ApplySetting.
func (l *Ledger) DeleteApp(ctx context.Context, id, by string) error {
	return l.inTx(ctx, "delete application", func(tx *sql.Tx) error {
		if err := dropLevel(ctx, tx, SettingApp, id, by); err != nil {
			return err
		}
		if err := refuseWithKeys(ctx, tx, SettingApp, id); err != nil {
			return err
		}
		if err := moveWebhooks(ctx, tx, id, ""); err != nil {
			return err
		}
		return leaveTeam(ctx, tx, id)
	})
}

// level is a row of settings of a team or an application.
type level struct {
	id       string
	settings berth.LevelSettings
	team     string // of an application
}

const selectLevels = `SELECT s.id, s.body, COALESCE(m.owner, '') FROM settings s
	LEFT JOIN team_members m ON s.kind = '` + memberApp + `' AND m.kind = s.kind AND m.member = s.id WHERE s.body <> '' AND `

func levelFields(v *level) []any { return []any{&v.id, storedJSON{&v.settings}, &v.team} }

// Team returns a team; CodeNotFound where there is none.
func (l *Ledger) Team(ctx context.Context, id string) (berth.Team, error) {
	v, err := find(ctx, l, "read team", levelFields, selectLevels+`s.kind = 'team' AND s.id = $1`, id)
	t := v.asTeam()
	if err == nil {
		t.Users, err = l.members(ctx, SettingTeam, id, memberUser)
	}
	if err == nil {
		t.Services, err = l.members(ctx, SettingTeam, id, memberService)
	}
	return t, err
}

// App returns an application; CodeNotFound where there is none.
func (l *Ledger) App(ctx context.Context, id string) (berth.App, error) {
	v, err := find(ctx, l, "read application", levelFields, selectLevels+`s.kind = 'app' AND s.id = $1`, id)
	a := v.asApp()
	if err == nil {
		a.Services, err = l.members(ctx, SettingApp, id, memberService)
	}
	return a, err
}

func (v level) asTeam() berth.Team { return berth.Team{ID: v.id, LevelSettings: v.settings} }
func (v level) asApp() berth.App {
	return berth.App{ID: v.id, TeamID: v.team, LevelSettings: v.settings}
}

func (l *Ledger) members(ctx context.Context, owner SettingKind, id, kind string) ([]string, error) {
	return list(ctx, l, "read members", value[string],
		`SELECT member FROM team_members WHERE owner_kind = $1 AND owner = $2 AND kind = $3 ORDER BY member`, owner, id, kind)
}

// LevelQuery selects teams or applications. An empty field matches all.
type LevelQuery struct {
	Prefix string // of the id
	Team   string // of applications
	// Defined excludes teams that only tokens have named.
	Defined bool
}

// Teams returns a page of teams by id, without their members, and the cursor of the next page, empty after the last. limit is at most 200;
// CodeInvalid for an invalid cursor.
func (l *Ledger) Teams(ctx context.Context, q LevelQuery, cursor string, limit int) ([]berth.Team, string, error) {
	return pageOfLevels(ctx, l, SettingTeam, q, cursor, limit, level.asTeam)
}

// Apps is Teams for applications.
func (l *Ledger) Apps(ctx context.Context, q LevelQuery, cursor string, limit int) ([]berth.App, string, error) {
	return pageOfLevels(ctx, l, SettingApp, q, cursor, limit, level.asApp)
}

func pageOfLevels[T any](
	ctx context.Context, l *Ledger, kind SettingKind, q LevelQuery, cursor string, limit int, as func(level) T,
) (out []T, next string, err error) {
	after := ""
	p := pageBehind(cursor, limit, &after)
	p.add("s.kind =", string(kind))
	p.text("m.owner", q.Team)
	if q.Defined {
		p.add("s.updated_by <>", "")
	}
	if q.Prefix != "" {
		p.addAs("SUBSTR(s.id, 1, LENGTH(CAST($%[1]d AS TEXT))) = $%[1]d", plain(q.Prefix))
	}
	rows, next, err := listPage(ctx, l, p, "list levels", levelFields, selectLevels, `s.id > $1 ORDER BY s.id LIMIT CAST($2 AS BIGINT)`,
		func(v level) []any { return []any{v.id} })
	for _, v := range rows {
		out = append(out, as(v))
	}
	return out, next, err
}
