package lease

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"berth/internal/metrics"
)

// observeTimeout bounds the calls of Redis at a collection of metrics.
const observeTimeout = time.Second

// usage is how many records of a model a process has.
type usage struct {
	holding map[string]int // by upstream
	waiting int
}

// observe reports the use of slots at each collection of metrics, from the goroutine of the collection, until stop is called.
func (s *Slots) observe() (stop func()) {
	return metrics.Observe(func(o metric.Observer) {
		ctx, cancel := context.WithTimeout(context.Background(), observeTimeout)
		defer cancel()
		for model, u := range s.usage() {
			o.ObserveInt64(metrics.SlotsWaiting, int64(u.waiting), metrics.With(metrics.Model.String(model)))
			limits := s.opts.Limits(model)
			for _, l := range limits.Upstreams {
				labels := metrics.With(metrics.Model.String(model), metrics.Upstream.String(l.Name))
				o.ObserveInt64(metrics.SlotsInUse, int64(u.holding[l.Name]), labels)
				o.ObserveInt64(metrics.SlotsMax, int64(l.Cap), labels)
			}
			if room, err := s.scripts.ReadRoom(ctx, model, limits, 0); err == nil { // operators may have set the cap
				for _, u := range room.Upstreams {
					labels := metrics.With(metrics.Model.String(model), metrics.Upstream.String(u.Name))
					paused := int64(0)
					if room.Paused || u.Paused || u.Probing || !u.PausedUntil.IsZero() {
						paused = 1
					}
					o.ObserveInt64(metrics.SlotsLimit, int64(u.Cap), labels)
					o.ObserveInt64(metrics.UpstreamPaused, paused, labels)
				}
			}
		}
	}, metrics.SlotsInUse, metrics.SlotsWaiting, metrics.SlotsLimit, metrics.SlotsMax, metrics.UpstreamPaused)
}

// usage returns the records of each model that this process has used.
func (s *Slots) usage() map[string]usage {
	reply := make(chan map[string]usage, 1)
	s.post(func(o *owner) {
		all := map[string]usage{}
		for model := range o.used {
			all[model] = usage{holding: map[string]int{}}
		}
		for _, e := range o.records {
			u := all[e.model]
			if e.holding {
				u.holding[e.upstream]++
			} else {
				u.waiting++
			}
			all[e.model] = u
		}
		reply <- all
	})
	select {
	case all := <-reply:
		return all
	case <-s.done:
		return nil
	}
}

// recordHandOver records the time from a grant in Redis, whose reservation expires at the given time, to its use.
func (o *owner) recordHandOver(model string, expires time.Time) {
	granted := expires.Add(-o.opts.GrantTTL)
	metrics.SlotHandOver.Record(context.Background(), time.Since(granted).Seconds(), metrics.With(metrics.Model.String(model)))
}
