package unit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/url"
	"slices"
	"time"

	"berth"
)

const (
	// sentinelPrefix and the unit's id name the room that tells one run of a LiveKit server from the next: it has its rooms
	// in memory. No number begins like that.
	sentinelPrefix = "berth.unit."
	// sentinelSeconds is how long it stays empty: ten years.
	sentinelSeconds = 10 * 365 * 24 * 3600
	// endSlack is added to a room's timeouts, so that it is the conference that ends and not its room: LiveKit counts from
	// the begun second.
	endSlack = 2 * time.Second
	// markedWithin bounds the wait for a room's list entry to show what was written to it.
	markedWithin, markedEvery = 2 * time.Second, 5 * time.Millisecond
	// liveBytes is what the participants of one conference may take of berth.MaxConferenceInfo.
	liveBytes = berth.MaxConferenceInfo - 16<<10
)

// LiveKitOptions say where a LiveKit server is.
type LiveKitOptions struct {
	// URL is http, https, ws or wss. One unit per server, and a server without Redis: a room that moved to another server
	// would not have been lost with this one.
	URL, Key, Secret string
	// Unit is the id of the unit; rooms of others are left alone.
	Unit string
}

// LiveKit is a driver for a LiveKit server by its room service API (C23). It remembers nothing: the server's rooms carry
// what there is to know, so that nothing is lost with the agent.
type LiveKit struct {
	api  *roomService
	host string
	unit string
}

// NewLiveKit makes the driver.
func NewLiveKit(o LiveKitOptions) (*LiveKit, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of a LiveKit server", o.URL)
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	case "http", "https":
	default:
		return nil, fmt.Errorf("%q is no http, https, ws or wss URL", o.URL)
	}
	if o.Key == "" || o.Secret == "" {
		return nil, errors.New("a LiveKit server needs a key and its secret")
	}
	return &LiveKit{api: newRoomService(u, o.Key, o.Secret), host: u.Host, unit: o.Unit}, nil
}

// Close drops idle connections.
func (l *LiveKit) Close() { l.api.http.CloseIdleConnections() }

// mark is the metadata of a conference's room.
type mark struct {
	ConferenceID string    `json:"conferenceId"`
	Epoch        int64     `json:"epoch"`
	StartedAt    time.Time `json:"startedAt"`
	Unit         string    `json:"unit"`
}

func (l *LiveKit) sentinel() string { return sentinelPrefix + l.unit }

// Incarnation is that of the LiveKit process, by its sentinel room: made with the first call of each run.
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

// incarnation has the sentinel's own id in the place of the process id, which nobody else can tell us.
func (l *LiveKit) incarnation(sentinel room) berth.Incarnation {
	h := fnv.New32a()
	_, _ = h.Write([]byte(sentinel.SID)) // a hash takes everything
	return berth.Incarnation{Host: l.host, PID: int(h.Sum32()&math.MaxInt32) | 1, StartedAt: sentinel.created()}
}

// errNoSentinel is what a list says right after the server was started anew.
var errNoSentinel = errors.New("the LiveKit server was started anew")

// List reads the server's rooms and the sentinel in one call.
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

// copyOf is the conference of a room, if the unit made it.
func (l *LiveKit) copyOf(r room) (Copy, bool) {
	var m mark
	if berth.ValidE164("name", r.Name) != nil || json.Unmarshal([]byte(r.Metadata), &m) != nil || m.Epoch <= 0 || m.Unit != l.unit {
		return Copy{}, false
	}
	return Copy{
		UnitCopy:     berth.UnitCopy{E164: r.Name, ConferenceID: m.ConferenceID, Epoch: m.Epoch, StartedAt: m.StartedAt},
		Participants: r.NumParticipants,
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

// Create makes the room. LiveKit closes rooms that are empty for long: these stay until the end time (C6).
func (l *LiveKit) Create(ctx context.Context, c berth.UnitConference) error {
	metadata, err := l.metadata(copyOf(c))
	if err != nil {
		return err
	}
	seconds := uint32(min(math.Ceil((time.Until(c.EndAt) + endSlack).Seconds()), math.MaxUint32))
	made, err := l.api.create(ctx, createRoom{
		Name: c.E164, EmptyTimeout: seconds, DepartureTimeout: seconds, MaxParticipants: uint32(c.MaxParticipants), Metadata: metadata, //nolint:gosec // 0 to 10,000
	})
	if err != nil {
		return err
	}
	if made.Metadata != metadata { // somebody else's since the look
		return ErrForeign
	}
	return nil
}

// Mark writes the room's metadata and waits until lists have it.
func (l *LiveKit) Mark(ctx context.Context, c berth.UnitCopy) error {
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
			return errors.New("the room ended meanwhile")
		case now.Epoch >= c.Epoch:
			return nil
		case !wait(ctx, markedEvery):
			return fmt.Errorf("the room does not show its new epoch: %w", ctx.Err())
		}
	}
}

func (l *LiveKit) metadata(c berth.UnitCopy) (string, error) {
	b, err := json.Marshal(mark{c.ConferenceID, c.Epoch, c.StartedAt, l.unit})
	if err != nil {
		return "", fmt.Errorf("encode room metadata: %w", err)
	}
	return string(b), nil
}

// Delete ends the room and sends its people away.
func (l *LiveKit) Delete(ctx context.Context, e164 string) error {
	err := l.api.remove(ctx, e164)
	var no *twirpError
	if errors.As(err, &no) && no.Code == "not_found" {
		return nil
	}
	return err
}

// Live has who takes part. A conference whose participants do not fit has the first ones and how many were left out.
func (l *LiveKit) Live(ctx context.Context, e164 string) (Live, error) {
	all, err := l.api.participants(ctx, e164)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b participant) int {
		return cmp.Or(cmp.Compare(a.JoinedAt, b.JoinedAt), cmp.Compare(a.Identity, b.Identity))
	})
	people := make([]json.RawMessage, 0, len(all))
	bytes := 0
	for _, p := range all {
		b, err := json.Marshal(struct {
			Identity   string    `json:"identity"`
			Name       string    `json:"name,omitempty"`
			State      string    `json:"state"`
			Publishing bool      `json:"publishing"`
			JoinedAt   time.Time `json:"joinedAt"`
		}{p.Identity, p.Name, p.State, p.Publishing, time.Unix(p.JoinedAt, 0).UTC()})
		if err != nil {
			return nil, fmt.Errorf("encode participant: %w", err)
		}
		if bytes += len(b) + 1; bytes > liveBytes {
			break
		}
		people = append(people, b)
	}
	return live(map[string]any{"participants": people, "participantCount": len(all), "leftOut": len(all) - len(people)})
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
