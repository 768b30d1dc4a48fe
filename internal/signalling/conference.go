package signalling

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/pause"
	"berth/internal/redisconn"
)

// Ledger reads what decides whether a participant may join; *ledger.Ledger is one.
type Ledger interface {
	GetConference(ctx context.Context, id string) (berth.Conference, error)
	RemovedParticipants(ctx context.Context, conferenceID string) ([]string, error)
	// HasLeg reports whether a participant was on the copy with an epoch.
	HasLeg(ctx context.Context, conferenceID, identity string, epoch int64) (bool, error)
}

// Infos reads the live information of conferences; *lua.Scripts is one.
type Infos interface {
	ConferenceInfo(ctx context.Context, e164 string) (basic, live json.RawMessage, ok bool, err error)
}

// place identifies one copy of a conference. An owner that keeps its copy, under a new epoch or after its agent has registered
// again, is the same place.
type place struct {
	nodeID      string
	incarnation berth.Incarnation
	startedAt   int64
}

// state is a conference as last read. next is closed when there is a later state.
type state struct {
	conf    berth.Conference
	removed map[string]bool
	muted   map[string][]string // sources of tracks that were muted on the former unit, by identity
	known   bool                // false until the conference was read
	found   bool
	next    chan struct{}
}

// over reports whether the conference has ended or will not continue.
func (s *state) over() bool {
	return s.known && (!s.found || s.conf.Status.Final() || s.conf.Ending != "")
}

// place returns where participants are to be connected; ok is false while no unit has the conference.
func (s *state) place() (at place, ok bool) {
	c := s.conf
	if !s.found || c.Owner.NodeID == "" || c.Status != berth.ConferenceOpen && c.Status != berth.ConferenceAwaitingConnection {
		return place{}, false
	}
	return place{c.Owner.NodeID, c.Owner.Incarnation, c.CopyStartedAt.UnixMilli()}, true
}

// admits reports whether a participant is to be connected at a place.
func (s *state) admits(identity string, to place) bool {
	at, ok := s.place()
	return ok && at == to && !s.over() && !s.removed[identity]
}

// watch reads one conference again whenever it may have changed, for all of its connections in this process.
type watch struct {
	refs  int // guarded by conferences.mu
	dirty chan struct{}
	stop  context.CancelFunc
	now   atomic.Pointer[state]
}

func (w *watch) mark() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// conferences are the conferences that have connections in this process. The channel of changes only saves polling: the
// database is authoritative, and everything is read again when messages may have been missed.
type conferences struct {
	ledger   Ledger
	infos    Infos
	listener *redisconn.Listener
	log      *slog.Logger

	mu      sync.Mutex //nolint:forbidigo // held for map operations only
	watches map[string]*watch
	running sync.WaitGroup // the readers of watches
}

func newConferences(l Ledger, infos Infos, r redisconn.Subscriber, channel string, logger *slog.Logger) *conferences {
	return &conferences{
		ledger: l, infos: infos, log: logger, watches: map[string]*watch{},
		listener: redisconn.NewListener(r, redisconn.ListenerOptions{Name: "conferences", Channels: []string{channel}, Logger: logger}),
	}
}

// run passes changes on until ctx ends.
func (c *conferences) run(ctx context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() { c.listener.Run(ctx) })
	defer listening.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-c.listener.Events():
			switch e := e.(type) {
			case redisconn.Up:
				c.each(func(w *watch) { w.mark() })
			case redisconn.Message:
				c.mark(e.Payload)
			}
		}
	}
}

func (c *conferences) mark(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watches[id]; w != nil {
		w.mark()
	}
}

func (c *conferences) each(f func(*watch)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		f(w)
	}
}

// watch returns the watch of a conference, until release is called.
func (c *conferences) watch(id string) (w *watch, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w = c.watches[id]; w == nil {
		w = &watch{dirty: make(chan struct{}, 1)}
		w.now.Store(&state{next: make(chan struct{})})
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		c.watches[id] = w
		c.running.Go(func() { c.follow(ctx, id, w) })
	}
	w.refs++
	return w, sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if w.refs--; w.refs == 0 {
			delete(c.watches, id)
			w.stop()
		}
	})
}

// follow reads a conference once, and again after each change.
func (c *conferences) follow(ctx context.Context, id string, w *watch) {
	for backoff := pause.NewBackoff(50*time.Millisecond, time.Second); ; {
		next, err := c.read(ctx, id)
		if err != nil {
			if ctx.Err() == nil {
				c.log.WarnContext(ctx, "conference not read; retrying", "conference", id, "error", err)
			}
			if !backoff.Wait(ctx) {
				return
			}
			continue
		}
		backoff.Reset()
		close(w.now.Swap(next).next)
		select {
		case <-w.dirty:
		case <-ctx.Done():
			return
		}
	}
}

func (c *conferences) read(ctx context.Context, id string) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := &state{known: true, removed: map[string]bool{}, next: make(chan struct{})}
	var err error
	switch s.conf, err = c.ledger.GetConference(ctx, id); {
	case berth.CodeOf(err) == berth.CodeNotFound:
		return s, nil
	case err != nil:
		return nil, err
	}
	s.found = true
	removed, err := c.ledger.RemovedParticipants(ctx, id)
	for _, identity := range removed {
		s.removed[identity] = true
	}
	if _, ok := s.place(); ok && len(s.conf.Segments) > 1 {
		s.muted = c.muted(ctx, s.conf)
	}
	return s, err
}

// muted returns what was muted on the former unit of a conference. Where it cannot be read, the unit mutes the tracks after they
// were published.
func (c *conferences) muted(ctx context.Context, conf berth.Conference) map[string][]string {
	_, live, _, err := c.infos.ConferenceInfo(ctx, conf.E164)
	type participant struct {
		Identity string
		Tracks   []struct {
			Source string
			Muted  bool
		}
	}
	// The participants are those of the former unit until Redis has the new owner, which the database has first.
	var in struct{ Participants, Former []participant }
	if err == nil && len(live) > 0 {
		err = json.Unmarshal(live, &in)
	}
	if err != nil {
		c.log.WarnContext(ctx, "former participants not read", "conference", conf.ID, "error", err)
	}
	out := map[string][]string{}
	for _, p := range slices.Concat(in.Former, in.Participants) {
		if len(p.Tracks) > 0 {
			delete(out, p.Identity) // what was known before
		}
		for _, t := range p.Tracks {
			if t.Muted {
				out[p.Identity] = append(out[p.Identity], t.Source)
			}
		}
	}
	return out
}
