package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"strconv"

	"github.com/alecthomas/kong"

	"berth/client"
	"berth/internal/agent"
)

type teamCommands struct {
	List   levelList[teams]   `cmd:"" help:"List the teams with their shares and what they use."`
	Show   levelShow[teams]   `cmd:"" help:"Print a team as JSON: its members, and what it uses of each model."`
	Set    levelSet[teamSpec] `cmd:"" help:"Define or change a team. What is not given is kept; an empty list removes one."`
	Delete levelDelete[teams] `cmd:"" help:"Delete a team with its lists of members."`
}

type appCommands struct {
	List   levelList[apps]   `cmd:"" help:"List the applications with their shares and what they use."`
	Show   levelShow[apps]   `cmd:"" help:"Print an application as JSON: its services, and what it uses of each model."`
	Set    levelSet[appSpec] `cmd:"" help:"Define or change an application. What is not given is kept; an empty list removes one."`
	Delete levelDelete[apps] `cmd:"" help:"Delete an application."`
}

// level is a team or an application in a list; names are its cells before the common ones.
type level struct {
	names string
	spec  client.LevelSpec
	state client.LevelState
}

// levels are the calls about teams, or those about applications. Its fields are the flags of a list.
type levels interface {
	head() string // of the names
	list(ctx context.Context, api *client.Client) iter.Seq2[level, error]
	get(ctx context.Context, api *client.Client, id string) (any, error)
	delete(ctx context.Context, api *client.Client, id string) error
}

// levelSpec defines a team or an application. Its fields are the flags that the other kind does not have.
type levelSpec interface {
	// put defines a team or application, or changes the one that there is.
	put(ctx context.Context, api *client.Client, id string, g given, set func(spec *client.LevelSpec, services *[]string)) (any, error)
}

type teams struct{}

func (teams) head() string { return "TEAM" }

func (teams) list(ctx context.Context, api *client.Client) iter.Seq2[level, error] {
	return mapped(api.Teams(ctx), func(t client.Team) level { return level{t.TeamID, t.LevelSpec, t.LevelState} })
}

func (teams) get(ctx context.Context, api *client.Client, id string) (any, error) {
	return api.Team(ctx, id)
}

func (teams) delete(ctx context.Context, api *client.Client, id string) error {
	return api.DeleteTeam(ctx, id)
}

type teamSpec struct {
	Users []string `help:"Users whose requests belong to it, unless their tokens name another team."`
}

func (t teamSpec) put(ctx context.Context, api *client.Client, id string, g given, set func(*client.LevelSpec, *[]string)) (any, error) {
	now, err := found(api.Team(ctx, id))
	if err != nil {
		return nil, err
	}
	set(&now.LevelSpec, &now.Services)
	changeList(g, "users", &now.Users, t.Users)
	return api.PutTeam(ctx, client.Team{TeamID: id, LevelSpec: now.LevelSpec, Users: now.Users, Services: now.Services})
}

type apps struct {
	Team string `help:"List only applications of this team."`
}

func (apps) head() string { return "APPLICATION\tTEAM" }

func (a apps) list(ctx context.Context, api *client.Client) iter.Seq2[level, error] {
	return mapped(api.Apps(ctx, a.Team), func(a client.App) level {
		return level{a.AppID + "\t" + cmp.Or(a.TeamID, "-"), a.LevelSpec, a.LevelState}
	})
}

func (apps) get(ctx context.Context, api *client.Client, id string) (any, error) {
	return api.App(ctx, id)
}

func (apps) delete(ctx context.Context, api *client.Client, id string) error {
	return api.DeleteApp(ctx, id)
}

type appSpec struct {
	Team string `help:"Team of the application, which must exist."`
}

func (a appSpec) put(ctx context.Context, api *client.Client, id string, g given, set func(*client.LevelSpec, *[]string)) (any, error) {
	now, err := found(api.App(ctx, id))
	if err != nil {
		return nil, err
	}
	set(&now.LevelSpec, &now.Services)
	change(g, "team", &now.TeamID, a.Team)
	return api.PutApp(ctx, client.App{AppID: id, TeamID: now.TeamID, LevelSpec: now.LevelSpec, Services: now.Services})
}

// mapped applies f to the items of a sequence.
func mapped[From, To any](all iter.Seq2[From, error], f func(From) To) iter.Seq2[To, error] {
	return func(yield func(To, error) bool) {
		for v, err := range all {
			if !yield(f(v), err) {
				return
			}
		}
	}
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

func (f levelFlags) change(g given, spec *client.LevelSpec, services *[]string) {
	change(g, "title", &spec.Title, f.Title)
	change(g, "weight", &spec.Weight, f.Weight)
	change(g, "slots", &spec.Slots, f.Slots)
	change(g, "max-tasks", &spec.MaxTasks, f.MaxTasks)
	changeList(g, "services", services, f.Services)
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

type levelList[L levels] struct {
	agent.Server `embed:""`
	Of           L `embed:""`
}

// Run prints the teams or applications as a table.
func (c *levelList[L]) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, c.Of.head()+"\t"+levelColumns)
	for l, err := range c.Of.list(ctx, api) {
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%s\n", l.names, levelCells(l.spec, l.state))
	}
	return w.Flush()
}

// levelName is the argument of the commands about one team or application.
type levelName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Its id."`
}

type levelShow[L levels] struct{ levelName }

// Run prints the team or application.
func (c *levelShow[L]) Run(ctx context.Context, api *client.Client) error {
	var of L
	v, err := of.get(ctx, api, string(c.ID))
	return printJSON(v, err)
}

type levelSet[S levelSpec] struct {
	levelName
	levelFlags
	Spec S `embed:""`
}

// Run defines or changes the team or application and prints it.
func (c *levelSet[S]) Run(ctx context.Context, api *client.Client, command *kong.Context) error {
	g := givenTo(command)
	v, err := c.Spec.put(ctx, api, string(c.ID), g, func(spec *client.LevelSpec, services *[]string) { c.change(g, spec, services) })
	return printJSON(v, err)
}

type levelDelete[L levels] struct{ levelName }

// Run deletes the team or application.
func (c *levelDelete[L]) Run(ctx context.Context, api *client.Client) error {
	var of L
	return of.delete(ctx, api, string(c.ID))
}
