package api

import (
	"cmp"
	"context"
	"slices"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/lua"
)

// TeamPath names a team in a path.
type TeamPath struct {
	ID string `path:"id" maxLength:"128" doc:"Team id"`
}

type putTeamInput struct {
	TeamPath
	Body client.Team
}

type teamsOutputBody struct {
	Teams      []client.Team `json:"teams"`
	NextCursor string        `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// AppPath names an application in a path.
type AppPath struct {
	ID string `path:"id" maxLength:"128" doc:"Application id"`
}

type putAppInput struct {
	AppPath
	Body client.App
}

// LevelPage selects a page of teams or applications.
type LevelPage struct {
	Prefix string `query:"prefix" maxLength:"128" doc:"Only those whose id begins with this text"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

type appsInput struct {
	LevelPage
	TeamID string `query:"teamId" maxLength:"128" doc:"Only applications of this team"`
}

type appsOutputBody struct {
	Apps       []client.App `json:"apps"`
	NextCursor string       `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) teamRoutes() {
	register(s, "GET /v1/teams", forOperator, s.listTeams, op("list-teams", "teams", "List the teams by id, with what they use",
		"A team that a token names is listed once it has submitted a task."))
	register(s, "GET /v1/teams/{id}", forOperator, s.getTeam, op("get-team", "teams", "Get a team with its members and what it uses of each model"))
	register(s, "PUT /v1/teams/{id}", forOperator, s.putTeam, op("put-team", "teams", "Define a team, or replace its settings and members",
		"409: a user or service belongs to another team or application. Tasks keep the team that they had when they were accepted. "+
			"Weight and slots apply to their calls from now on."))
	registerOutput(s, "DELETE /v1/teams/{id}", forOperator, s.deleteTeam, op("delete-team", "teams", "Delete a team with its lists of members",
		"409 while it has applications or API keys. Its accepted tasks run with weight 1 and without limits. A team that tokens name is listed again with their next task."))
	register(s, "GET /v1/apps", forOperator, s.listApps, op("list-apps", "teams", "List the applications by id, with what they use"))
	register(s, "GET /v1/apps/{id}", forOperator, s.getApp, op("get-app", "teams", "Get an application with its services and what it uses of each model"))
	register(s, "PUT /v1/apps/{id}", forOperator, s.putApp, op("put-app", "teams", "Define an application, or replace its settings, team and services",
		"Its team must exist. Its API keys move with it to another team. 409: a service belongs to another team or application, or the application has "+
			"API keys and no team."))
	registerOutput(s, "DELETE /v1/apps/{id}", forOperator, s.deleteApp, op("delete-app", "teams", "Delete an application",
		"409 while it has API keys. Its accepted tasks run with weight 1 and without limits."))
}

// levelLimits are the maximum numbers of unfinished tasks of a request's team and application, 0 for none.
type levelLimits struct{ team, app int }

// groupOf returns the team and the application for which a request of the caller counts. A team that its token names, and that does not
// exist, is added, so that operators see it.
func (s *server) groupOf(ctx context.Context, serviceID, endUser string) (berth.Group, levelLimits, error) {
	user := callOf(ctx).user
	if endUser != "" {
		if err := berth.ValidUserID("endUser", endUser); err != nil {
			return berth.Group{}, levelLimits{}, err
		}
	}
	m, err := s.Ledger.FindGroup(ctx, ledger.GroupQuery{Team: user.TeamID, App: user.AppID, UserID: user.UserID, ServiceID: serviceID})
	if err == nil && m.NewTeam {
		err = s.Ledger.AddTeam(ctx, m.Team)
	}
	if err != nil {
		return berth.Group{}, levelLimits{}, err
	}
	if endUser != "" && m.App == "" {
		return berth.Group{}, levelLimits{}, berth.Invalid("endUser", "needs an application: one that the token or the service names, and that operators have defined in the request's team")
	}
	m.EndUser = endUser
	return m.Group, levelLimits{team: m.TeamSettings.MaxTasks, app: m.AppSettings.MaxTasks}, nil
}

func (s *server) listTeams(ctx context.Context, in *LevelPage) (*teamsOutputBody, error) {
	teams, next, err := s.Ledger.Teams(ctx, ledger.LevelQuery{Prefix: in.Prefix}, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	states, err := s.levelStates(ctx, convert(teams, func(t berth.Team) levelRow { return levelRow{lua.Level{Team: t.ID}, t.Slots} })...)
	if err != nil {
		return nil, err
	}
	out := &teamsOutputBody{Teams: []client.Team{}, NextCursor: next}
	for i, t := range teams {
		out.Teams = append(out.Teams, viewTeam(t, states[i].brief()))
	}
	return out, nil
}

func (s *server) getTeam(ctx context.Context, in *TeamPath) (*client.Team, error) {
	t, err := s.Ledger.Team(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	states, err := s.levelStates(ctx, levelRow{lua.Level{Team: t.ID}, t.Slots})
	if err != nil {
		return nil, err
	}
	v := viewTeam(t, states[0])
	return &v, nil
}

func (s *server) putTeam(ctx context.Context, in *putTeamInput) (*client.Team, error) {
	b := in.Body
	if b.TeamID != "" && b.TeamID != in.ID {
		return nil, berth.Invalid("teamId", "does not match the path")
	}
	t := berth.Team{ID: in.ID, LevelSettings: settingsOf(b.LevelSpec), Users: b.Users, Services: b.Services}
	if err := cmp.Or(t.Normalize(), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.PutTeam(ctx, t, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "team changed", "team", t.ID, "weight", t.Weight, "slots", t.Slots, "maxTasks", t.MaxTasks, "by", by)
	if err := s.apply(ctx, ledger.SettingTeam, t.ID); err != nil {
		return nil, err
	}
	return s.getTeam(ctx, &in.TeamPath)
}

func (s *server) deleteTeam(ctx context.Context, in *TeamPath) (*struct{}, error) {
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.DeleteTeam(ctx, in.ID, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "team deleted", "team", in.ID, "by", by)
	return nil, s.apply(ctx, ledger.SettingTeam, in.ID)
}

func (s *server) listApps(ctx context.Context, in *appsInput) (*appsOutputBody, error) {
	apps, next, err := s.Ledger.Apps(ctx, ledger.LevelQuery{Prefix: in.Prefix, Team: in.TeamID}, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	states, err := s.levelStates(ctx, convert(apps, func(a berth.App) levelRow { return levelRow{lua.Level{Team: a.TeamID, App: a.ID}, a.Slots} })...)
	if err != nil {
		return nil, err
	}
	out := &appsOutputBody{Apps: []client.App{}, NextCursor: next}
	for i, a := range apps {
		out.Apps = append(out.Apps, viewApp(a, states[i].brief()))
	}
	return out, nil
}

func (s *server) getApp(ctx context.Context, in *AppPath) (*client.App, error) {
	a, err := s.Ledger.App(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	states, err := s.levelStates(ctx, levelRow{lua.Level{Team: a.TeamID, App: a.ID}, a.Slots})
	if err != nil {
		return nil, err
	}
	v := viewApp(a, states[0])
	return &v, nil
}

func (s *server) putApp(ctx context.Context, in *putAppInput) (*client.App, error) {
	b := in.Body
	if b.AppID != "" && b.AppID != in.ID {
		return nil, berth.Invalid("appId", "does not match the path")
	}
	a := berth.App{ID: in.ID, TeamID: b.TeamID, LevelSettings: settingsOf(b.LevelSpec), Services: b.Services}
	if err := cmp.Or(a.Normalize(), s.Fleet.Writable()); err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.PutApp(ctx, a, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "application changed", "app", a.ID, "team", a.TeamID, "weight", a.Weight, "slots", a.Slots, "maxTasks", a.MaxTasks, "by", by)
	if err := s.apply(ctx, ledger.SettingApp, a.ID); err != nil {
		return nil, err
	}
	return s.getApp(ctx, &in.AppPath)
}

func (s *server) deleteApp(ctx context.Context, in *AppPath) (*struct{}, error) {
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	if err := s.Ledger.DeleteApp(ctx, in.ID, by); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "application deleted", "app", in.ID, "by", by)
	return nil, s.apply(ctx, ledger.SettingApp, in.ID)
}

// levelRow is a team or an application with its limit of slots.
type levelRow struct {
	level lua.Level
	slots int
}

// levelState is the state of a level.
type levelState client.LevelState

func (v levelState) brief() levelState {
	v.Uses = nil
	return v
}

// levelStates returns what teams and applications use of all models. It costs one call to Redis for each model.
func (s *server) levelStates(ctx context.Context, rows ...levelRow) ([]levelState, error) {
	states, index := make([]levelState, len(rows)), make(map[lua.Level]int, len(rows))
	levels := make([]lua.Level, len(rows))
	for i, r := range rows {
		levels[i], index[r.level] = r.level, i
	}
	if len(levels) == 0 {
		return states, nil
	}
	for _, m := range s.catalog().Models() {
		uses, err := s.Scripts.ReadLevels(ctx, m.Name, s.Routing.Current().LimitsOf(m.Name, 0), levels)
		if err != nil {
			return nil, fromRedis(err)
		}
		for _, u := range uses {
			v := &states[index[u.Level]]
			v.InUse += u.InUse
			v.Waiting += u.Waiting
			v.Uses = append(v.Uses, client.LevelUse{Model: m.Name, Queue: u.Queue, InUse: u.InUse, Waiting: u.Waiting})
		}
	}
	for i, r := range rows {
		v := &states[i]
		v.AtLimit = r.slots > 0 && v.InUse >= r.slots && v.Waiting > 0
		slices.SortFunc(v.Uses, func(a, b client.LevelUse) int {
			return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Queue, b.Queue))
		})
	}
	return states, nil
}

func settingsOf(l client.LevelSpec) berth.LevelSettings {
	return berth.LevelSettings{Title: l.Title, Weight: l.Weight, Slots: l.Slots, MaxTasks: l.MaxTasks}
}

func specOf(l berth.LevelSettings) client.LevelSpec {
	return client.LevelSpec{Title: l.Title, Weight: l.Weight, Slots: l.Slots, MaxTasks: l.MaxTasks}
}

func viewTeam(t berth.Team, state levelState) client.Team {
	return client.Team{
		TeamID: t.ID, LevelSpec: specOf(t.LevelSettings), Users: t.Users, Services: t.Services, LevelState: client.LevelState(state),
	}
}

func viewApp(a berth.App, state levelState) client.App {
	return client.App{
		AppID: a.ID, TeamID: a.TeamID, LevelSpec: specOf(a.LevelSettings), Services: a.Services, LevelState: client.LevelState(state),
	}
}
