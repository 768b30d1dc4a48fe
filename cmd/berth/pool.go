package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type poolCommands struct {
	List   poolList   `cmd:"" help:"List the pools: the defined ones, and the implicit ones of capabilities."`
	Show   poolShow   `cmd:"" help:"Print a pool as JSON."`
	Set    poolSet    `cmd:"" help:"Define a pool, or replace its definition."`
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

// Run defines the pool and prints it.
func (c *poolSet) Run(ctx context.Context, api *client.Client) error {
	p, err := api.PutPool(ctx, berth.Pool{
		ID: string(c.ID), Kind: c.Kind, Capabilities: c.Capabilities, Zone: c.Zone, Strategy: c.Strategy, Tenants: c.Tenants,
	})
	return printJSON(p, err)
}

type poolDelete struct{ poolName }

// Run deletes the definition.
func (c *poolDelete) Run(ctx context.Context, api *client.Client) error {
	return api.DeletePool(ctx, string(c.ID))
}
