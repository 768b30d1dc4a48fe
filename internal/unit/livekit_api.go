package unit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth/internal/secret"
)

const (
	// tokenTTL is the validity of a call's token, and the tolerated difference of two hosts' clocks.
	tokenTTL = 10 * time.Minute
	// maxResponse is the limit of a response: ten thousand participants with all their tracks.
	maxResponse = 64 << 20
)

// roomService calls LiveKit's room service as JSON over Twirp.
type roomService struct {
	base   string
	root   string // of the server, without a slash at the end
	key    string
	secret []byte
	http   *http.Client
}

func newRoomService(u *url.URL, key, secret string) *roomService {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.MaxIdleConnsPerHost = MaxCommands + maxReports + 1
	t.DialContext = (&net.Dialer{Timeout: time.Second}).DialContext
	root := strings.TrimRight(u.String(), "/")
	return &roomService{
		base: root + "/twirp/livekit.RoomService/", root: root, key: key, secret: []byte(secret),
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

type createRoom struct {
	Name             string `json:"name"`
	EmptyTimeout     uint32 `json:"empty_timeout"`     // seconds
	DepartureTimeout uint32 `json:"departure_timeout"` // seconds
	MaxParticipants  uint32 `json:"max_participants,omitempty"`
	Metadata         string `json:"metadata,omitempty"`
}

type room struct {
	SID              string `json:"sid"`
	Name             string `json:"name"`
	Metadata         string `json:"metadata"`
	EmptyTimeout     uint32 `json:"empty_timeout"`     // seconds
	DepartureTimeout uint32 `json:"departure_timeout"` // seconds
	NumParticipants  int    `json:"num_participants"`
	CreationTime     int64  `json:"creation_time,string"`    // Unix seconds
	CreationTimeMs   int64  `json:"creation_time_ms,string"` // not sent by older servers
}

// created returns the creation time in Unix milliseconds.
func (r room) created() int64 {
	if r.CreationTimeMs > 0 {
		return r.CreationTimeMs
	}
	return r.CreationTime * 1000
}

type participant struct {
	SID        string `json:"sid"`
	Identity   string `json:"identity"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Publishing bool   `json:"is_publisher"`
	JoinedAt   int64  `json:"joined_at,string"`    // Unix seconds
	JoinedAtMs int64  `json:"joined_at_ms,string"` // not sent by older servers
	Tracks     []struct {
		SID    string `json:"sid"`
		Source string `json:"source"`
		Muted  bool   `json:"muted"`
	} `json:"tracks"`
}

// joined returns when the participant joined.
func (p participant) joined() time.Time {
	if p.JoinedAtMs > 0 {
		return time.UnixMilli(p.JoinedAtMs).UTC()
	}
	return time.Unix(p.JoinedAt, 0).UTC()
}

// twirpError is an error response.
type twirpError struct {
	Status int    `json:"-"`
	Code   string `json:"code"`
	Msg    string `json:"msg"`
}

func (e *twirpError) Error() string {
	return fmt.Sprintf("the LiveKit server returned %d %s: %s", e.Status, e.Code, e.Msg)
}

// notFound reports whether the server does not have the room.
func notFound(err error) bool {
	failed, ok := errors.AsType[*twirpError](err)
	return ok && failed.Code == "not_found"
}

// list returns the rooms of these names, all rooms without names.
func (s *roomService) list(ctx context.Context, names ...string) ([]room, error) {
	var out struct {
		Rooms []room `json:"rooms"`
	}
	in := struct {
		Names []string `json:"names,omitempty"`
	}{names}
	err := s.call(ctx, "ListRooms", "", in, &out)
	return out.Rooms, err
}

// create creates a room, or returns the existing one unchanged. It fails with a *Refusal if the server refused the call or
// did not receive it.
func (s *roomService) create(ctx context.Context, in createRoom) (room, error) {
	var out room
	err := s.call(ctx, "CreateRoom", "", in, &out)
	var failed *twirpError
	var dial *net.OpError
	switch {
	case errors.As(err, &failed) && failed.Status < http.StatusInternalServerError:
		return out, &Refusal{failed.Error()}
	case errors.As(err, &dial) && dial.Op == "dial":
		return out, &Refusal{"the LiveKit server is unreachable"}
	}
	return out, err
}

func (s *roomService) update(ctx context.Context, name, metadata string) error {
	return s.call(ctx, "UpdateRoomMetadata", name, map[string]string{"room": name, "metadata": metadata}, &struct{}{})
}

func (s *roomService) remove(ctx context.Context, name string) error {
	return s.call(ctx, "DeleteRoom", "", map[string]string{"room": name}, &struct{}{})
}

func (s *roomService) mute(ctx context.Context, name, identity, track string) error {
	in := map[string]any{"room": name, "identity": identity, "track_sid": track, "muted": true}
	return s.call(ctx, "MutePublishedTrack", name, in, &struct{}{})
}

func (s *roomService) participants(ctx context.Context, name string) ([]participant, error) {
	var out struct {
		Participants []participant `json:"participants"`
	}
	err := s.call(ctx, "ListParticipants", name, map[string]string{"room": name}, &out)
	return out.Participants, err
}

// createsRooms reports whether the server would create a room for a participant. It creates none.
func (s *roomService) createsRooms(ctx context.Context) (bool, error) {
	token, err := s.token(map[string]any{"roomJoin": true, "room": "berth.probe." + rand.Text()})
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.root+"/rtc/validate", http.NoBody)
	if err != nil {
		return false, fmt.Errorf("call the LiveKit server: %w", secret.WithoutURL(err))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := s.send(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }() // the status is enough
	switch res.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	default:
		return false, responseError(res.StatusCode, nil)
	}
}

// send sends a request. ErrStopped: the server's host refused the connection.
func (s *roomService) send(req *http.Request) (*http.Response, error) {
	res, err := s.http.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: %w", ErrStopped, secret.WithoutURL(err))
	case err != nil:
		return nil, fmt.Errorf("call the LiveKit server: %w", secret.WithoutURL(err))
	}
	return res, nil
}

// call sends one request. asAdmin names the room that the call needs an admin grant for.
func (s *roomService) call(ctx context.Context, method, asAdmin string, in, out any) error {
	grants := map[string]any{"roomCreate": true, "roomList": true}
	if asAdmin != "" {
		grants["roomAdmin"], grants["room"] = true, asAdmin
	}
	token, err := s.token(grants)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the LiveKit server: %w", secret.WithoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := s.send(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // the response was read, or is discarded
	response, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("read the LiveKit response to %s: %w", method, err)
	}
	if res.StatusCode != http.StatusOK {
		return responseError(res.StatusCode, response)
	}
	if err := json.Unmarshal(response, out); err != nil {
		return fmt.Errorf("read the LiveKit response to %s: %w", method, err)
	}
	return nil
}

// responseError returns the error of a response whose status is not 200. A server that does not know the key, or has no
// room service, is not the configured one.
func responseError(status int, response []byte) error {
	e := &twirpError{Status: status}
	if json.Unmarshal(response, e) != nil {
		e.Msg = strings.TrimSpace(strings.ToValidUTF8(string(response[:min(len(response), 200)]), ""))
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound && e.Code != "not_found":
		// LiveKit's message contains the token.
		return &Misconfigured{fmt.Sprintf("wrong URL, key or secret: the LiveKit server returned %d", status)}
	}
	return e
}

// token returns a token with grants.
func (s *roomService) token(grants map[string]any) (string, error) {
	now := time.Now()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": s.key, "sub": "berth", "nbf": now.Add(-tokenTTL).Unix(), "exp": now.Add(tokenTTL).Unix(), "video": grants,
	}).SignedString(s.secret)
	if err != nil {
		return "", fmt.Errorf("sign a token for the LiveKit server: %w", err)
	}
	return signed, nil
}
