package app

import (
	"context"
	"log/slog"

	"berth/internal/health"
	"berth/internal/pause"
)

// routingCheck logs what the routing lacks for the templates and the settings of operators, at the start and after each change of either. One
// goroutine runs it.
type routingCheck struct {
	base    *base
	log     *slog.Logger
	changes chan struct{} // has one while there may be something to log
	warned  map[string]bool
}

func newRoutingCheck(b *base, logger *slog.Logger) *routingCheck {
	c := &routingCheck{base: b, log: logger, changes: make(chan struct{}, 1), warned: map[string]bool{}}
	c.request()
	return c
}

// request states that something has changed.
func (c *routingCheck) request() { offer(c.changes) }

// run checks after each change until ctx ends.
func (c *routingCheck) run(ctx context.Context) {
	for {
		select {
		case <-c.changes:
			c.base.templates.warn(ctx, c.base.routing.Current().Catalog, c.log)
			c.settings(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// settings makes the routing exceed the revisions that Redis knows, and logs what operators have set for upstreams that the routing does not have, as after a rename: it has no effect.
func (c *routingCheck) settings(ctx context.Context) {
	now := c.base.routing.Current()
	for _, model := range now.ModelNames() {
		reading, cancel := context.WithTimeout(ctx, redisTimeout)
		room, err := c.base.scripts.ReadRoom(reading, model, now.LimitsOf(model, 0), 0)
		cancel()
		if err != nil { // the probe warns
			if pause.For(ctx, redisTimeout) {
				c.request()
			}
			return
		}
		if err := c.base.routing.Exceed(ctx, room.Revision); err != nil {
			c.log.WarnContext(ctx, "routing not published again; limits of this revision have no effect", "dependency", health.Database, "revision", now.Revision, "known", room.Revision, "error", err)
		}
		for _, upstream := range room.Unknown {
			if key := model + " " + upstream; !c.warned[key] {
				c.warned[key] = true
				c.log.WarnContext(ctx, "operator settings of an upstream have no effect: the routing does not have it", "model", model, "upstream", upstream,
					"advice", "if it was renamed, set them for the new name: berth model list shows both")
			}
		}
	}
}
