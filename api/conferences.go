package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/ledger"
	"berth/workflows"
)

type createConferenceInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Requests of one user with the same key and body are one conference, also when it is over"`
	Body           conferenceBody
}

type conferenceBody struct {
	E164            string          `json:"e164,omitempty" doc:"The number, without the plus; a free one is assigned when none is given" example:"8613800138000"`
	Title           string          `json:"title,omitempty" doc:"For people, at most 200 bytes"`
	MaxParticipants int             `json:"maxParticipants,omitempty" minimum:"0" maximum:"10000" doc:"0: no limit"`
	EndAt           time.Time       `json:"endAt,omitzero" doc:"When it ends, recovered or not, at most 30 days from now; this or durationMs"`
	DurationMs      int64           `json:"durationMs,omitempty" minimum:"1" maximum:"2592000000" doc:"How long it lasts; this or endAt"`
	Recoverable     *bool           `json:"recoverable,omitempty" default:"true" doc:"false: it ends when its unit is lost (C8)"`
	Zone            string          `json:"zone,omitempty" doc:"Only units of this zone"`
	Metadata        json.RawMessage `json:"metadata,omitempty" doc:"Any JSON, at most 16 KiB; it survives a change of unit (C20)"`
}

type createConferenceOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     conferenceView
}

// conferenceView is a conference as whoever holds it sees it.
type conferenceView struct {
	berth.Conference
	Replay    bool          `json:"replay,omitempty" doc:"It was made before by the same request"`
	EventsURL string        `json:"eventsUrl" doc:"What becomes of it, as Server-Sent Events"`
	Links     workflowLinks `json:"links"`
}

type conferenceInput struct {
	E164         string `path:"e164" doc:"The number, without the plus"`
	ConferenceID string `query:"conferenceId" maxLength:"128" doc:"An earlier conference of the number; without it the last"`
}

type releaseConferenceInput struct {
	E164 string `path:"e164" doc:"The number, without the plus"`
}

type conferenceOutput struct {
	Status int
	Body   conferenceView
}

type getConferenceOutput struct {
	Body struct {
		conferenceView
		Info  *conferenceInfo `json:"info,omitempty" doc:"What the data proxy has of it; absent when it has nothing"`
		Stale bool            `json:"stale" doc:"Redis is away: this is the conference as it was last written down, without its information"`
	}
}

// conferenceInfo is what the data proxy has of a conference (C20).
type conferenceInfo struct {
	Basic json.RawMessage `json:"basic,omitempty" doc:"Survives a change of unit"`
	Live  json.RawMessage `json:"live,omitempty" doc:"What its unit last told"`
}

type conferencesInput struct {
	Status berth.ConferenceStatus `query:"status"`
	Unit   string                 `query:"unit" maxLength:"128" doc:"Only those that this unit owns now"`
	Limit  int                    `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Cursor string                 `query:"cursor" maxLength:"512" doc:"nextCursor of the page before"`
}

type conferencesOutput struct {
	Body struct {
		Conferences []conferenceView `json:"conferences"`
		NextCursor  string           `json:"nextCursor,omitempty" doc:"Absent on the last page"`
	}
}

type recordOutput struct{ Body berth.Conference }

func (s *server) conferenceRoutes() {
	tags := []string{"conferences"}
	create := huma.Operation{
		OperationID: "create-conference", Method: http.MethodPost, Path: "/v1/conferences", Tags: tags,
		Summary: "Open a conference",
		Description: "Answers once its unit has acknowledged it or, where that unit was lost meanwhile, once it waits for another; `status` " +
			"tells. 503 node_full and no_node tell why no unit has room, no_licence that as many are alive as there may be, 502 unit_refused " +
			"that the unit did not want it: nothing is left of it then (C16). The same number and body again is a replay while the " +
			"conference lives; 409: the number has another one. Where a number is to be assigned, only an Idempotency-Key makes asking again safe; " +
			"422: it was used with another body.",
		DefaultStatus: http.StatusCreated,
	}
	create.Responses = map[string]*huma.Response{
		"200": {
			Description: "Made before: a replay",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: s.schemaOf(conferenceView{})}},
		},
		"default": s.problemResponse(),
	}
	register(s, create, forUser, s.createConference)
	register(s, huma.Operation{
		OperationID: "list-conferences", Method: http.MethodGet, Path: "/v1/conferences", Tags: tags,
		Summary: "One's own conferences, newest first; an operator's list has everybody's",
	}, forUsers, s.listConferences)
	register(s, huma.Operation{
		OperationID: "get-conference", Method: http.MethodGet, Path: "/v1/conferences/{e164}", Tags: tags,
		Summary: "A conference: where it runs, why it waits, who was told what, and what its unit tells of it",
	}, forUsers, s.getConference)
	register(s, huma.Operation{
		OperationID: "end-conference", Method: http.MethodDelete, Path: "/v1/conferences/{e164}", Tags: tags,
		Summary:     "End a conference, whatever it is doing (C10)",
		Description: "Answers once its unit has released it; 202 when that takes longer, for instance while the unit is silent: it will. 409 when it is over.",
		Responses: map[string]*huma.Response{
			"202": {
				Description: "It is ending",
				Content:     map[string]*huma.MediaType{"application/json": {Schema: s.schemaOf(conferenceView{})}},
			},
			"default": s.problemResponse(),
		},
	}, forUsers, s.endConference)
	register(s, huma.Operation{
		OperationID: "conference-record", Method: http.MethodGet, Path: "/v1/conferences/{e164}/record", Tags: tags,
		Summary:     "The detail record of a conference that is over, with a segment per unit (C22)",
		Description: "404 while it is not over.",
	}, forUsers, s.conferenceRecord)
	s.conferenceInfoRoutes()
	s.conferenceEventRoute()
}

func (s *server) createConference(ctx context.Context, in *createConferenceInput) (*createConferenceOutput, error) {
	want, err := newConference(callOf(ctx).user.UserID, in.Body, s.Clock())
	if err != nil {
		return nil, err
	}
	want.Rules = s.Config.Conferences
	if err := s.Fleet.Writable(); err != nil { // refused at once (L11)
		return nil, err
	}
	c, replay, err := s.place(ctx, want, in.IdempotencyKey)
	if err != nil {
		return nil, fmt.Errorf("create conference %s: %w", want.Spec.E164, err)
	}
	out := &createConferenceOutput{Status: http.StatusCreated, Location: conferencePath(c.E164), Body: s.viewConference(c)}
	if replay {
		out.Status, out.Body.Replay = http.StatusOK, true
	}
	return out, nil
}

// newConference is what the request asks for; errors name the field (X6).
func newConference(userID string, b conferenceBody, now time.Time) (workflows.ConferenceInput, error) {
	if err := checkConference(b, now); err != nil {
		return workflows.ConferenceInput{}, err
	}
	spec := berth.ConferenceSpec{
		E164: b.E164, Title: b.Title, MaxParticipants: b.MaxParticipants, EndAt: b.EndAt.UTC(),
		Recoverable: b.Recoverable == nil || *b.Recoverable, Zone: b.Zone,
	}
	if b.DurationMs > 0 {
		spec.EndAt = now.Add(time.Duration(b.DurationMs) * time.Millisecond).UTC()
	}
	spec.EndAt = spec.EndAt.Truncate(time.Millisecond)
	var metadata bytes.Buffer
	if len(b.Metadata) > 0 && string(b.Metadata) != "null" {
		if err := json.Compact(&metadata, b.Metadata); err != nil {
			return workflows.ConferenceInput{}, berth.Invalid("metadata", "is no JSON").With(err)
		}
		spec.Metadata = metadata.Bytes()
	}
	// What was asked for, not when: a duration asked for again is the same request.
	asked := spec
	asked.EndAt = b.EndAt.UTC().Truncate(time.Millisecond)
	body, err := json.Marshal([]any{"v1", userID, asked, b.DurationMs})
	if err != nil {
		return workflows.ConferenceInput{}, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(body)
	return workflows.ConferenceInput{
		ConferenceID: berth.NewID("c-"), UserID: userID, Spec: spec, RequestHash: hex.EncodeToString(sum[:]),
	}, nil
}

// conferenceMost is how far ahead a conference may end.
const conferenceMost = 30 * 24 * time.Hour

func checkConference(b conferenceBody, now time.Time) error {
	if b.E164 != "" {
		if err := berth.ValidE164("e164", b.E164); err != nil {
			return err
		}
	}
	switch {
	case len(b.Title) > berth.MaxConferenceTitle || !printable(b.Title):
		return berth.Invalid("title", "must be printable and at most %d bytes", berth.MaxConferenceTitle)
	case !b.EndAt.IsZero() && b.DurationMs != 0:
		return berth.Invalid("durationMs", "give endAt or durationMs, not both")
	case b.EndAt.IsZero() && b.DurationMs == 0:
		return berth.Invalid("endAt", "is missing: give it or durationMs")
	case b.DurationMs == 0 && !b.EndAt.After(now):
		return berth.Invalid("endAt", "is in the past")
	case b.DurationMs == 0 && b.EndAt.After(now.Add(conferenceMost)):
		return berth.Invalid("endAt", "must be at most 30 days from now")
	case len(b.Metadata) > berth.MaxConferenceMetadata:
		return &berth.Error{
			Code: berth.CodeTooLarge, Field: "metadata", Message: fmt.Sprintf("may have at most %d bytes", berth.MaxConferenceMetadata),
		}
	}
	return berth.ValidPlace("zone", b.Zone)
}

func (s *server) listConferences(ctx context.Context, in *conferencesInput) (*conferencesOutput, error) {
	user := callOf(ctx).user
	q := ledger.ConferenceQuery{UserID: user.UserID, Status: in.Status, NodeID: in.Unit}
	if user.Operator() {
		q.UserID = ""
	}
	if in.Unit != "" {
		if err := berth.ValidID("unit", in.Unit); err != nil {
			return nil, err
		}
	}
	found, next, err := s.Ledger.SearchConferences(ctx, q, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &conferencesOutput{}
	out.Body.Conferences, out.Body.NextCursor = make([]conferenceView, 0, len(found)), next
	for _, c := range found {
		out.Body.Conferences = append(out.Body.Conferences, s.viewConference(c))
	}
	return out, nil
}

func (s *server) getConference(ctx context.Context, in *conferenceInput) (*getConferenceOutput, error) {
	c, err := s.ownConference(ctx, in.E164, in.ConferenceID)
	if err != nil {
		return nil, err
	}
	out := &getConferenceOutput{}
	out.Body.conferenceView = s.viewConference(c)
	if c.Status.Final() {
		return out, nil
	}
	out.Body.Info, out.Body.Stale, err = s.readInfo(ctx, c)
	return out, err
}

func (s *server) endConference(ctx context.Context, in *releaseConferenceInput) (*conferenceOutput, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	// One that is over as far as the ledger knows is asked, too: its run may have lost its end with all else it had just done.
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

func (s *server) conferenceRecord(ctx context.Context, in *conferenceInput) (*recordOutput, error) {
	c, err := s.ownConference(ctx, in.E164, in.ConferenceID)
	if err != nil {
		return nil, err
	}
	if !c.Status.Final() {
		return nil, berth.Errorf(berth.CodeNotFound, "the conference is not over: there is no record yet")
	}
	return &recordOutput{Body: whole(c)}, nil
}

// ownConference is a conference of the number that the caller may see, the last unless an id is given; missing and
// foreign ones are alike.
func (s *server) ownConference(ctx context.Context, e164, id string) (berth.Conference, error) {
	if err := berth.ValidE164("e164", e164); err != nil {
		return berth.Conference{}, err
	}
	if id != "" {
		if err := berth.ValidID("conferenceId", id); err != nil {
			return berth.Conference{}, err
		}
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
		return berth.Conference{}, berth.Errorf(berth.CodeNotFound, "there is no such conference")
	default:
		return found[0], nil
	}
}

func (s *server) viewConference(c berth.Conference) conferenceView {
	return conferenceView{
		Conference: whole(c), EventsURL: conferencePath(c.E164) + "/events",
		Links: workflowLinks{Temporal: s.workflowLink(workflows.ConferenceWorkflowID(c.E164), "")},
	}
}

// whole is the conference with empty lists in the place of none.
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
