package doctor

import (
	"errors"
	"fmt"
	"log/slog"

	"berth/internal/llm"
	"berth/internal/signal"
)

// settings checks the settings and the files that they name. It returns the models, nil if they cannot be read.
func (d *doctor) settings() *llm.Catalog {
	catalog, filesErr := d.files()
	checked := []error{d.cfg.Validate(), filesErr}
	if !d.cfg.Identity.HasSecret() { // Validate accepts that, because not every process needs a secret
		checked = append(checked, d.cfg.NeedSecret())
	}
	for _, err := range checked {
		if err != nil {
			d.add(Error, "settings", "", "%s", err)
		}
	}
	if len(d.findings) == 0 {
		d.add(OK, "settings", "", "valid")
	}
	if catalog != nil {
		d.models(catalog)
	}
	return catalog
}

// files returns the models, nil if they cannot be read, and what is wrong with files that a process reads at its start.
func (d *doctor) files() (catalog *llm.Catalog, err error) {
	routing, err := llm.LoadConfig(d.cfg.Model.RoutingFile)
	if err == nil && d.cfg.Model.Settings().Validate() == nil { // else Validate has named it
		catalog, err = llm.NewCatalog(routing, d.cfg.Model.Settings())
	}
	if err != nil {
		err = fmt.Errorf("--routing-file (BERTH_ROUTING_FILE): %w", err)
	}
	_, keysErr := signal.NewKeys(d.cfg.Signal.Keys, slog.New(slog.DiscardHandler))
	return catalog, errors.Join(err, keysErr)
}
