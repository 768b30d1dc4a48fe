package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/workflows"
)

type createConferenceInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Requests of one user with the same key and body create one conference, even after it has ended"`
	Body           conferenceBody
}

type createConferenceOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     ConferenceView
}

type conferenceInput struct {
	E164         string `path:"e164" doc:"The number without the plus"`
	ConferenceID string `query:"conferenceId" maxLength:"128" doc:"An earlier conference of the number; default: the last"`
}

type releaseConferenceInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
}

type conferenceOutput struct {
	Status int
	Body   ConferenceView
}

type conferencesInput struct {
	Status berth.ConferenceStatus `query:"status"`
	Unit   string                 `query:"unit" maxLength:"128" doc:"Only conferences that this unit owns"`
	Limit  int                    `query:"limit" minimum:"1" maximum:"100" default:"20"`
	CursorParam
}

type conferencesOutputBody struct {
	Conferences []ConferenceView `json:"conferences"`
	NextCursor  string           `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) conferenceRoutes() {
	replay := s.alternative("200", "Created by an earlier request: a replay", ConferenceView{})
	registerOutput(s, "POST /v1/conferences", forUser, s.createConference, withStatus(http.StatusCreated, withResponses(replay, op(
		"create-conference", "conferences", "Open a conference",
		"Returns once the unit has acknowledged the conference or, where that unit was lost during the call, once the "+
			"conference waits for another one; see `status`. 503 `node_full` and `no_node` state why no unit is available, `no_licence` that "+
			"every licence is in use; 502 `unit_refused`: the unit refused it. Nothing remains of a refused conference. The same number and "+
			"body again is a replay until the conference ends; 409: the number has another conference. Without a number, retries are "+
			"idempotent only with an Idempotency-Key; 422: the key was used with another body."))))
	register(s, "GET /v1/conferences", forUsers, s.listConferences, op("list-conferences", "conferences",
		"List your conferences, newest first; an operator's list has every user's"))
	register(s, "GET /v1/conferences/{e164}", forUsers, s.getConference, op("get-conference", "conferences",
		"Get a conference: its owner, why it waits, the commands to its units and its unit's information"))
	late := s.alternative("202", "The conference is ending", ConferenceView{})
	registerOutput(s, "DELETE /v1/conferences/{e164}", forUsers, s.endConference, withResponses(late, op(
		"end-conference", "conferences", "End a conference in any state",
		"Returns once the unit has released it; 202 when that takes longer, for instance while the unit is unresponsive: the conference ends without another call. 409 when it has ended.")))
	s.conferenceRecordRoute()
	s.conferenceChangeRoutes()
	s.conferenceInfoRoutes()
	s.conferenceEventRoute()
}

func (s *server) createConference(ctx context.Context, in *createConferenceInput) (*createConferenceOutput, error) {
	want, err := newConference(callOf(ctx).user.UserID, in.Body, s.Clock())
	if err != nil {
		return nil, err
	}
	want.Rules = s.Config.Conferences
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	if err := s.useUnits(ctx, want.Spec.Zone); err != nil {
		return nil, err
	}
	c, replay, err := s.place(ctx, want, in.IdempotencyKey)
	if err != nil {
		return nil, fmt.Errorf("create conference %s: %w", want.Spec.E164, err)
	}
	out := &createConferenceOutput{Status: http.StatusCreated, Location: location(conferencePath(c.E164)), Body: s.viewConference(c)}
	if replay {
		out.Status, out.Body.Replay = http.StatusOK, true
	}
	return out, nil
}

// newConference returns the requested conference; errors name the field.
func newConference(userID string, b conferenceBody, now time.Time) (workflows.ConferenceInput, error) {
	if err := checkConference(&b, now); err != nil {
		return workflows.ConferenceInput{}, err
	}
	spec := berth.ConferenceSpec{
		E164: b.E164, Title: b.Title, MaxParticipants: b.MaxParticipants, EndAt: b.EndAt.UTC(),
		Recoverable: b.Recoverable == nil || *b.Recoverable, Zone: b.Zone, ZoneFallback: b.ZoneFallback && b.Zone != "",
	}
	if b.DurationMs > 0 {
		spec.EndAt = now.Add(time.Duration(b.DurationMs) * time.Millisecond).UTC()
	}
	spec.EndAt = spec.EndAt.Truncate(time.Millisecond)
	var metadata bytes.Buffer
	if len(b.Metadata) > 0 && string(b.Metadata) != "null" {
		if err := json.Compact(&metadata, b.Metadata); err != nil {
			return workflows.ConferenceInput{}, berth.Invalid("metadata", "must be JSON").With(err)
		}
		spec.Metadata = metadata.Bytes()
	}
	// A retry has the same duration, not the same end.
	requested := spec
	requested.EndAt = b.EndAt.UTC().Truncate(time.Millisecond)
	hash, err := hashRequest(userID, requested, b.DurationMs)
	return workflows.ConferenceInput{ConferenceID: berth.NewID("c-"), UserID: userID, Spec: spec, RequestHash: hash}, err
}

// maxConferenceTime is how far in the future a conference may end.
const maxConferenceTime = 30 * 24 * time.Hour

// checkConference validates the body, and brings its names into their stored forms.
func checkConference(b *conferenceBody, now time.Time) error {
	if b.E164 != "" {
		if err := berth.ValidE164("e164", b.E164); err != nil {
			return err
		}
	}
	if err := normalize("title", &b.Title, berth.MaxConferenceTitle); err != nil {
		return err
	}
	switch {
	case !b.EndAt.IsZero() && b.DurationMs != 0:
		return berth.Invalid("durationMs", "give endAt or durationMs, not both")
	case b.EndAt.IsZero() && b.DurationMs == 0:
		return berth.Invalid("endAt", "is missing: give endAt or durationMs")
	case b.DurationMs == 0 && !b.EndAt.After(now):
		return berth.Invalid("endAt", "is in the past")
	case b.DurationMs == 0 && b.EndAt.After(now.Add(maxConferenceTime)):
		return berth.Invalid("endAt", "must be at most 30 days from now")
	case len(b.Metadata) > berth.MaxConferenceMetadata:
		return exceeds("metadata", berth.MaxConferenceMetadata)
	}
	return normalize("zone", &b.Zone, berth.MaxLabel)
}

func (s *server) listConferences(ctx context.Context, in *conferencesInput) (*conferencesOutputBody, error) {
	user := callOf(ctx).user
	q := ledger.ConferenceQuery{UserID: user.UserID, Status: in.Status, NodeID: in.Unit}
	if user.Operator() {
		q.UserID = ""
	}
	if err := optionalID("unit", in.Unit); err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.SearchConferences(ctx, q, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &conferencesOutputBody{Conferences: convert(found, s.viewConference), NextCursor: next}, nil
}

func (s *server) getConference(ctx context.Context, in *conferenceInput) (*getConferenceOutputBody, error) {
	c, err := s.ownConference(ctx, in.E164, in.ConferenceID)
	if err != nil {
		return nil, err
	}
	out := &getConferenceOutputBody{Conference: client.Conference(s.viewConference(c))}
	if !c.Status.Final() {
		out.Info, out.Stale, err = s.readInfo(ctx, c)
	}
	return out, err
}

func (s *server) endConference(ctx context.Context, in *releaseConferenceInput) (*conferenceOutput, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	// Also when the ledger has its end: Temporal may have lost the end with the workflow's last steps.
	done, err := s.Starter.ReleaseConference(ctx, c.E164, workflows.ReleaseRequest{By: by, ConferenceID: c.ID})
	if err != nil {
		return nil, fmt.Errorf("end conference %s: %w", c.ID, err)
	}
	s.log.InfoContext(ctx, "conference ended by request", "conference", c.ID, "e164", c.E164, "by", by)
	if c, err = s.ownConference(ctx, in.E164, c.ID); err != nil {
		return nil, err
	}
	out := &conferenceOutput{Status: http.StatusOK, Body: s.viewConference(c)}
	if !done {
		out.Status = http.StatusAccepted
	}
	return out, nil
}

// ownConference returns a conference of the number that the caller may see: the last one unless an id is given. A missing
// one and another user's have the same error.
func (s *server) ownConference(ctx context.Context, e164, id string) (berth.Conference, error) {
	if err := cmp.Or(berth.ValidE164("e164", e164), optionalID("conferenceId", id)); err != nil {
		return berth.Conference{}, err
	}
	q := ledger.ConferenceQuery{UserID: callOf(ctx).user.UserID, E164: e164, ConferenceID: id}
	if callOf(ctx).user.Operator() {
		q.UserID = ""
	}
	found, _, err := s.Ledger.SearchConferences(ctx, q, "", 1)
	switch {
	case err != nil:
		return berth.Conference{}, err
	case len(found) == 0:
		return berth.Conference{}, errNoConference
	default:
		return found[0], nil
	}
}

// errNoConference and errNotOwner are the errors of a conference that the caller may not see, and of a unit that does not own it.
var (
	errNoConference = berth.Errorf(berth.CodeNotFound, "conference not found")
	errNotOwner     = errorIn("epoch", berth.CodeConflict, "the conference has another owner, generation or epoch")
)

func (s *server) viewConference(c berth.Conference) ConferenceView {
	return ConferenceView{
		Conference: whole(c), EventsURL: conferencePath(c.E164) + "/events",
		Links: s.links(workflows.ConferenceWorkflowID(c.E164)),
	}
}

// whole replaces missing lists by empty ones.
func whole(c berth.Conference) berth.Conference {
	if c.Segments == nil {
		c.Segments = []berth.ConferenceSegment{}
	}
	if c.Orders == nil {
		c.Orders = []berth.ConferenceOrder{}
	}
	return c
}

func conferencePath(e164 string) string { return "/v1/conferences/" + e164 }
