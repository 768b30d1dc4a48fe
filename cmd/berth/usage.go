package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"berth/client"
	"berth/internal/agent"
)

type usageCommand struct {
	agent.Server `embed:""`

	By       []string      `help:"Sum by these, separated by commas: team, app, key, user, service, template, model, upstream, day, outcome, cause." default:"team,model" enum:"team,app,key,user,service,template,model,upstream,day,outcome,cause"`
	Team     string        `help:"Sum only calls that count for this team."`
	User     string        `help:"Sum only calls of this user; for operators."`
	Model    string        `help:"Sum only calls of this model."`
	Upstream string        `help:"Sum only calls of upstreams with this name."`
	App      string        `help:"Sum only calls that count for this application."`
	Since    time.Duration `help:"Sum the calls of this time before now." default:"720h"`
}

// Run prints the sums as a table, the highest costs first.
func (c *usageCommand) Run(ctx context.Context, api *client.Client) error {
	query := url.Values{"by": {strings.Join(c.By, ",")}, "from": {time.Now().Add(-c.Since).UTC().Format(time.RFC3339)}}
	for name, value := range map[string]string{"teamId": c.Team, "userId": c.User, "model": c.Model, "appId": c.App, "upstream": c.Upstream} {
		if value != "" {
			query.Set(name, value)
		}
	}
	found, err := api.UsageSums(ctx, query)
	if err != nil {
		return err
	}
	w := newTable(os.Stdout)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(c.By, "\t"))+"\tCALLS\tFAILED\tINPUT\tCACHED\tOUTPUT\tCOST (USD)\tCREDITS")
	for _, u := range found.Sums {
		of := map[string]string{
			"team": u.TeamID, "app": u.AppID, "key": titled(u.KeyID, u.KeyTitle), "user": u.UserID, "service": u.ServiceID, "template": u.Template, "model": u.Model, "upstream": u.Upstream,
			"day": u.Day, "outcome": u.Outcome, "cause": u.Cause,
		}
		for _, by := range c.By {
			fmt.Fprintf(w, "%s\t", named(of[by]))
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%.6f\t%s\n", u.Calls, u.Failed, u.InputTokens, u.CachedTokens, u.OutputTokens, float64(u.CostMicros)/1e6, u.Credits)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if found.More {
		fmt.Fprintf(os.Stderr, "only the %d highest costs: use --team, --app, --user, --model, --upstream or a shorter --since\n", len(found.Sums))
	}
	return nil
}

// titled returns an id with the title of what it names, if that has one.
func titled(id, title string) string {
	if title == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", title, id)
}
