package ledger

import (
	"context"

	"berth"
)

// GroupQuery is what decides to which team and application a request belongs.
type GroupQuery struct {
	Team, App string // of the token, empty for none
	UserID    string
	ServiceID string
}

// Membership is the team and the application of a request, with their settings.
type Membership struct {
	berth.Group
	TeamSettings, AppSettings berth.LevelSettings
	// NewTeam: the token's team has no settings yet.
	NewTeam bool
}

// found is a row of selectGroup: who belongs to whom, or the settings of a team or application, whose body is not empty.
type found struct{ kind, id, ownerKind, owner, body string }

const selectGroup = `WITH direct AS (
		SELECT kind, member, owner_kind, owner FROM team_members
		WHERE kind = 'user' AND member = $1 OR kind = 'service' AND member = $2 OR kind = 'app' AND member = $3
	), belongs AS (
		SELECT kind, member, owner_kind, owner FROM direct
		UNION SELECT m.kind, m.member, m.owner_kind, m.owner FROM direct d
		JOIN team_members m ON d.owner_kind = 'app' AND m.kind = 'app' AND m.member = d.owner
	)
	SELECT kind, member, owner_kind, owner, '' FROM belongs
	UNION ALL SELECT s.kind, s.id, '', '', s.body FROM settings s JOIN belongs b ON s.kind = b.owner_kind AND s.id = b.owner WHERE s.body <> ''
	UNION ALL SELECT kind, id, '', '', body FROM settings
	WHERE body <> '' AND (kind = 'team' AND id = $4 OR kind = 'app' AND id = $3)`

// FindGroup decides to which team and application a request belongs. The application is that of the token, otherwise that of the service;
// one that is not defined is ignored. The team is that of the token, otherwise that of the token's application, of the user, of the service
// or its application. An application has an effect in its own team only.
func (l *Ledger) FindGroup(ctx context.Context, q GroupQuery) (Membership, error) {
	rows, err := list(ctx, l, "find team", func(f *found) []any { return []any{&f.kind, &f.id, &f.ownerKind, &f.owner, &f.body} },
		selectGroup, q.UserID, q.ServiceID, q.App, q.Team)
	if err != nil {
		return Membership{}, err
	}
	settings, owners := map[[2]string]string{}, map[[2]string][2]string{}
	for _, f := range rows {
		if f.body != "" {
			settings[[2]string{f.kind, f.id}] = f.body
		} else {
			owners[[2]string{f.kind, f.id}] = [2]string{f.ownerKind, f.owner}
		}
	}
	teamOf := func(app string) string { return owners[[2]string{memberApp, app}][1] }
	var m Membership
	service := owners[[2]string{memberService, q.ServiceID}]
	_, defined := settings[[2]string{memberApp, q.App}]
	switch {
	case defined:
		m.App, m.Team = q.App, teamOf(q.App)
	case service[0] == string(SettingApp):
		m.App = service[1]
	}
	user := owners[[2]string{memberUser, q.UserID}][1]
	switch {
	case q.Team != "":
		m.Team = q.Team
	case defined:
	case user != "":
		m.Team = user
	case m.App != "":
		m.Team = teamOf(m.App)
	default:
		m.Team = service[1]
	}
	if m.App != "" && m.Team != teamOf(m.App) {
		m.App = ""
	}
	var known bool
	m.TeamSettings, known, err = levelIn(settings, SettingTeam, m.Team)
	if err != nil {
		return Membership{}, err
	}
	m.NewTeam = m.Team != "" && !known
	m.AppSettings, _, err = levelIn(settings, SettingApp, m.App)
	return m, err
}

// levelIn returns the settings of a team or application, the defaults where it has none.
func levelIn(settings map[[2]string]string, kind SettingKind, id string) (berth.LevelSettings, bool, error) {
	body, ok := settings[[2]string{string(kind), id}]
	if !ok {
		return berth.DefaultLevel(), false, nil
	}
	v, err := decodeSetting[berth.LevelSettings](Setting{Body: []byte(body)})
	return v, true, err
}
