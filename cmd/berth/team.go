package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"

	"berth/client"
	"berth/internal/agent"
)

type teamCommands struct {
	List   teamList   `cmd:"" help:"List the teams with their shares and what they use."`
	Show   teamShow   `cmd:"" help:"Print a team as JSON: its members, and what it uses of each model."`
	Set    teamSet    `cmd:"" help:"Define a team, or replace its settings and members."`
	Delete teamDelete `cmd:"" help:"Delete a team with its lists of members."`
}

type appCommands struct {
	List   appList   `cmd:"" help:"List the applications with their shares and what they use."`
	Show   appShow   `cmd:"" help:"Print an application as JSON: its services, and what it uses of each model."`
	Set    appSet    `cmd:"" help:"Define an application, or replace its settings, team and services."`
	Delete appDelete `cmd:"" help:"Delete an application."`
}

// levelFlags are the settings of a team or an application.
type levelFlags struct {
	Title    string   `help:"Title."`
	Weight   float64  `help:"Share of the slots, relative to the neighbours whose calls wait, too: 0.01 to 1000." default:"1"`
	Slots    int      `help:"Maximum number of concurrent calls of all models; 0 for no limit." default:"0"`
	MaxTasks int      `help:"Maximum number of unfinished tasks; 0 for no limit." default:"0"`
	Services []string `help:"Services whose requests belong to it. Assign only those whose callers are trusted: callers name the service."`
}

// Validate is called by kong.
func (f levelFlags) Validate() error {
	if !(f.Weight >= 0.01 && f.Weight <= 1000) { // also not a number
		return fmt.Errorf("--weight: must be from 0.01 to 1000, not %v", f.Weight)
	}
	return nil
}

func (f levelFlags) spec() client.LevelSpec {
	return client.LevelSpec{Title: f.Title, Weight: f.Weight, Slots: f.Slots, MaxTasks: f.MaxTasks}
}

// levelColumns are the cells of a level in a table, after its id.
const levelColumns = "WEIGHT\tIN USE\tSLOTS\tWAITING\tSTATE\tTITLE"

func levelCells(spec client.LevelSpec, state client.LevelState) string {
	slots, status := "-", "-"
	if spec.Slots > 0 {
		slots = strconv.Itoa(spec.Slots)
	}
	if state.AtLimit {
		status = "at its limit"
	}
	return fmt.Sprintf("%v\t%d\t%s\t%d\t%s\t%s", spec.Weight, state.InUse, slots, state.Waiting, status, named(spec.Title))
}

type teamList struct {
	agent.Server `embed:""`
}

// Run prints the teams as a table.
func (c *teamList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "TEAM\t"+levelColumns)
	for t, err := range api.Teams(ctx) {
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%s\n", t.TeamID, levelCells(t.LevelSpec, t.LevelState))
	}
	return w.Flush()
}

// teamName is the argument of the commands about one team.
type teamName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Id of the team."`
}

type teamShow struct{ teamName }

// Run prints the team.
func (c *teamShow) Run(ctx context.Context, api *client.Client) error {
	t, err := api.Team(ctx, string(c.ID))
	return printJSON(t, err)
}

type teamSet struct {
	teamName
	levelFlags
	Users []string `help:"Users whose requests belong to it, unless their tokens name another team."`
}

// Run defines the team and prints it.
func (c *teamSet) Run(ctx context.Context, api *client.Client) error {
	t, err := api.PutTeam(ctx, client.Team{TeamID: string(c.ID), LevelSpec: c.spec(), Users: c.Users, Services: c.Services})
	return printJSON(t, err)
}

type teamDelete struct{ teamName }

// Run deletes the team.
func (c *teamDelete) Run(ctx context.Context, api *client.Client) error {
	return api.DeleteTeam(ctx, string(c.ID))
}

type appList struct {
	agent.Server `embed:""`
	Team         string `help:"List only applications of this team."`
}

// Run prints the applications as a table.
func (c *appList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "APPLICATION\tTEAM\t"+levelColumns)
	for a, err := range api.Apps(ctx, c.Team) {
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", a.AppID, cmp.Or(a.TeamID, "-"), levelCells(a.LevelSpec, a.LevelState))
	}
	return w.Flush()
}

// appName is the argument of the commands about one application.
type appName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Id of the application."`
}

type appShow struct{ appName }

// Run prints the application.
func (c *appShow) Run(ctx context.Context, api *client.Client) error {
	a, err := api.App(ctx, string(c.ID))
	return printJSON(a, err)
}

type appSet struct {
	appName
	levelFlags
	Team string `help:"Team of the application, which must exist."`
}

// Run defines the application and prints it.
func (c *appSet) Run(ctx context.Context, api *client.Client) error {
	a, err := api.PutApp(ctx, client.App{AppID: string(c.ID), TeamID: c.Team, LevelSpec: c.spec(), Services: c.Services})
	return printJSON(a, err)
}

type appDelete struct{ appName }

// Run deletes the application.
func (c *appDelete) Run(ctx context.Context, api *client.Client) error {
	return api.DeleteApp(ctx, string(c.ID))
}
