package unit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/metrics"
)

const (
	// maxWebhook is the limit of one event: a participant's metadata and attributes are in it.
	maxWebhook = 1 << 20
	// maxChanges is how many changes may be waiting; further ones are found by the next list.
	maxChanges = 1024
)

// webhookEvent is the part of LiveKit's webhook events that is used: see "Webhooks" in LiveKit's documentation.
type webhookEvent struct {
	Event string `json:"event"`
	Room  struct {
		Name string `json:"name"`
	} `json:"room"`
}

// webhookClaims are the claims of the token that LiveKit signs each event with.
type webhookClaims struct {
	jwt.RegisteredClaims
	SHA256 string `json:"sha256"`
}

// Webhooks returns a handler for the events that the server sends, and a channel with the numbers of the rooms whose
// participants or tracks have changed. Without it, such changes are found by the next list, which may be late by seconds.
func (l *LiveKit) Webhooks() (http.Handler, <-chan string) {
	changes := make(chan string, maxChanges)
	metrics.Begin(metrics.WebhooksRejected, webhookTooLarge, webhookUnsigned, webhookInvalid)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWebhook))
		if err != nil {
			rejectWebhook(w, webhookTooLarge, "the event is too large", http.StatusRequestEntityTooLarge)
			return
		}
		if !l.signed(r.Header.Get("Authorization"), body) {
			rejectWebhook(w, webhookUnsigned, "the event is not signed with the server's key", http.StatusUnauthorized)
			return
		}
		var ev webhookEvent
		if err := json.Unmarshal(body, &ev); err != nil {
			rejectWebhook(w, webhookInvalid, "the event is not JSON", http.StatusBadRequest)
			return
		}
		switch ev.Event {
		case "participant_joined", "participant_left", "participant_connection_aborted", "track_published", "track_unpublished":
			if berth.ValidE164("room", ev.Room.Name) != nil {
				return
			}
			select {
			case changes <- ev.Room.Name:
			default:
			}
		}
	}), changes
}

// The kinds of rejected events, as labels of metrics.
var (
	webhookTooLarge = metrics.With(metrics.Kind.String("too_large"))
	webhookUnsigned = metrics.With(metrics.Kind.String("signature"))
	webhookInvalid  = metrics.With(metrics.Kind.String("invalid"))
)

func rejectWebhook(w http.ResponseWriter, kind metric.MeasurementOption, message string, status int) {
	metrics.WebhooksRejected.Add(context.Background(), 1, kind)
	http.Error(w, message, status)
}

// signed reports whether a token of this server's key has the hash of the body.
func (l *LiveKit) signed(authorization string, body []byte) bool {
	var claims webhookClaims
	_, err := jwt.ParseWithClaims(strings.TrimPrefix(authorization, "Bearer "), &claims, func(*jwt.Token) (any, error) {
		return l.api.secret, nil
	}, jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithIssuer(l.api.key), jwt.WithExpirationRequired(), jwt.WithLeeway(tokenTTL))
	sum := sha256.Sum256(body)
	return err == nil && claims.SHA256 == base64.StdEncoding.EncodeToString(sum[:])
}
