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

// FormerState is what the former owner of a conference had reported, as far as it follows the conference to its next unit.
type FormerState struct {
	// Participants are those that may return, as the former unit had reported them; nil when there are none.
	Participants json.RawMessage
	// RoomMetadata are what applications had written to the room.
	RoomMetadata string
}

// FormerState returns what the former owner had. owner identifies the unit, which must be the current owner.
func (c *Client) FormerState(ctx context.Context, e164 string, owner berth.ConferenceInfo) (FormerState, error) {
	q := url.Values{
		"nodeId": {owner.NodeID}, "generation": {strconv.FormatInt(owner.Generation, 10)}, "epoch": {strconv.FormatInt(owner.Epoch, 10)},
	}
	reply, err := fetch[struct {
		Live struct {
			Former             json.RawMessage `json:"former"`
			FormerRoomMetadata json.RawMessage `json:"formerRoomMetadata"`
		} `json:"live"`
	}](ctx, c, http.MethodGet, "/v1/conferences/"+url.PathEscape(e164)+"/info?"+q.Encode(), nil)
	out := FormerState{Participants: reply.Live.Former}
	_ = json.Unmarshal(reply.Live.FormerRoomMetadata, &out.RoomMetadata) // a unit of another kind may report another form
	return out, err
}
