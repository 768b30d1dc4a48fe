package signalling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"

	"berth"
	"berth/internal/identity"
	"berth/internal/secret"
)

const (
	// unitTokenTTL is the validity of a token for a unit, which no client receives, and the tolerated difference of clocks.
	unitTokenTTL = 10 * time.Minute
	// unitTimeout bounds one call to a unit, and the time until it has accepted a connection.
	unitTimeout = 5 * time.Second
	// dialTimeout bounds a connection attempt: a host that is gone does not reply.
	dialTimeout = time.Second
	// maxState bounds what a token carries over from unit to unit: clients put it into a URL.
	maxState = 6 << 10
)

// noSession is in the response of a LiveKit server that lists a participant and has no session of it. It lists some for good that left
// while they joined.
const noSession = "no response from servers"

// AttributeRole is the attribute of participants that has their role.
const AttributeRole = "berth.role"

// Errors of a unit that participants cannot join. Their text is for operators.
var (
	errNoClientURL = errors.New("the unit has registered no clientUrl and keyId")
	errHost        = errors.New("the unit's clientUrl is not one of BERTH_MEDIA_HOSTS")
	errKey         = errors.New("BERTH_LIVEKIT_KEYS_FILE has no secret for the unit's keyId")
	errGone        = errors.New("the unit is not registered")
	errUnitKey     = errors.New("the unit does not accept the key of its keyId in BERTH_LIVEKIT_KEYS_FILE, or the clocks differ")
	errFull        = errors.New("the conference is full")
)

// target is a unit to which participants can be connected.
type target struct {
	url    *url.URL // ws or wss
	key    string
	secret string
}

// token returns a token for the unit. It holds the grants of a participant and no others.
func (t target) token(of identity.Participation, now time.Time) (string, error) {
	grants := permissionsOf(of)
	grants["roomJoin"], grants["room"] = true, of.E164
	attributes := map[string]string{}
	maps.Copy(attributes, of.Attributes)
	attributes[AttributeRole] = string(of.Role)
	return t.sign(jwt.MapClaims{
		"sub": of.Identity, "name": of.Name, "metadata": of.Metadata, "attributes": attributes, "video": grants,
	}, now, unitTokenTTL)
}

// adminToken returns a token for calls that concern a room.
func (t target) adminToken(room string) (string, error) {
	return t.sign(jwt.MapClaims{"sub": "berth", "video": map[string]any{"roomAdmin": true, "room": room}}, time.Now(), unitTokenTTL)
}

func (t target) sign(c jwt.MapClaims, now time.Time, ttl time.Duration) (string, error) {
	c["iss"], c["nbf"], c["exp"] = t.key, now.Add(-unitTokenTTL).Unix(), now.Add(ttl).Unix()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(t.secret))
	if err != nil {
		return "", fmt.Errorf("sign a token for the unit: %w", err)
	}
	return signed, nil
}

// permissions are the grants that a unit may change for a participant and that move along.
var permissions = []string{"canPublish", "canSubscribe", "canPublishData", "canPublishSources", "canUpdateOwnMetadata", "hidden"}

// permissionsOf returns the grants of a participant: those that it had on its last unit, or those of its role.
func permissionsOf(of identity.Participation) map[string]any {
	publishes := of.Role != berth.RoleListener
	grants := map[string]any{
		"canPublish": publishes, "canPublishData": publishes, "canSubscribe": true, "canUpdateOwnMetadata": of.Role == berth.RoleHost,
	}
	var had map[string]any
	if json.Unmarshal(of.Permissions, &had) == nil {
		for _, name := range permissions {
			if v, ok := had[name]; ok {
				grants[name] = v
			}
		}
	}
	return grants
}

// updated returns the participation with the state that a unit's refreshed token has: what the server has changed moves along. left
// names what is too large to move along.
func updated(of identity.Participation, token string) (next identity.Participation, left []string) {
	var c struct {
		jwt.RegisteredClaims
		Name       string
		Metadata   string
		Attributes map[string]string
		Video      map[string]any
	}
	// The unit sent it on an authenticated connection, and only a copy of it that berth signs is used.
	if _, _, err := jwt.NewParser().ParseUnverified(token, &c); err != nil || c.Subject != of.Identity {
		return of, nil
	}
	had := map[string]any{}
	for _, name := range permissions {
		if v, ok := c.Video[name]; ok {
			had[name] = v
		}
	}
	kept, err := json.Marshal(had)
	if err != nil {
		return of, nil
	}
	delete(c.Attributes, AttributeRole)
	next = of
	next.Permissions = kept
	for _, part := range []struct {
		name string
		set  func(*identity.Participation)
	}{
		{"name", func(p *identity.Participation) { p.Name = c.Name }},
		{"attributes", func(p *identity.Participation) { p.Attributes = c.Attributes }},
		{"metadata", func(p *identity.Participation) { p.Metadata = c.Metadata }},
	} {
		with := next
		part.set(&with)
		if size, err := json.Marshal(with); err != nil || len(size) > maxState {
			left = append(left, part.name)
			continue
		}
		next = with
	}
	return next, left
}

// units connects to media units.
type units struct {
	dialer websocket.Dialer
	http   *http.Client
}

func newUnits() *units {
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.DialContext, t.Proxy, t.MaxIdleConnsPerHost = dial, nil, 4
	return &units{
		dialer: websocket.Dialer{
			NetDialContext: dial, HandshakeTimeout: unitTimeout,
			ReadBufferSize: bufferSize, WriteBufferSize: bufferSize, WriteBufferPool: buffers,
		},
		http: &http.Client{
			Transport: t, Timeout: unitTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// errStatus is the response of a unit that has not accepted a connection. Its body is not read: LiveKit's contains the token.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("the unit returned %d", int(e)) }

// dial connects a participant to a unit. query is the client's without its token.
func (u *units) dial(ctx context.Context, t target, path, query, token string, client http.Header) (*websocket.Conn, error) {
	at := *t.url
	at.Path, at.RawQuery = strings.TrimRight(at.Path, "/")+path, query
	header := http.Header{"Authorization": {"Bearer " + token}}
	for _, name := range []string{"User-Agent", "X-Forwarded-For"} {
		if v := client.Get(name); v != "" {
			header.Set(name, v)
		}
	}
	dialer, stop := u.dialer, func() bool { return true }
	dialer.NetDialContext = func(dialing context.Context, network, address string) (net.Conn, error) {
		c, err := u.dialer.NetDialContext(dialing, network, address)
		if err == nil { // the handshake itself does not notice that ctx ends
			stop = context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}
	conn, res, err := dialer.DialContext(ctx, at.String(), header)
	if !stop() {
		return nil, fmt.Errorf("connect to the unit: %w", context.Cause(ctx))
	}
	if res != nil && err != nil {
		_ = res.Body.Close()
		return nil, errStatus(res.StatusCode)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the unit: %w", secret.WithoutURL(err))
	}
	return conn, nil
}

// reachable reports whether the unit responds and has the room.
func (u *units) reachable(ctx context.Context, t target, token string) bool {
	res, _, err := u.call(ctx, t, http.MethodGet, "/rtc/validate", token, nil)
	return err == nil && res == http.StatusOK
}

// remove removes a participant from a room.
func (u *units) remove(ctx context.Context, t target, room, identity string) error {
	token, err := t.adminToken(room)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"room": room, "identity": identity})
	if err != nil {
		return fmt.Errorf("remove participant: %w", err)
	}
	for range 2 { // a server that was suspended during the first call may not have found a session in time
		status, response, err := u.call(ctx, t, http.MethodPost, "/twirp/livekit.RoomService/RemoveParticipant", token, body)
		switch {
		case err != nil:
			return err
		case status == http.StatusOK, status == http.StatusNotFound: // it is not in the room
			return nil
		case !bytes.Contains(response, []byte(noSession)):
			return errStatus(status)
		}
	}
	return nil
}

// others returns the number of participants in a room, without one of an identity and without those that LiveKit does not count.
func (u *units) others(ctx context.Context, t target, room, identity string) (n int, err error) {
	token, err := t.adminToken(room)
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(map[string]string{"room": room})
	if err != nil {
		return 0, fmt.Errorf("list participants: %w", err)
	}
	status, response, err := u.call(ctx, t, http.MethodPost, "/twirp/livekit.RoomService/ListParticipants", token, body)
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return 0, errStatus(status)
	}
	var in struct {
		Participants []struct{ Identity, Kind string }
	}
	if err := json.Unmarshal(response, &in); err != nil {
		return 0, fmt.Errorf("list participants: %w", err)
	}
	for _, p := range in.Participants {
		if p.Identity != identity && p.Kind != "AGENT" && p.Kind != "EGRESS" {
			n++
		}
	}
	return n, nil
}

// call returns the status and the body of a response.
func (u *units) call(ctx context.Context, t target, method, path, token string, body []byte) (status int, response []byte, err error) {
	at := *t.url
	at.Scheme = map[string]string{"ws": "http", "wss": "https"}[at.Scheme]
	at.Path = strings.TrimRight(at.Path, "/") + path
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("call the unit: %w", secret.WithoutURL(err))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := u.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("call the unit: %w", secret.WithoutURL(err))
	}
	defer func() { _ = res.Body.Close() }() // it was read
	response, err = io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return 0, nil, fmt.Errorf("call the unit: %w", secret.WithoutURL(err))
	}
	return res.StatusCode, response, nil
}
