package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"berth"
	"berth/internal/config"
	"berth/internal/template"
)

type templateValidate struct {
	Paths []string `arg:"" name:"path" help:"Directory with templates, directory of a template, or prompt file of one." type:"existingpath"`
	JSON  bool     `help:"Print the mistakes and warnings as JSON." name:"json"`
	// RoutingFile is that of the servers: it decides which models there are.
	RoutingFile string `help:"Routing file whose models the templates use; empty for the built-in one." name:"routing-file" env:"BERTH_ROUTING_FILE" type:"path"`
}

// Run prints all mistakes, or what was found.
func (c *templateValidate) Run() error { return c.run(os.Stdout) }

func (c *templateValidate) run(out io.Writer) error {
	models, err := config.Model{RoutingFile: c.RoutingFile}.Catalog()
	if err != nil {
		return err
	}
	tree, err := readAllTemplates(c.Paths)
	if err != nil {
		return err
	}
	mistakes, found := tree.Mistakes, len(tree.Templates)
	warnings := []string{}
	w := newTable(out)
	for _, t := range tree.Templates {
		warnings = append(warnings, models.Lacks(t)...)
		if !c.JSON {
			fmt.Fprintf(w, "ok\t%s\t%s\t%s\t%s\t%s\n", t.Name, count(len(t.Steps), "step"), count(len(t.Variables), "variable"), languages(t.Locales), tree.Paths[t.Name])
		}
	}
	if c.JSON {
		if err := writeJSON(out, map[string]any{"templates": found, "mistakes": slices.Concat(template.Mistakes{}, mistakes), "warnings": warnings}); err != nil {
			return err
		}
		return reportMistakes(io.Discard, mistakes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, text := range warnings {
		fmt.Fprintln(out, "warning:", printable(text))
	}
	if err := reportMistakes(out, mistakes); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s without mistakes\n", count(found, "template"))
	return nil
}

// languages are those of a template.
func languages(locales []berth.Locale) string {
	if len(locales) == 0 {
		return "any"
	}
	return join(locales)
}
