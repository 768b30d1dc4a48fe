package doctor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/config"
	"berth/internal/llm"
)

// models checks that calls of the models can be made.
func (d *doctor) models(ctx context.Context) {
	catalog := d.catalog(ctx)
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
	for _, text := range catalog.AssumedBounds() {
		d.add(Warning, subject, "set it to the limit of the provider's model", "%s", text)
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

// providers tries the address and the key of each provider, all concurrently, which costs nothing. A fault is an error only if a model has no
// upstream whose provider accepts its calls.
func (d *doctor) providers(ctx context.Context) {
	catalog := d.catalog(ctx)
	const subject = "providers"
	client := llm.NewHTTPClient()
	defer client.CloseIdleConnections()
	models := llm.NewClient(llm.Fixed(catalog), client, slog.New(slog.DiscardHandler))
	servers := catalog.Servers()
	checks := make([]llm.Check, len(servers))
	var checking sync.WaitGroup
	for i, at := range servers {
		checking.Go(func() { checks[i] = models.Check(ctx, at) })
	}
	checking.Wait()
	working := map[string]bool{}
	for _, c := range checks {
		for _, m := range c.Models {
			working[m] = true
		}
	}
	for _, c := range checks {
		for _, f := range c.Faults {
			d.add(levelOf(f.Certain, f.Models, working), subject, f.Advice, "%s: %s%s", c.Provider, f.Said, othersOf(f.Certain, f.Models, working))
		}
		if len(c.Accepted) > 0 {
			ids := "which it lists"
			if !c.Listed {
				ids = "which it does not list"
			}
			d.add(OK, subject, "", "%s: %s accepts %s; models, %s: %s; not checked, because calls cost: credit, limits, answers (--call makes one of each)",
				c.Provider, c.BaseURL, cmp.Or(c.KeySetting, "calls without a key"), ids, strings.Join(c.Accepted, ", "))
		}
	}
}

// levelOf returns the level of a fault, which is certain or may pass, of models: an error if one of them has no upstream that works.
func levelOf(certain bool, models []string, working map[string]bool) Level {
	if certain && slices.ContainsFunc(models, func(m string) bool { return !working[m] }) {
		return Error
	}
	return Warning
}

// othersOf adds to a certain fault that it is none of the models.
func othersOf(certain bool, models []string, working map[string]bool) string {
	if certain && levelOf(certain, models, working) == Warning {
		return "; other upstreams serve " + strings.Join(models, ", ")
	}
	return ""
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
	calls := llm.NewClient(llm.Fixed(catalog), client, slog.New(slog.DiscardHandler)).CheckCalls(ctx, checkTimeout)
	working := map[string]bool{}
	for _, c := range calls {
		working[c.Model] = working[c.Model] || c.Cause == ""
	}
	for _, c := range calls {
		if c.Cause == "" {
			d.add(OK, subject, "", "%s: %s answered after %s", c.Upstream, c.Provider, c.Took.Round(time.Millisecond))
			continue
		}
		of := []string{c.Model}
		d.add(levelOf(c.Fault.Certain, of, working), subject, c.Fault.Advice, "%s: %s: %s (%s)%s", c.Upstream, c.Provider, c.Fault.Said, c.Cause,
			othersOf(c.Fault.Certain, of, working))
	}
	return d.findings
}
