package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"

	"berth"
	"berth/internal/ledger"
	"berth/internal/template"
)

// ownVersions are the versions that this process has, by source and name. It is immutable.
type ownVersions map[ledger.TemplateSource]map[berth.Template]string

// Offer stores templates that this process has, see ledger.OfferTemplates. They are known after Refresh.
func (c *Catalog) Offer(ctx context.Context, source ledger.TemplateSource, templates []*template.Template, changed bool) error {
	return c.offer(ctx, source, templates, changed, nil)
}

// offer is Offer of templates whose files are at these paths.
func (c *Catalog) offer(ctx context.Context, source ledger.TemplateSource, templates []*template.Template, changed bool, paths map[berth.Template]string) error {
	versions := make([]ledger.TemplateVersion, len(templates))
	for i, t := range templates {
		versions[i] = ledger.TemplateVersion{Template: t.Name, Version: t.Version, Files: t.Files(), Source: source}
	}
	c.keep(templates...)
	offered, err := c.ledger.OfferTemplates(ctx, versions, changed)
	added := 0
	for _, o := range offered {
		if source == ledger.TemplateBuiltIn && o.Before.Template == "" {
			added++
			continue
		}
		c.logOffered(ctx, source, o, paths[o.Template])
	}
	if added > 0 {
		c.log.InfoContext(ctx, "templates of the program added", "count", added)
	}
	c.setOwn(source, func(own map[berth.Template]string) {
		for _, t := range templates {
			own[t.Name] = t.Version
		}
	})
	return err
}

// logOffered logs the outcome of offering one version.
func (c *Catalog) logOffered(ctx context.Context, source ledger.TemplateSource, o ledger.OfferedTemplate, file string) {
	log, before := c.log.With("template", o.Template, "version", o.Version, "source", source), o.Before
	if file != "" {
		log = log.With("file", file)
	}
	switch {
	case !o.Activated && source == ledger.TemplateDirectory: // Directory logs it, at each start
	case !o.Activated:
		logNotUsed(ctx, c.log.With("source", source), "the program", o.Template, o.Version, before)
	case before.Template == "":
		log.InfoContext(ctx, "template added")
	case before.Deleted:
		log.InfoContext(ctx, "template added again", "formerVersion", before.Version)
	case before.Source == source && before.ChangedBy == "":
		log.InfoContext(ctx, "template changed", "formerVersion", before.Version)
	default:
		if before.ChangedBy != "" {
			log = log.With("activatedBy", before.ChangedBy)
		}
		log.WarnContext(ctx, "template replaces that of another source", "formerVersion", before.Version, "formerSource", before.Source)
	}
}

// logNotUsed logs why new tasks do not use the version of a source, and how they would.
func logNotUsed(ctx context.Context, log *slog.Logger, source string, name berth.Template, version string, now ledger.TemplateState) {
	why := "a process has activated another version"
	switch {
	case now.Deleted && now.ChangedBy == "":
		why = "it was deleted with its files"
	case now.Deleted:
		why = "an operator has deleted it"
	case now.ChangedBy != "":
		why = "an operator has activated another version"
	}
	log.WarnContext(ctx, "template not used", "of", source, "reason", why, "template", name, "version", version, "active", now.Version,
		"activeSource", now.Source, "deleted", now.Deleted, "by", now.ChangedBy,
		"advice", fmt.Sprintf("berth template activate %s %.12s makes it that of new tasks", name, version))
}

func (c *Catalog) setOwn(source ledger.TemplateSource, change func(map[berth.Template]string)) {
	for {
		old := c.own.Load()
		next, versions := maps.Clone(*old), maps.Clone((*old)[source])
		if versions == nil {
			versions = map[berth.Template]string{}
		}
		change(versions)
		next[source] = versions
		if c.own.CompareAndSwap(old, &next) {
			return
		}
	}
}

// ownVersion returns the version that this process has of a source, empty for none.
func (c *Catalog) ownVersion(source ledger.TemplateSource, name berth.Template) string {
	return (*c.own.Load())[source][name]
}

// Replaces returns the sources of this process whose template new tasks would use without the active version, which is of another source.
func (c *Catalog) Replaces(state ledger.TemplateState) (replaced []ledger.TemplateSource) {
	for _, source := range []ledger.TemplateSource{ledger.TemplateDirectory, ledger.TemplateBuiltIn} {
		own := c.ownVersion(source, state.Template)
		if own != "" && own != state.Version && source != state.Source {
			replaced = append(replaced, source)
		}
	}
	return replaced
}
