package lease

import (
	"context"
	"time"

	"berth/internal/redisconn"
	"berth/lua"
)

// rounding is the error of a time in whole milliseconds: Redis's clock is truncated when an expiry is computed.
const rounding = time.Millisecond

// redisClock relates Redis's clock to the local one: Redis's clock showed ms no earlier than the local time sent.
type redisClock struct {
	ms   int64
	sent time.Time
}

func (c *redisClock) seen(ms int64, sent time.Time) {
	if c.sent.IsZero() || sent.After(c.sent) {
		c.ms, c.sent = ms, sent
	}
}

// local returns a local time that is no later than the moment at which Redis's clock shows ms. It returns false if the
// last relation is older than age, which bounds the effect of clock drift.
func (c *redisClock) local(ms int64, age time.Duration) (time.Time, bool) {
	return c.sent.Add(time.Duration(ms-c.ms)*time.Millisecond - rounding), !c.sent.IsZero() && time.Since(c.sent) < age
}

// call runs I/O in its own goroutine; the owner runs the function that it returns.
func (o *owner) call(timeout time.Duration, f func(context.Context) func(*owner)) {
	o.calls++
	io, s := o.io, o.Slots
	go func() {
		ctx, cancel := context.WithTimeout(io, timeout)
		defer cancel()
		then := f(ctx)
		s.post(func(o *owner) {
			o.calls--
			then(o)
		})
	}()
}

// acquire requests a slot, claims a granted one, or enters the waiting room again. It is not retried: the next renewal
// does the same for all records.
func (o *owner) acquire(e *record) {
	c := lua.SlotCall{Model: e.model, Limits: o.opts.Limits(e.model), Lease: e.lease, Ticket: e.ticket, Waiter: e.waiter, Times: o.times}
	scripts := o.scripts
	o.call(o.opts.TTL, func(ctx context.Context) func(*owner) {
		sent := time.Now()
		r, err := scripts.AcquireSlot(ctx, c)
		return func(o *owner) {
			if !o.answered("acquire", err) {
				if o.records[e.lease] != e { // the call may have run after the release
					o.release(e.model, e.lease)
				}
				return
			}
			o.clock.seen(r.Now, sent)
			o.replied(e, sent, r)
			o.waits(r.Next)
		}
	})
}

// claim confirms grants that are already in use, those that arrive while it waits for replies together. What fails, the next renewal retries.
func (o *owner) claim(granted ...*record) {
	o.granted = append(o.granted, granted...)
	if len(o.granted) == 0 || o.claims == maxClaims {
		return
	}
	o.claims++
	var b batch
	b, o.granted = o.take(o.granted)
	o.renewal(b, min(o.opts.GrantTTL, o.opts.TTL/2), func(o *owner, _ bool) {
		o.claims--
		o.claim()
	})
}

// renew renews everything, one batch after the other, so that grants and releases do not wait for all of it.
func (o *owner) renew() {
	o.renewals++
	o.renewBatch(o.everything(), time.Now().Add(o.opts.TTL/2))
}

func (o *owner) renewBatch(all []*record, until time.Time) {
	b, rest := o.take(all)
	o.renewal(b, time.Until(until), func(o *owner, ok bool) {
		if ok && len(rest) > 0 && !o.closing {
			o.renewBatch(rest, until)
		} else {
			o.renewals--
		}
	})
}

// renewal renews a batch. after gets whether Redis replied.
func (o *owner) renewal(b batch, timeout time.Duration, after func(o *owner, ok bool)) {
	scripts, times := o.scripts, o.times
	o.call(timeout, func(ctx context.Context) func(*owner) {
		sent := time.Now()
		now, renewals, err := scripts.RenewSlots(ctx, times, b.models)
		return func(o *owner) {
			if err == nil {
				o.clock.seen(now, sent)
				o.handle(b, sent, renewals)
			}
			after(o, o.answered("renew", err))
		}
	})
}

// handle handles the results of a renewal that was sent at the given time.
func (o *owner) handle(b batch, sent time.Time, renewals []lua.ModelRenewal) {
	for i, m := range renewals {
		for j, code := range m.Holders {
			o.renewed(b.records[i][j], sent, code)
		}
		for j, r := range m.Waiters {
			o.replied(b.records[i][len(m.Holders)+j], sent, r)
		}
		o.waits(m.Next)
		o.watch(b.models[i].Model, m.Next)
	}
}

// renewed handles the result of renewing a held slot.
func (o *owner) renewed(e *record, sent time.Time, code string) {
	if code == lua.SlotLost && o.records[e.lease] != e {
		return // released while the call was in flight
	}
	o.replied(e, sent, lua.SlotReply{Code: code})
}

// release releases leases of a model in one attempt. next is as in lua.SlotReply.
func (s *Slots) release(model string, leases ...string) (next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.TTL/2)
	defer cancel()
	_, next, err = s.scripts.ReleaseSlot(ctx, model, s.opts.Limits(model), s.times, leases...)
	return next, err //nolint:wrapcheck // logged by the owner only
}

// release releases leases of a model in the background. It retries until they must have expired.
func (o *owner) release(model string, leases ...string) {
	s := o.Slots
	o.call(o.opts.TTL, func(ctx context.Context) func(*owner) {
		var next time.Duration
		var err error
		for backoff := s.backoff(); ; {
			if next, err = s.release(model, leases...); err == nil || !backoff.Wait(ctx) {
				break
			}
		}
		return func(o *owner) {
			if o.answered("release", err) {
				o.watch(model, next)
			}
		}
	})
}

// listen forwards the grants for this process to the owner until ctx ends.
func (s *Slots) listen(ctx context.Context) {
	redisconn.NewListener(s.scripts, redisconn.ListenerOptions{
		Name: "model slots", Channels: []string{s.scripts.Keys().Wake(s.opts.ProcessID)}, Logger: s.opts.Logger,
	}).Handle(ctx, func(e redisconn.Event) {
		switch e := e.(type) {
		case redisconn.Up:
			s.post((*owner).subscribed)
		case redisconn.Message:
			w, err := lua.ParseGrant(e.Payload)
			if err != nil {
				s.opts.Logger.Error("unreadable wake message", "error", err)
				return
			}
			s.post(func(o *owner) { o.woken(w) })
		}
	})
}
