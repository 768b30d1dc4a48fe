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
type usage struct{ holding, waiting int }

// observe reports the use of slots at each collection of metrics, from the goroutine of the collection, until stop is called.
func (s *Slots) observe() (stop func()) {
	return metrics.Observe(func(o metric.Observer) {
		ctx, cancel := context.WithTimeout(context.Background(), observeTimeout)
		defer cancel()
		for model, u := range s.usage() {
			labels := metrics.With(metrics.Model.String(model))
			o.ObserveInt64(metrics.SlotsInUse, int64(u.holding), labels)
			o.ObserveInt64(metrics.SlotsWaiting, int64(u.waiting), labels)
			if room, err := s.scripts.ReadRoom(ctx, model, s.opts.Limits(model), 0); err == nil { // operators may have set the cap
				for _, u := range room.Upstreams {
					o.ObserveInt64(metrics.SlotsLimit, int64(u.Cap), metrics.With(metrics.Model.String(model), metrics.Upstream.String(u.Name)))
				}
			}
		}
	}, metrics.SlotsInUse, metrics.SlotsWaiting, metrics.SlotsLimit)
}

// usage returns the records of each model that this process has used.
func (s *Slots) usage() map[string]usage {
	reply := make(chan map[string]usage, 1)
	s.post(func(o *owner) {
		all := map[string]usage{}
		for model := range o.used {
			all[model] = usage{}
		}
		for _, e := range o.records {
			u := all[e.model]
			if e.holding {
				u.holding++
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
