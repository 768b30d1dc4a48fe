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

// SessionKey returns the key of a user's session with an id.
func SessionKey(userID, sessionID string) string { return EscapeID(userID) + ":" + sessionID }

// The events of a session's stream, besides EventGap. EventDone ends a turn; the session's stream continues after it.
const (
	EventTurn              EventType = "turn"               // a turn began
	EventTranslation       EventType = "translation"        // a segment's result, in segment order
	EventTranslationFailed EventType = "translation_failed" // a segment that no node could translate, in its place
)

// SessionEventTypes returns the event types of a session's stream.
func SessionEventTypes() []EventType {
	return []EventType{EventTurn, EventTranslation, EventTranslationFailed, EventDone, EventGap}
}

// SessionEvent is one event of a session's stream. Type, SessionID, TurnID and TS are always set; the other fields as in Event.
type SessionEvent struct {
	Type      EventType `json:"type"`
	SessionID string    `json:"sessionId"`
	TurnID    string    `json:"turnId"`
	TS        int64     `json:"ts" doc:"The publisher's clock in Unix milliseconds; for display only"`
	SpeakerID string    `json:"speakerId,omitempty" on:"turn translation translation_failed"`
	JobID     string    `json:"jobId,omitempty" on:"translation translation_failed"`
	Index     *int      `json:"index,omitempty" on:"translation translation_failed" doc:"Of the segment, from 0"`
	NodeID    string    `json:"nodeId,omitempty" on:"translation translation_failed"`
	Text      string    `json:"text,omitempty" on:"translation"`
	Code      Code      `json:"code,omitempty" on:"translation_failed done" doc:"In done, of a turn whose run was lost"`
	Message   string    `json:"message,omitempty" on:"translation_failed done"`
	Reason    Finalize  `json:"reason,omitempty" on:"done" doc:"How the turn was finalised"`
	Jobs      int       `json:"jobs,omitempty" on:"done" doc:"Number of jobs of the turn"`
	Failed    int       `json:"failed,omitempty" on:"done" doc:"Number of jobs that failed"`
}
