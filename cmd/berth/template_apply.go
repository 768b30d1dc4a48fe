package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/setting"
	"berth/internal/template"
)

type templateApply struct {
	agent.Server `embed:""`
	Paths        []string `arg:"" name:"path" help:"Directory with templates, directory of a template, or prompt file of one." type:"existingpath"`
	DryRun       bool     `help:"Check the templates, also on the server, and store nothing." name:"dry-run"`
	NoActivate   bool     `help:"Store the versions only; 'berth template activate' makes one active." name:"no-activate"`
}

// Run stores the templates, or prints the mistakes of all of them and stores none.
func (c *templateApply) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *templateApply) run(ctx context.Context, api *client.Client, out io.Writer) error {
	tree, err := readAllTemplates(c.Paths)
	if err != nil {
		return err
	}
	all := tree.Templates
	if err := reportMistakes(out, tree.Mistakes); err != nil {
		return err
	}
	// A server of another release may refuse one: all are checked before the first is stored.
	put := func(t *template.Template, dryRun bool) (client.AppliedTemplate, error) {
		activate := !c.NoActivate
		applied, err := api.PutTemplate(ctx, t.Name, client.TemplateFiles{Files: t.Files(), DryRun: dryRun, Activate: &activate})
		if err != nil {
			err = fmt.Errorf("template %s: %w", t.Name, err)
		}
		return applied, err
	}
	for _, t := range all {
		if _, err := put(t, true); err != nil {
			return err
		}
	}
	w := newTable(out)
	fmt.Fprintln(w, "TEMPLATE\tVERSION\tRESULT")
	var warnings []string
	for _, t := range all {
		applied, err := put(t, c.DryRun)
		if err != nil {
			return w.fail(err)
		}
		fmt.Fprintf(w, "%s\t%.12s\t%s\n", applied.Name, applied.Version, c.result(applied))
		warnings = append(warnings, applied.Warnings...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range warnings {
		fmt.Fprintln(out, "warning:", printable(text))
	}
	return nil
}

func (c *templateApply) result(t client.AppliedTemplate) string {
	text := "known"
	if t.Created {
		text = "new"
	}
	switch {
	case c.DryRun:
		text += ", not stored"
	case t.Activated:
		text += ", active"
	default:
		text += ", not active"
	}
	return text
}

type templateVersions struct {
	agent.Server `embed:""`
	templateName
}

// Run prints the versions as a table.
func (c *templateVersions) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *templateVersions) run(ctx context.Context, api *client.Client, out io.Writer) error {
	w := newTable(out)
	fmt.Fprintln(w, "VERSION\tSTATE\tCREATED\tSOURCE\tBY")
	now, err := api.Template(ctx, c.Name)
	if err != nil {
		return templateError(c.Name, err)
	}
	for v, err := range api.TemplateVersions(ctx, c.Name) {
		if err != nil {
			return w.fail(err)
		}
		state := "stored"
		switch {
		case v.Active:
			state = "active"
		case now.State == stateDeleted && v.Version == now.Version:
			state = stateDeleted
		}
		fmt.Fprintf(w, "%.12s\t%s\t%s\t%s\t%s\n", v.Version, state, v.CreatedAt.Local().Format(time.DateTime), v.Source, named(v.CreatedBy))
	}
	return w.Flush()
}

type templateActivate struct {
	agent.Server `embed:""`
	templateName
	Version string `arg:"" help:"Version, or its beginning, as 'berth template versions' prints it."`
}

// Run activates the version.
func (c *templateActivate) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *templateActivate) run(ctx context.Context, api *client.Client, out io.Writer) error {
	version, err := c.version(ctx, api)
	if err != nil {
		return err
	}
	state, err := api.ActivateTemplate(ctx, c.Name, version)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: version %.12s is active\n", state.Name, state.Version)
	for _, text := range state.Warnings {
		fmt.Fprintln(out, "warning:", printable(text))
	}
	return nil
}

// version returns the only version that begins as the argument.
func (c *templateActivate) version(ctx context.Context, api *client.Client) (found string, err error) {
	for v, err := range api.TemplateVersions(ctx, c.Name) {
		switch {
		case err != nil:
			return "", templateError(c.Name, err)
		case !strings.HasPrefix(v.Version, c.Version):
		case found != "":
			return "", setting.Wrong(fmt.Errorf("several versions of %s begin with %s: write more of it", c.Name, c.Version))
		default:
			found = v.Version
		}
	}
	if found == "" {
		return "", setting.Wrong(fmt.Errorf("%s has no version that begins with %s: 'berth template versions %s' lists them", c.Name, c.Version, c.Name))
	}
	return found, nil
}

type templateDelete struct {
	agent.Server `embed:""`
	templateName
}

// Run deletes the template.
func (c *templateDelete) Run(ctx context.Context, api *client.Client) error {
	return c.run(ctx, api, os.Stdout)
}

func (c *templateDelete) run(ctx context.Context, api *client.Client, out io.Writer) error {
	if err := api.DeleteTemplate(ctx, c.Name); err != nil {
		return templateError(c.Name, err)
	}
	state, err := api.Template(ctx, c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s\n", c.Name, deletion(state))
	return nil
}

// templateError explains an error of a call about a template. A name that the server does not have, or whose template is deleted already, is a
// wrong argument.
func templateError(name berth.Template, err error) error {
	switch problemCode(err) {
	case berth.CodeNotFound:
		return setting.Wrong(fmt.Errorf("the server has no template %s: 'berth template list --server' lists those that it has", name))
	case berth.CodeConflict:
		return setting.Wrong(err)
	}
	return err
}

// storedTemplate reads the active version of a template of the server, or the last one of a deleted template.
func storedTemplate(ctx context.Context, api *client.Client, name berth.Template) (*template.Template, client.TemplateState, error) {
	state, err := api.Template(ctx, name)
	if err != nil {
		return nil, state, templateError(name, err)
	}
	v, err := api.TemplateVersion(ctx, name, state.Version)
	if err != nil {
		return nil, state, err
	}
	t, err := template.Load(name, v.Files)
	if err != nil {
		return nil, state, fmt.Errorf("the template %s of the server was stored by another release of berth:\n%w", name, err)
	}
	return t, state, nil
}
