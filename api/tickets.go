package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth"
	"berth/internal/identity"
)

type ticketInput struct {
	Body struct {
		TaskID    string `json:"taskId,omitempty" maxLength:"128" doc:"Give one of taskId, sessionId and e164"`
		SessionID string `json:"sessionId,omitempty" maxLength:"128"`
		E164      string `json:"e164,omitempty" maxLength:"15" doc:"The conference's number"`
	}
}

type ticketView struct {
	Ticket    string    `json:"ticket"`
	TaskID    string    `json:"taskId,omitempty"`
	SessionID string    `json:"sessionId,omitempty"`
	E164      string    `json:"e164,omitempty"`
	ExpiresAt time.Time `json:"expiresAt" doc:"An open stream continues after it; a new connection needs a new ticket"`
	EventsURL string    `json:"eventsUrl" doc:"Contains the ticket, for EventSource"`
}

// ticketRoute registers the route for browsers, whose EventSource cannot send a header.
func (s *server) ticketRoute() {
	register(s, "POST /v1/tickets", rule{scopes: forUsers.scopes, reads: true}, s.createTicket, withStatus(http.StatusCreated, op("create-ticket", "events",
		"Create a short-lived ticket for the events of one task, session or conference")))
}

func (s *server) createTicket(ctx context.Context, in *ticketInput) (*ticketView, error) {
	who, b := callOf(ctx).user, in.Body
	kind, id := identity.TicketTask, b.TaskID
	var path string
	switch {
	case b.TaskID != "" && b.SessionID != "":
		return nil, berth.Invalid("sessionId", "give taskId or sessionId, not both")
	case b.E164 != "" && b.TaskID+b.SessionID != "":
		return nil, berth.Invalid("e164", "give one of taskId, sessionId and e164")
	case b.TaskID != "":
		if _, err := s.Ledger.GetTask(ctx, berth.TaskRef{UserID: who.UserID, TaskID: b.TaskID}); err != nil {
			return nil, err
		}
		path = taskPath(b.TaskID)
	case b.SessionID != "":
		if err := berth.ValidID("sessionId", b.SessionID); err != nil {
			return nil, err
		}
		if _, err := s.Ledger.GetSession(ctx, who.UserID, b.SessionID); err != nil {
			return nil, noSession(err)
		}
		kind, id, path = identity.TicketSession, b.SessionID, sessionPath(b.SessionID)
	case b.E164 != "":
		if _, err := s.ownConference(ctx, b.E164, ""); err != nil {
			return nil, err
		}
		kind, id, path = identity.TicketConference, b.E164, conferencePath(b.E164)
	default:
		return nil, berth.Invalid("taskId", "is missing")
	}
	ticket, expires, err := s.tickets.Issue(who, kind, id)
	if err != nil {
		return nil, err
	}
	return &ticketView{
		Ticket: ticket, TaskID: b.TaskID, SessionID: b.SessionID, E164: b.E164, ExpiresAt: expires,
		EventsURL: path + "/events?ticket=" + url.QueryEscape(ticket),
	}, nil
}
