package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
)

// keyed creates a conference with an idempotency key.
func (h *harness) keyed(user, key string, body any) answer {
	h.t.Helper()
	return h.call(http.MethodPost, "/v1/conferences", h.token(user), body, "Idempotency-Key", key)
}

// C16: a retry with the same key returns the same conference, also with an assigned number.
func TestCreateConference_SameKey_IsOneConference(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.NumbersFrom = "9990" })
	body := doc{"durationMs": 60_000}
	first := h.keyed("alice", "k1", body)
	require.Equal(t, http.StatusCreated, first.status, string(first.body))
	again := h.keyed("alice", "k1", body)
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.Equal(t, true, again.json(t)["replay"])
	require.Equal(t, first.json(t)["conferenceId"], again.json(t)["conferenceId"])

	other := h.keyed("alice", "k1", doc{"durationMs": 60_001})
	require.Equal(t, http.StatusUnprocessableEntity, other.status, string(other.body))
	require.Equal(t, berth.CodeIdempotencyMismatch, other.problem.Code)
	require.Equal(t, "Idempotency-Key", other.problem.Field)
	require.Equal(t, http.StatusBadRequest, h.keyed("alice", strings.Repeat("k", 256), body).status)
	for _, a := range []answer{h.keyed("alice", "k2", body), h.keyed("bob", "k1", body)} {
		require.Equal(t, http.StatusCreated, a.status, "another key, or the key of another user")
		require.NotEqual(t, first.json(t)["conferenceId"], a.json(t)["conferenceId"])
	}

	e164 := first.json(t)["e164"].(string)
	require.Equal(t, http.StatusOK, h.conference(http.MethodDelete, e164, h.token("alice")).status)
	ended := h.keyed("alice", "k1", body)
	require.Equal(t, http.StatusOK, ended.status, "the key still refers to the ended conference")
	require.Equal(t, first.json(t)["conferenceId"], ended.json(t)["conferenceId"])
	require.Equal(t, "ended", ended.json(t)["status"])
}

// C16: the number of a key is stored before the workflow is started, so a retry after a crash does not create a second
// conference. A refused conference keeps nothing, and the request can be retried.
func TestCreateConference_KeyAfterFailure_FindsConference(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Config.NumbersFrom = "9990" })
	set := func(failure, refuse error) {
		b, unlock := h.starter.open()
		defer unlock()
		b.failure, b.refuse = failure, refuse
	}
	body := doc{"durationMs": 60_000}
	set(errDown, nil)
	require.Equal(t, http.StatusServiceUnavailable, h.keyed("alice", "k1", body).status)
	set(nil, &berth.Refusal{Code: berth.CodeNodeFull})
	require.Equal(t, berth.CodeNodeFull, h.keyed("alice", "k1", body).problem.Code)
	refused := h.conference(http.MethodGet, "9990", h.token("alice")).json(t)
	require.Equal(t, "deleted", refused["status"], "recorded under the number of the first request")

	set(nil, nil)
	require.Equal(t, http.StatusCreated, h.meet("bob", meeting(with("e164", "9991"))).status, "another request takes the next number")
	made := h.keyed("alice", "k1", body)
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	require.NotEqual(t, refused["conferenceId"], made.json(t)["conferenceId"])
	require.Equal(t, made.json(t)["conferenceId"], h.keyed("alice", "k1", body).json(t)["conferenceId"])
}

// C16: a key refers to an existing conference from the first request that has the key and the conference's number.
func TestCreateConference_KeyWithNumber_IsOneConference(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	first := h.meet("alice", meeting()).json(t)
	again := h.keyed("alice", "k1", meeting())
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, first["conferenceId"], again.json(t)["conferenceId"])
	require.Equal(t, http.StatusConflict, h.keyed("alice", "k2", meeting(with("title", "retro"))).status)
	h.conference(http.MethodDelete, number, h.token("alice"))
	require.Equal(t, first["conferenceId"], h.keyed("alice", "k1", meeting()).json(t)["conferenceId"])
	require.Equal(t, http.StatusCreated, h.keyed("alice", "k2", meeting(with("title", "retro"))).status, "the number is free")
}
