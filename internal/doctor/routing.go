package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"berth/internal/ledger"
	"berth/internal/llm"
)

// routing checks whether the routing file of this host is the one that all processes use, and whether accepted tasks need other models.
func (d *doctor) routing(ctx context.Context) {
	const subject = "routing"
	content, err := llm.ReadContent(d.cfg.Model.RoutingFile)
	if err != nil || d.withoutDatabase() {
		return // it was reported
	}
	newest, own, unknown, err := ledger.ReadRouting(ctx, d.cfg.Database.Source(), content.Hash)
	switch {
	case err != nil: // no process has used the database
		return
	case newest.Revision == 0:
		d.add(OK, subject, "", "the database has no routing yet: the first process publishes its own")
		return
	}
	by := cmp.Or(newest.CreatedBy, newest.Origin, "built-in")
	switch file := d.cfg.Model.RoutingFile; {
	case newest.Hash == content.Hash:
		d.add(OK, subject, "", "the routing file is revision %d, which all processes use", newest.Revision)
	case file == "":
		d.add(OK, subject, "", "all processes use revision %d (%s)", newest.Revision, by)
	case own > 0:
		d.add(Warning, subject, fmt.Sprintf("berth routing apply %s lets all processes use it; berth routing show prints the one in use", file),
			"%s is not used: it is revision %d, and all processes use revision %d (%s)", file, own, newest.Revision, by)
	default:
		d.add(Warning, subject, "a process that has this file publishes it at its start, or when the file changes",
			"%s was never published: all processes use revision %d (%s)", file, newest.Revision, by)
	}
	d.used = d.file
	if catalog, err := d.catalogOf(newest); err == nil {
		d.used = catalog
	} else {
		d.add(Warning, subject, "use a release that can", "this release cannot read revision %d: %s", newest.Revision, err)
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		d.add(Warning, subject, "add the model to the routing file, or cancel the tasks; they fail at their deadline",
			"%d open tasks need the model %s, which no revision of the routing has", unknown[name], name)
	}
}

func (d *doctor) withoutDatabase() bool {
	return slices.ContainsFunc(d.findings, func(f Finding) bool { return f.Subject == "database" && f.Level == Error })
}

// catalog returns the models that all processes use: those of the database's newest revision, or of the routing file where the database has none.
func (d *doctor) catalog(ctx context.Context) *llm.Catalog {
	if d.used != nil {
		return d.used
	}
	d.used = d.file
	content, err := llm.ReadContent(d.cfg.Model.RoutingFile)
	if err != nil || d.withoutDatabase() {
		return d.used
	}
	newest, _, _, err := ledger.ReadRouting(ctx, d.cfg.Database.Source(), content.Hash)
	if err != nil || newest.Revision == 0 {
		return d.used
	}
	if catalog, err := d.catalogOf(newest); err == nil { // else it was reported
		d.used = catalog
	}
	return d.used
}

func (d *doctor) catalogOf(r ledger.RoutingRevision) (*llm.Catalog, error) {
	content, err := llm.ParseContent(fmt.Sprintf("revision %d", r.Revision), r.Content)
	if err != nil {
		return nil, err
	}
	return llm.NewCatalog(content.Config, d.cfg.Model.Settings())
}
