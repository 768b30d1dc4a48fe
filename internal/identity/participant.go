package identity

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth"
)

// ParticipantAudience is the audience of participants' tokens. It must not be an audience of bearer tokens.
const ParticipantAudience = "participant"

// ParticipantTTL is how long a participant's token is valid: as long as the longest conference. Whether its holder may join is
// decided by the state of the conference.
const ParticipantTTL = 30 * 24 * time.Hour

// Participation is what a participant's token states. A media unit accepts no such token.
type Participation struct {
	ConferenceID string                `json:"conf"`
	E164         string                `json:"room"`
	Identity     string                `json:"sub"`
	Name         string                `json:"name,omitempty"`
	Role         berth.ParticipantRole `json:"role"`
	// Metadata, Attributes and Permissions are those that the participant had on its last unit. Without Permissions those of
	// the role apply.
	Metadata    string            `json:"metadata,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Permissions json.RawMessage   `json:"permissions,omitempty"`
}

// Participants issues and verifies the tokens of participants.
type Participants struct {
	Secrets SecretSource
	Clock   func() time.Time // nil: the system's
}

func (p Participants) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock()
}

// Issue returns a token.
func (p Participants) Issue(of Participation) (string, error) {
	body, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encode participation: %w", err)
	}
	c := jwt.MapClaims{}
	if err := json.Unmarshal(body, &c); err != nil {
		return "", fmt.Errorf("encode participation: %w", err)
	}
	now := p.now()
	c["iss"], c["aud"], c["iat"], c["exp"] = issuer, ParticipantAudience, now.Unix(), now.Add(ParticipantTTL).Unix()
	return sign([]byte(p.Secrets.Current()[0]), c)
}

// Verify returns what a token states, or CodeUnauthenticated. The error does not contain the token.
func (p Participants) Verify(token string) (of Participation, err error) {
	c, err := parse(token, func(*jwt.Token, jwt.MapClaims) (any, error) { return p.Secrets.Current().keys(), nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithAudience(ParticipantAudience),
		jwt.WithLeeway(DefaultLeeway), jwt.WithTimeFunc(p.now))
	if err != nil {
		return of, rejection(err, c, DefaultLeeway)
	}
	stated, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(stated, &of)
	}
	if err != nil || of.ConferenceID == "" || of.E164 == "" || of.Identity == "" {
		return Participation{}, fmt.Errorf("participant: %w", berth.Errorf(berth.CodeUnauthenticated, "the token is invalid").With(err))
	}
	return of, nil
}
