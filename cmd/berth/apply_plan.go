package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth"
	"berth/client"
	"berth/internal/declaration"
	"berth/internal/llm"
	"berth/internal/setting"
)

// applyPlan is what has to be done for a file.
type applyPlan struct {
	api     *client.Client
	file    *declaration.File
	secrets string // directory, empty to print them
	now     time.Time

	warnings []string
	// leaving removes members from the team or application that the server has them in and the file has not. They are added to another one later.
	leaving []func(ctx context.Context) error
	steps   []applyStep

	mistakes  []error
	models    *llm.Catalog // of the routing afterwards; nil until it is needed
	published bool         // the routing changes
	budgets   map[[2]string]client.Budget
	teams     map[string]*client.Team // that the file names, nil for those that the server does not have
	apps      map[string]*client.App
	files     map[string]string // keys, by the path of their secret
}

// planApply compares a file with what the server has. Its error names all mistakes that the server's objects make of the file.
func planApply(ctx context.Context, api *client.Client, file *declaration.File, secrets string, now time.Time) (*applyPlan, error) {
	p := &applyPlan{
		api: api, file: file, secrets: secrets, now: now,
		budgets: map[[2]string]client.Budget{}, teams: map[string]*client.Team{}, apps: map[string]*client.App{}, files: map[string]string{},
	}
	for _, step := range []func(context.Context) error{p.routing, p.read, p.members, p.levels, p.keys} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return p, setting.Wrong(errors.Join(p.mistakes...))
}

func (p *applyPlan) mistake(path []string, format string, args ...any) {
	p.mistakes = append(p.mistakes, p.file.Mistake(path, format, args...))
}

// add adds a step. changed is nil for what the server does not have.
func (p *applyPlan) add(object string, changed differences, do func(ctx context.Context) (string, error)) {
	s := applyStep{object: object, result: resultChanged, fields: changed, do: do}
	switch {
	case changed == nil:
		s.result = resultCreated
	case len(changed) == 0:
		s.result, s.do = resultUnchanged, nil
	}
	p.steps = append(p.steps, s)
}

// routing plans the routing. The server checks it, too.
func (p *applyPlan) routing(ctx context.Context) error {
	if p.file.Routing == nil {
		return nil
	}
	text := p.file.Routing.Text
	checked, err := p.api.PutRouting(ctx, client.RoutingContent{Content: text, DryRun: true})
	if err != nil {
		return err
	}
	now, err := p.api.Routing(ctx)
	if err != nil {
		return err
	}
	if p.models, err = llm.NewCatalog(p.file.Routing.Config, llm.Settings{}); err != nil {
		return err
	}
	p.warnings = checked.Warnings
	step := applyStep{object: "routing", result: resultUnchanged}
	if p.published = checked.Revision != now.Revision; p.published {
		step.result, step.do = resultChanged, func(ctx context.Context) (string, error) {
			_, err := p.api.PutRouting(ctx, client.RoutingContent{Content: text})
			return "", err
		}
	}
	p.steps = append(p.steps, step)
	return nil
}

// read reads the teams, applications and budgets that the file names.
func (p *applyPlan) read(ctx context.Context) error {
	withBudget := false
	for _, t := range p.file.Teams {
		var err error
		if p.teams[t.ID], err = known(p.api.Team(ctx, t.ID)); err != nil {
			return err
		}
		withBudget = withBudget || t.Budget != nil || slices.ContainsFunc(t.Keys, hasBudget)
	}
	for _, a := range p.file.Apps {
		var err error
		if p.apps[a.ID], err = known(p.api.App(ctx, a.ID)); err != nil {
			return err
		}
		withBudget = withBudget || slices.ContainsFunc(a.Keys, hasBudget)
		if err := p.appTeam(ctx, a); err != nil {
			return err
		}
	}
	if !withBudget {
		return nil
	}
	for b, err := range p.api.Budgets(ctx, client.BudgetQuery{}) {
		if err != nil {
			return err
		}
		p.budgets[[2]string{string(b.Kind), b.ID}] = b
	}
	return nil
}

func hasBudget(k declaration.Key) bool { return k.Budget != nil }

// known returns nil for what the server does not have.
func known[T any](v T, err error) (*T, error) {
	if problemCode(err) == berth.CodeNotFound {
		return nil, nil
	}
	return &v, err
}

// appTeam notes a team of an application that does not exist, and one that it needs.
func (p *applyPlan) appTeam(ctx context.Context, a declaration.App) error {
	inFile := slices.ContainsFunc(p.file.Teams, func(t declaration.Team) bool { return t.ID == a.TeamID })
	switch now := p.apps[a.ID]; {
	case a.TeamID != "" && !inFile:
		found, err := known(p.api.Team(ctx, a.TeamID))
		if err == nil && found == nil {
			p.mistake([]string{"apps", a.ID, "team"}, "neither the file nor the server has the team %s", a.TeamID)
		}
		return err
	case a.TeamID == "" && now != nil && now.TeamID != "":
		for k, err := range p.api.Keys(ctx, client.KeyQuery{AppID: a.ID}) {
			if err == nil {
				p.mistake([]string{"apps", a.ID}, "needs a team, because the server has keys of it, such as %s", k.KeyID)
			}
			return err
		}
	}
	return nil
}

// members plans the moves of users and services between the objects of the file, and notes those that belong to another one.
func (p *applyPlan) members(ctx context.Context) error {
	claimed := map[[2]string][]string{} // paths of members that the server does not have there
	claim := func(path []string, kind string, want, has []string) {
		for i, member := range want {
			if !slices.Contains(has, member) {
				claimed[[2]string{kind, member}] = append(slices.Clone(path), kind, fmt.Sprint(i))
			}
		}
	}
	for _, t := range p.file.Teams {
		has := p.teamNow(t.ID)
		claim([]string{"teams", t.ID}, "users", t.Users, has.Users)
		claim([]string{"teams", t.ID}, "services", t.Services, has.Services)
	}
	for _, a := range p.file.Apps {
		claim([]string{"apps", a.ID}, "services", a.Services, p.appNow(a.ID).Services)
	}
	if len(claimed) == 0 {
		return nil
	}
	stays := func(kind string) func(string) bool {
		return func(member string) bool { return claimed[[2]string{kind, member}] != nil }
	}
	for _, t := range p.file.Teams {
		now := p.teamNow(t.ID)
		users, services := slices.DeleteFunc(slices.Clone(now.Users), stays("users")), slices.DeleteFunc(slices.Clone(now.Services), stays("services"))
		if len(users)+len(services) < len(now.Users)+len(now.Services) {
			now.Users, now.Services = users, services
			p.leaving = append(p.leaving, func(ctx context.Context) error { _, err := p.api.PutTeam(ctx, now); return err })
		}
	}
	for _, a := range p.file.Apps {
		now := p.appNow(a.ID)
		if services := slices.DeleteFunc(slices.Clone(now.Services), stays("services")); len(services) < len(now.Services) {
			now.Services = services
			p.leaving = append(p.leaving, func(ctx context.Context) error { _, err := p.api.PutApp(ctx, now); return err })
		}
	}
	return p.othersMembers(ctx, claimed)
}

func (p *applyPlan) teamNow(id string) client.Team {
	if t := p.teams[id]; t != nil {
		return *t
	}
	return client.Team{}
}

func (p *applyPlan) appNow(id string) client.App {
	if a := p.apps[id]; a != nil {
		return *a
	}
	return client.App{}
}

// othersMembers notes the claimed members that belong to teams and applications that the file does not have.
func (p *applyPlan) othersMembers(ctx context.Context, claimed map[[2]string][]string) error {
	note := func(of, kind string, members []string) {
		for _, member := range members {
			if path := claimed[[2]string{kind, member}]; path != nil {
				p.mistake(path, "%q belongs to %s, which the file does not have: remove it there first", member, of)
			}
		}
	}
	for t, err := range p.api.Teams(ctx) {
		if _, inFile := p.teams[t.TeamID]; inFile && err == nil {
			continue
		}
		if err == nil {
			t, err = p.api.Team(ctx, t.TeamID) // lists have no members
		}
		if err != nil {
			return err
		}
		note("team "+t.TeamID, "users", t.Users)
		note("team "+t.TeamID, "services", t.Services)
	}
	for a, err := range p.api.Apps(ctx, "") {
		if _, inFile := p.apps[a.AppID]; inFile && err == nil {
			continue
		}
		if err == nil {
			a, err = p.api.App(ctx, a.AppID)
		}
		if err != nil {
			return err
		}
		note("application "+a.AppID, "services", a.Services)
	}
	return nil
}

// differences are the names of the fields that differ. It is not nil.
type differences []string

func differ[T comparable](d *differences, field string, a, b T) {
	if a != b {
		*d = append(*d, field)
	}
}

// differSets ignores the order.
func differSets(d *differences, field string, a, b []string) {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	if !slices.Equal(a, b) {
		*d = append(*d, field)
	}
}

func differLevels(want, now client.LevelSpec) differences {
	d := differences{}
	differ(&d, "title", want.Title, now.Title)
	differ(&d, "weight", want.Weight, now.Weight)
	differ(&d, "slots", want.Slots, now.Slots)
	differ(&d, "maxTasks", want.MaxTasks, now.MaxTasks)
	return d
}

func levelSpecOf(s berth.LevelSettings) client.LevelSpec {
	return client.LevelSpec{Title: s.Title, Weight: s.Weight, Slots: s.Slots, MaxTasks: s.MaxTasks}
}

// levels plans the teams with their budgets, and the applications.
func (p *applyPlan) levels(context.Context) error {
	for _, t := range p.file.Teams {
		want := client.Team{TeamID: t.ID, LevelSpec: levelSpecOf(t.LevelSettings), Users: t.Users, Services: t.Services}
		var changed differences
		if now := p.teams[t.ID]; now != nil {
			changed = differLevels(want.LevelSpec, now.LevelSpec)
			differSets(&changed, "users", want.Users, now.Users)
			differSets(&changed, "services", want.Services, now.Services)
		}
		p.add("team "+t.ID, changed, func(ctx context.Context) (string, error) { _, err := p.api.PutTeam(ctx, want); return "", err })
		p.budget("team "+t.ID, berth.BudgetTeam, &t.ID, t.Budget)
	}
	for _, a := range p.file.Apps {
		want := client.App{AppID: a.ID, TeamID: a.TeamID, LevelSpec: levelSpecOf(a.LevelSettings), Services: a.Services}
		var changed differences
		if now := p.apps[a.ID]; now != nil {
			changed = differLevels(want.LevelSpec, now.LevelSpec)
			differ(&changed, "team", want.TeamID, now.TeamID)
			differSets(&changed, "services", want.Services, now.Services)
		}
		p.add("application "+a.ID, changed, func(ctx context.Context) (string, error) { _, err := p.api.PutApp(ctx, want); return "", err })
	}
	return nil
}

// budget plans the budget of a team or a key. id is set when it is put.
func (p *applyPlan) budget(of string, kind berth.BudgetKind, id *string, want *declaration.Budget) {
	if want == nil {
		return
	}
	var changed differences
	if now, ok := p.budgets[[2]string{string(kind), *id}]; ok {
		changed = differences{}
		differ(&changed, "credits", want.Credits, now.Credits)
		differ(&changed, "period", want.Period, now.Period)
	}
	p.add("budget of "+of, changed, func(ctx context.Context) (string, error) {
		_, err := p.api.PutBudget(ctx, kind, *id, client.BudgetSpec{Credits: want.Credits, Period: want.Period})
		return "", err
	})
}

// secretTo returns where the secret of a key is written. It notes what keeps it from being written there.
func (p *applyPlan) secretTo(k declaration.Key) string {
	if p.secrets == "" {
		return ""
	}
	path := secretPath(p.secrets, k)
	_, err := os.Lstat(path)
	switch other, same := p.files[path]; {
	case same:
		p.mistake(k.Path, "its secret would be written to %s, as that of %q: change one of the titles", path, other)
	case err == nil:
		p.mistake(k.Path, "its secret would be written to %s, which exists: move that file elsewhere", path)
	case len(filepath.Base(path)) > 255:
		p.mistake(k.Path, "its secret would be written to a file with a name of more than 255 bytes: shorten the title")
	case !errors.Is(err, os.ErrNotExist):
		p.mistake(k.Path, "its secret cannot be written: %s", err)
	}
	p.files[path] = k.Title
	return path
}
