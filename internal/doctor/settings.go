package doctor

import (
	"errors"
	"log/slog"

	"berth/internal/config"
	"berth/internal/llm"
	"berth/internal/signalling"
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
	return catalog
}

// files returns the models, nil if they cannot be read, and what is wrong with files that a process reads at its start.
func (d *doctor) files() (catalog *llm.Catalog, err error) {
	m := d.cfg.Model
	valid := m.Settings().Validate() == nil // else Validate has named it
	if !valid {
		m = config.Model{RoutingFile: m.RoutingFile}
	}
	if catalog, err = m.Catalog(); !valid {
		catalog = nil
	}
	_, keysErr := signalling.NewKeys(d.cfg.Signalling.Keys, slog.New(slog.DiscardHandler))
	return catalog, errors.Join(err, keysErr)
}
