package signalling

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of LiveKit's signalling protocol that the proxy reads or writes, by their field in SignalRequest or SignalResponse
// (livekit_rtc.proto of github.com/livekit/protocol). Everything else is forwarded as it is. The few fields are read and written
// by number, so that fields which a newer unit or client has are kept, and so that the program does not need that module, whose
// package of messages needs a message bus, an expression language and a logging library.
const (
	fieldJoin         protowire.Number = 1
	fieldAddTrack     protowire.Number = 4
	fieldLeave        protowire.Number = 8
	fieldPing         protowire.Number = 14
	fieldRefreshToken protowire.Number = 16
	fieldPingReq      protowire.Number = 16
	fieldPong         protowire.Number = 18
	fieldReconnect    protowire.Number = 19
	fieldPongResp     protowire.Number = 20
	fieldRoomMoved    protowire.Number = 24

	joinAlternativeURL protowire.Number = 7
	roomMovedToken     protowire.Number = 2
	leaveCanReconnect  protowire.Number = 1
	leaveReason        protowire.Number = 2
	leaveAction        protowire.Number = 3
	addTrackMuted      protowire.Number = 6
	addTrackSource     protowire.Number = 8
	addTrackSID        protowire.Number = 11
	pingTimestamp      protowire.Number = 1
	pongLastPing       protowire.Number = 1
	pongTimestamp      protowire.Number = 2
)

// responses are the names in JSON of the responses that the proxy reads; jsonpb accepts both forms.
var responses = map[string]protowire.Number{
	"join": fieldJoin, "leave": fieldLeave, "reconnect": fieldReconnect,
	"refreshToken": fieldRefreshToken, "refresh_token": fieldRefreshToken, "roomMoved": fieldRoomMoved, "room_moved": fieldRoomMoved,
}

// action is what a client does after a LeaveRequest.
type action int

const (
	actionDisconnect action = 0
	actionResume     action = 1 // connect again and keep the media connection
	actionReconnect  action = 2 // connect again as a new participant
)

// reason is the DisconnectReason of a LeaveRequest.
type reason int

const (
	reasonClient   reason = 1
	reasonShutdown reason = 3
	reasonRemoved  reason = 4
	reasonDeleted  reason = 5
	reasonJoin     reason = 7 // JOIN_FAILURE
	reasonMoved    reason = 8 // MIGRATION
	reasonClosed   reason = 10
)

var (
	actionNames = []string{"DISCONNECT", "RESUME", "RECONNECT"}
	reasonNames = map[string]reason{
		"CLIENT_INITIATED": reasonClient, "SERVER_SHUTDOWN": reasonShutdown, "PARTICIPANT_REMOVED": reasonRemoved,
		"ROOM_DELETED": reasonDeleted, "MIGRATION": reasonMoved, "ROOM_CLOSED": reasonClosed,
	}
)

// sources are the values of TrackSource, as units report them in lower case.
var sources = []string{"unknown", "camera", "microphone", "screen_share", "screen_share_audio"}

// frame is one WebSocket message: JSON in a text frame, protobuf in a binary one.
type frame struct {
	text bool
	data []byte
}

// leave is a LeaveRequest without its regions, which name servers that are not berth's.
type leave struct {
	action action
	reason reason
}

// ends reports whether the unit sends the client away because its room or the unit itself ends.
func (l leave) ends() bool {
	return l.action == actionDisconnect && (l.reason == reasonShutdown || l.reason == reasonDeleted || l.reason == reasonClosed)
}

// response is a message of a unit that the proxy handles; field is 0 for all others.
type response struct {
	field protowire.Number
	leave leave
	token string // of refresh_token and room_moved
	body  []byte // of join and room_moved
	name  string // in JSON
}

// readResponse reads a message of a unit. One that cannot be read has field 0: the client handles it.
func readResponse(f frame) response {
	if f.text {
		return readJSON(f.data)
	}
	field, kind, n := protowire.ConsumeTag(f.data)
	if n < 0 || kind != protowire.BytesType {
		return response{}
	}
	switch field {
	case fieldJoin, fieldLeave, fieldReconnect, fieldRefreshToken, fieldRoomMoved:
	default:
		return response{}
	}
	body, n := protowire.ConsumeBytes(f.data[n:])
	if n < 0 {
		return response{}
	}
	r := response{field: field, body: body}
	switch field {
	case fieldLeave:
		r.leave = leave{action(varint(body, leaveAction)), reason(varint(body, leaveReason))} //nolint:gosec // enums: an unknown one stays unknown
		if r.leave.action == actionDisconnect && varint(body, leaveCanReconnect) != 0 {       // of servers before protocol version 13
			r.leave.action = actionReconnect
		}
	case fieldRefreshToken:
		r.token = string(body)
	case fieldRoomMoved:
		r.token = string(value(body, roomMovedToken))
	}
	return r
}

func readJSON(data []byte) response {
	var all map[string]json.RawMessage
	if json.Unmarshal(data, &all) != nil {
		return response{}
	}
	for name, body := range all {
		field, known := responses[name]
		if !known {
			continue
		}
		r := response{field: field, body: body, name: name}
		var in struct {
			Action, Reason json.RawMessage
			CanReconnect   bool
			Token          string
		}
		switch field {
		case fieldLeave:
			if json.Unmarshal(body, &in) != nil {
				return response{}
			}
			r.leave = leave{
				knownAction(enum(in.Action, func(name string) int { return slices.Index(actionNames, name) })),
				reason(enum(in.Reason, func(name string) int { return int(reasonNames[name]) })),
			}
			if r.leave.action == actionDisconnect && in.CanReconnect {
				r.leave.action = actionReconnect
			}
		case fieldRefreshToken:
			_ = json.Unmarshal(body, &r.token) // an empty token is not sent
		case fieldRoomMoved:
			_ = json.Unmarshal(body, &in)
			r.token = in.Token
		}
		return r
	}
	return response{}
}

// enum reads the number or the name of a value.
func enum(data json.RawMessage, named func(string) int) int {
	var name string
	if json.Unmarshal(data, &name) == nil {
		return named(name)
	}
	n, _ := strconv.Atoi(string(data))
	return n
}

// knownAction returns an action, or that of clients which do not know it.
func knownAction(n int) action {
	if n < 0 || n >= len(actionNames) {
		return actionDisconnect
	}
	return action(n)
}

// withoutAlternative returns a join response without the address of another server.
func (r response) withoutAlternative(f frame) frame {
	if f.text {
		return editJSON(f, r, map[string]any{"alternativeUrl": nil, "alternative_url": nil})
	}
	if value(r.body, joinAlternativeURL) == nil {
		return f
	}
	return message(fieldJoin, edit(r.body, joinAlternativeURL, nil))
}

// withToken returns a room_moved response with another token.
func (r response) withToken(f frame, token string) frame {
	if f.text {
		return editJSON(f, r, map[string]any{"token": token})
	}
	return message(fieldRoomMoved, edit(r.body, roomMovedToken, []byte(token)))
}

// editJSON replaces fields of the message in a text frame; nil removes one.
func editJSON(f frame, r response, change map[string]any) frame {
	fields := map[string]any{}
	var old map[string]json.RawMessage
	if json.Unmarshal(r.body, &old) != nil {
		return f
	}
	for name, v := range old {
		fields[name] = v
	}
	maps.Copy(fields, change)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	return textFrame(map[string]any{r.name: fields})
}

// mutedTrack returns a client's request to publish a track with the track muted, if its source is one of muted, and that source.
func mutedTrack(f frame, muted []string) (out frame, source string) {
	if f.text {
		return mutedJSON(f, muted)
	}
	field, kind, n := protowire.ConsumeTag(f.data)
	if n < 0 || field != fieldAddTrack || kind != protowire.BytesType {
		return f, ""
	}
	body, n := protowire.ConsumeBytes(f.data[n:])
	if n < 0 || len(value(body, addTrackSID)) > 0 { // another codec of a track that is published
		return f, ""
	}
	if at := varint(body, addTrackSource); at < uint64(len(sources)) && slices.Contains(muted, sources[at]) {
		source = sources[at]
		f = message(fieldAddTrack, appendVarint(edit(body, addTrackMuted, nil), addTrackMuted, 1))
	}
	return f, source
}

func mutedJSON(f frame, muted []string) (out frame, source string) {
	var all map[string]json.RawMessage
	if json.Unmarshal(f.data, &all) != nil {
		return f, ""
	}
	for _, name := range []string{"addTrack", "add_track"} {
		var in struct {
			Source json.RawMessage
			SID    string
		}
		if json.Unmarshal(all[name], &in) != nil || in.SID != "" {
			continue
		}
		at := enum(in.Source, func(name string) int { return slices.Index(sources, strings.ToLower(name)) })
		if at >= 0 && at < len(sources) && slices.Contains(muted, sources[at]) {
			return editJSON(f, response{name: name, body: all[name]}, map[string]any{"muted": true}), sources[at]
		}
	}
	return f, ""
}

// leaveFrame returns the message that sends a client away.
func leaveFrame(text bool, l leave) frame {
	if text {
		fields := map[string]any{"action": actionNames[l.action], "canReconnect": l.action != actionDisconnect, "reason": int(l.reason)}
		return textFrame(map[string]any{"leave": fields})
	}
	var b []byte
	if l.action != actionDisconnect { // what clients before protocol version 13 read
		b = appendVarint(b, leaveCanReconnect, 1)
	}
	b = appendVarint(b, leaveReason, uint64(l.reason)) //nolint:gosec // never negative
	b = appendVarint(b, leaveAction, uint64(l.action)) //nolint:gosec // never negative
	return message(fieldLeave, b)
}

// refreshFrame returns the message that gives a client another token.
func refreshFrame(text bool, token string) frame {
	if text {
		return textFrame(map[string]any{"refreshToken": token})
	}
	return message(fieldRefreshToken, []byte(token))
}

// pongOf returns the response to a client's ping; ok is false for all other requests.
func pongOf(f frame, now time.Time) (pong frame, ok bool) {
	at := now.UnixMilli()
	if f.text {
		var in struct {
			Ping    json.RawMessage
			PingReq *struct{ Timestamp json.RawMessage }
		}
		switch {
		case json.Unmarshal(f.data, &in) != nil:
			return frame{}, false
		case in.Ping != nil:
			return textFrame(map[string]any{"pong": strconv.FormatInt(at, 10)}), true
		case in.PingReq != nil:
			return textFrame(map[string]any{"pongResp": map[string]any{
				"lastPingTimestamp": in.PingReq.Timestamp, "timestamp": strconv.FormatInt(at, 10),
			}}), true
		}
		return frame{}, false
	}
	field, kind, n := protowire.ConsumeTag(f.data)
	switch {
	case n < 0:
	case field == fieldPing && kind == protowire.VarintType:
		return frame{data: appendVarint(nil, fieldPong, uint64(at))}, true
	case field == fieldPingReq && kind == protowire.BytesType:
		body, m := protowire.ConsumeBytes(f.data[n:])
		if m < 0 {
			return frame{}, false
		}
		b := appendVarint(nil, pongLastPing, varint(body, pingTimestamp))
		return message(fieldPongResp, appendVarint(b, pongTimestamp, uint64(at))), true
	}
	return frame{}, false
}

func textFrame(v any) frame {
	b, _ := json.Marshal(v) // maps of plain values and of JSON that was read
	return frame{text: true, data: b}
}

// message returns a binary frame with one field.
func message(field protowire.Number, body []byte) frame {
	return frame{data: protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), body)}
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// each calls f for every field of a message until it returns false; raw is the field with its tag.
func each(body []byte, f func(field protowire.Number, kind protowire.Type, raw, value []byte) bool) {
	for len(body) > 0 {
		field, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return
		}
		m := protowire.ConsumeFieldValue(field, kind, body[n:])
		if m < 0 || !f(field, kind, body[:n+m], body[n:n+m]) {
			return
		}
		body = body[n+m:]
	}
}

// varint returns the last value of a number in a message, 0 without one.
func varint(body []byte, want protowire.Number) (v uint64) {
	each(body, func(field protowire.Number, kind protowire.Type, _, value []byte) bool {
		if field == want && kind == protowire.VarintType {
			v, _ = protowire.ConsumeVarint(value)
		}
		return true
	})
	return v
}

// value returns the last value of a text in a message, nil without one.
func value(body []byte, want protowire.Number) (v []byte) {
	each(body, func(field protowire.Number, kind protowire.Type, _, value []byte) bool {
		if field == want && kind == protowire.BytesType {
			v, _ = protowire.ConsumeBytes(value)
		}
		return true
	})
	return v
}

// edit returns a message with another value of a text; nil removes it.
func edit(body []byte, change protowire.Number, to []byte) []byte {
	out := make([]byte, 0, len(body)+len(to)+8)
	each(body, func(field protowire.Number, _ protowire.Type, raw, _ []byte) bool {
		if field != change {
			out = append(out, raw...)
		}
		return true
	})
	if to != nil {
		out = protowire.AppendBytes(protowire.AppendTag(out, change, protowire.BytesType), to)
	}
	return out
}
