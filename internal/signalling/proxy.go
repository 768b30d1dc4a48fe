// Package signalling is the signalling proxy of conferences: participants connect to berth at one stable address, and the proxy
// connects them to the media unit that owns their conference, on another one after it has moved. Media does not pass through
// it. A process holds connections and no other state: any number of processes serve the same conferences.
//
// Participants have tokens of berth, which no unit accepts; the proxy signs tokens for the units. It forwards the messages of
// LiveKit's signalling protocol unchanged, except for the few that name another server, have a token, send a client away or publish
// a track that was muted on another unit.
package signalling

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/fleet"
	"berth/internal/identity"
	"berth/internal/metrics"
	"berth/internal/redisconn"
)

const (
	// ParkFor is how long a connection is parked while no unit has the conference. LiveKit's clients wait 15 s for it, and retry a
	// response 503.
	ParkFor = 12 * time.Second
	// dialAgain is the pause before another attempt to connect to a unit.
	dialAgain = 150 * time.Millisecond
	// maxToken limits a token: clients put it into a URL.
	maxToken = 16 << 10
)

// refusal is why a connection was refused or ended: a label of metrics.
type refusal string

const (
	refusedToken   refusal = "token"     // invalid or expired
	refusedEnded   refusal = "ended"     // the conference has ended
	refusedRemoved refusal = "removed"   // the participant was removed
	refusedNoOwner refusal = "no_owner"  // no unit had the conference in time
	refusedUnit    refusal = "unit"      // the unit did not accept the connection in time
	refusedConfig  refusal = "config"    // the unit's URL, host or key cannot be used
	refusedSize    refusal = "too_large" // a message exceeds the limit
	refusedClient  refusal = "client"    // not a WebSocket connection, or the unit found the request invalid
	refusedFull    refusal = "full"      // the conference has all its participants
)

// Nodes reads registered units; *lua.Scripts is one.
type Nodes interface {
	ReadNodes(ctx context.Context, ids ...string) (map[string]berth.Node, error)
}

// Fleet has the units as this process last read them; *fleet.Fleet is one.
type Fleet interface{ Snapshot() *fleet.Snapshot }

// Options are what a Proxy needs.
type Options struct {
	Ledger Ledger
	Nodes  Nodes
	Fleet  Fleet
	Infos  Infos
	Redis  redisconn.Subscriber
	// Channel is where the ids of changed conferences are published.
	Channel string
	Tokens  identity.Participants
	Keys    *Keys
	Hosts   Hosts
	Hold    time.Duration // default ParkFor
	Logger  *slog.Logger
}

// Proxy connects participants to media units.
type Proxy struct {
	opt         Options
	tokens      identity.Participants
	conferences *conferences
	units       *units
	upgrader    websocket.Upgrader
	log         *slog.Logger
	quiet       time.Duration // quietTimeout
	stall       time.Duration // writeTimeout
	drain       time.Duration // drainFor
	joining     time.Duration // joinTimeout
	again       time.Duration // leaveAgain

	running     sync.WaitGroup  // requests and sessions
	admit       chan struct{}   // received by each request; Run has counted it before
	stopping    context.Context //nolint:containedctx // ends all sessions, which outlast their requests
	stop        context.CancelFunc
	connections atomic.Int64
	parked      atomic.Int64
}

// buffers has the write buffers of all connections; one is held only during a write.
var buffers = &sync.Pool{}

// New returns a Proxy that serves connections while Run runs.
func New(o Options) *Proxy {
	if o.Hold == 0 {
		o.Hold = ParkFor
	}
	p := &Proxy{
		opt: o, tokens: o.Tokens, log: o.Logger, units: newUnits(), quiet: quietTimeout, stall: writeTimeout, drain: drainFor,
		joining: joinTimeout, again: leaveAgain,
		admit:       make(chan struct{}),
		conferences: newConferences(o.Ledger, o.Infos, o.Redis, o.Channel, o.Logger),
		upgrader: websocket.Upgrader{
			ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers,
			CheckOrigin: func(*http.Request) bool { return true }, // a token is required, which browsers do not add
			Error:       func(http.ResponseWriter, *http.Request, int, error) {},
		},
	}
	p.stopping, p.stop = context.WithCancel(context.Background())
	metrics.Begin(metrics.SignallingMoves, moved, resumed)
	for _, why := range []refusal{
		refusedToken, refusedEnded, refusedRemoved, refusedNoOwner, refusedUnit, refusedConfig, refusedSize, refusedClient, refusedFull,
	} {
		metrics.Begin(metrics.SignallingRefused, metrics.With(metrics.Kind.String(string(why))))
	}
	return p
}

// Run serves connections until ctx ends, and returns when all are closed. Clients then connect again, to another process.
func (p *Proxy) Run(ctx context.Context) error {
	defer metrics.Observe(func(o metric.Observer) {
		o.ObserveInt64(metrics.SignallingConnections, p.connections.Load())
		o.ObserveInt64(metrics.SignallingParked, p.parked.Load())
	}, metrics.SignallingConnections, metrics.SignallingParked)()
	defer p.units.http.CloseIdleConnections()
	var watching sync.WaitGroup
	watching.Go(func() { p.conferences.run(ctx) })
	p.admitUntil(ctx)
	p.stop()
	p.running.Wait()
	watching.Wait()
	p.conferences.running.Wait()
	return nil
}

// admitUntil admits requests until ctx ends. Each is counted before it is admitted, so none begins while Run waits for the last.
func (p *Proxy) admitUntil(ctx context.Context) {
	for {
		p.running.Add(1)
		select {
		case p.admit <- struct{}{}:
		case <-ctx.Done():
			p.running.Done()
			return
		}
	}
}

// Refuse returns why participants cannot join a conference on its unit whatever they do, such as a setting that is missing; nil
// while it has no unit.
func (p *Proxy) Refuse(ctx context.Context, c berth.Conference) error {
	if c.Owner.NodeID == "" {
		return nil
	}
	if _, err := p.target(ctx, c); err != nil && !errors.Is(err, errGone) {
		return berth.Errorf(berth.CodeUnavailable, "participants cannot join: %s", err).With(err)
	}
	return nil
}

// Direct returns where a participant connects without the proxy, and a token for that unit. CodeUnavailable while no unit has
// the conference.
func (p *Proxy) Direct(ctx context.Context, c berth.Conference, of identity.Participation) (address, token string, err error) {
	s := &state{conf: c, found: true}
	if _, ok := s.place(); !ok {
		return "", "", berth.Errorf(berth.CodeUnavailable, "no unit has the conference; retry when an event reports one")
	}
	t, err := p.target(ctx, c)
	if err != nil {
		return "", "", berth.Errorf(berth.CodeUnavailable, "participants cannot join: %s", err).With(err)
	}
	token, err = t.token(of, time.Now())
	return t.url.String(), token, err
}

// Remove disconnects a participant that was removed from a conference, on its unit. Proxies are notified separately.
func (p *Proxy) Remove(ctx context.Context, c berth.Conference, identity string) error {
	if c.Owner.NodeID == "" {
		return nil
	}
	t, err := p.target(ctx, c)
	if err != nil {
		return err
	}
	return p.units.remove(ctx, t, c.E164, identity)
}

// target returns the unit that owns a conference.
func (p *Proxy) target(ctx context.Context, c berth.Conference) (target, error) {
	n, ok := p.opt.Fleet.Snapshot().Nodes[c.Owner.NodeID]
	if !ok || n.Incarnation != c.Owner.Incarnation {
		nodes, err := p.opt.Nodes.ReadNodes(ctx, c.Owner.NodeID)
		if err != nil {
			return target{}, errors.Join(errGone, err)
		}
		if n, ok = nodes[c.Owner.NodeID]; !ok || n.Incarnation != c.Owner.Incarnation {
			return target{}, errGone
		}
	}
	if n.ClientURL == "" || n.KeyID == "" {
		return target{}, errNoClientURL
	}
	u, err := url.Parse(n.ClientURL)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || !p.opt.Hosts.Allow(u) {
		return target{}, errHost
	}
	secret, ok := p.opt.Keys.Secret(n.KeyID)
	if !ok {
		return target{}, errKey
	}
	return target{u, n.KeyID, secret}, nil
}

// Serve serves /rtc, /rtc/v1 and their /validate. Errors are for the caller to write. It returns CodeUnavailable when Run has ended.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-p.admit:
		defer p.running.Done()
	case <-p.stopping.Done():
		return berth.Errorf(berth.CodeUnavailable, "the server is stopping; retry")
	case <-r.Context().Done():
		return r.Context().Err()
	}
	of, query, err := p.authenticate(r)
	if err != nil {
		return err
	}
	conf, release := p.conferences.watch(of.ConferenceID)
	path, validate := strings.CutSuffix(r.URL.Path, "/validate")
	if validate {
		defer release()
		return p.validate(r.Context(), w, conf, of)
	}
	if !websocket.IsWebSocketUpgrade(r) {
		release()
		p.refused(refusedClient)
		return berth.Invalid("Upgrade", "must be websocket")
	}
	s, err := p.connect(r, conf, of, path, query)
	if err != nil {
		release()
		if errors.Is(err, errFull) {
			return p.turnAway(w, r, leave{actionDisconnect, reasonJoin})
		}
		return err
	}
	if s.client, err = p.upgrader.Upgrade(w, r, nil); err != nil {
		release()
		_ = s.unit.Close()
		p.refused(refusedClient)
		return berth.Invalid("Upgrade", "must be a WebSocket connection").With(err)
	}
	p.connections.Add(1)
	p.running.Go(func() {
		defer release()
		defer p.connections.Add(-1)
		s.run(p.stopping)
	})
	return nil
}

// authenticate returns what the client's token states, and its query without the token.
func (p *Proxy) authenticate(r *http.Request) (of identity.Participation, query string, err error) {
	values := r.URL.Query()
	token := values.Get("access_token")
	if scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		token = strings.TrimSpace(bearer)
	}
	if len(token) > maxToken {
		token = ""
	}
	if of, err = p.tokens.Verify(token); err != nil {
		p.refused(refusedToken)
		return of, "", err
	}
	values.Del("access_token")
	return of, values.Encode(), nil
}

// check returns CodeUnauthenticated, upon which clients give up, when the conference has ended or the participant was removed.
func (p *Proxy) check(now *state, of identity.Participation) error {
	switch {
	case now.removed[of.Identity]:
		p.refused(refusedRemoved)
		return berth.Errorf(berth.CodeUnauthenticated, "the participant was removed from the conference")
	case now.over():
		p.refused(refusedEnded)
		return berth.Errorf(berth.CodeUnauthenticated, "the conference has ended")
	}
	return nil
}

// validate reports whether a connection would be accepted. Clients ask after a failed one, and give up on 401.
func (p *Proxy) validate(ctx context.Context, w http.ResponseWriter, conf *watch, of identity.Participation) error {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	defer context.AfterFunc(p.stopping, cancel)()
	now := conf.now.Load()
	for !now.known {
		select {
		case <-now.next:
			now = conf.now.Load()
		case <-ctx.Done():
			return berth.Errorf(berth.CodeUnavailable, "the conference cannot be read; retry")
		}
	}
	if err := p.check(now, of); err != nil {
		return err
	}
	if _, ok := now.place(); !ok {
		return berth.Errorf(berth.CodeUnavailable, "no unit has the conference; retry")
	}
	_, err := w.Write([]byte("success"))
	return err
}

// connect returns a session that is connected to the conference's unit. It waits for one that accepts the connection, and
// returns CodeUnavailable when there is none in time.
func (p *Proxy) connect(r *http.Request, w *watch, of identity.Participation, path, query string) (*session, error) {
	ctx, cancel := context.WithTimeout(r.Context(), p.opt.Hold)
	defer cancel()
	defer context.AfterFunc(p.stopping, cancel)()
	header := http.Header{"User-Agent": r.Header["User-Agent"]}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		header.Set("X-Forwarded-For", host)
	}
	p.parked.Add(1)
	defer p.parked.Add(-1)
	why, logged := refusedNoOwner, error(nil)
	var asked place
	var muted []string
	for now := w.now.Load(); ; now = w.now.Load() {
		if err := p.check(now, of); err != nil {
			return nil, err
		}
		var again <-chan time.Time
		if at, ok := now.place(); ok {
			if at != asked { // before the unit knows the participant, and reports that it has returned
				asked, muted = at, p.muted(ctx, now, of)
			}
			s, err := p.dialWhile(ctx, w, now, at, of, path, query, header)
			var status errStatus
			switch {
			case err == nil:
				if w.now.Load().admits(of.Identity, at) {
					s.watch, s.muted = w, muted
					return s, nil
				}
				_ = s.unit.Close() // the participant was removed, or the unit lost the conference, while it accepted the connection
				continue
			case errors.As(err, &status) && status == http.StatusBadRequest:
				p.refused(refusedClient)
				return nil, berth.Invalid("query", "the unit found the request invalid").With(err)
			case errors.Is(err, errFull):
				p.refused(refusedFull)
				return nil, err
			case errors.Is(err, errUnitKey):
				p.refused(refusedConfig)
				p.log.WarnContext(ctx, "participant not connected", "conference", of.ConferenceID, "unit", at.nodeID, "error", err)
				return nil, berth.Errorf(berth.CodeUnavailable, "participants cannot join: %s", err).With(err)
			case errors.Is(err, errNoClientURL), errors.Is(err, errHost), errors.Is(err, errKey):
				why = refusedConfig
			default:
				why = refusedUnit
			}
			if ctx.Err() == nil && (logged == nil || logged.Error() != err.Error()) {
				logged = err
				p.log.WarnContext(ctx, "participant not connected; retrying", "conference", of.ConferenceID, "unit", at.nodeID, "error", err)
			}
			again = time.After(dialAgain)
		}
		select {
		case <-now.next:
		case <-again:
		case <-ctx.Done():
			p.refused(why)
			return nil, berth.Errorf(berth.CodeUnavailable, "no media unit accepts the conference's participants now; retry").With(errors.Join(ctx.Err(), logged))
		}
	}
}

// muted returns the sources of the tracks that a participant had muted on the former unit, when it returns for the first time: its
// client may not know, and then publishes them unmuted.
func (p *Proxy) muted(ctx context.Context, now *state, of identity.Participation) []string {
	muted := now.muted[of.Identity]
	if len(muted) == 0 {
		return nil
	}
	returned, err := p.opt.Ledger.HasLeg(ctx, of.ConferenceID, of.Identity, now.conf.Owner.Epoch)
	if err != nil {
		p.log.WarnContext(ctx, "legs not read; tracks stay muted", "conference", of.ConferenceID, "error", err)
	}
	if returned {
		return nil
	}
	return slices.Clone(muted)
}

// dialWhile is dial for as long as the conference is at the place: a unit that does not respond is not waited for once it has lost
// the conference.
func (p *Proxy) dialWhile(
	ctx context.Context, w *watch, now *state, at place, of identity.Participation, path, query string, header http.Header,
) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.running.Go(func() {
		for s := now; ; s = w.now.Load() {
			select {
			case <-ctx.Done():
				return
			case <-s.next:
			}
			if !w.now.Load().admits(of.Identity, at) {
				cancel()
				return
			}
		}
	})
	return p.dial(ctx, now, at, of, path, query, header)
}

// dial connects to the unit at a place.
func (p *Proxy) dial(
	ctx context.Context, now *state, at place, of identity.Participation, path, query string, header http.Header,
) (*session, error) {
	t, err := p.target(ctx, now.conf)
	if err != nil {
		return nil, err
	}
	token, err := t.token(of, time.Now())
	if err != nil {
		return nil, err
	}
	conn, err := p.units.dial(ctx, t, path, query, token, header)
	if err != nil {
		return nil, p.permanent(ctx, now.conf, t, of, err)
	}
	return &session{p: p, of: of, at: at, target: t, began: time.Now(), unit: conn, pongs: make(chan frame, 1), log: p.log}, nil
}

// permanent returns errFull or errUnitKey for a refusal that another attempt would get, too. LiveKit's response for a full room is
// that for an internal error.
func (p *Proxy) permanent(ctx context.Context, c berth.Conference, t target, of identity.Participation, err error) error {
	var status errStatus
	if !errors.As(err, &status) {
		return err
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return errUnitKey
	case status == http.StatusInternalServerError && c.MaxParticipants > 0:
		others, lerr := p.units.others(ctx, t, c.E164, of.Identity)
		if lerr == nil && others >= c.MaxParticipants {
			return errFull
		}
	}
	return err
}

// turnAway accepts a connection only to send its reason, which the client shows. A response without a connection has none.
func (p *Proxy) turnAway(w http.ResponseWriter, r *http.Request, l leave) error {
	c, err := p.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return berth.Invalid("Upgrade", "must be a WebSocket connection").With(err)
	}
	s := session{p: p, client: c}
	s.end(l, nil)
	return nil
}

func (p *Proxy) refused(why refusal) {
	metrics.SignallingRefused.Add(context.Background(), 1, metrics.With(metrics.Kind.String(string(why))))
}
