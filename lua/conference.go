package lua

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
)

// What the scripts of conferences answer.
const (
	ConferenceOK        = "OK"
	ConferenceStale     = "STALE"      // a later decision is there; of information: the writer is not the owner
	ConferenceNoLicence = "NO_LICENCE" // put_conference: all licences are in use
	InfoUnknown         = "UNKNOWN"    // put_conference_info: there is no such conference
	InfoTooLarge        = "TOO_LARGE"  // put_conference_info: over berth.MaxConferenceInfo in all
)

// lateWrites is how long after its end a conference's row cannot come back: longer than a connection that is cut holds on
// to what was sent.
const lateWrites = time.Hour

const (
	maxLiveFields    = 1000
	conferenceLive   = "live:"
	conferenceBasic  = "basic"
	conferenceFields = "owner generation epoch revision status start_ms conference_id"
)

// ConferenceRow is what Redis has of a conference (C12).
type ConferenceRow struct {
	E164         string
	ConferenceID string
	NodeID       string // empty when nobody owns it
	Generation   int64
	Epoch        int64
	Revision     int64 // orders what is written of one conference
	Status       berth.ConferenceStatus
	StartedAt    time.Time // of the copy that runs
}

// Licence is what a conference's row says of its licence (C22). The zero value is that it has one, whatever others have.
type Licence struct {
	Waived bool // it has none while it stands so
	Limit  int  // how many there are, where it asks for one that it may not have yet
}

// PutConference writes a conference's row, with the basic data that survive a change of its owner, and its licence. It answers
// ConferenceOK, or ConferenceStale when a later revision is there, or a later conference of the number, or it is over, or
// ConferenceNoLicence when it asked and all are in use; nothing changed then.
func (s *Scripts) PutConference(ctx context.Context, r ConferenceRow, basic json.RawMessage, l Licence) (code string, err error) {
	k := s.keys
	started := int64(0)
	if !r.StartedAt.IsZero() {
		started = r.StartedAt.UnixMilli()
	}
	return s.code(ctx, "put_conference",
		[]string{k.Conference(r.E164), k.ConferenceInfo(r.E164), k.ConferenceEnded(r.E164), k.Licences()},
		r.E164, k.units(), r.NodeID, r.Generation, r.Epoch, r.Revision, string(r.Status), started, r.ConferenceID, string(basic),
		flag(l.Waived), l.Limit)
}

// Licences is how many conferences have a licence, and whether this number's is one of them.
func (s *Scripts) Licences(ctx context.Context, e164 string) (used int, has bool, err error) {
	var all *redis.IntCmd
	var one *redis.BoolCmd
	_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		all, one = p.SCard(ctx, s.keys.Licences()), p.SIsMember(ctx, s.keys.Licences(), e164)
		return nil
	})
	if err != nil {
		return 0, false, fmt.Errorf("read licences: %w", err)
	}
	return int(all.Val()), one.Val(), nil
}

// DropConference forgets a conference that is over. epoch is its last one. It answers ConferenceOK, also when there was
// nothing, or ConferenceStale when the number is another conference's by now.
func (s *Scripts) DropConference(ctx context.Context, e164, conferenceID string, epoch int64) (code string, err error) {
	k := s.keys
	return s.code(ctx, "drop_conference",
		[]string{k.Conference(e164), k.ConferenceInfo(e164), k.ConferenceEnded(e164), k.Licences()},
		e164, k.units(), conferenceID, epoch, millis(lateWrites))
}

// SeizeNodeSlot holds a slot of a generation until ttl from now for work that it runs already, also beyond its capacity
// and in a grace (L12). It answers NodeSlotHeld, or NodeGone and nothing changed.
func (s *Scripts) SeizeNodeSlot(ctx context.Context, a berth.Assignment, ttl time.Duration) (code string, err error) {
	k := s.keys
	return s.code(ctx, "seize_node_slot", []string{k.NodeSlots(a.NodeID), k.NodeLeases()},
		k.stem(), a.NodeID, a.Generation, a.LeaseID, millis(ttl), a.PoolID)
}

// PutConferenceInfo takes live information from a conference's owner (C20): all of it, or top-level fields, of which null
// removes one. That the unit ended it changes nothing here: whether the unit may say so is answered. It answers
// ConferenceOK, ConferenceStale (dropped and counted), InfoUnknown or InfoTooLarge; CodeInvalid when Live is no JSON
// object.
func (s *Scripts) PutConferenceInfo(ctx context.Context, e164 string, in berth.ConferenceInfo) (code string, err error) {
	var fields map[string]json.RawMessage
	if in.Ended {
		in.Live, in.Full = json.RawMessage(`{}`), false
	}
	if err := json.Unmarshal(in.Live, &fields); err != nil || fields == nil {
		return "", berth.Invalid("live", "must be a JSON object").With(err)
	}
	if len(fields) > maxLiveFields {
		return "", berth.Invalid("live", "must have at most %d fields", maxLiveFields)
	}
	k := s.keys
	args := []any{in.NodeID, in.Generation, in.Epoch, flag(in.Full), berth.MaxConferenceInfo}
	for name, value := range fields {
		if bytes.Equal(value, []byte("null")) {
			value = nil
		}
		args = append(args, name, string(value))
	}
	return s.code(ctx, "put_conference_info", []string{k.Conference(e164), k.ConferenceInfo(e164), k.StaleInfo()}, args...)
}

// ConferenceInfo is a conference's basic data and its live information, both JSON objects; ok is false when there is no
// such conference.
func (s *Scripts) ConferenceInfo(ctx context.Context, e164 string) (basic, live json.RawMessage, ok bool, err error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.ConferenceInfo(e164)).Result()
	if err != nil {
		return nil, nil, false, fmt.Errorf("read conference information: %w", err)
	}
	if len(all) == 0 {
		return nil, nil, false, nil
	}
	fields := map[string]json.RawMessage{}
	for name, value := range all {
		if name, is := strings.CutPrefix(name, conferenceLive); is {
			fields[name] = json.RawMessage(value)
		}
	}
	live, err = json.Marshal(fields)
	if err != nil {
		return nil, nil, false, fmt.Errorf("conference information: %w", err)
	}
	return json.RawMessage(all[conferenceBasic]), live, true, nil
}

// ConferenceRow reads a conference's row; ok is false when there is none.
func (s *Scripts) ConferenceRow(ctx context.Context, e164 string) (r ConferenceRow, ok bool, err error) {
	v, err := s.rdb.HMGet(ctx, s.keys.Conference(e164), strings.Fields(conferenceFields)...).Result()
	if err != nil {
		return r, false, fmt.Errorf("read conference: %w", err)
	}
	f, ok := textList(v)
	if !ok { // a field that is not there is nil
		return r, false, nil
	}
	return ConferenceRow{
		E164: e164, NodeID: f[0], Generation: number(f[1]), Epoch: number(f[2]), Revision: number(f[3]),
		Status: berth.ConferenceStatus(f[4]), StartedAt: msTime(f[5]), ConferenceID: f[6],
	}, true, nil
}

// UnitConferences are the numbers of the conferences that a unit owns, in no order.
func (s *Scripts) UnitConferences(ctx context.Context, nodeID string) ([]string, error) {
	out, err := s.rdb.SMembers(ctx, s.keys.UnitConferences(nodeID)).Result()
	if err != nil {
		return nil, fmt.Errorf("read a unit's conferences: %w", err)
	}
	return out, nil
}

// StaleInfo is how many messages of each unit were dropped because it was not the owner (C20).
func (s *Scripts) StaleInfo(ctx context.Context) (map[string]int64, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.StaleInfo()).Result()
	if err != nil {
		return nil, fmt.Errorf("read stale messages: %w", err)
	}
	out := make(map[string]int64, len(all))
	for unit, n := range all {
		out[unit] = number(n)
	}
	return out, nil
}
