package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/health"
	"berth/internal/pause"
	"berth/lua"
)

// polled are the queues of model calls that a worker polls, which follow the routing and the accepted tasks. Redis lists them: the API refuses tasks
// that no worker would run.
type polled struct {
	base    *base
	log     *slog.Logger
	changed chan struct{} // has one for the workers while there may be queues that they do not poll
	marks   chan struct{} // likewise for mark
	names   atomic.Pointer[[]string]
	unkeyed []string // the models that lack a key, which were logged
}

func newPolled(b *base, logger *slog.Logger) *polled {
	p := &polled{base: b, log: logger, changed: make(chan struct{}, 1), marks: make(chan struct{}, 1)}
	p.names.Store(new([]string))
	p.change() // templates may change before they are followed
	return p
}

// change states that there may be other queues.
func (p *polled) change() { offer(p.changed) }

func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// models returns the models that this process can call: those of the routing, which API keys may call, and those of accepted tasks. The process must
// not poll others: without the API key of the provider it would fail their tasks permanently, while another worker may be able to run them. Where
// templates or tasks need such a model, that is logged.
func (p *polled) models(ctx context.Context) (models []string) {
	used, err := p.base.templates.Used(ctx)
	if err != nil {
		used = p.base.templates.List()
		if ctx.Err() == nil {
			p.log.WarnContext(ctx, "templates of open tasks not read; retrying", "error", err)
			time.AfterFunc(time.Second, p.change)
		}
	}
	now := p.base.routing.Current()
	needed := slices.Concat(now.UsedModels(used), now.Open())
	candidates := slices.Concat(needed, slices.Collect(maps.Keys(now.Former())))
	for _, m := range now.Models() {
		candidates = append(candidates, m.Name)
	}
	slices.Sort(candidates)
	for _, model := range slices.Compact(candidates) {
		if !now.Of(model).Has(model) {
			continue
		}
		if err := now.Of(model).Served(model); err != nil {
			if slices.Contains(needed, model) && !slices.Contains(p.unkeyed, model) {
				p.unkeyed = append(p.unkeyed, model)
				p.log.WarnContext(ctx, "calls of a model not polled: no API key", "model", model, "error", err)
			}
			continue
		}
		if unkeyed := now.Of(model).Unkeyed(model); len(unkeyed) > 0 && !slices.Contains(p.unkeyed, model) {
			p.unkeyed = append(p.unkeyed, model)
			p.log.WarnContext(ctx, "upstreams of a model not used: no API key", "model", model, "upstreams", unkeyed)
		}
		models = append(models, model)
	}
	return models
}

// set changes which queues this process polls.
func (p *polled) set(names []string) {
	p.names.Store(&names)
	offer(p.marks)
}

// upstreams returns the upstreams that this process can call of the models whose queues it polls.
func (p *polled) upstreams(queues []string) (names []string) {
	for _, queue := range queues {
		model := strings.TrimPrefix(queue, berth.ModelTaskQueues)
		catalog := p.base.routing.Current().Of(model)
		m, _ := catalog.Model(model)
		unkeyed := catalog.Unkeyed(model)
		for _, u := range m.Upstreams {
			if !slices.Contains(unkeyed, u.Name) {
				names = append(names, lua.PolledUpstream(model, u.Name))
			}
		}
	}
	return names
}

// mark states in Redis which queues this process polls, and which upstreams it can call, until ctx ends.
func (p *polled) mark(ctx context.Context) {
	for wait := time.Duration(0); pause.ForOr(ctx, wait, p.marks); {
		names := *p.names.Load()
		if wait = lua.PollerEvery; len(names) == 0 {
			continue
		}
		marking, cancel := context.WithTimeout(ctx, redisTimeout)
		err := p.base.scripts.MarkPollers(marking, append(p.upstreams(names), names...))
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "polled queues not marked in Redis; retrying", "dependency", health.Redis, "error", err)
			wait = time.Second
		}
	}
}

// watchEvery is how often a process looks for tasks that no worker would run.
const watchEvery = time.Minute

// watch logs the models that accepted tasks need and no process polls, until ctx ends.
func (p *polled) watch(ctx context.Context) {
	for unpolled := map[string]bool{}; pause.For(ctx, watchEvery); {
		p.warnUnpolled(ctx, unpolled)
	}
}

// warnUnpolled logs the models that no process polls, unless they are known, and records them.
func (p *polled) warnUnpolled(ctx context.Context, known map[string]bool) {
	open := p.base.routing.Current().Open()
	queues := make([]string, len(open))
	for i, model := range open {
		queues[i] = berth.ModelTaskQueue(model)
	}
	checking, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	found, err := p.base.scripts.CheckPollers(checking, queues)
	if err != nil {
		return // the probe warns
	}
	for i, model := range open {
		unpolled := slices.Contains(found, queues[i])
		if unpolled && !known[model] {
			p.log.WarnContext(ctx, "accepted tasks need a model that no worker polls; they wait until their deadline", "model", model,
				"advice", "berth model list says why; start a worker that can call the model, or cancel the tasks")
		}
		known[model] = unpolled
	}
}
