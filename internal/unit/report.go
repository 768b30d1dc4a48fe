package unit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
)

const (
	// reportEvery is the interval of reads of the media server; soon is how long the notice of one command waits for the
	// next.
	reportEvery = time.Second
	soon        = 20 * time.Millisecond
	// reportCall is the timeout of calls to the data proxy and the media server, maxReports the maximum of concurrent ones.
	reportCall = 3 * time.Second
	maxReports = 4
	// maxPause is the maximum pause while the data proxy is unavailable.
	maxPause = 5 * time.Second
	// goneAfter is the number of consecutive lists without a copy after which it is treated as ended on purpose.
	goneAfter = 2
	// maxRefusals is how often a report refused as stale is repeated, with doubling pauses: after a command or a
	// registration, the report may arrive before the conference's new state.
	maxRefusals = 5
)

// proxy is the data proxy, a part of the API.
type proxy interface {
	ReportConference(ctx context.Context, e164 string, in berth.ConferenceInfo) error
	// FormerState returns what the former owner had reported.
	FormerState(ctx context.Context, e164 string, owner berth.ConferenceInfo) (client.FormerState, error)
}

// reporter sends the live information of one link's conferences to the data proxy: all of it on request and after the
// proxy was unavailable, otherwise the changes.
type reporter struct {
	node        string
	driver      Driver
	incarnation berth.Incarnation
	api         proxy
	log         *slog.Logger
	every       time.Duration

	generation atomic.Int64 // 0 before the first registration
	running    atomic.Int64 // copies on the server
	everything atomic.Bool  // send everything again
	notices    chan notice

	// The rest belongs to run.
	known map[string]*reported
	under int64 // generation of known
	pause time.Duration
}

// notice is sent by commands to the reporter.
type notice struct {
	e164     string
	epoch    int64
	begun    bool // the copy has this epoch since this command
	released bool
	repeat   bool
	changed  bool // its participants
}

// reported is what the data proxy knows of a copy.
type reported struct {
	Copy
	live    Live      // nil: nothing yet
	stale   bool      // the proxy refuses its reports
	refused int       // consecutive refusals
	resume  time.Time // no reports before
	missing int       // consecutive lists without it
	over    bool      // its end is reported
	changed bool      // its participants have changed, which the list may not show yet
	legs    legs
	mutes   mutes
	// described indicates that Metadata are those of the conference: what the former owner had was restored.
	described bool
}

// found is a copy that began before this link.
func found(c Copy) *reported { return &reported{Copy: c, mutes: mutes{read: true}, described: true} }

// reset makes the next report complete.
func (c *reported) reset() { c.live, c.stale, c.refused, c.resume = nil, false, 0, time.Time{} }

func newReporter(nodeID string, d Driver, inc berth.Incarnation, api proxy, log *slog.Logger) *reporter {
	return &reporter{
		node: nodeID, driver: d, incarnation: inc, api: api, log: log, every: reportEvery,
		notices: make(chan notice, 1024), known: map[string]*reported{},
	}
}

// begun notes a copy that was created, taken over or adopted.
func (r *reporter) begun(e164 string, epoch int64) {
	r.notify(notice{e164: e164, epoch: epoch, begun: true})
}

// again notes another delivery of a command, or another end time.
func (r *reporter) again(e164 string, epoch int64) { r.notify(notice{e164: e164, epoch: epoch}) }

// released notes a copy that was released: it did not end on purpose.
func (r *reporter) released(e164 string) { r.notify(notice{e164: e164, released: true}) }

// repeat reports the full information of copies again. A copy that its conference expects here is reported as ended unless the media
// server has it: its end may have been refused before the conference was known to be here, or happened before this link.
func (r *reporter) repeat(in berth.UnitReport) {
	if len(in.E164) == 0 {
		r.everything.Store(true)
		r.notify(notice{})
	}
	for _, e164 := range in.E164 {
		r.notify(notice{e164: e164, epoch: in.Epoch, repeat: true})
	}
}

// follow notes the copies whose participants have changed, until ctx ends.
func (r *reporter) follow(ctx context.Context, changes <-chan string) {
	for {
		select {
		case e164 := <-changes: // never, where it is nil
			r.notify(notice{e164: e164, changed: true})
		case <-ctx.Done():
			return
		}
	}
}

// notify never blocks a command. If the channel is full, everything is reported again; reports are idempotent.
func (r *reporter) notify(n notice) {
	select {
	case r.notices <- n:
	default:
		r.everything.Store(true)
	}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	early := false
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-r.notices:
			r.note(n)
			if !early && r.pause == 0 {
				next.Reset(soon)
				early = true
			}
		case <-next.C:
			early = false
			next.Reset(r.round(ctx))
		}
	}
}

func (r *reporter) note(n notice) {
	c := r.known[n.e164]
	switch {
	case n.e164 == "":
	case n.released:
		delete(r.known, n.e164)
	case n.repeat && c != nil && c.Epoch >= n.epoch:
		c.reset()
	case n.repeat && n.epoch > 0:
		r.known[n.e164] = found(Copy{UnitCopy: berth.UnitCopy{E164: n.e164, Epoch: n.epoch}})
	case n.repeat:
	case n.changed:
		if c != nil {
			c.changed = true
		}
	case c != nil && c.Epoch == n.epoch:
		c.reset()
		if n.begun { // a list had it before the command ended, as one that began before this agent
			c.mutes, c.described = mutes{}, false
		}
	default:
		r.known[n.e164] = &reported{Copy: Copy{UnitCopy: berth.UnitCopy{E164: n.e164, Epoch: n.epoch}}}
	}
}

// round reads the media server once, reports changes, and returns the time until the next round.
func (r *reporter) round(ctx context.Context) time.Duration {
	r.takeNotices()
	call, cancel := context.WithTimeout(ctx, reportCall)
	now, copies, err := r.driver.List(call)
	cancel()
	if err != nil || now != r.incarnation {
		return r.every // the unit's own probes detect a lost link
	}
	r.running.Store(int64(len(copies)))
	generation := r.generation.Load()
	if generation == 0 {
		return r.every
	}
	if r.everything.Swap(false) || generation != r.under {
		r.under = generation
		for _, c := range r.known {
			c.reset()
		}
	}
	if r.send(ctx, generation, r.compare(copies)) {
		if r.pause > 0 {
			r.log.Info("data proxy available again")
		}
		r.pause = 0
		return r.every
	}
	// Changes during the outage, and copies that vanish, are reported afterwards.
	if ctx.Err() == nil && r.pause == 0 {
		r.log.Warn("data proxy unavailable; all conferences will be reported again")
	}
	r.everything.Store(true)
	r.pause = min(max(2*r.pause, r.every), maxPause)
	return r.pause
}

func (r *reporter) takeNotices() {
	for {
		select {
		case n := <-r.notices:
			r.note(n)
		default:
			return
		}
	}
}

// compare updates what is known from the list and returns the copies to report.
func (r *reporter) compare(copies []Copy) []*reported {
	var out []*reported
	begun := time.Now()
	listed := make(map[string]bool, len(copies))
	for _, c := range copies {
		listed[c.E164] = true
		k := r.known[c.E164]
		if k == nil || k.Epoch != c.Epoch {
			k = found(c)
			r.known[c.E164] = k
		}
		quiet := k.live != nil && c.Participants == 0 && k.Participants == 0 && c.Metadata == k.Metadata && !k.changed
		k.Copy, k.missing, k.changed = c, 0, false
		if !k.stale && !quiet && !k.resume.After(begun) {
			out = append(out, k)
		}
	}
	for e164, k := range r.known {
		if listed[e164] {
			continue
		}
		k.missing++
		switch {
		case k.stale:
			delete(r.known, e164)
		case k.missing >= goneAfter && !k.resume.After(begun):
			out = append(out, k)
		}
	}
	return out
}

// send reports all copies, and reports whether the proxy accepted or refused each of them.
func (r *reporter) send(ctx context.Context, generation int64, all []*reported) bool {
	var calls errgroup.Group
	calls.SetLimit(maxReports)
	var unavailable atomic.Bool
	for _, c := range all {
		calls.Go(func() error {
			if !unavailable.Load() && !r.one(ctx, generation, c) {
				unavailable.Store(true)
			}
			return nil
		})
	}
	_ = calls.Wait() // none has an error
	for _, c := range all {
		if c.over {
			delete(r.known, c.E164)
		}
	}
	return !unavailable.Load()
}

// one reports one copy; it returns false if the proxy is unavailable.
func (r *reporter) one(ctx context.Context, generation int64, c *reported) bool {
	ctx, cancel := context.WithTimeout(ctx, reportCall)
	defer cancel()
	info := berth.ConferenceInfo{NodeID: r.node, Generation: generation, Epoch: c.Epoch}
	var live Live
	if c.missing >= goneAfter {
		info.Ended, info.Live = true, json.RawMessage(`{}`)
		c.legs.update(nil, time.Now())
	} else {
		var err error
		if live, err = r.driver.Live(ctx, c.E164); err != nil {
			return true // the next round retries
		}
		if _, ok := r.driver.(describer); ok && c.described && c.describe(live) && !bytes.Equal(live[roomMetadata], c.live[roomMetadata]) {
			r.log.Warn("room metadata are too large to follow the conference to another unit", "conference", c.E164, "bytes", len(c.Metadata))
		}
		c.legs.update(live["participants"], time.Now())
		if restored, err := c.mutes.restore(ctx, r.driver, c.E164, live["participants"]); err != nil {
			r.log.Warn("mute not restored; retrying", "conference", c.E164, "error", err)
		} else if restored {
			r.log.Info("mutes restored", "conference", c.E164)
			r.notify(notice{e164: c.E164, changed: true}) // report them
		}
		switch info.Live, info.Full = difference(c.live, live); {
		case info.Live == nil && len(c.legs.changed) == 0:
			if !c.described {
				r.takeOver(ctx, c, info)
			}
			return true
		case info.Live == nil: // one report does not have space for all legs
			info.Live = json.RawMessage(`{}`)
		}
	}
	info.Legs = c.legs.due()
	err := r.api.ReportConference(ctx, c.E164, info)
	var refused *client.Problem
	switch {
	case err == nil:
		c.live, c.over, c.refused = live, info.Ended, 0
		c.legs.accepted(info.Legs)
		if !c.described && !info.Ended { // this unit is the owner now
			r.takeOver(ctx, c, info)
		}
		return true
	case !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError:
		return false
	}
	switch refused.Status {
	case http.StatusConflict, http.StatusNotFound:
		c.live, c.resume = nil, time.Now().Add(r.every<<c.refused)
		c.refused++
		if c.stale = c.refused > maxRefusals; c.stale {
			r.log.Info("data proxy refuses reports of a copy that is not the owner's", "conference", c.E164, "epoch", c.Epoch, "generation", generation)
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default: // a retry would be refused, too
		c.legs.accepted(info.Legs)
		r.log.Warn("data proxy refused a report", "conference", c.E164, "error", err)
		c.live, c.over = live, info.Ended
	}
	return true
}

// takeOver restores what the former owner of a copy had.
func (r *reporter) takeOver(ctx context.Context, c *reported, owner berth.ConferenceInfo) {
	former, err := r.api.FormerState(ctx, c.E164, owner)
	if err != nil {
		r.log.Debug("former state not read; retrying", "conference", c.E164, "error", err)
		return
	}
	if !c.mutes.read {
		c.mutes.take(former.Participants)
	}
	unit, ok := r.driver.(describer)
	if ok && former.RoomMetadata != "" && c.Metadata == "" { // an application may have written others since
		if err := unit.Describe(ctx, c.E164, former.RoomMetadata); err != nil {
			r.log.Warn("room metadata not restored; retrying", "conference", c.E164, "error", err)
			return
		}
		c.Metadata = former.RoomMetadata
	}
	c.described = true
	r.notify(notice{e164: c.E164, changed: true}) // report them
}

// difference returns the fields of now that differ from previous as one object, nil if none does. full reports whether
// there was no previous report.
func difference(previous, now Live) (change json.RawMessage, full bool) {
	out := Live{}
	for name, value := range now {
		if previous == nil || !bytes.Equal(previous[name], value) {
			out[name] = value
		}
	}
	if previous != nil && len(out) == 0 {
		return nil, false
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, false // invalid JSON of a driver is not reported
	}
	return b, previous == nil
}
