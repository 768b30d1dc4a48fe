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

// Codes of the scripts of conferences.
const (
	ConferenceOK        = "OK"
	ConferenceStale     = "STALE"      // there is a later decision; for information: the writer is not the owner
	ConferenceNoLicence = "NO_LICENCE" // put_conference: all licences are in use
	InfoUnknown         = "UNKNOWN"    // put_conference_info: conference not found
	InfoTooLarge        = "TOO_LARGE"  // put_conference_info: more than berth.MaxConferenceInfo in total
)

// lateWrites is how long after its end a conference's row cannot be written again: longer than a broken connection may keep
// a command.
const lateWrites = time.Hour

const (
	maxLiveFields   = 1000
	conferenceLive  = "live:"
	conferenceBasic = "basic"
)

// ConferenceRow is a conference as stored in Redis.
type ConferenceRow struct {
	E164         string
	ConferenceID string
	NodeID       string // empty when no unit owns it
	Generation   int64
	Epoch        int64
	Revision     int64 // orders the writes of one conference
	Status       berth.ConferenceStatus
	StartedAt    time.Time // of the running copy
}

// Licence is the licence that PutConference grants. The zero value grants one, whatever their number.
type Licence struct {
	Waived bool // the conference has none in this state
	Limit  int  // number of licences, where the conference may not have one yet
}

// PutConference writes a conference's row, the basic data that survive a change of its owner, and its licence. It returns
// ConferenceOK; ConferenceStale when there is a later revision, or a later conference of the number, or it has ended; or
// ConferenceNoLicence when it needs a licence and all are in use. Nothing changed in these cases.
func (s *Scripts) PutConference(ctx context.Context, r ConferenceRow, basic json.RawMessage, l Licence) (code string, err error) {
	k := s.keys
	started := int64(0)
	if !r.StartedAt.IsZero() {
		started = r.StartedAt.UnixMilli()
	}
	return s.code(ctx, "put_conference",
		[]string{k.Conference(r.E164), k.ConferenceInfo(r.E164), k.ConferenceEnded(r.E164), k.Licences()},
		r.E164, k.units(), r.NodeID, r.Generation, r.Epoch, r.Revision, string(r.Status), started, r.ConferenceID, string(basic),
		flag(l.Waived), l.Limit, k.ConferenceUpdated())
}

// Licences returns how many conferences have a licence, and whether the conference of this number has one.
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

// DropConference deletes an ended conference. epoch is its last one. It returns ConferenceOK, also when the
// conference was not found, or ConferenceStale when the number belongs to another conference now.
func (s *Scripts) DropConference(ctx context.Context, e164, conferenceID string, epoch int64) (code string, err error) {
	k := s.keys
	return s.code(ctx, "drop_conference",
		[]string{k.Conference(e164), k.ConferenceInfo(e164), k.ConferenceEnded(e164), k.Licences()},
		e164, k.units(), conferenceID, epoch, millis(lateWrites), k.ConferenceUpdated())
}

// AnnounceConference publishes the id of a conference whose participants have changed, as PutConference and DropConference do.
func (s *Scripts) AnnounceConference(ctx context.Context, conferenceID string) error {
	if _, err := s.publish(ctx, s.keys.ConferenceUpdated(), conferenceID); err != nil {
		return fmt.Errorf("announce conference: %w", err)
	}
	return nil
}

// CountInFlight returns how many slots of a node expire within a time: those of commands that it has not acknowledged, where
// that is the time for which these hold their slots.
func (s *Scripts) CountInFlight(ctx context.Context, nodeID string, within time.Duration) (int, error) {
	r := s.call(ctx, "count_in_flight", []string{s.keys.NodeSlots(nodeID)}, millis(within))
	r.code(NodeOK)
	n := int(r.number())
	return n, r.done()
}

// PutConferenceInfo writes live information from a conference's owner: all of it, or top-level fields, of which null removes
// one. With Ended it changes nothing, and only checks that the unit is the owner. It returns ConferenceOK, ConferenceStale
// (dropped and counted), InfoUnknown or InfoTooLarge; CodeInvalid when Live is not a JSON object.
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

// ConferenceInfo returns a conference's basic data and its live information, both JSON objects; ok is false when the
// conference was not found.
func (s *Scripts) ConferenceInfo(ctx context.Context, e164 string) (basic, live json.RawMessage, ok bool, err error) {
	all, err := s.hash(ctx, s.keys.ConferenceInfo(e164), "conference information")
	if len(all) == 0 {
		return nil, nil, false, err
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

// ConferenceRow returns a conference's row; ok is false when there is none.
func (s *Scripts) ConferenceRow(ctx context.Context, e164 string) (r ConferenceRow, ok bool, err error) {
	f, err := s.hash(ctx, s.keys.Conference(e164), "conference")
	if len(f) == 0 {
		return r, false, err
	}
	return ConferenceRow{
		E164: e164, NodeID: f["owner"], Generation: number(f["generation"]), Epoch: number(f["epoch"]),
		Revision: number(f["revision"]), Status: berth.ConferenceStatus(f["status"]), StartedAt: msTime(f["start_ms"]),
		ConferenceID: f["conference_id"],
	}, true, nil
}

// UnitConferences returns the numbers of the conferences that a unit owns, in no particular order.
func (s *Scripts) UnitConferences(ctx context.Context, nodeID string) ([]string, error) {
	out, err := s.rdb.SMembers(ctx, s.keys.UnitConferences(nodeID)).Result()
	if err != nil {
		return nil, fmt.Errorf("read a unit's conferences: %w", err)
	}
	return out, nil
}

// StaleInfo returns by unit how many messages were dropped because it was not the owner.
func (s *Scripts) StaleInfo(ctx context.Context) (map[string]int64, error) {
	all, err := s.hash(ctx, s.keys.StaleInfo(), "stale messages")
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(all))
	for unit, n := range all {
		out[unit] = number(n)
	}
	return out, nil
}
