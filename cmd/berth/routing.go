package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"berth/client"
	"berth/internal/agent"
	"berth/internal/catalog"
	"berth/internal/config"
	"berth/internal/llm"
	"berth/internal/template"
)

type routingCommands struct {
	Print    routingPrint    `cmd:"" help:"Print the model of each step and who names it: its template, or a route of the routing file."`
	Show     routingShow     `cmd:"" help:"Print the routing file that all processes use, or that of a revision."`
	List     routingList     `cmd:"" help:"List the revisions of the routing, newest first."`
	Apply    routingApply    `cmd:"" help:"Let all processes use a routing file."`
	Activate routingActivate `cmd:"" help:"Return to the content of a revision."`
}

type routingPrint struct {
	Model  config.Model `embed:"" group:"Models"`
	Server bool         `help:"Print it for the active templates of the server, and for its routing, instead of those of this program, of --templates-dir and of --routing-file."`
	API    agent.Server `embed:""`
}

// Run prints the routing as a table.
func (c *routingPrint) Run(ctx context.Context) error { return c.run(ctx, os.Stdout, os.Stderr) }

func (c *routingPrint) run(ctx context.Context, out, info io.Writer) error {
	var models *llm.Catalog
	var list []*template.Template
	var mistakes template.Mistakes
	if c.Server {
		api, err := c.API.ProvideClient()
		if err != nil {
			return err
		}
		if models, err = serverRouting(ctx, api, info); err != nil {
			return err
		}
		if list, err = activeTemplates(ctx, api); err != nil {
			return err
		}
	} else {
		var err error
		if models, err = c.Model.Catalog(); err != nil {
			return err
		}
		fmt.Fprintf(info, "· routing file: %s\n", cmp.Or(c.Model.RoutingFile, "built-in; --server prints that of a server"))
		tree, err := catalog.Own(c.Model.TemplatesDir)
		if err != nil {
			return err
		}
		list, mistakes = tree.Templates, tree.Mistakes
	}
	if err := printRouting(out, models, list); err != nil {
		return err
	}
	if err := printUpstreams(out, models); err != nil {
		return err
	}
	return reportMistakes(out, mistakes)
}

func printRouting(out io.Writer, models *llm.Catalog, list []*template.Template) error {
	w := newTable(out)
	fmt.Fprintln(w, "TEMPLATE\tSTEP\tTIER\tQUEUE\tMODEL\tNAMED BY\tCREDITS")
	for _, t := range list {
		for _, r := range models.Routing(t) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, r.Step, r.Tier, r.Queue, cmp.Or(r.Model, "(none)"), r.By, models.Price(t, r.Tier))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range slices.Concat(models.LacksOfAll(list, nil), models.UnusedRoutes(list), models.AssumedBounds()) {
		fmt.Fprintln(out, "warning:", text)
	}
	return nil
}

// printUpstreams prints the upstreams of the models.
func printUpstreams(out io.Writer, models *llm.Catalog) error {
	w := newTable(out)
	head := "\nMODEL\tUPSTREAM\tPROVIDER\tID\tSPEAKS\tRANK\tCAP\tALIASES\n"
	for _, m := range models.Models() {
		for _, u := range m.Upstreams {
			slots := strconv.Itoa(u.Cap)
			if u.Auto {
				slots = fmt.Sprintf("auto, %d to %d", u.Min, u.Cap)
			}
			speaks := "chats"
			if u.Responses {
				speaks = "chats, responses"
			}
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", head, m.Name, u.Name, u.Provider, u.ID, speaks, u.Rank, slots, strings.Join(m.Aliases, ", "))
			head = ""
		}
	}
	return w.Flush()
}

// activeTemplates reads the active versions of all templates of the server.
func activeTemplates(ctx context.Context, api *client.Client) (list []*template.Template, err error) {
	all, err := api.Templates(ctx, client.TemplateQuery{})
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		t, _, err := storedTemplate(ctx, api, one.Name)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}
