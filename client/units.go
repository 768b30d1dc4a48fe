package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"berth"
)

// ReportConference sends a media unit's information on a conference to the data proxy. The error has HTTP status 409 if
// the unit is not the current owner, and 404 if the conference does not exist.
func (c *Client) ReportConference(ctx context.Context, e164 string, in berth.ConferenceInfo) error {
	return c.call(ctx, http.MethodPost, "/v1/conferences/"+url.PathEscape(e164)+"/info", nil, in, nil)
}

// FormerParticipants returns the participants that the conference had on its former unit; nil when there are none. owner
// identifies the unit, which must be the current owner.
func (c *Client) FormerParticipants(ctx context.Context, e164 string, owner berth.ConferenceInfo) (json.RawMessage, error) {
	q := url.Values{
		"nodeId": {owner.NodeID}, "generation": {strconv.FormatInt(owner.Generation, 10)}, "epoch": {strconv.FormatInt(owner.Epoch, 10)},
	}
	reply, err := fetch[struct {
		Live struct {
			Former json.RawMessage `json:"former"`
		} `json:"live"`
	}](ctx, c, http.MethodGet, "/v1/conferences/"+url.PathEscape(e164)+"/info?"+q.Encode(), nil)
	return reply.Live.Former, err
}
