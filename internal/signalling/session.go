package signalling

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"berth/internal/identity"
	"berth/internal/metrics"
	"berth/internal/pause"
)

const (
	// maxRequest and maxResponse limit one message of a client and of a unit. A client's largest is a description of its media;
	// a unit's has all participants of a conference.
	maxRequest, maxResponse = 1 << 20, 16 << 20
	// bufferSize is that of a connection's reads. Writes share buffers, which are held only during a write.
	bufferSize = 1 << 10
	// writeTimeout is how long one message may take to be written: a side that stalls longer is disconnected.
	writeTimeout = 10 * time.Second
	// quietTimeout is how long a side may send nothing. Units send a WebSocket ping every 10 s, which the proxy passes on.
	quietTimeout = 45 * time.Second
	// pingEvery is the interval of the proxy's own pings while there is no unit that sends them.
	pingEvery = 15 * time.Second
	// drainFor is how long messages are still read of a unit that accepts none: a token with what it had changed may be among them.
	drainFor = 2 * time.Second
	// probeFirst and probeMax are the pauses between probes of a unit whose connection has broken.
	probeFirst, probeMax = 100 * time.Millisecond, 2 * time.Second
	// joinTimeout is how long LiveKit's clients try to join, and leaveAgain the interval at which the request to connect again is repeated
	// to one that may still be joining.
	joinTimeout, leaveAgain = 15 * time.Second, 2 * time.Second
)

// lostReason is why the connection to a unit has ended.
type lostReason int

const (
	lostBroken  lostReason = iota // it broke
	lostEnding                    // the unit sends its clients away because it stops or deletes the room
	lostLeave                     // the unit sent the client away; the client has received it
	lostStalled                   // the client accepts no messages
)

// session is one client's connection, to one unit. It ends with a message that makes the client connect again, or not.
type session struct {
	p      *Proxy
	of     identity.Participation
	at     place
	target target
	began  time.Time // when the unit accepted the connection
	watch  *watch
	client *websocket.Conn
	unit   *websocket.Conn
	text   atomic.Bool // the client sends JSON, and receives it
	muted  []string    // sources of tracks that are muted when they are published; of fromClient
	pongs  chan frame
	log    *slog.Logger
}

// run serves the connection until it ends.
func (s *session) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	gone, lost := make(chan struct{}), make(chan lostReason, 1)
	s.client.SetReadLimit(maxRequest)
	s.unit.SetReadLimit(maxResponse)
	s.keepAlive()
	s.p.running.Go(func() { defer close(gone); s.fromClient() })
	s.p.running.Go(func() { lost <- s.fromUnit() })
	last := s.wait(ctx, gone, lost)
	cancel()
	_ = s.unit.Close()
	if last != nil {
		s.end(*last, gone)
	}
	_ = s.client.Close()
	<-gone
}

// wait returns when the client is gone, or with the last message for it. After the connection to the unit has ended it waits for
// another owner, or for a unit that responds again.
func (s *session) wait(ctx context.Context, gone <-chan struct{}, lost chan lostReason) *leave {
	reading, why := true, lostReason(0) // fromUnit is running and writes to the client
	defer func() {
		if reading {
			_ = s.unit.Close()
			<-lost
		}
	}()
	var pongs <-chan frame // these three are of the time without a unit
	var pings <-chan time.Time
	var probe <-chan time.Time
	probes, now := pause.NewBackoff(probeFirst, probeMax), s.watch.now.Load()
	for {
		if l := s.decide(now); l != nil {
			return l
		}
		select {
		case <-gone:
			return nil
		case <-ctx.Done(): // this process stops: another one continues
			return &leave{actionResume, reasonShutdown}
		case <-now.next:
			now = s.watch.now.Load()
		case why = <-lost:
			reading = false
			if why == lostLeave || why == lostStalled {
				return nil
			}
			pongs, pings, probe = s.pongs, time.Tick(pingEvery), time.After(probes.Next())
		case pong := <-pongs:
			if s.write(s.client, pong) != nil {
				return nil
			}
		case <-pings:
			_ = s.client.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) // a failure ends the read
		case <-probe:
			if l := s.probed(ctx, now, why); l != nil {
				return l
			}
			next := probes.Next()
			probe = time.After(next/2 + rand.N(next/2)) // not all clients of a unit at the same time
		}
	}
}

// decide returns what the state of the conference demands of the client; nil when it stays connected.
func (s *session) decide(now *state) *leave {
	if l := s.ended(now); l != nil {
		return l
	}
	if at, ok := now.place(); ok && at != s.at {
		metrics.SignallingMoves.Add(context.Background(), 1, moved)
		return &leave{actionReconnect, reasonMoved}
	}
	return nil
}

// ended returns why the client cannot continue; nil when it can.
func (s *session) ended(now *state) *leave {
	switch {
	case now.removed[s.of.Identity]:
		return &leave{actionDisconnect, reasonRemoved}
	case now.known && (!now.found || now.conf.Status.Final()):
		return &leave{actionDisconnect, reasonDeleted}
	}
	return nil
}

// probed returns the last message for the client if the unit responds again; nil when it has to wait.
func (s *session) probed(ctx context.Context, now *state, why lostReason) *leave {
	at, ok := now.place()
	switch {
	case !ok || at != s.at || !s.reachable(ctx):
		return nil
	case why == lostEnding: // the room was deleted and created again
		metrics.SignallingMoves.Add(ctx, 1, moved)
		return &leave{actionReconnect, reasonMoved}
	default:
		metrics.SignallingMoves.Add(ctx, 1, resumed)
		return &leave{actionResume, reasonShutdown}
	}
}

// moved and resumed are the labels of clients that were made to connect again.
var (
	moved   = metrics.With(metrics.Kind.String("moved"))
	resumed = metrics.With(metrics.Kind.String("resumed"))
)

func (s *session) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	token, err := s.target.token(s.of, time.Now())
	return err == nil && s.p.units.reachable(ctx, s.target, token)
}

// keepAlive passes pings of the unit on to the client, and notes which side still responds.
func (s *session) keepAlive() {
	_ = s.client.SetReadDeadline(time.Now().Add(s.p.quiet))
	_ = s.unit.SetReadDeadline(time.Now().Add(s.p.quiet))
	s.unit.SetPingHandler(func(data string) error {
		_ = s.unit.SetReadDeadline(time.Now().Add(s.p.quiet))
		_ = s.unit.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Second))
		_ = s.client.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		return nil
	})
	s.client.SetPongHandler(func(string) error {
		return s.client.SetReadDeadline(time.Now().Add(s.p.quiet))
	})
}

// fromClient forwards the client's messages until it is gone. Without a unit it answers pings, so that the client waits, ends when the
// client leaves, and discards everything else.
func (s *session) fromClient() {
	broken := false
	for {
		f, err := s.read(s.client)
		if err != nil {
			if errors.Is(err, websocket.ErrReadLimit) {
				s.p.refused(refusedSize)
			}
			return
		}
		s.text.Store(f.text)
		if len(s.muted) > 0 {
			var source string
			f, source = mutedTrack(f, s.muted)
			s.muted = slices.DeleteFunc(s.muted, func(m string) bool { return m == source })
		}
		if !broken {
			if broken = s.write(s.unit, f) != nil; broken {
				defer time.AfterFunc(s.p.drain, func() { _ = s.unit.Close() }).Stop() // fromUnit notices, if it has not read the end before
			}
		}
		if broken {
			if readResponse(f).field == fieldLeave { // a request has the same field
				return
			}
			if pong, ok := pongOf(f, time.Now()); ok {
				select {
				case s.pongs <- pong:
				default:
				}
			}
		}
	}
}

// fromUnit forwards the unit's messages until its connection ends.
func (s *session) fromUnit() lostReason {
	defer func() { _ = s.unit.Close() }() // fromClient notices
	for {
		f, err := s.read(s.unit)
		if err != nil {
			return lostBroken
		}
		why, ends := lostReason(0), false
		switch r := readResponse(f); r.field {
		case fieldJoin:
			f = r.withoutAlternative(f)
		case fieldRefreshToken:
			f, err = s.refresh(f, r)
		case fieldRoomMoved:
			if token, terr := s.p.tokens.Issue(s.of); terr == nil {
				f = r.withToken(f, token)
			}
		case fieldLeave:
			if r.leave.ends() {
				return lostEnding
			}
			f, why, ends = leaveFrame(f.text, r.leave), lostLeave, true
		}
		if err != nil {
			continue
		}
		if s.write(s.client, f) != nil {
			return lostStalled
		}
		if ends {
			return why
		}
	}
}

// refresh replaces the unit's token by berth's own, with the state that the participant has on the unit.
func (s *session) refresh(f frame, r response) (frame, error) {
	next, left := updated(s.of, r.token)
	if len(left) > 0 {
		s.log.Warn("changes of a participant are too large to follow it to another unit", "conference", s.of.ConferenceID, "participant", s.of.Identity,
			"left", left, "limit", maxState)
	}
	token, err := s.p.tokens.Issue(next)
	if err != nil {
		s.log.Warn("token not refreshed", "error", err)
		return f, err
	}
	s.log.Debug("token refreshed", "conference", s.of.ConferenceID, "participant", s.of.Identity)
	return refreshFrame(f.text, token), nil
}

// end sends the last message and closes the connection. Only the caller writes to the client then. To a client that may still be joining
// the request to connect again is repeated until it is gone: LiveKit's client for Go ignores it, and the end of its connection, until its
// media is connected, and would then not notice for 16 s that it is no longer in the conference.
func (s *session) end(l leave, gone <-chan struct{}) {
	again := time.Tick(s.p.again)
	for s.write(s.client, leaveFrame(s.text.Load(), l)) == nil && l.action != actionDisconnect && time.Since(s.began) < s.p.joining {
		select {
		case <-gone:
			return
		case <-again:
			if ended := s.ended(s.watch.now.Load()); ended != nil {
				l = *ended
			}
		}
	}
	_ = s.client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	_ = s.client.Close()
}

func (s *session) read(c *websocket.Conn) (frame, error) {
	kind, r, err := c.NextReader()
	if err != nil {
		return frame{}, err
	}
	_ = c.SetReadDeadline(time.Now().Add(s.p.quiet))
	data, err := io.ReadAll(r)
	return frame{kind == websocket.TextMessage, data}, err
}

func (s *session) write(c *websocket.Conn, f frame) error {
	kind := websocket.BinaryMessage
	if f.text {
		kind = websocket.TextMessage
	}
	_ = c.SetWriteDeadline(time.Now().Add(s.p.stall))
	return c.WriteMessage(kind, f.data)
}
