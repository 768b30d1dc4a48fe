package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"berth"
	"berth/workflows"
)

type moveConferenceInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
	Body *struct {
		Unit string `json:"unit,omitempty" maxLength:"128" doc:"The unit to move to; by default any other one with capacity"`
	}
}

type extendConferenceInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
	Body *struct {
		EndAt      time.Time `json:"endAt,omitzero" doc:"The new end time, at most 30 days from now; give this or durationMs"`
		DurationMs int64     `json:"durationMs,omitempty" minimum:"1" maximum:"2592000000" doc:"The new end time, from now; give this or endAt"`
	}
}

// conferenceChangeRoutes registers the routes that change an open conference.
func (s *server) conferenceChangeRoutes() {
	registerOutput(s, "POST /v1/conferences/{e164}/move", forOperator, s.moveConference, op("move-conference", "conferences",
		"Move an open conference to another unit",
		"Its participants follow it: the new copy runs before the former one is released. Returns once the conference is on the new unit. "+
			"503 `node_full` and `no_node`: no other unit takes it, and it stays. 409: it is not open, or is being moved."))
	registerOutput(s, "PATCH /v1/conferences/{e164}", forUsers, s.extendConference, op("extend-conference", "conferences",
		"Extend a conference",
		"Sets a later end time. 409: the conference has ended, or would end earlier than now."))
}

func (s *server) moveConference(ctx context.Context, in *moveConferenceInput) (*conferenceOutput, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	req := workflows.MoveRequest{ConferenceID: c.ID}
	if in.Body != nil {
		if err := optionalID("unit", in.Body.Unit); err != nil {
			return nil, err
		}
		req.Unit = in.Body.Unit
	}
	if err := s.Fleet.Writable(); err != nil {
		return nil, err
	}
	if c, err = s.Starter.MoveConference(ctx, c.E164, req); err != nil {
		return nil, fmt.Errorf("move conference %s: %w", in.E164, err)
	}
	s.log.InfoContext(ctx, "conference moved by request", "conference", c.ID, "e164", c.E164, "unit", c.Owner.NodeID,
		"by", callOf(ctx).user.UserID)
	return &conferenceOutput{Status: http.StatusOK, Body: s.viewConference(c)}, nil
}

func (s *server) extendConference(ctx context.Context, in *extendConferenceInput) (*conferenceOutput, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	endAt, err := in.endAt(s.Clock())
	if err != nil {
		return nil, err
	}
	c, err = s.Starter.ExtendConference(ctx, c.E164, workflows.ExtendRequest{
		ConferenceID: c.ID, EndAt: endAt.UTC().Truncate(time.Millisecond),
	})
	if err != nil {
		return nil, fmt.Errorf("extend conference %s: %w", in.E164, err)
	}
	return &conferenceOutput{Status: http.StatusOK, Body: s.viewConference(c)}, nil
}

// endAt returns the requested end time; errors name the field.
func (in *extendConferenceInput) endAt(now time.Time) (time.Time, error) {
	switch b := in.Body; {
	case b == nil || b.EndAt.IsZero() == (b.DurationMs == 0):
		return time.Time{}, berth.Invalid("endAt", "give endAt or durationMs")
	case b.EndAt.IsZero():
		return now.Add(time.Duration(b.DurationMs) * time.Millisecond), nil
	case !b.EndAt.After(now):
		return time.Time{}, berth.Invalid("endAt", "is in the past")
	case b.EndAt.After(now.Add(maxConferenceTime)):
		return time.Time{}, berth.Invalid("endAt", "must be at most 30 days from now")
	default:
		return b.EndAt, nil
	}
}
