package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"berth/internal/apikey"
	"berth/internal/identity"
)

// responseTicket lets a browser read one response without the key, by its URL.
type responseTicket struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	Ticket    string `json:"ticket"`
	ExpiresAt int64  `json:"expires_at"` // in s; an open stream continues after it
	URL       string `json:"url"`        // of the events; relative to the server
}

func (s *server) createResponseTicket(c echo.Context, caller modelCaller) error {
	t, err := s.responseOf(c, caller)
	if err != nil {
		return err
	}
	ticket, expires, err := s.tickets.Issue(identity.Principal{UserID: t.UserID}, identity.TicketResponse, t.ID)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, responseTicket{
		Object: "response.ticket", ID: t.ID, Ticket: ticket, ExpiresAt: expires.Unix(),
		URL: openAIPath + "/responses/" + url.PathEscape(t.ID) + "?stream=true&ticket=" + url.QueryEscape(ticket),
	})
}

// ticketHolder returns the caller of a request with a ticket, which acts for the key that has made the response as long as that is valid.
func (s *server) ticketHolder(ctx context.Context, p identity.Principal) (modelCaller, error) {
	key, err := s.Ledger.GetKey(ctx, p.UserID)
	if err == nil {
		err = apikey.Valid(key)
	}
	return modelCaller{key: key, userID: p.UserID}, err
}
