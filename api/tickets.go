package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

type ticketInput struct {
	Body struct {
		TaskID string `json:"taskId" pattern:"^[A-Za-z0-9_.@-]{1,64}$"`
	}
}

type ticketOutput struct {
	Body ticketView
}

type ticketView struct {
	Ticket    string    `json:"ticket"`
	TaskID    string    `json:"taskId"`
	ExpiresAt time.Time `json:"expiresAt" doc:"An open stream outlives it; a new connection needs a new ticket"`
	EventsURL string    `json:"eventsUrl" doc:"With the ticket in it, for EventSource"`
}

// ticketsRoute is for browsers, whose EventSource cannot send a header (X5).
func (s *server) ticketsRoute() {
	register(s, huma.Operation{
		OperationID: "create-ticket", Method: http.MethodPost, Path: "/v1/tickets", Tags: []string{"events"},
		Summary:       "A short-lived ticket that opens one task's events and nothing else",
		DefaultStatus: http.StatusCreated,
	}, forUser, s.createTicket)
}

func (s *server) createTicket(ctx context.Context, in *ticketInput) (*ticketOutput, error) {
	user := callOf(ctx).user.UserID
	t, err := s.Ledger.GetUserTask(ctx, user, in.Body.TaskID)
	if err != nil {
		return nil, err
	}
	ticket, expires, err := s.tickets.ticket(user, t.ID, s.Config.TicketTTL)
	if err != nil {
		return nil, err
	}
	return &ticketOutput{Body: ticketView{
		Ticket: ticket, TaskID: t.ID, ExpiresAt: expires,
		EventsURL: taskPath(t.ID) + "/events?ticket=" + url.QueryEscape(ticket),
	}}, nil
}
