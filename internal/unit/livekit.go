package unit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/metrics"
	"berth/internal/pause"
)

const (
	// sentinelPrefix and the unit's id name the room that identifies a run of a LiveKit server, which keeps its rooms in
	// memory. No number starts with the prefix.
	sentinelPrefix = "berth.unit."
	// sentinelSeconds is how long the empty room stays: ten years.
	sentinelSeconds = 10 * 365 * 24 * 3600
	// roomSeconds is how long an empty room stays, because its timeouts cannot be changed when the end time is: the longest
	// conference, 30 days, and a day. The agent ends the room at the end time.
	roomSeconds = 31 * 24 * 3600
	// markedWithin bounds the wait until lists show a room's new metadata, read every markedEvery.
	markedWithin, markedEvery = 2 * time.Second, 5 * time.Millisecond
	// liveBytes limits the participants' share of berth.MaxConferenceInfo.
	liveBytes = berth.MaxConferenceInfo - 16<<10
)

// LiveKitOptions identify a LiveKit server.
type LiveKitOptions struct {
	// URL is http, https, ws or wss. A server has one unit and no Redis: rooms must not move to another server.
	URL, Key, Secret string
	// Unit is the id of the unit; rooms of other units are ignored.
	Unit string
}

// LiveKit is a driver for the room service API of a LiveKit server. It is stateless: the rooms' metadata holds everything,
// so that nothing is lost with the agent.
type LiveKit struct {
	api  *roomService
	host string
	addr string // host and port
	unit string
}

// NewLiveKit returns the driver.
func NewLiveKit(o LiveKitOptions) (*LiveKit, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("invalid LiveKit URL %q", o.URL)
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, fmt.Errorf("invalid LiveKit URL %q: scheme must be http, https, ws or wss", o.URL)
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

// mark is the metadata of a conference's room.
type mark struct {
	ConferenceID string    `json:"conferenceId"`
	Epoch        int64     `json:"epoch"`
	StartedAt    time.Time `json:"startedAt"`
	EndAt        time.Time `json:"endAt,omitzero"` // absent in rooms of older agents
	Unit         string    `json:"unit"`
}

func (l *LiveKit) sentinel() string { return sentinelPrefix + l.unit }

// Incarnation returns that of the LiveKit process, from the sentinel room that the first call of each run creates.
func (l *LiveKit) Incarnation(ctx context.Context) (berth.Incarnation, error) {
	rooms, err := l.api.list(ctx, l.sentinel())
	if err != nil {
		return berth.Incarnation{}, err
	}
	if len(rooms) > 0 {
		return l.incarnation(rooms[0]), nil
	}
	made, err := l.api.create(ctx, createRoom{Name: l.sentinel(), EmptyTimeout: sentinelSeconds, DepartureTimeout: sentinelSeconds, MaxParticipants: 1})
	if err != nil {
		return berth.Incarnation{}, err
	}
	return l.incarnation(made), nil
}

// incarnation uses a hash of the sentinel's id as process id, because the API does not expose the real one.
func (l *LiveKit) incarnation(sentinel room) berth.Incarnation {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sentinel.SID)) // a hash never fails
	return berth.Incarnation{Host: l.host, PID: int(h.Sum32()&math.MaxInt32) | 1, StartedAt: sentinel.created()}
}

// errNoSentinel is the error of a list right after the server has restarted.
var errNoSentinel = errors.New("the LiveKit server has restarted")

// List reads the server's rooms, with the sentinel, in one call.
func (l *LiveKit) List(ctx context.Context) (inc berth.Incarnation, out []Copy, err error) {
	rooms, err := l.api.list(ctx)
	if err != nil {
		return inc, nil, err
	}
	for _, r := range rooms {
		if r.Name == l.sentinel() {
			inc = l.incarnation(r)
		} else if c, ok := l.copyOf(r); ok {
			out = append(out, c)
		}
	}
	if inc == (berth.Incarnation{}) {
		return inc, nil, errNoSentinel
	}
	return inc, out, nil
}

// copyOf returns the conference of a room that the unit created.
func (l *LiveKit) copyOf(r room) (Copy, bool) {
	var m mark
	if berth.ValidE164("name", r.Name) != nil || json.Unmarshal([]byte(r.Metadata), &m) != nil || m.Epoch <= 0 || m.Unit != l.unit {
		return Copy{}, false
	}
	return Copy{
		UnitCopy: berth.UnitCopy{E164: r.Name, ConferenceID: m.ConferenceID, Epoch: m.Epoch, StartedAt: m.StartedAt},
		EndAt:    m.EndAt, Participants: r.NumParticipants,
	}, true
}

// Find reads one room.
func (l *LiveKit) Find(ctx context.Context, e164 string) (Copy, bool, error) {
	rooms, err := l.api.list(ctx, e164)
	if err != nil || len(rooms) == 0 {
		return Copy{}, false, err
	}
	c, ok := l.copyOf(rooms[0])
	if !ok {
		return Copy{}, false, ErrForeign
	}
	return c, true, nil
}

// Foreign returns the rooms that are named like a number and that no unit has created.
func (l *LiveKit) Foreign(ctx context.Context) (numbers []string, err error) {
	rooms, err := l.api.list(ctx)
	for _, r := range rooms {
		var m mark
		if berth.ValidE164("name", r.Name) == nil && (json.Unmarshal([]byte(r.Metadata), &m) != nil || m.Unit == "") {
			numbers = append(numbers, r.Name)
		}
	}
	return numbers, err
}

// Fence deletes the rooms of this unit, and its sentinel last: the next call of Incarnation returns another one.
func (l *LiveKit) Fence(ctx context.Context) error {
	rooms, err := l.api.list(ctx)
	if err != nil {
		return err
	}
	for _, r := range rooms {
		if _, own := l.copyOf(r); own {
			err = errors.Join(err, l.Delete(ctx, r.Name))
		}
	}
	if err != nil {
		return err
	}
	return l.Delete(ctx, l.sentinel())
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

// Create creates the room.
func (l *LiveKit) Create(ctx context.Context, c berth.UnitConference, returning bool) error {
	metadata, err := l.metadata(copyOf(c))
	if err != nil {
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
		Name: c.E164, EmptyTimeout: empty, DepartureTimeout: left, MaxParticipants: uint32(c.MaxParticipants), Metadata: metadata, //nolint:gosec // 0 to 10,000
	})
	if err != nil {
		return err
	}
	if made.Metadata != metadata { // created by another process since Find
		return ErrForeign
	}
	return nil
}

// Mark writes the room's metadata and waits until lists show it.
func (l *LiveKit) Mark(ctx context.Context, c Copy) error {
	metadata, err := l.metadata(c)
	if err != nil {
		return err
	}
	if err := l.api.update(ctx, c.E164, metadata); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, markedWithin)
	defer cancel()
	for {
		now, ok, err := l.Find(ctx, c.E164)
		switch {
		case err != nil:
			return err
		case !ok:
			return errors.New("the room has ended")
		case now.Epoch > c.Epoch || now.Epoch == c.Epoch && !now.EndAt.Before(c.EndAt):
			return nil
		case !pause.For(ctx, markedEvery):
			return fmt.Errorf("the room list does not show the new epoch: %w", ctx.Err())
		}
	}
}

func (l *LiveKit) metadata(c Copy) (string, error) {
	b, err := json.Marshal(mark{c.ConferenceID, c.Epoch, c.StartedAt, c.EndAt, l.unit})
	if err != nil {
		return "", fmt.Errorf("encode room metadata: %w", err)
	}
	return string(b), nil
}

// Delete ends the room and disconnects its participants.
func (l *LiveKit) Delete(ctx context.Context, e164 string) error {
	err := l.api.remove(ctx, e164)
	var failed *twirpError
	if errors.As(err, &failed) && failed.Code == "not_found" {
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
