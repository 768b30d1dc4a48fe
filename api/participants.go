package api

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"berth"
	"berth/internal/identity"
)

type addParticipantInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
	Body addParticipantInputBody
}

type participantInput struct {
	E164       string `path:"e164" doc:"The number without the plus"`
	Identity   string `path:"identity"`
	RevokeLink bool   `query:"revokeLink" doc:"Of a guest: also revoke the link that it was invited with"`
}

type participantsInput struct {
	E164  string `path:"e164" doc:"The number without the plus"`
	Limit int    `query:"limit" minimum:"1" maximum:"200" default:"100"`
	CursorParam
}

type participantsOutputBody struct {
	Participants []berth.Participant `json:"participants"`
	NextCursor   string              `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

func (s *server) participantRoutes() {
	admits := rule{scopes: forUsers.scopes, private: []string{"name"}}
	register(s, "POST /v1/conferences/{e164}/participants", admits, s.addParticipant, withStatus(201, op("add-participant", "conferences",
		"Admit a participant to your conference",
		"Returns what a LiveKit client needs to join. Only the user who opened the conference and operators may call it, and only they are hosts; "+
			"all others join by link. The same identity again gets a new token, and the new name and role apply when it connects again. "+
			"409 `conflict`: the identity was removed; 409 `ended`: the conference has ended.")))
	register(s, "GET /v1/conferences/{e164}/participants", forUsers, s.listParticipants, op("list-participants", "conferences",
		"List who was admitted to a conference, by identity", "Who is connected is in the `info` of the conference."))
	registerOutput(s, "DELETE /v1/conferences/{e164}/participants/{identity}", forUsers, s.removeParticipant, op(
		"remove-participant", "conferences", "Remove a participant",
		"It is disconnected, and its identity cannot join the conference again. A guest could join as another one while its link is valid: "+
			"`revokeLink` revokes it as well. Idempotent."))
	s.participationEventRoute()
}

// openConference returns the number's conference, which the caller may manage and which has not ended.
func (s *server) openConference(ctx context.Context, e164 string) (berth.Conference, error) {
	c, err := s.ownConference(ctx, e164, "")
	if err == nil && (c.Status.Final() || c.Ending != "") {
		err = berth.Errorf(berth.CodeEnded, "the conference has ended")
	}
	return c, err
}

func (s *server) addParticipant(ctx context.Context, in *addParticipantInput) (*JoinView, error) {
	c, err := s.openConference(ctx, in.E164)
	if err != nil {
		return nil, err
	}
	p := berth.Participant{
		ConferenceID: c.ID, Identity: in.Body.Identity, Name: in.Body.Name,
		Role: cmp.Or(in.Body.Role, berth.RoleParticipant), CreatedAt: s.Clock(),
	}
	if err := p.Normalize(); err != nil {
		return nil, err
	}
	if err := s.Signalling.Refuse(ctx, c); err != nil {
		return nil, err
	}
	if p, err = s.Ledger.AddParticipant(ctx, p); err != nil {
		return nil, err
	}
	return s.join(ctx, c, p)
}

// join returns what a participant needs to join.
func (s *server) join(ctx context.Context, c berth.Conference, p berth.Participant) (*JoinView, error) {
	of := identity.Participation{ConferenceID: c.ID, E164: c.E164, Identity: p.Identity, Name: p.Name, Role: p.Role}
	out := &JoinView{
		ConferenceID: c.ID, E164: c.E164, Title: c.Title, EndAt: c.EndAt, Identity: p.Identity, Role: p.Role, Epoch: c.Owner.Epoch,
		Direct: s.Config.SignallingDirect, URLFromRequest: !s.Config.SignallingDirect && s.Config.SignallingURL == "", URL: cmp.Or(s.Config.SignallingURL, callOf(ctx).base),
	}
	var err error
	if out.Direct {
		out.URL, out.Token, err = s.Signalling.Direct(ctx, c, of)
	} else {
		out.Token, err = s.invited.Issue(of)
	}
	if err != nil {
		return nil, err
	}
	out.Ticket, _, err = s.tickets.Issue(identity.Principal{UserID: p.Identity}, identity.TicketParticipation, c.ID)
	out.EventsURL = "/v1/participations/" + c.ID + "/events?ticket=" + url.QueryEscape(out.Ticket)
	return out, err
}

func (s *server) listParticipants(ctx context.Context, in *participantsInput) (*participantsOutputBody, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.Participants(ctx, c.ID, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &participantsOutputBody{append([]berth.Participant{}, found...), next}, nil
}

// removeParticipant stores the removal first: from then on no process lets the participant in. It then disconnects it, which
// proxies do themselves when they are notified, and the unit on command.
func (s *server) removeParticipant(ctx context.Context, in *participantInput) (*struct{}, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	by := callOf(ctx).user.UserID
	if _, err := s.Ledger.RemoveParticipant(ctx, c.ID, in.Identity, by, s.Clock(), in.RevokeLink); err != nil {
		if berth.CodeOf(err) == berth.CodeNotFound {
			err = berth.Errorf(berth.CodeNotFound, "participant not found")
		}
		return nil, err
	}
	s.log.InfoContext(ctx, "participant removed", "conference", c.ID, "by", by)
	if err := s.Scripts.AnnounceConference(ctx, c.ID); err != nil {
		s.log.WarnContext(ctx, "removal not announced; proxies apply it when the participant connects again", "conference", c.ID, "error", err)
	}
	if c.Status.Final() {
		return nil, nil
	}
	if err := s.Signalling.Remove(ctx, c, in.Identity); err != nil {
		s.log.WarnContext(ctx, "participant not removed on its unit", "conference", c.ID, "unit", c.Owner.NodeID, "error", err)
		return nil, berth.Errorf(berth.CodeUnavailable, "the participant cannot join again, but its media unit did not confirm that it is disconnected; retry").
			With(fmt.Errorf("remove participant: %w", err))
	}
	return nil, nil
}
