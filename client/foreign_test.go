package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth"
)

// FI6: what proxies in front of berth answer in its place. Each error states that it was the proxy, and has the code and the time of the
// API's response with the same meaning.
func TestClient_ProxyAnswers_ErrorNamesTheProxy(t *testing.T) {
	t.Parallel()
	const nginx, haproxy = "<html>\r\n<head><title>%s</title></head>\r\n<center>nginx/1.22.1</center></html>", "<html><body><h1>%s</h1>\n</body></html>\n"
	for _, tt := range []struct {
		status     int
		body, kind string
		header     string // Retry-After
		code       berth.Code
		retry      int
		text       string
	}{
		{502, nginx, "text/html", "", berth.CodeUnavailable, 2, "has no response of berth"},
		{503, haproxy, "text/html", "", berth.CodeUnavailable, 2, "has no response of berth"},
		{503, "", "", "7", berth.CodeUnavailable, 7, "has no response of berth"},
		{504, haproxy, "text/html", "Wed, 21 Oct 2026 07:28:00 GMT", berth.CodeUnavailable, 2, "has no response of berth"},
		{502, `{"message":"An invalid response was received from the upstream server"}`, "application/json", "", berth.CodeUnavailable, 2, "has no response of berth"},
		{429, nginx, "text/html", "", berth.CodeRateLimited, 1, "limits the rate"},
		{413, nginx, "text/html; charset=utf-8", "", berth.CodeTooLarge, 0, "client_max_body_size"},
		{403, nginx, "text/html", "", "", 0, "check BERTH_URL, and the proxy"},
		{408, haproxy, "text/html", "", "", 0, "check BERTH_URL, and the proxy"},
		{500, nginx, "text/html", "", "", 0, "check BERTH_URL, and the proxy"},
	} {
		t.Run(http.StatusText(tt.status)+tt.kind+tt.header, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > 1 && strings.HasSuffix(r.URL.Path, "/events") {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				w.Header().Set("Content-Type", tt.kind)
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer srv.Close()
			c := New(srv.URL+"/berth/", "t")
			_, err := c.Get(t.Context(), "t_1")
			p, ok := errors.AsType[*Problem](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, tt.code, p.Code)
			require.Equal(t, tt.retry, p.RetryAfter)
			require.Contains(t, err.Error(), srv.URL)
			require.Contains(t, err.Error(), tt.text)
			require.Contains(t, err.Error(), "GET /berth/v1/tasks/t_1 with ")
			require.NotContains(t, err.Error(), "html>")

			calls.Store(0)
			for _, err = range c.Follow(t.Context(), "t_1", "") {
				require.Error(t, err)
			}
			if tt.status >= 500 || tt.status == 429 {
				require.EqualValues(t, 2, calls.Load(), "a stream is retried")
			} else {
				require.EqualValues(t, 1, calls.Load(), "a retry cannot succeed")
			}
		})
	}
}

// FI6: a proxy that redirects http to https, or to another host, would turn a submission into a listing.
func TestClient_ProxyRedirects_CallIsNotChanged(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"taskId":"t_1"}`))
	}))
	defer target.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusPermanentRedirect} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target.URL+"/berth"+r.URL.Path, status)
		}))
		defer srv.Close()
		_, err := New(srv.URL, "t").Submit(t.Context(), Submission{}, "")
		require.ErrorContains(t, err, "set BERTH_URL to "+target.URL+"/berth")
		require.ErrorContains(t, err, "redirects POST /v1/tasks")
	}
	require.Zero(t, calls.Load())
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/tasks" {
				http.Redirect(w, r, "/v2/tasks", status)
				return
			}
			assert.Equal(t, http.MethodPost, r.Method)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"taskId":"t_1"}`))
		}))
		defer srv.Close()
		acc, err := New(srv.URL, "t").Submit(t.Context(), Submission{}, "")
		require.NoError(t, err, "a redirect that changes nothing is followed")
		require.Equal(t, "t_1", acc.TaskID)
	}
}

// FI6: only the client knows at which address it reaches the API.
func TestAddParticipant_URLFromRequest_IsClientsOwn(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"url":"ws://upstream","urlFromRequest":true}`:  "/berth",
		`{"url":"wss://media.example"}`:                  "wss://media.example",
		`{"url":"wss://unit.example","direct":true}`:     "wss://unit.example",
		`{"url":"wss://a.example/x","unknownField":[1]}`: "wss://a.example/x",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}))
		defer srv.Close()
		a, err := New(srv.URL+"/berth/", "t").AddParticipant(t.Context(), "8613800138000", ParticipantSpec{})
		require.NoError(t, err)
		if strings.HasPrefix(want, "/") {
			want = strings.Replace(srv.URL, "http", "ws", 1) + want
		}
		require.Equal(t, want, a.URL)
	}
}
