package unit

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControl_FaultsOverHTTP_Apply(t *testing.T) {
	t.Parallel()
	sim := simulated()
	ask := func(method, path, body string) (view simView, status int) {
		answer := httptest.NewRecorder()
		sim.Control().ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
		if answer.Code == http.StatusOK {
			require.NoError(t, json.NewDecoder(io.Reader(answer.Body)).Decode(&view))
		}
		return view, answer.Code
	}
	for _, fault := range Faults() {
		view, _ := ask(http.MethodPut, "/fault", `{"fault":"`+string(fault)+`"}`)
		require.Equal(t, fault, view.Fault)
		require.Equal(t, fault, sim.Fault())
	}
	view, _ := ask(http.MethodPut, "/conferences/"+number, `{"conferenceId":"old","epoch":2,"startedAt":"2026-01-02T03:04:05Z","participants":3}`)
	require.Len(t, view.Conferences, 1)
	require.Equal(t, sim.Copies(), view.Conferences)
	require.Equal(t, number, view.Conferences[0].E164)
	require.Equal(t, 3, view.Conferences[0].Participants)
	view, _ = ask(http.MethodDelete, "/conferences/"+number, "")
	require.Empty(t, view.Conferences)
	before, _ := ask(http.MethodGet, "/", "")
	after, _ := ask(http.MethodPost, "/restart", "")
	require.NotEqual(t, before.Incarnation, after.Incarnation)

	for path, body := range map[string]string{"/fault": `{"fault":"asleep"}`, "/conferences/x": `{}`, "/conferences/" + number: `no`} {
		_, status := ask(http.MethodPut, path, body)
		require.Equal(t, http.StatusBadRequest, status, path)
	}
	_, status := ask(http.MethodPut, "/elsewhere", "")
	require.NotEqual(t, http.StatusOK, status)
}
