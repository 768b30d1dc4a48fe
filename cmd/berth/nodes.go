package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
)

type nodeCommands struct {
	Run      nodeCommand  `cmd:"" default:"withargs" help:"Run a node agent: register, run jobs with a driver, drain on stop."`
	List     nodeList     `cmd:"" help:"List the nodes with their state and slots."`
	Show     nodeShow     `cmd:"" help:"Print a node as JSON."`
	Cordon   nodeCordon   `cmd:"" help:"Assign no new work to a node."`
	Uncordon nodeUncordon `cmd:"" help:"Assign work to a node again, and cancel its drain."`
	Drain    nodeDrain    `cmd:"" help:"Assign no new work to a node, and move its conferences."`
	Undrain  nodeUndrain  `cmd:"" help:"Cancel the drain of a node."`
}

type nodeList struct {
	agent.Server `embed:""`
	Kind         berth.NodeKind  `help:"List only nodes of this kind: translate, media or engine."`
	State        berth.NodeState `help:"List only nodes in this state: ready, suspect or dead."`
	Pool         string          `help:"List only nodes of this pool."`
}

// Run prints the nodes as a table.
func (c *nodeList) Run(ctx context.Context, api *client.Client) error {
	w := newTable(os.Stdout)
	fmt.Fprintln(w, "NODE\tKIND\tSTATE\tIN USE\tSLOTS\tZONE\tORDERS\tCAPABILITIES")
	for n, err := range api.Nodes(ctx, c.Kind, c.State, c.Pool) {
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", n.ID, n.Kind, n.State, n.Leases, n.MaxConcurrentJobs, named(n.Zone),
			nodeOrders(n.Cordoned, n.DrainUntil), strings.Join(n.Capabilities, ","))
	}
	return w.Flush()
}

// nodeOrders formats what an operator ordered for a node.
func nodeOrders(cordoned bool, drainUntil time.Time) string {
	var orders []string
	if cordoned {
		orders = append(orders, "cordoned")
	}
	if !drainUntil.IsZero() {
		orders = append(orders, "drains until "+drainUntil.Local().Format(time.TimeOnly))
	}
	if len(orders) == 0 {
		return "-"
	}
	return strings.Join(orders, ", ")
}

// nodeName is the argument of the commands about one node.
type nodeName struct {
	agent.Server `embed:""`
	ID           idArg `arg:"" help:"Id of the node."`
}

// print prints the orders for the node.
func (n nodeName) print(now berth.NodeSettings, err error) error {
	if err == nil {
		fmt.Printf("%s\t%s\n", n.ID, nodeOrders(now.Cordoned, now.DrainUntil))
	}
	return err
}

type nodeShow struct{ nodeName }

// Run prints the node.
func (c *nodeShow) Run(ctx context.Context, api *client.Client) error {
	n, err := api.Node(ctx, string(c.ID))
	return printJSON(n, err)
}

type nodeCordon struct{ nodeName }

// Run cordons the node.
func (c *nodeCordon) Run(ctx context.Context, api *client.Client) error {
	return c.print(api.CordonNode(ctx, string(c.ID)))
}

type nodeUncordon struct{ nodeName }

// Run uncordons the node.
func (c *nodeUncordon) Run(ctx context.Context, api *client.Client) error {
	return c.print(api.UncordonNode(ctx, string(c.ID)))
}

type nodeDrain struct {
	nodeName
	Within time.Duration `help:"Move the conferences that are left after this time." default:"5m"`
}

// Run drains the node.
func (c *nodeDrain) Run(ctx context.Context, api *client.Client) error {
	return c.print(api.DrainNode(ctx, string(c.ID), c.Within))
}

type nodeUndrain struct{ nodeName }

// Run cancels the drain of the node.
func (c *nodeUndrain) Run(ctx context.Context, api *client.Client) error {
	return c.print(api.UndrainNode(ctx, string(c.ID)))
}
