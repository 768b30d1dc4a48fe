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
	SrcLang  string `json:"srcLang"`
	TgtLang  string `json:"tgtLang"`
	TenantID string `json:"tenantId,omitempty"`
}

// JobSpec is the body of POST /v1/sessions/{id}/jobs. A job without a turn id starts a new turn.
type JobSpec struct {
	RequestID string         `json:"requestId"`
	TurnID    string         `json:"turnId,omitempty"`
	SpeakerID string         `json:"speakerId,omitempty"`
	Segment   Segment        `json:"segment"`
	Finalize  berth.Finalize `json:"finalize,omitempty"`
}

// Segment is one segment of a turn, numbered from 0.
type Segment struct {
	Index   int    `json:"index"`
	Text    string `json:"text,omitempty"`
	AssetID string `json:"assetId,omitempty"`
}

// Dispatch is the response to a job: the turn, the job and the node it was dispatched to.
type Dispatch struct {
	TurnID     string              `json:"turnId"`
	JobID      string              `json:"jobId"`
	NodeID     string              `json:"nodeId"`
	Generation int64               `json:"generation"`
	PoolID     string              `json:"poolId"`
	Affinity   berth.Affinity      `json:"affinity"`
	Missed     berth.ExcludeReason `json:"missed"`
	Replay     bool                `json:"replay"`
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
