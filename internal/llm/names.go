package llm

import (
	"maps"
	"slices"
)

// Has reports whether the routing has a model.
func (c *Catalog) Has(model string) bool { return c.has(model) }

// ModelNames returns the names of the models, sorted. It reads no keys, unlike Models.
func (c *Catalog) ModelNames() []string { return slices.Sorted(maps.Keys(c.cfg.Models)) }
