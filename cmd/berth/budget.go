package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type budgetCommands struct {
	List   budgetList   `cmd:"" help:"List the budgets with their use."`
	Show   budgetShow   `cmd:"" help:"Print a budget as JSON."`
	Set    budgetSet    `cmd:"" help:"Define or change the budget of an API key or a team. Other credits keep the use, another period begins with 0."`
	Delete budgetDelete `cmd:"" help:"Delete a budget, which no longer limits calls."`
}

type budgetList struct {
	agent.Server `embed:""`
	Kind         berth.BudgetKind `help:"List only budgets of this kind: key or team."`
	Team         string           `help:"List only the budget of this team and those of its keys."`
}

// Run prints the budgets as a table.
func (c *budgetList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "KIND\tID\tTITLE\tCREDITS\tUSED\tPERIOD\tENDS")
	for b, err := range api.Budgets(ctx, client.BudgetQuery{Kind: c.Kind, TeamID: c.Team}) {
		if err != nil {
			return w.fail(err)
		}
		ends := "-"
		if !b.EndsAt.IsZero() {
			ends = b.EndsAt.Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Kind, b.ID, named(b.Title), b.Credits, b.Used, b.Period, ends)
	}
	return w.Flush()
}

// budgetName are the flags that name one budget.
type budgetName struct {
	agent.Server `embed:""`
	Key          string `help:"Id of the API key that has the budget." xor:"owner"`
	Team         string `help:"Id of the team that has the budget." xor:"owner"`
}

// Validate is called by kong.
func (n budgetName) Validate() error {
	if n.Key == "" && n.Team == "" {
		return errors.New("--key or --team is required")
	}
	return nil
}

func (n budgetName) owner() (kind berth.BudgetKind, id string) {
	if n.Team != "" {
		return berth.BudgetTeam, n.Team
	}
	return berth.BudgetKey, n.Key
}

type budgetShow struct{ budgetName }

// Run prints the budget.
func (c *budgetShow) Run(ctx context.Context, api *client.Client) error {
	kind, id := c.owner()
	return printJSON(api.Budget(ctx, kind, id))
}

type budgetSet struct {
	budgetName
	Credits berth.Credits      `help:"What the calls of one period may cost, with at most three decimals." required:""`
	Period  berth.BudgetPeriod `help:"After which time the use begins again with 0: day, week, month or total, for never. Default: as before, month for a new budget." enum:"day,week,month,total," default:""`
}

// Run defines the budget and prints it.
func (c *budgetSet) Run(ctx context.Context, api *client.Client) error {
	kind, id := c.owner()
	b, err := found(api.Budget(ctx, kind, id))
	if err != nil {
		return err
	}
	period := cmp.Or(c.Period, b.Period, berth.PeriodMonth)
	return printJSON(api.PutBudget(ctx, kind, id, client.BudgetSpec{Credits: c.Credits, Period: period}))
}

type budgetDelete struct{ budgetName }

// Run deletes the budget.
func (c *budgetDelete) Run(ctx context.Context, api *client.Client) error {
	kind, id := c.owner()
	return api.DeleteBudget(ctx, kind, id)
}
