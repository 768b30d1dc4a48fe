package unit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// tokenTTL is how long a call's token is valid; clocks of two hosts may differ by as much.
	tokenTTL = 10 * time.Minute
	// answerBytes bounds what is read of an answer: ten thousand participants with all their tracks.
	answerBytes = 64 << 20
)

// roomService calls LiveKit's room service: JSON over its Twirp routes.
type roomService struct {
	base   string
	key    string
	secret []byte
	http   *http.Client
}

func newRoomService(u *url.URL, key, secret string) *roomService {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // the standard library's own
	t.MaxIdleConnsPerHost = MaxCommands + maxReports + 1
	t.DialContext = (&net.Dialer{Timeout: time.Second}).DialContext
	return &roomService{
		base: strings.TrimRight(u.String(), "/") + "/twirp/livekit.RoomService/", key: key, secret: []byte(secret),
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
	SID             string `json:"sid"`
	Name            string `json:"name"`
	Metadata        string `json:"metadata"`
	NumParticipants int    `json:"num_participants"`
	CreationTime    int64  `json:"creation_time,string"`    // Unix seconds
	CreationTimeMs  int64  `json:"creation_time_ms,string"` // older servers have none
}

// created is in Unix ms.
func (r room) created() int64 {
	if r.CreationTimeMs > 0 {
		return r.CreationTimeMs
	}
	return r.CreationTime * 1000
}

type participant struct {
	Identity   string `json:"identity"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Publishing bool   `json:"is_publisher"`
	JoinedAt   int64  `json:"joined_at,string"` // Unix seconds
}

// twirpError is the server's answer that is none.
type twirpError struct {
	Status int    `json:"-"`
	Code   string `json:"code"`
	Msg    string `json:"msg"`
}

func (e *twirpError) Error() string {
	return fmt.Sprintf("the LiveKit server answered %d %s: %s", e.Status, e.Code, e.Msg)
}

// list has the rooms of these names, or all.
func (s *roomService) list(ctx context.Context, names ...string) ([]room, error) {
	var out struct {
		Rooms []room `json:"rooms"`
	}
	in := struct {
		Names []string `json:"names,omitempty"`
	}{names}
	return out.Rooms, s.call(ctx, "ListRooms", "", in, &out)
}

// create makes a room, or answers the one that is there as it is. What the server refuses, or never got, is a *Refusal.
func (s *roomService) create(ctx context.Context, in createRoom) (room, error) {
	var out room
	err := s.call(ctx, "CreateRoom", "", in, &out)
	var no *twirpError
	var dial *net.OpError
	switch {
	case errors.As(err, &no) && no.Status < http.StatusInternalServerError:
		return out, &Refusal{no.Error()}
	case errors.As(err, &dial) && dial.Op == "dial":
		return out, &Refusal{"the LiveKit server does not answer"}
	}
	return out, err
}

func (s *roomService) update(ctx context.Context, name, metadata string) error {
	in := struct {
		Room     string `json:"room"`
		Metadata string `json:"metadata"`
	}{name, metadata}
	return s.call(ctx, "UpdateRoomMetadata", name, in, &struct{}{})
}

func (s *roomService) remove(ctx context.Context, name string) error {
	in := struct {
		Room string `json:"room"`
	}{name}
	return s.call(ctx, "DeleteRoom", "", in, &struct{}{})
}

func (s *roomService) participants(ctx context.Context, name string) ([]participant, error) {
	in := struct {
		Room string `json:"room"`
	}{name}
	var out struct {
		Participants []participant `json:"participants"`
	}
	return out.Participants, s.call(ctx, "ListParticipants", name, in, &out)
}

// call posts one request. asAdmin names the room that the call needs a grant for.
func (s *roomService) call(ctx context.Context, method, asAdmin string, in, out any) error {
	token, err := s.token(asAdmin)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call the LiveKit server: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("call the LiveKit server: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // the answer is read, or given up
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return fmt.Errorf("read %s of the LiveKit server: %w", method, err)
	}
	if res.StatusCode != http.StatusOK {
		return refusal(res.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read %s of the LiveKit server: %w", method, err)
	}
	return nil
}

// refusal words an answer that is not 200. A server that does not know the key, or has no room service, is another one
// than was meant.
func refusal(status int, answer []byte) error {
	e := &twirpError{Status: status}
	if json.Unmarshal(answer, e) != nil {
		e.Msg = strings.TrimSpace(strings.ToValidUTF8(string(answer[:min(len(answer), 200)]), ""))
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound && e.Code != "not_found":
		// LiveKit's words have the token in them.
		return &Misconfigured{fmt.Sprintf("URL, key or secret are not those of the LiveKit server: it answered %d", status)}
	}
	return e
}

// token grants what the room service asks for.
func (s *roomService) token(asAdmin string) (string, error) {
	grants := map[string]any{"roomCreate": true, "roomList": true}
	if asAdmin != "" {
		grants["roomAdmin"], grants["room"] = true, asAdmin
	}
	now := time.Now()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": s.key, "sub": "berth", "nbf": now.Add(-tokenTTL).Unix(), "exp": now.Add(tokenTTL).Unix(), "video": grants,
	}).SignedString(s.secret)
	if err != nil {
		return "", fmt.Errorf("sign a token for the LiveKit server: %w", err)
	}
	return signed, nil
}
