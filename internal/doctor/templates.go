package doctor

import (
	"berth/internal/catalog"
	"berth/internal/llm"
)

// templates checks the templates of the binary and of the directory, and that their steps have models.
func (d *doctor) templates(models *llm.Catalog) {
	const subject = "templates"
	tree, err := catalog.Own(d.cfg.Model.TemplatesDir)
	if err != nil {
		d.add(Error, subject, "create the directory, or unset BERTH_TEMPLATES_DIR", "%s", err)
		return
	}
	for _, m := range tree.Mistakes {
		d.add(Warning, subject, "correct the file; until then the template keeps the version that it had", "%s", m)
	}
	before := len(d.findings)
	for _, t := range tree.Templates {
		for _, text := range models.Lacks(t) {
			d.add(Warning, subject, "", "%s", text)
		}
	}
	for _, text := range models.UnusedRoutes(tree.Templates) {
		d.add(Warning, subject, "correct the name, unless the template is stored through the API", "%s", text)
	}
	if len(d.findings) == before {
		d.add(OK, subject, "", "all steps of %d templates have models", len(tree.Templates))
	}
}
