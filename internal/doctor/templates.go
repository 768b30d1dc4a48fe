package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/internal/catalog"
	"berth/internal/ledger"
	"berth/internal/template"
)

// templates checks the templates that new tasks use, and that their steps have models: those of the database, and of the binary and the
// directory what processes would add at their next start.
func (d *doctor) templates(ctx context.Context) {
	const subject = "templates"
	models := d.catalog(ctx)
	tree, err := catalog.Own(d.cfg.Model.TemplatesDir)
	if err != nil {
		d.add(Error, subject, "create the directory, or unset BERTH_TEMPLATES_DIR", "%s", err)
		return
	}
	for _, m := range tree.Mistakes {
		d.add(Warning, subject, "correct the file; until then the template keeps the version that it had", "%s", m)
	}
	before := len(d.findings)
	sources, note := d.usedTemplates(ctx, tree)
	var all []*template.Template
	var lacking int
	counts := map[ledger.TemplateSource]int{}
	for _, source := range []ledger.TemplateSource{ledger.TemplateBuiltIn, ledger.TemplateDirectory, ledger.TemplateAPI} {
		all = append(all, sources[source]...)
		for _, t := range sources[source] {
			lacks := models.Lacks(t)
			counts[source]++
			if source == ledger.TemplateBuiltIn && len(lacks) > 0 {
				lacking, counts[source] = lacking+1, counts[source]-1
				continue
			}
			for _, text := range lacks {
				d.add(Warning, subject, "", "%s", text)
			}
		}
	}
	for _, text := range models.UnusedRoutes(all) {
		d.add(Warning, subject, "correct the name, or store the template", "%s", text)
	}
	if len(d.findings) == before {
		d.add(OK, subject, "", "all steps of %d templates have models%s%s", len(all)-lacking, bySource(counts), note)
	}
	if lacking > 0 {
		d.add(OK, subject, "", "%d templates of the program use other models than they name, or have none: berth routing print", lacking)
	}
}

// usedTemplates returns the templates that new tasks use, and what was not read.
func (d *doctor) usedTemplates(ctx context.Context, own template.Tree) (sources map[ledger.TemplateSource][]*template.Template, note string) {
	sources = map[ledger.TemplateSource][]*template.Template{}
	var stored []ledger.TemplateVersion
	failed := d.withoutDatabase()
	if !failed { // else it would be waited for again
		var err error
		stored, err = ledger.ReadTemplates(ctx, d.cfg.Database.Source())
		failed = err != nil
	}
	if failed {
		note = "; those of the database were not read"
	}
	has := map[string]bool{}
	for _, v := range stored {
		has[string(v.Template)] = true
		t, err := template.Load(v.Template, v.Files)
		if err != nil {
			d.add(Warning, "templates", "upgrade berth, or store the template again", "template %s: this release cannot read its active version %.12s", v.Template, v.Version)
			continue
		}
		sources[v.Source] = append(sources[v.Source], t)
	}
	for _, t := range own.Templates {
		source := ledger.TemplateBuiltIn
		if !slices.ContainsFunc(template.Builtin().Templates, func(b *template.Template) bool { return b.Name == t.Name && b.Version == t.Version }) {
			source = ledger.TemplateDirectory
		}
		if !has[string(t.Name)] && (source == ledger.TemplateDirectory || len(stored) == 0) { // of a database with others, it was deleted
			sources[source] = append(sources[source], t)
		}
	}
	return sources, note
}

// bySource says how many templates are of which source, if there are several.
func bySource(counts map[ledger.TemplateSource]int) string {
	var parts []string
	for _, s := range []struct {
		source ledger.TemplateSource
		name   string
	}{{ledger.TemplateBuiltIn, "of the program"}, {ledger.TemplateDirectory, "of a directory"}, {ledger.TemplateAPI, "of operators"}} {
		if n := counts[s.source]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s.name))
		}
	}
	if len(parts) < 2 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
