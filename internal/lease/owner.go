package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/health"
	"berth/internal/pause"
	"berth/lua"
)

const (
	firstBackoff = 50 * time.Millisecond // after the first failed call to Redis; doubles up to RenewEvery
	minRenewGap  = 5 * time.Millisecond  // between two renewals that waiters request
	maxRenewals  = 4                     // in flight; more than one only while Redis hangs
	maxClaims    = 4                     // calls in flight; the grants that arrive meanwhile are claimed together
	batchSize    = 128                   // records that one call renews: Redis does nothing else meanwhile
	closingTime  = 3 * time.Second       // for the last calls to Redis when Run ends
	stoppingTime = time.Second           // for the holders to stop and release before that
)

// owner is the state of Slots; only the goroutine of Run touches it.
type owner struct {
	*Slots
	io       context.Context // of calls to Redis; outlives Run's context so that the end can release
	records  map[string]*record
	holding  map[string]*record
	watched  map[string]bool // models with a grant that may expire
	clock    redisClock
	tickAt   time.Time // next renewal
	pokeAt   time.Time // an earlier one requested by waiters; zero for none
	failing  bool
	retries  pause.Backoff
	renewals int       // of everything, in flight
	granted  []*record // to be claimed
	claims   int       // calls in flight
	calls    int       // of any kind in flight
	closing  bool
	used     map[string]bool // models that this process has had records of
}

// Run serves the slots until ctx ends. Then it cancels and releases all held and waiting records and returns nil. It may be
// called once.
func (s *Slots) Run(ctx context.Context) error {
	io, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer s.observe()() // until done is closed, for which a collection may wait
	defer close(s.done)
	o := &owner{
		Slots:   s,
		io:      io,
		retries: s.backoff(),
		records: map[string]*record{},
		holding: map[string]*record{},
		watched: map[string]bool{},
		used:    map[string]bool{},
		tickAt:  time.Now(), // the first, empty renewal reads Redis's clock and starts a grace period if needed
	}
	go s.listen(io)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case f := <-s.events:
			f(o)
		case <-timer.C:
		case <-ctx.Done():
			o.close(timer)
			return nil
		}
		o.due(time.Now())
		timer.Reset(time.Until(o.next()))
	}
}

// next returns the time of the next due action.
func (o *owner) next() time.Time {
	at := o.tickAt
	if !o.pokeAt.IsZero() && o.pokeAt.Before(at) && o.renewals == 0 {
		at = o.pokeAt
	}
	for _, e := range o.holding {
		if t := e.stops(); t.Before(at) {
			at = t
		}
	}
	return at
}

func (o *owner) due(now time.Time) {
	for _, e := range o.holding {
		switch {
		case !e.until.After(now):
			o.lose(e, "not renewed in time")
		case !e.stops().After(now):
			e.ending = true // no longer renewed: free when its holder releases it, at the latest when it expires
			e.cancel(ErrHeldTooLong)
		}
	}
	poke := !o.pokeAt.IsZero() && !o.pokeAt.After(now) && o.renewals == 0
	if poke || !o.tickAt.After(now) {
		o.tickAt = now.Add(o.opts.RenewEvery)
		o.pokeAt = time.Time{}
		if o.renewals < maxRenewals {
			o.renew()
		}
	}
}

// poke schedules a renewal of everything at the given time or earlier.
func (o *owner) poke(at time.Time) {
	if o.pokeAt.IsZero() || at.Before(o.pokeAt) {
		o.pokeAt = at
	}
}

// enter adds a request.
func (o *owner) enter(e *record) {
	if o.closing {
		e.cancel(ErrClosed)
		return
	}
	o.records[e.lease], o.used[e.model] = e, true
	o.acquire(e)
}

// leave removes a request whose caller no longer waits. A slot that was granted meanwhile is released.
func (o *owner) leave(e *record) {
	if o.records[e.lease] == e {
		o.remove(e)
		o.release(e.model, e.lease)
	}
}

// forget removes a slot that its holder is releasing, so that it is not renewed again.
func (o *owner) forget(e *record) {
	o.calls++ // its holder's, until released
	if o.records[e.lease] == e {
		o.remove(e)
	}
}

// released handles the result of the holder's own release.
func (o *owner) released(e *record, next time.Duration, err error) {
	o.calls--
	if o.answered("release", err) {
		o.watch(e.model, next)
	} else {
		o.release(e.model, e.lease)
	}
}

// lose ends a slot's context. The lease is not released: its remaining time is for the holder to stop.
func (o *owner) lose(e *record, reason string) {
	if !e.ending {
		o.opts.Logger.Warn("model slot lost", "reason", reason, "model", e.model, "lease", e.lease)
	}
	e.cancel(ErrLost)
	o.remove(e)
}

func (o *owner) remove(e *record) {
	delete(o.records, e.lease)
	delete(o.holding, e.lease)
}

// hold starts a waiting request with a slot of an upstream, or prolongs a slot that is held.
func (o *owner) hold(e *record, upstream string, until time.Time) {
	if e.holding {
		if until.After(e.until) {
			e.until = until
		}
		return
	}
	e.holding, e.upstream, e.until = true, upstream, until
	if o.opts.MaxHold > 0 {
		e.hardStop = time.Now().Add(o.opts.MaxHold)
	}
	o.holding[e.lease] = e
	e.granted <- &Slot{slots: o.Slots, record: e, upstream: e.upstream, ticket: e.ticket}
}

// replied handles Redis's reply about a lease, for a call that was sent at the given time.
func (o *owner) replied(e *record, sent time.Time, r lua.SlotReply) {
	if o.records[e.lease] != e {
		// It was removed while the call was in flight, which may have re-created it.
		o.release(e.model, e.lease)
		return
	}
	switch r.Code {
	case lua.SlotHeld, lua.SlotGranted:
		if e.ticket == "" && r.Now > 0 { // it did not wait: with this ticket it is before those that arrive later
			e.ticket = fmt.Sprintf("%d/0", 1000*r.Now)
		}
		now, until := time.Now(), sent.Add(o.opts.TTL-rounding-o.margin)
		switch {
		case e.holding && !now.Before(e.until):
			o.lose(e, "this process was paused") // even if Redis renewed it: the lease had expired in between
		case e.holding || now.Before(until):
			o.hold(e, r.Upstream, until)
		default:
			o.poke(now)
		}
	case lua.SlotWaiting:
		if e.holding { // the reply is older than the grant
			return
		}
		e.ticket = r.Ticket
		e.show(r.Position)
	case lua.SlotLost:
		o.lose(e, "expired in redis")
	}
}

// woken handles a grant announced by Redis.
func (o *owner) woken(w lua.Grant) {
	e, ok := o.records[w.Lease]
	switch {
	case !ok:
		o.release(w.Model, w.Lease)
	case e.holding: // a reply was faster
	case !o.scripts.Current(w): // a master that did not notice that it was replaced granted it
		o.poke(time.Now())
	default:
		e.ticket = w.Ticket
		if until, ok := o.clock.local(w.Expires, o.opts.TTL); ok && time.Now().Before(until.Add(-o.margin)) {
			o.hold(e, w.Upstream, until.Add(-o.margin))
			o.claim(e)
			o.recordHandOver(e.model, until)
			return
		}
		o.acquire(e)
	}
}

// subscribed is called when a subscription to the wake channel is confirmed. Grants announced before were missed.
func (o *owner) subscribed() {
	select {
	case <-o.ready:
	default:
		close(o.ready)
	}
	if len(o.records) > 0 {
		o.poke(time.Now())
	}
}

// backoff returns the pauses after failed calls to Redis.
func (s *Slots) backoff() pause.Backoff { return pause.NewBackoff(firstBackoff, s.opts.RenewEvery) }

// waits records in how many milliseconds a waiter of this process should retry.
func (o *owner) waits(next time.Duration) {
	if next > 0 && len(o.records) > len(o.holding) {
		o.poke(time.Now().Add(max(next, minRenewGap)))
	}
}

// watch ensures that a grant made by a call of this process is passed on if it is not claimed: the next waiters may not
// notice its expiry before their next renewal.
func (o *owner) watch(model string, next time.Duration) {
	if next > 0 && next <= o.opts.GrantTTL && !o.closing {
		o.watched[model] = true
		o.poke(time.Now().Add(max(next, minRenewGap)))
	}
}

// answered records whether Redis replied and, if not, when to retry.
func (o *owner) answered(what string, err error) bool {
	if err == nil {
		o.failing = false
		o.retries.Reset()
		return true
	}
	if !o.failing {
		o.opts.Logger.Warn("redis unavailable for model slots", "dependency", health.Redis, "call", what, "error", err)
	}
	o.failing = true
	o.poke(time.Now().Add(o.retries.Next()))
	return false
}

// everything returns the records of this process by model: holders, then waiters in order of arrival.
func (o *owner) everything() []*record {
	all := make([]*record, 0, len(o.records))
	for _, e := range o.records {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(compareBool(b.holding, a.holding), cmp.Compare(a.model, b.model), cmp.Compare(a.number, b.number))
	})
	return all
}

// batch is what one call renews: the records of each model in the order of its holders and waiters.
type batch struct {
	models  []lua.ModelLeases
	records [][]*record
}

// model adds a model.
func (b *batch) model(name string, limits lua.ModelLimits) *lua.ModelLeases {
	b.models, b.records = append(b.models, lua.ModelLeases{Model: name, Limits: limits}), append(b.records, nil)
	return &b.models[len(b.models)-1]
}

// take returns the first of the records that are still there, as one call renews them, and the rest.
func (o *owner) take(all []*record) (b batch, rest []*record) {
	n := min(len(all), batchSize)
	taken := slices.DeleteFunc(slices.Clone(all[:n]), func(e *record) bool { return e.ending || o.records[e.lease] != e })
	slices.SortStableFunc(taken, func(x, y *record) int {
		return cmp.Or(cmp.Compare(x.model, y.model), compareBool(y.holding, x.holding))
	})
	for i, e := range taken {
		if i == 0 || taken[i-1].model != e.model {
			b.model(e.model, o.opts.Limits(e.model))
		}
		last := len(b.models) - 1
		if m := &b.models[last]; e.holding {
			m.Holders = append(m.Holders, lua.HeldLease{Lease: e.lease, Upstream: e.upstream})
		} else {
			m.Waiters = append(m.Waiters, lua.WaitingLease{Lease: e.lease, Ticket: e.ticket})
		}
		b.records[last] = append(b.records[last], e)
		delete(o.watched, e.model)
	}
	for model := range o.watched {
		b.model(model, o.opts.Limits(model))
	}
	clear(o.watched)
	return b, all[n:]
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// close releases everything: waiters immediately, holders after they have stopped. It waits for the last replies.
func (o *owner) close(timer *time.Timer) {
	o.closing = true
	for _, e := range o.records {
		e.cancel(ErrClosed)
	}
	o.releaseAll(func(e *record) bool { return !e.holding })
	timer.Reset(closingTime)
	stopped := time.NewTimer(stoppingTime)
	defer stopped.Stop()
	for o.calls > 0 || len(o.records) > 0 {
		select {
		case f := <-o.events:
			f(o)
		case <-stopped.C:
			o.releaseAll(func(*record) bool { return true })
		case <-timer.C:
			o.opts.Logger.Warn("redis unavailable; model slots left to expire", "calls", o.calls)
			return
		}
	}
}

func (o *owner) releaseAll(which func(*record) bool) {
	leases := map[string][]string{}
	for _, e := range o.records {
		if which(e) {
			o.remove(e)
			leases[e.model] = append(leases[e.model], e.lease)
		}
	}
	for model, l := range leases {
		o.release(model, l...)
	}
}
