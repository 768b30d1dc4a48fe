package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestMoveConference_OperatorRequests_OwnerChanges(t *testing.T) { // B10
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
	path := "/v1/conferences/" + number + "/move"
	require.Equal(t, http.StatusForbidden, h.call(http.MethodPost, path, h.token("alice"), doc{}).status)
	a := h.call(http.MethodPost, path, h.operator(), doc{"unit": "u7"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "u7", a.json(t)["owner"].(doc)["nodeId"])
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodPost, path, h.operator(), doc{"unit": "a b"}).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/conferences/4930000/move", h.operator(), doc{}).status)
	b, unlock := h.starter.open()
	b.refuse = &berth.Refusal{Code: berth.CodeNodeFull, PoolID: berth.CapabilityConference}
	unlock()
	require.Equal(t, http.StatusServiceUnavailable, h.call(http.MethodPost, path, h.operator(), nil).status)
}

func TestExtendConference_LaterEnd_IsStored(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusCreated, h.meet("alice", meeting()).status)
	patch := func(user string, body doc) answer {
		return h.call(http.MethodPatch, "/v1/conferences/"+number, h.token(user), body)
	}
	later := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Millisecond)
	a := patch("alice", doc{"endAt": later})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	ends, err := time.Parse(time.RFC3339, a.json(t)["endAt"].(string))
	require.NoError(t, err)
	require.Equal(t, later, ends)
	require.Equal(t, http.StatusOK, patch("alice", doc{"durationMs": 10_800_000}).status)
	require.Equal(t, http.StatusNotFound, patch("bob", doc{"durationMs": 10_800_000}).status)
	for name, body := range map[string]doc{
		"nothing": {}, "both": {"endAt": later, "durationMs": 1000},
		"past": {"endAt": time.Now().Add(-time.Hour)}, "too late": {"endAt": time.Now().Add(31 * 24 * time.Hour)},
	} {
		require.Equal(t, http.StatusBadRequest, patch("alice", body).status, name)
	}
}
