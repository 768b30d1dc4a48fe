package client

import (
	"context"
	"net/http"
	"net/url"

	"berth"
)

// ReportConference sends a media unit's information on a conference to the data proxy. The error has HTTP status 409 if
// the unit is not the current owner, and 404 if the conference does not exist.
func (c *Client) ReportConference(ctx context.Context, e164 string, in berth.ConferenceInfo) error {
	return c.call(ctx, http.MethodPost, "/v1/conferences/"+url.PathEscape(e164)+"/info", nil, in, nil)
}
