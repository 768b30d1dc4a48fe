package doctor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth/internal/config"
	"berth/internal/llm"
)

// models checks that calls of the models can be made.
func (d *doctor) models(catalog *llm.Catalog) {
	const subject, advice = "models", "set the keys of the providers, or BERTH_LOCAL_MODEL_URL to the address of the model simulator"
	var unserved, partly []string
	models := catalog.Models()
	for _, m := range models {
		if err := catalog.Served(m.Name); err != nil {
			unserved = append(unserved, fmt.Sprintf("%s (%s)", m.Name, err))
		} else if unkeyed := catalog.Unkeyed(m.Name); len(unkeyed) > 0 {
			partly = append(partly, fmt.Sprintf("%s (%s)", m.Name, strings.Join(unkeyed, ", ")))
		}
	}
	if len(partly) > 0 {
		d.add(Warning, subject, "set the keys of these upstreams, or remove them from the routing file (BERTH_ROUTING_FILE)",
			"calls of these models use their other upstreams, because keys are missing: %s", strings.Join(partly, "; "))
	}
	switch len(unserved) {
	case 0:
		if len(partly) > 0 {
			return
		}
		d.add(OK, subject, "", "all %d models have an address and a key", len(models))
	case len(models):
		d.add(Warning, subject, advice, "all tasks are refused, because no model can be called: %s", strings.Join(unserved, "; "))
	default:
		d.add(Warning, subject, advice, "tasks of these models are refused: %s", strings.Join(unserved, "; "))
	}
}

// provider tries the address and the key of a provider, which costs nothing.
func (d *doctor) provider(ctx context.Context, catalog *llm.Catalog, at llm.Server) {
	const subject = "providers"
	client := llm.NewHTTPClient()
	defer client.CloseIdleConnections()
	c := llm.NewClient(llm.Fixed(catalog), client, slog.New(slog.DiscardHandler)).Check(ctx, at)
	for _, f := range c.Faults {
		level := Warning
		if f.Certain {
			level = Error
		}
		d.add(level, subject, f.Advice, "%s: %s", at.Provider, f.Said)
	}
	if len(c.Accepted) > 0 {
		ids := "which it lists"
		if !c.Listed {
			ids = "which it does not list"
		}
		d.add(OK, subject, "", "%s: %s accepts %s; models, %s: %s; not checked, because calls cost: credit, limits, answers (--call makes one of each)",
			at.Provider, c.BaseURL, cmp.Or(c.KeySetting, "calls without a key"), ids, strings.Join(c.Accepted, ", "))
	}
}

// Calls makes a call of each upstream of the models, whose answer has one token. Where the settings are invalid, it makes none: Run states why.
func Calls(ctx context.Context, cfg config.Config, now func() time.Time) []Finding {
	const subject = "calls"
	catalog, err := cfg.Model.Catalog()
	if err != nil {
		return nil
	}
	d := newDoctor(cfg, now)
	client := llm.NewHTTPClient()
	defer client.CloseIdleConnections()
	llm.NewClient(llm.Fixed(catalog), client, slog.New(slog.DiscardHandler)).CheckCalls(ctx, func(c llm.CallCheck) {
		switch {
		case ctx.Err() != nil: // interrupted
		case c.Cause == "":
			d.add(OK, subject, "", "%s: %s answered after %s", c.Upstream, c.Provider, c.Took.Round(time.Millisecond))
		case c.Fault.Certain:
			d.add(Error, subject, c.Fault.Advice, "%s: %s: %s (%s)", c.Upstream, c.Provider, c.Fault.Said, c.Cause)
		default:
			d.add(Warning, subject, c.Fault.Advice, "%s: %s: %s (%s)", c.Upstream, c.Provider, c.Fault.Said, c.Cause)
		}
	})
	return d.findings
}
