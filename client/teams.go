package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"berth"
)

// LevelSpec are the settings of a team or an application.
type LevelSpec struct {
	Title    string  `json:"title,omitempty" doc:"At most 100 characters"`
	Weight   float64 `json:"weight,omitempty" doc:"Share of a model's slots, relative to the neighbours whose calls wait, too: other teams, applications and users without one. 0.01 to 1000, 1 by default"`
	Slots    int     `json:"slots,omitempty" doc:"Maximum number of concurrent calls of all models together; 0 for no limit. A lower one ends no call"`
	MaxTasks int     `json:"maxTasks,omitempty" doc:"Maximum number of unfinished tasks; 0 for no limit. Further ones are refused"`
}

// LevelState is what the calls of a team or an application use.
type LevelState struct {
	InUse   int        `json:"inUse" readOnly:"true" doc:"Number of slots in use, of all models"`
	Waiting int        `json:"waiting" readOnly:"true" doc:"Number of calls that wait for a slot"`
	AtLimit bool       `json:"atLimit" readOnly:"true" doc:"Its calls wait because it uses all of its slots. Otherwise they wait for a slot of the model, or because that is paused: see GET /v1/models"`
	Uses    []LevelUse `json:"uses,omitempty" readOnly:"true" doc:"By model and queue; lists leave it out"`
}

// LevelUse is what the calls of a team or an application use of a model in a queue.
type LevelUse struct {
	Model   string      `json:"model"`
	Queue   berth.Queue `json:"queue"`
	InUse   int         `json:"inUse"`
	Waiting int         `json:"waiting"`
}

// Team is a team: its settings and members, which are what PUT takes, and its state.
type Team struct {
	TeamID string `json:"teamId,omitempty" readOnly:"true"`
	LevelSpec
	Users    []string `json:"users,omitempty" maxItems:"1000" doc:"Users whose requests count for the team, unless their tokens name another; lists leave it out"`
	Services []string `json:"services,omitempty" maxItems:"1000" doc:"Services whose requests count for the team, unless the token or the user does for another. Callers name the service: assign those whose callers are trusted. Lists leave it out"`
	LevelState
}

// App is an application: its settings, team and services, which are what PUT takes, and its state.
type App struct {
	AppID  string `json:"appId,omitempty" readOnly:"true"`
	TeamID string `json:"teamId,omitempty" maxLength:"128" doc:"Team of the application, whose share it divides with the others of the team; absent for none"`
	LevelSpec
	Services []string `json:"services,omitempty" maxItems:"1000" doc:"Services whose requests count for the application, unless the token names another. Lists leave it out"`
	LevelState
}

// Teams yields the teams by id, without their members.
func (c *Client) Teams(ctx context.Context) iter.Seq2[Team, error] {
	return pages[Team](ctx, c, "/v1/teams", url.Values{"limit": {"200"}}, "teams")
}

// Team returns a team.
func (c *Client) Team(ctx context.Context, id string) (Team, error) {
	return fetch[Team](ctx, c, http.MethodGet, teamPath(id), nil)
}

// teamSpec and appSpec are the bodies of PUT.
type (
	teamSpec struct {
		LevelSpec
		Users    []string `json:"users,omitempty"`
		Services []string `json:"services,omitempty"`
	}
	appSpec struct {
		TeamID string `json:"teamId,omitempty"`
		LevelSpec
		Services []string `json:"services,omitempty"`
	}
)

// PutTeam defines a team, or replaces its settings and members.
func (c *Client) PutTeam(ctx context.Context, t Team) (Team, error) {
	return fetch[Team](ctx, c, http.MethodPut, teamPath(t.TeamID), teamSpec{LevelSpec: t.LevelSpec, Users: t.Users, Services: t.Services})
}

// DeleteTeam deletes a team, which must have no applications.
func (c *Client) DeleteTeam(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, teamPath(id), nil, nil, nil)
}

// Apps yields the applications by id, without their services: those of a team if it is not empty.
func (c *Client) Apps(ctx context.Context, team string) iter.Seq2[App, error] {
	return pages[App](ctx, c, "/v1/apps", url.Values{"teamId": {team}, "limit": {"200"}}, "apps")
}

// App returns an application.
func (c *Client) App(ctx context.Context, id string) (App, error) {
	return fetch[App](ctx, c, http.MethodGet, appPath(id), nil)
}

// PutApp defines an application, or replaces its settings, team and services.
func (c *Client) PutApp(ctx context.Context, a App) (App, error) {
	return fetch[App](ctx, c, http.MethodPut, appPath(a.AppID), appSpec{TeamID: a.TeamID, LevelSpec: a.LevelSpec, Services: a.Services})
}

// DeleteApp deletes an application.
func (c *Client) DeleteApp(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, appPath(id), nil, nil, nil)
}

func teamPath(id string) string { return "/v1/teams/" + url.PathEscape(id) }
func appPath(id string) string  { return "/v1/apps/" + url.PathEscape(id) }
