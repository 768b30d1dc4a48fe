package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
)

type ticketInput struct {
	Body struct {
		TaskID    string `json:"taskId,omitempty" pattern:"^[A-Za-z0-9_.@-]{1,64}$" doc:"One of taskId and sessionId"`
		SessionID string `json:"sessionId,omitempty" maxLength:"128"`
	}
}

type ticketOutput struct {
	Body ticketView
}

type ticketView struct {
	Ticket    string    `json:"ticket"`
	TaskID    string    `json:"taskId,omitempty"`
	SessionID string    `json:"sessionId,omitempty"`
	ExpiresAt time.Time `json:"expiresAt" doc:"An open stream outlives it; a new connection needs a new ticket"`
	EventsURL string    `json:"eventsUrl" doc:"With the ticket in it, for EventSource"`
}

// ticketsRoute is for browsers, whose EventSource cannot send a header (X5).
func (s *server) ticketsRoute() {
	register(s, huma.Operation{
		OperationID: "create-ticket", Method: http.MethodPost, Path: "/v1/tickets", Tags: []string{"events"},
		Summary:       "A short-lived ticket that opens the events of one task or session and nothing else",
		DefaultStatus: http.StatusCreated,
	}, forUser, s.createTicket)
}

func (s *server) createTicket(ctx context.Context, in *ticketInput) (*ticketOutput, error) {
	user, b := callOf(ctx).user.UserID, in.Body
	kind, id, path := ticketTask, b.TaskID, taskPath(b.TaskID)
	switch {
	case b.TaskID != "" && b.SessionID != "":
		return nil, berth.Invalid("sessionId", "a ticket is for a task or for a session, not both")
	case b.TaskID != "":
		if _, err := s.Ledger.GetUserTask(ctx, user, b.TaskID); err != nil {
			return nil, err
		}
	case b.SessionID != "":
		if err := berth.ValidID("sessionId", b.SessionID); err != nil {
			return nil, err
		}
		if _, err := s.Ledger.GetSession(ctx, user, b.SessionID); err != nil {
			return nil, noSession(err)
		}
		kind, id, path = ticketSession, b.SessionID, sessionPath(b.SessionID)
	default:
		return nil, berth.Invalid("taskId", "is missing")
	}
	ticket, expires, err := s.tickets.ticket(user, kind, id, s.Config.TicketTTL)
	if err != nil {
		return nil, err
	}
	return &ticketOutput{Body: ticketView{
		Ticket: ticket, TaskID: b.TaskID, SessionID: b.SessionID, ExpiresAt: expires,
		EventsURL: path + "/events?ticket=" + url.QueryEscape(ticket),
	}}, nil
}
