package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"berth"
)

// SessionSpec is the body of PUT /v1/sessions/{id}.
type SessionSpec struct {
	SrcLang    string `json:"srcLang" doc:"Spoken language, a BCP 47 tag" example:"en"`
	TgtLang    string `json:"tgtLang" doc:"Language of the translation, a BCP 47 tag" example:"es"`
	TenantID   string `json:"tenantId,omitempty" doc:"The token's tenant, which is also the default; operators may name any. An operator can bind the tenant to a pool"`
	RoutingKey string `json:"routingKey,omitempty" doc:"Sessions with the same key use the same pool. Default: the tenant's id, or the session's without a tenant"`
}

// JobSpec is the body of POST /v1/sessions/{id}/jobs. A job without a turn id starts a new turn.
type JobSpec struct {
	RequestID string         `json:"requestId" doc:"Your own id for this request; retries with the same id are idempotent"`
	TurnID    string         `json:"turnId,omitempty" doc:"The segment's turn; without it a new turn starts"`
	SpeakerID string         `json:"speakerId,omitempty" doc:"Name of the speaker, at most 200 characters; repeated in the events"`
	Segment   Segment        `json:"segment"`
	Finalize  berth.Finalize `json:"finalize,omitempty" enum:",max_duration,manual,timeout" doc:"How the segment was cut: manual and timeout end the turn, max_duration does not"`
}

// Segment is one segment of a turn, numbered from 0.
type Segment struct {
	Index   int    `json:"index" minimum:"0" maximum:"999" doc:"Position in the turn; results are in this order"`
	Text    string `json:"text,omitempty" doc:"The spoken text, at most 64 KiB"`
	AssetID string `json:"assetId,omitempty" doc:"An uploaded text, instead of text"`
}

// Dispatch is the response to a job: the turn, the job and the node it was dispatched to.
type Dispatch struct {
	TurnID     string              `json:"turnId"`
	JobID      string              `json:"jobId"`
	NodeID     string              `json:"nodeId"`
	Generation int64               `json:"generation"`
	PoolID     string              `json:"poolId"`
	Strategy   berth.Strategy      `json:"strategy,omitempty" doc:"The strategy that chose the node; absent with affinity hit"`
	Affinity   berth.Affinity      `json:"affinity" doc:"first: the turn's later jobs use the same node; hit: the turn's node; miss: the turn's node was not available"`
	Missed     berth.ExcludeReason `json:"missed,omitempty" doc:"Why the turn's node was not available"`
	Replay     bool                `json:"replay" doc:"The result of an earlier call with this request id"`
}

// PutSession creates a session or changes its languages.
func (c *Client) PutSession(ctx context.Context, id string, s SessionSpec) (berth.Session, error) {
	return fetch[berth.Session](ctx, c, http.MethodPut, sessionPath(id), s)
}

// Dispatch submits a segment and returns the node it was dispatched to. Retries with the same request id are idempotent.
func (c *Client) Dispatch(ctx context.Context, sessionID string, j JobSpec) (Dispatch, error) {
	return fetch[Dispatch](ctx, c, http.MethodPost, sessionPath(sessionID)+"/jobs", j)
}

// FinalizeTurn finalises a turn with the reason manual.
func (c *Client) FinalizeTurn(ctx context.Context, turnID string) error {
	in := map[string]berth.Finalize{"reason": berth.FinalizeManual}
	return c.call(ctx, http.MethodPost, "/v1/turns/"+url.PathEscape(turnID)+"/finalize", nil, in, nil)
}

// Turn returns a turn and its jobs.
func (c *Client) Turn(ctx context.Context, turnID string) (berth.Turn, error) {
	return fetch[berth.Turn](ctx, c, http.MethodGet, "/v1/turns/"+url.PathEscape(turnID), nil)
}

// SessionEvent is one event of a session's stream, with the id to resume after.
type SessionEvent struct {
	ID    string
	Event berth.SessionEvent
}

// FollowSession yields a session's events after lastID until ctx ends. It reconnects automatically. With fromLatest,
// events that are already in the stream are skipped.
func (c *Client) FollowSession(ctx context.Context, sessionID, lastID string, fromLatest bool) iter.Seq2[SessionEvent, error] {
	path := sessionPath(sessionID) + "/events"
	if fromLatest {
		path += "?fromLatest=1"
	}
	return func(yield func(SessionEvent, error) bool) {
		c.follow(ctx, path, lastID, func(f frame, err error) bool {
			if err != nil {
				return yield(SessionEvent{}, err)
			}
			ev := SessionEvent{ID: f.id}
			err = f.read(&ev.Event)
			ev.Event.Type = berth.EventType(f.name)
			return yield(ev, err)
		})
	}
}

func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }
