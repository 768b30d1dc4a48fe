package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"berth"
	"berth/internal/identity"
)

type createLinkInput struct {
	E164 string `path:"e164" doc:"The number without the plus"`
	Body struct {
		Role    berth.ParticipantRole `json:"role,omitempty" enum:"participant,listener" default:"participant" doc:"Role of the guests"`
		MaxUses int                   `json:"maxUses,omitempty" minimum:"1" maximum:"10000" default:"1" doc:"Number of guests that it admits"`
	}
}

type linkView struct {
	berth.Link
	Secret string `json:"secret,omitempty" doc:"Only in the response of its creation. A page passes it on in the fragment of its address, which browsers do not send"`
}

type linksOutputBody struct {
	Links      []linkView `json:"links"`
	NextCursor string     `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

type linkInput struct {
	E164   string `path:"e164" doc:"The number without the plus"`
	LinkID string `path:"linkId"`
}

type redeemInput struct {
	Body struct {
		Link  string `json:"link,omitempty" maxLength:"128" doc:"The secret of a link; admits a new guest"`
		Name  string `json:"name,omitempty" doc:"What other participants see, at most 200 characters; see Names"`
		Guest string `json:"guest,omitempty" maxLength:"128" doc:"The guest's own secret from an earlier response, after a reload: the same guest joins again"`
	}
}

type lookUpInput struct {
	Body struct {
		Link  string `json:"link,omitempty" maxLength:"128" doc:"The secret of a link"`
		Guest string `json:"guest,omitempty" maxLength:"128" doc:"The guest's own secret"`
	}
}

type invitationView struct {
	Title string                `json:"title,omitempty" doc:"Of the conference"`
	EndAt time.Time             `json:"endAt" doc:"When the conference ends at the latest"`
	Role  berth.ParticipantRole `json:"role"`
}

type redeemOutputBody struct {
	JoinView
	Guest string `json:"guest,omitempty" doc:"The guest's own secret, for its browser to keep; only in the response that admits it"`
}

func (s *server) linkRoutes() {
	register(s, "POST /v1/conferences/{e164}/links", forUsers, s.createLink, withStatus(201, op("create-link", "conferences",
		"Create an invitation link",
		"It is for this conference only, and for as many guests as maxUses states.")))
	register(s, "GET /v1/conferences/{e164}/links", forUsers, s.listLinks, op("list-links", "conferences",
		"List the invitation links of a conference, newest first"))
	registerOutput(s, "DELETE /v1/conferences/{e164}/links/{linkId}", forUsers, s.revokeLink, op("revoke-link", "conferences",
		"Revoke an invitation link", "It admits no more guests; those that it admitted stay. Idempotent."))
	register(s, "POST /v1/invitations", rule{public: true}, s.redeemLink, op("redeem-link", "conferences",
		"Join a conference by invitation link",
		"Needs no other token. Give `link` once, which admits a guest with an identity of its own, and `guest` afterwards. "+
			"401: the link or the guest's secret is not valid. 410 `link_used` and `link_revoked`; 403 `removed`: the guest was removed. "+
			"409 `ended`: the conference has ended."))
	register(s, "POST /v1/invitations/lookup", rule{public: true}, s.lookUpInvitation, op("look-up-invitation", "conferences",
		"Get what an invitation is for",
		"Needs no other token. It does not use the link. Its errors are those of joining."))
}

func (s *server) createLink(ctx context.Context, in *createLinkInput) (*linkView, error) {
	c, err := s.openConference(ctx, in.E164)
	if err != nil {
		return nil, err
	}
	k := berth.Link{
		ID: berth.NewID("l-"), ConferenceID: c.ID, Role: cmp.Or(in.Body.Role, berth.RoleParticipant), MaxUses: cmp.Or(in.Body.MaxUses, 1),
		CreatedAt: s.Clock(), CreatedBy: callOf(ctx).user.UserID,
	}
	secret := rand.Text()
	if err := s.Ledger.CreateLink(ctx, k, hashSecret(secret)); err != nil {
		return nil, err
	}
	return &linkView{k, secret}, nil
}

func (s *server) listLinks(ctx context.Context, in *participantsInput) (*linksOutputBody, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	found, next, err := s.Ledger.Links(ctx, c.ID, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &linksOutputBody{convert(found, func(k berth.Link) linkView { return linkView{Link: k} }), next}, nil
}

func (s *server) revokeLink(ctx context.Context, in *linkInput) (*struct{}, error) {
	c, err := s.ownConference(ctx, in.E164, "")
	if err != nil {
		return nil, err
	}
	err = s.Ledger.RevokeLink(ctx, c.ID, in.LinkID, callOf(ctx).user.UserID, s.Clock())
	if berth.CodeOf(err) == berth.CodeNotFound {
		err = berth.Errorf(berth.CodeNotFound, "link not found")
	}
	return nil, err
}

func (s *server) redeemLink(ctx context.Context, in *redeemInput) (*redeemOutputBody, error) {
	b := in.Body
	if err := oneSecret(b.Link, b.Guest); err != nil {
		return nil, err
	}
	name, err := berth.Name("name", b.Name, berth.MaxParticipantName)
	if err != nil {
		return nil, err
	}
	if b.Guest != "" {
		p, c, err := s.guest(ctx, b.Guest)
		if err != nil {
			return nil, err
		}
		out, err := s.join(ctx, c, p)
		if err != nil {
			return nil, err
		}
		return &redeemOutputBody{JoinView: *out}, nil
	}
	_, c, err := s.link(ctx, b.Link)
	if err != nil {
		return nil, err
	}
	if s.Config.SignallingDirect { // before the link is used, because a guest who cannot join yet will use it again
		if _, _, err := s.Signalling.Direct(ctx, c, identity.Participation{ConferenceID: c.ID, E164: c.E164}); err != nil {
			return nil, err
		}
	}
	secret := rand.Text()
	p, err := s.Ledger.RedeemLink(ctx, hashSecret(b.Link), berth.Participant{
		Identity: berth.NewID(berth.GuestPrefix), Name: name, CreatedAt: s.Clock(),
	}, hashSecret(secret))
	if berth.CodeOf(err) == berth.CodeNotFound { // used or revoked since it was read, which the next reading reports
		return s.redeemLink(ctx, in)
	}
	if err != nil {
		return nil, err
	}
	out, err := s.join(ctx, c, p)
	if err != nil {
		return nil, err
	}
	return &redeemOutputBody{*out, secret}, nil
}

func (s *server) lookUpInvitation(ctx context.Context, in *lookUpInput) (*invitationView, error) {
	b := in.Body
	if err := oneSecret(b.Link, b.Guest); err != nil {
		return nil, err
	}
	if b.Guest != "" {
		p, c, err := s.guest(ctx, b.Guest)
		return &invitationView{c.Title, c.EndAt, p.Role}, err
	}
	k, c, err := s.link(ctx, b.Link)
	return &invitationView{c.Title, c.EndAt, k.Role}, err
}

// oneSecret returns an error unless exactly one of a link's and a guest's secret is given.
func oneSecret(link, guest string) error {
	if (link == "") == (guest == "") {
		return berth.Invalid("link", "give link or guest")
	}
	return nil
}

// link returns the link with a secret, and its conference, if it admits another guest. Only those who have the secret learn why
// it does not.
func (s *server) link(ctx context.Context, secret string) (k berth.Link, c berth.Conference, err error) {
	if k, err = s.Ledger.FindLink(ctx, hashSecret(secret)); err != nil {
		return k, c, notInvited(err)
	}
	if c, err = s.invitedTo(ctx, k.ConferenceID); err != nil {
		return k, c, err
	}
	switch {
	case !k.RevokedAt.IsZero():
		err = berth.Errorf(berth.CodeLinkRevoked, "the invitation was revoked; ask for another link")
	case k.Uses >= k.MaxUses:
		err = berth.Errorf(berth.CodeLinkUsed, "the invitation was used; ask for another link")
	}
	return k, c, err
}

// guest returns the guest with a secret, and its conference, if it may join again.
func (s *server) guest(ctx context.Context, secret string) (p berth.Participant, c berth.Conference, err error) {
	if p, err = s.Ledger.FindGuest(ctx, hashSecret(secret)); err != nil {
		return p, c, notInvited(err)
	}
	if !p.RemovedAt.IsZero() {
		return p, c, berth.Errorf(berth.CodeRemoved, "you were removed from the conference")
	}
	c, err = s.invitedTo(ctx, p.ConferenceID)
	return p, c, err
}

// invitedTo returns the conference of an invitation if guests can join it.
func (s *server) invitedTo(ctx context.Context, id string) (berth.Conference, error) {
	c, err := s.Ledger.GetConference(ctx, id)
	if err != nil {
		return c, notInvited(err)
	}
	if c.Status.Final() || c.Ending != "" {
		return c, berth.Errorf(berth.CodeEnded, "the conference has ended")
	}
	return c, s.Signalling.Refuse(ctx, c)
}

// notInvited returns the error of a secret that belongs to no link or guest.
func notInvited(err error) error {
	if berth.CodeOf(err) != berth.CodeNotFound {
		return err
	}
	return berth.Errorf(berth.CodeUnauthenticated, "the invitation is not valid; ask for another link")
}

// hashSecret returns what is stored of a secret. It is random, so that a plain hash cannot be guessed.
func hashSecret(secret string) string { return hash([]byte(secret)) }
