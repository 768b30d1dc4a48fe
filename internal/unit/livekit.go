package unit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/metrics"
	"berth/internal/secret"
)

const (
	// roomSeconds is how long an empty room stays, because its timeouts cannot be changed when the end time is: the longest
	// conference, 30 days, and a day. The agent ends the room at the end time.
	roomSeconds = 31 * 24 * 3600
	// liveBytes limits the participants' share of berth.MaxConferenceInfo.
	liveBytes = berth.MaxConferenceInfo - maxRoomMetadata - 16<<10
)

// LiveKitOptions identify a LiveKit server.
type LiveKitOptions struct {
	// URL is http, https, ws or wss. A server has one unit and no Redis: rooms must not move to another server.
	URL, Key, Secret string
	// Unit is the id of the unit; rooms of other units are ignored.
	Unit string
}

// LiveKit is a driver for the room service API of a LiveKit server. Rooms of its own on that server hold everything, so that
// nothing is lost with the agent.
type LiveKit struct {
	api  *roomService
	host string
	addr string // host and port
	unit string
	seen atomic.Pointer[seen]
}

// NewLiveKit returns the driver.
func NewLiveKit(o LiveKitOptions) (*LiveKit, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("invalid LiveKit URL %s: must be http://host:port", secret.Address(o.URL))
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, fmt.Errorf("invalid LiveKit URL %s: scheme must be http, https, ws or wss", secret.Address(o.URL))
	}
	if o.Key == "" || o.Secret == "" {
		return nil, errors.New("LiveKit key and secret are required")
	}
	metrics.Begin(metrics.ForeignRooms, metrics.With())
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return &LiveKit{
		api: newRoomService(u, o.Key, o.Secret), host: u.Host, addr: net.JoinHostPort(u.Hostname(), port), unit: o.Unit,
	}, nil
}

// ClientURL returns the URL for participants if they reach the server under the same address as the agent.
func (l *LiveKit) ClientURL() string { return "ws" + strings.TrimPrefix(l.api.root, "http") }

// Close closes idle connections.
func (l *LiveKit) Close() { l.api.http.CloseIdleConnections() }

// Fence deletes the rooms of this unit, and its sentinel last: the next call of Incarnation returns another one.
func (l *LiveKit) Fence(ctx context.Context) error {
	found, err := l.api.list(ctx)
	if err != nil {
		return err
	}
	all := byName(found)
	for name := range all {
		if _, own, _ := l.copyOf(all, name); own {
			err = errors.Join(err, l.Delete(ctx, name))
		}
	}
	if err != nil {
		return err
	}
	return l.remove(ctx, l.sentinel())
}

// Check fails if the server creates rooms for participants who join them. With that setting, the participants of a server that
// was killed and restarted re-create its rooms there, unknown to berth.
func (l *LiveKit) Check(ctx context.Context) error {
	creates, err := l.api.createsRooms(ctx)
	if err == nil && creates {
		err = &Misconfigured{"the LiveKit server creates rooms for participants: set room.auto_create to false in its configuration"}
	}
	return err
}

// Watch holds a connection to the server.
func (l *LiveKit) Watch(ctx context.Context) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }() // nothing was written
	_, _ = c.Read(make([]byte, 1))   // the server sends nothing unasked
}

// Create creates the room, after its state: of two agents that create a number, one finds the state of the other.
func (l *LiveKit) Create(ctx context.Context, c berth.UnitConference, returning bool) error {
	if err := l.write(ctx, copyOf(c)); err != nil {
		return err
	}
	empty, left := uint32(roomSeconds), uint32(roomSeconds)
	if c.EmptyAfterMs > 0 {
		left = uint32(min(max(c.EmptyAfterMs/1000, 1), roomSeconds))
		if !returning {
			empty = left
		}
	}
	made, err := l.api.create(ctx, createRoom{
		Name: c.E164, EmptyTimeout: empty, DepartureTimeout: left, MaxParticipants: uint32(c.MaxParticipants), //nolint:gosec // 0 to 10,000
	})
	if err != nil {
		return err
	}
	if made.EmptyTimeout != empty || made.DepartureTimeout != left { // created by an application since Find
		return errors.Join(ErrForeign, l.remove(ctx, stateRoom(c.E164)))
	}
	return nil
}

// Delete ends the room, which disconnects its participants, and forgets its state.
func (l *LiveKit) Delete(ctx context.Context, e164 string) error {
	if err := l.remove(ctx, e164); err != nil {
		return err
	}
	return l.remove(ctx, stateRoom(e164))
}

func (l *LiveKit) remove(ctx context.Context, room string) error {
	err := l.api.remove(ctx, room)
	if notFound(err) {
		return nil
	}
	return err
}

// Live returns the participants, the first ones and the number of the others if they exceed liveBytes.
func (l *LiveKit) Live(ctx context.Context, e164 string) (Live, error) {
	all, err := l.api.participants(ctx, e164)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b participant) int {
		return cmp.Or(a.joined().Compare(b.joined()), cmp.Compare(a.Identity, b.Identity))
	})
	shown := make([]json.RawMessage, 0, len(all))
	bytes := 0
	for _, p := range all {
		b, err := json.Marshal(struct {
			SID        string    `json:"sid"`
			Identity   string    `json:"identity"`
			Name       string    `json:"name,omitempty"`
			State      string    `json:"state"`
			Publishing bool      `json:"publishing"`
			JoinedAt   time.Time `json:"joinedAt"`
			Tracks     []track   `json:"tracks,omitempty"`
		}{p.SID, p.Identity, p.Name, p.State, p.Publishing, p.joined(), tracksOf(p)})
		if err != nil {
			return nil, fmt.Errorf("encode participant: %w", err)
		}
		if bytes += len(b) + 1; bytes > liveBytes {
			break
		}
		shown = append(shown, b)
	}
	return live(map[string]any{"participants": shown, "participantCount": len(all), "leftOut": len(all) - len(shown)})
}

func tracksOf(p participant) (out []track) {
	for _, t := range p.Tracks {
		out = append(out, track{SID: t.SID, Source: strings.ToLower(t.Source), Muted: t.Muted})
	}
	return out
}

// Describe writes the room's metadata, which are the application's.
func (l *LiveKit) Describe(ctx context.Context, e164, metadata string) error {
	return l.api.update(ctx, e164, metadata)
}

// Mute mutes a participant's track.
func (l *LiveKit) Mute(ctx context.Context, e164, identity, track string) error {
	return l.api.mute(ctx, e164, identity, track)
}

// live encodes the fields of live information.
func live(fields map[string]any) (Live, error) {
	out := Live{}
	for name, value := range fields {
		b, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		out[name] = b
	}
	return out, nil
}
