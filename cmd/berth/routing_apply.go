package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"berth/client"
	"berth/internal/agent"
	"berth/internal/llm"
	"berth/internal/setting"
)

// serverRouting returns the routing that all processes of the server use, and names it.
func serverRouting(ctx context.Context, api *client.Client, info io.Writer) (*llm.Catalog, error) {
	r, err := api.Routing(ctx)
	if err != nil {
		return nil, err
	}
	content, err := llm.ParseContent(fmt.Sprintf("revision %d", r.Revision), r.Content)
	if err != nil {
		return nil, fmt.Errorf("the routing of the server is of another release: %w", err)
	}
	fmt.Fprintf(info, "· routing: revision %d, %s\n", r.Revision, publishedBy(r))
	return llm.NewCatalog(content.Config, llm.Settings{})
}

// publishedBy says who has published a revision.
func publishedBy(r client.Routing) string {
	return printable(cmp.Or(r.CreatedBy, r.Origin, "built-in"))
}

type routingShow struct {
	agent.Server `embed:""`
	Revision     int64 `arg:"" optional:"" help:"Number of the revision, the newest by default."`
}

// Run prints the content.
func (c *routingShow) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout, os.Stderr)
}

func (c *routingShow) run(ctx context.Context, api *client.Client, out, info io.Writer) error {
	read := api.Routing
	if c.Revision != 0 {
		read = func(ctx context.Context) (client.Routing, error) { return api.RoutingRevision(ctx, c.Revision) }
	}
	r, err := read(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(info, "· revision %d of %s, %s\n", r.Revision, r.CreatedAt.Local().Format(time.DateTime), publishedBy(r))
	_, err = io.WriteString(out, r.Content)
	return err
}

type routingList struct {
	agent.Server `embed:""`
	Limit        int `help:"Maximum number of revisions." default:"20"`
}

// Run prints the revisions as a table.
func (c *routingList) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *routingList) run(ctx context.Context, api *client.Client, out io.Writer) error {
	w := newTable(out)
	fmt.Fprintln(w, "REVISION\tPUBLISHED\tSOURCE\tBY\tSTATE")
	n := 0
	for r, err := range api.RoutingRevisions(ctx) {
		if err != nil {
			return w.fail(err)
		}
		if n++; n > c.Limit {
			break
		}
		state := ""
		if r.Newest {
			state = "in use"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.Revision, r.CreatedAt.Local().Format(time.DateTime), r.Source, publishedBy(r), state)
	}
	return w.Flush()
}

type routingApply struct {
	agent.Server `embed:""`
	File         string `arg:"" help:"Routing file." type:"existingfile"`
	DryRun       bool   `help:"Check the file, also on the server, and publish nothing." name:"dry-run"`
}

// Run publishes the file.
func (c *routingApply) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *routingApply) run(ctx context.Context, api *client.Client, out io.Writer) error {
	content, err := llm.ReadContent(c.File)
	if err != nil {
		return setting.Wrong(err)
	}
	applied, err := api.PutRouting(ctx, client.RoutingContent{Content: content.Text, DryRun: c.DryRun})
	if err != nil {
		return err
	}
	return printApplied(out, applied, c.DryRun)
}

func printApplied(out io.Writer, applied client.AppliedRouting, dryRun bool) error {
	for _, text := range applied.Warnings {
		fmt.Fprintln(out, "warning:", printable(text))
	}
	var err error
	switch {
	case dryRun:
		_, err = fmt.Fprintln(out, "no mistakes; not published")
	case applied.Published:
		_, err = fmt.Fprintf(out, "revision %d is in use\n", applied.Revision)
	default:
		_, err = fmt.Fprintf(out, "revision %d, which is in use, means the same\n", applied.Revision)
	}
	return err
}

type routingActivate struct {
	agent.Server `embed:""`
	Revision     int64 `arg:"" help:"Number of the revision whose content all processes use again."`
}

// Run publishes the content of the revision again.
func (c *routingActivate) Run(ctx context.Context, api *client.Client) error {
	applied, err := api.ActivateRouting(ctx, c.Revision)
	if err != nil {
		return err
	}
	return printApplied(os.Stdout, applied, false)
}
