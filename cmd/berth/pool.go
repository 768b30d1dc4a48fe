package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type poolCommands struct {
	List   poolList   `cmd:"" help:"List the pools: the defined ones, and the implicit ones of capabilities."`
	Show   poolShow   `cmd:"" help:"Print a pool as JSON."`
	Set    poolSet    `cmd:"" help:"Define or change a pool. What is not given is kept; an empty list or text removes it."`
	Delete poolDelete `cmd:"" help:"Delete the definition of a pool."`
}

// printJSON prints a value, unless there is an error.
func printJSON(v any, err error) error {
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("format: %w", err)
	}
	fmt.Println(string(b))
	return nil
}

type poolList struct {
	agent.Server `embed:""`
}

// Run prints the pools as a table.
func (c *poolList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "POOL\tDEFINED\tNODES\tFREE\tSTRATEGY\tCAPABILITIES")
	for p, err := range api.Pools(ctx) {
		if err != nil {
			return w.fail(err)
		}
		free := 0
		if p.Counts != nil {
			free = p.Counts.Free
		}
		fmt.Fprintf(w, "%s\t%t\t%d\t%d\t%s\t%s\n", p.PoolID, p.Defined, p.Members, free, cmp.Or(string(p.StrategyNow), "-"), strings.Join(p.Capabilities, ","))
	}
	return w.Flush()
}

// poolName is the argument of the commands about one pool.
type poolName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Id of the pool."`
}

type poolShow struct{ poolName }

// Run prints the pool.
func (c *poolShow) Run(ctx context.Context, api *client.Client) error {
	p, err := api.Pool(ctx, string(c.ID))
	return printJSON(p, err)
}

type poolSet struct {
	poolName
	Capabilities []string       `help:"Capabilities that every node of the pool has."`
	Kind         berth.NodeKind `help:"Restrict the pool to nodes of this kind."`
	Zone         string         `help:"Restrict the pool to nodes of this zone."`
	Strategy     berth.Strategy `help:"Choose nodes with this strategy. Default: the fleet's."`
	Tenants      []string       `help:"Let only these tenants use the pool. Default: every caller."`
}

// Run defines or changes the pool and prints it.
func (c *poolSet) Run(ctx context.Context, api *client.Client, command *kong.Context) error {
	now, err := found(api.Pool(ctx, string(c.ID)))
	if err != nil {
		return err
	}
	p := berth.Pool{ID: string(c.ID)}
	if now.Defined {
		p.Kind, p.Capabilities, p.Zone, p.Strategy = now.Kind, now.Capabilities, now.Zone, now.Strategy
		p.GPUWeight, p.Tenants = now.GPUWeight, now.Tenants
	}
	g := givenTo(command)
	change(g, "kind", &p.Kind, c.Kind)
	changeList(g, "capabilities", &p.Capabilities, c.Capabilities)
	change(g, "zone", &p.Zone, c.Zone)
	change(g, "strategy", &p.Strategy, c.Strategy)
	changeList(g, "tenants", &p.Tenants, c.Tenants)
	return printJSON(api.PutPool(ctx, p))
}

type poolDelete struct{ poolName }

// Run deletes the definition.
func (c *poolDelete) Run(ctx context.Context, api *client.Client) error {
	return api.DeletePool(ctx, string(c.ID))
}
