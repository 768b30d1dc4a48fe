package client

import (
	"context"
	"net/http"
	"net/url"

	"berth"
)

// ReportConference tells the data proxy what a media unit knows of a conference that it runs (C19, C20). HTTP 409: the
// unit is not its owner, or was one before. HTTP 404: there is no such conference.
func (c *Client) ReportConference(ctx context.Context, e164 string, in berth.ConferenceInfo) error {
	return c.call(ctx, http.MethodPost, "/v1/conferences/"+url.PathEscape(e164)+"/info", nil, in, nil)
}
