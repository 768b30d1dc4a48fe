package berth

import "time"

// Session is a user's live translation as stored in Redis.
type Session struct {
	ID     string `json:"sessionId" doc:"Unique among the sessions of the user"`
	UserID string `json:"userId"`
	// Key is that of its row, from which the ids of its turns are derived.
	Key           string    `json:"-"`
	TenantID      string    `json:"tenantId,omitempty"`
	SrcLang       string    `json:"srcLang" doc:"BCP 47 tag"`
	TgtLang       string    `json:"tgtLang" doc:"BCP 47 tag"`
	PreferredPool string    `json:"preferredPool"`
	RoutingKey    string    `json:"routingKey"`
	CurrentTurnID string    `json:"currentTurnId,omitempty"`
	UpdatedAt     time.Time `json:"updatedAt"`
	// Version increases with each change of the row.
	Version int64 `json:"-"`
}

// SessionKey returns the key of a user's session with an id. The keys of sessions that began when ids were unique among all users are their
// ids.
func SessionKey(userID, sessionID string) string { return EscapeID(userID) + ":" + sessionID }

// The events of a session's stream, besides EventGap. EventDone ends a turn; the session's stream continues after it.
const (
	EventTurn              EventType = "turn"               // a turn began
	EventTranslation       EventType = "translation"        // a segment's result, in segment order
	EventTranslationFailed EventType = "translation_failed" // a segment that no node could translate, in its place
)

// SessionEvent is one event of a session's stream. Type, SessionID, TurnID and TS are always set; the other fields
// belong to the types in the comment above them and are absent elsewhere.
type SessionEvent struct {
	Type      EventType `json:"type"`
	SessionID string    `json:"sessionId"`
	TurnID    string    `json:"turnId"`
	TS        int64     `json:"ts"` // the publisher's clock in Unix milliseconds; informational
	// turn, translation, translation_failed
	SpeakerID string `json:"speakerId,omitempty"`
	// translation, translation_failed
	JobID  string `json:"jobId,omitempty"`
	Index  *int   `json:"index,omitempty"`
	NodeID string `json:"nodeId,omitempty"`
	// translation
	Text string `json:"text,omitempty"`
	// translation_failed; done of a turn whose run was lost
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// done: Reason is how the turn was finalised, Jobs how many it had, Failed how many of them failed
	Reason Finalize `json:"reason,omitempty"`
	Jobs   int      `json:"jobs,omitempty"`
	Failed int      `json:"failed,omitempty"`
}
