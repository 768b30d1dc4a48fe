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
	"berth/internal/client"
)

const (
	// reportEvery is how often the media server is asked for what changed; soon is how long news of one command waits for
	// that of the next.
	reportEvery = time.Second
	soon        = 20 * time.Millisecond
	// reportCall bounds a call to the data proxy or the media server, maxReports how many are open.
	reportCall = 3 * time.Second
	maxReports = 4
	// awayLongest is the longest pause while the data proxy is away.
	awayLongest = 5 * time.Second
	// goneAfter is how many lists in a row a copy is missing from before it counts as ended on purpose.
	goneAfter = 2
	// patience is how often a copy that the proxy takes for a stale one is told again, after twice the time each: after a
	// command or a registration its word may come before that of its conference.
	patience = 5
)

// proxy is the data proxy's side of the API.
type proxy interface {
	ReportConference(ctx context.Context, e164 string, in berth.ConferenceInfo) error
}

// reporter tells the data proxy what goes on in the conferences of one link (C18-C20): all of it for those it was asked
// to and after the proxy was away, else what changed.
type reporter struct {
	node        string
	driver      Driver
	incarnation berth.Incarnation
	api         proxy
	log         *slog.Logger
	every       time.Duration

	generation atomic.Int64 // 0 before the first registration
	running    atomic.Int64 // copies on the list
	everything atomic.Bool  // all is to be told anew
	news       chan news

	// The rest belongs to run.
	known map[string]*told
	under int64 // generation that known is for
	pause time.Duration
}

// news is what the commands tell the reporter.
type news struct {
	e164  string
	epoch int64
	over  bool
	again bool
}

// told is what the data proxy was told of a copy.
type told struct {
	Copy
	live    Live      // nil: nothing yet
	stale   bool      // the proxy takes nothing of it from us
	refused int       // how often in a row it did not
	resume  time.Time // it is not told of before
	missing int       // lists in a row without it
}

// anew has everything told again.
func (c *told) anew() { c.live, c.stale, c.refused, c.resume = nil, false, 0, time.Time{} }

func newReporter(nodeID string, d Driver, inc berth.Incarnation, api proxy, log *slog.Logger) *reporter {
	return &reporter{
		node: nodeID, driver: d, incarnation: inc, api: api, log: log, every: reportEvery,
		news: make(chan news, 1024), known: map[string]*told{},
	}
}

// begun tells of a copy that was created, taken over or adopted.
func (r *reporter) begun(e164 string, epoch int64) { r.hear(news{e164: e164, epoch: epoch}) }

// over tells of a copy that was released: it did not end on purpose.
func (r *reporter) over(e164 string) { r.hear(news{e164: e164, over: true}) }

// again has the full information of these copies reported, or of all (C18).
func (r *reporter) again(e164s []string) {
	if len(e164s) == 0 {
		r.everything.Store(true)
		r.hear(news{})
	}
	for _, e164 := range e164s {
		r.hear(news{e164: e164, again: true})
	}
}

// hear never holds a command up. What does not fit is made good by telling everything: an end told twice is refused.
func (r *reporter) hear(n news) {
	select {
	case r.news <- n:
	default:
		r.everything.Store(true)
	}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	hastened := false
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-r.news:
			r.note(n)
			if !hastened && r.pause == 0 {
				next.Reset(soon)
				hastened = true
			}
		case <-next.C:
			hastened = false
			next.Reset(r.round(ctx))
		}
	}
}

func (r *reporter) note(n news) {
	c := r.known[n.e164]
	switch {
	case n.e164 == "":
	case n.over:
		delete(r.known, n.e164)
	case n.again:
		if c != nil {
			c.anew()
		}
	default:
		r.known[n.e164] = &told{Copy: Copy{UnitCopy: berth.UnitCopy{E164: n.e164, Epoch: n.epoch}}}
	}
}

// round asks the media server once and tells what is to be told; it answers when to do so again.
func (r *reporter) round(ctx context.Context) time.Duration {
	r.takeNews()
	call, cancel := context.WithTimeout(ctx, reportCall)
	now, copies, err := r.driver.List(call)
	cancel()
	if err != nil || now != r.incarnation {
		return r.every // whether the link is up is not for the reporter to find out
	}
	r.running.Store(int64(len(copies)))
	generation := r.generation.Load()
	if generation == 0 {
		return r.every
	}
	if r.everything.Swap(false) || generation != r.under {
		r.under = generation
		for _, c := range r.known {
			c.anew()
		}
	}
	if r.tell(ctx, generation, r.compare(copies)) {
		if r.pause > 0 {
			r.log.Info("data proxy available again")
		}
		r.pause = 0
		return r.every
	}
	// Whatever changes meanwhile is told when it is back, and what vanished as well (C19).
	if ctx.Err() == nil && r.pause == 0 {
		r.log.Warn("data proxy unavailable; all conferences will be reported again")
	}
	r.everything.Store(true)
	r.pause = min(max(2*r.pause, r.every), awayLongest)
	return r.pause
}

func (r *reporter) takeNews() {
	for {
		select {
		case n := <-r.news:
			r.note(n)
		default:
			return
		}
	}
}

// compare brings what is known up to the list, and answers which copies there is something to tell of.
func (r *reporter) compare(copies []Copy) []*told {
	var out []*told
	begun := time.Now()
	listed := make(map[string]bool, len(copies))
	for _, c := range copies {
		listed[c.E164] = true
		k := r.known[c.E164]
		if k == nil || k.Epoch != c.Epoch {
			k = &told{}
			r.known[c.E164] = k
		}
		quiet := k.live != nil && c.Participants == 0 && k.Participants == 0
		k.Copy, k.missing = c, 0
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
		case k.missing >= goneAfter:
			out = append(out, k)
		}
	}
	return out
}

// tell reports; it answers whether the proxy took or refused everything.
func (r *reporter) tell(ctx context.Context, generation int64, all []*told) bool {
	var calls errgroup.Group
	calls.SetLimit(maxReports)
	var away atomic.Bool
	for _, c := range all {
		calls.Go(func() error {
			if !away.Load() && !r.one(ctx, generation, c) {
				away.Store(true)
			}
			return nil
		})
	}
	_ = calls.Wait() // none has an error
	for _, c := range all {
		if c.missing >= goneAfter && c.stale {
			delete(r.known, c.E164)
		}
	}
	return !away.Load()
}

// one tells of one copy; false: the proxy is away. A copy that has ended is stale once that is told.
func (r *reporter) one(ctx context.Context, generation int64, c *told) bool {
	ctx, cancel := context.WithTimeout(ctx, reportCall)
	defer cancel()
	info := berth.ConferenceInfo{NodeID: r.node, Generation: generation, Epoch: c.Epoch}
	var live Live
	if c.missing >= goneAfter {
		info.Ended, info.Live = true, json.RawMessage(`{}`)
	} else {
		var err error
		if live, err = r.driver.Live(ctx, c.E164); err != nil {
			return true // the next round asks again
		}
		if info.Live, info.Full = difference(c.live, live); info.Live == nil {
			return true
		}
	}
	err := r.api.ReportConference(ctx, c.E164, info)
	var refused *client.Problem
	switch {
	case err == nil:
		c.live, c.stale, c.refused = live, info.Ended, 0
		return true
	case !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError:
		return false
	}
	switch refused.Status {
	case http.StatusConflict, http.StatusNotFound:
		c.live, c.resume = nil, time.Now().Add(r.every<<c.refused)
		c.refused++
		if c.stale = info.Ended || c.refused > patience; c.stale {
			r.log.Info("the data proxy takes nothing of a copy: it is not the owner's", "conference", c.E164, "epoch", c.Epoch, "generation", generation)
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default: // it would not take it next time either
		r.log.Warn("the data proxy refused a report", "conference", c.E164, "error", err)
		c.live, c.stale = live, info.Ended
	}
	return true
}

// difference is what is to be told when was has been, as one object: nil when nothing is; full when nothing was told.
func difference(was, now Live) (change json.RawMessage, full bool) {
	out := Live{}
	for name, value := range now {
		if was == nil || !bytes.Equal(was[name], value) {
			out[name] = value
		}
	}
	if was != nil && len(out) == 0 {
		return nil, false
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, false // a driver that makes no JSON tells nothing
	}
	return b, was == nil
}
