package signalling

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// B9: LiveKit may list a participant for good that it no longer has. It is removed then, unless the server was only suspended.
func TestUnits_RemoveListedParticipantWithoutSession_Succeeds(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		body   string
	}
	ok := answer{http.StatusOK, `{}`}
	gone := answer{http.StatusNotFound, `{"code":"not_found","msg":"twirp error unknown: participant does not exist"}`}
	listed := answer{http.StatusServiceUnavailable, `{"code":"unavailable","msg":"twirp error unknown: no response from servers"}`}
	fails := answer{http.StatusServiceUnavailable, `{"code":"unavailable","msg":"the server is stopping"}`}
	for name, test := range map[string]struct {
		answers []answer
		failure string
	}{
		"in the room":                      {answers: []answer{ok}},
		"not in the room":                  {answers: []answer{gone}},
		"only listed":                      {answers: []answer{listed, listed}},
		"the server was suspended":         {answers: []answer{listed, ok}},
		"it left while it was suspended":   {answers: []answer{listed, gone}},
		"the server fails":                 {answers: []answer{fails}, failure: "503"},
		"the server fails the second time": {answers: []answer{listed, fails}, failure: "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(calls.Add(1)) - 1
				if r.URL.Path != "/twirp/livekit.RoomService/RemoveParticipant" || n >= len(test.answers) {
					http.Error(w, "unexpected", http.StatusInternalServerError)
					return
				}
				w.WriteHeader(test.answers[n].status)
				_, _ = io.WriteString(w, test.answers[n].body)
			}))
			defer server.Close()
			u := newUnits()
			defer u.http.CloseIdleConnections()
			err := u.remove(t.Context(), target{url: mustURL(t, "ws"+strings.TrimPrefix(server.URL, "http")), key: "k", secret: "s"}, number, "ann")
			if test.failure == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.failure)
			}
			require.EqualValues(t, len(test.answers), calls.Load())
		})
	}
}
