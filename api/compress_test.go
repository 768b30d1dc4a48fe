package api_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// G2: long lists are compressed for those that accept it, and the text is the same.
func TestCompressed_LongLists_SameTextForAll(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 30 {
		require.Equal(t, http.StatusOK, h.put(fmt.Sprintf("triage%d", i), doc{"files": files("one")}).status)
	}
	get := func(path, accept string) answer {
		return h.call(http.MethodGet, path, h.token("olga", "user", "operator"), nil, "Accept-Encoding", accept)
	}
	plain := get("/v1/templates", "identity")
	require.Empty(t, plain.header.Get("Content-Encoding"))
	for accept, want := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "deflate, gzip": true, "": false, "br": false, "gzip;q=0": false, "br, gzip; q=0.000": false, "*;q=0": false,
	} {
		a := get("/v1/templates", accept)
		require.Equal(t, want, a.header.Get("Content-Encoding") == "gzip", accept)
		require.Equal(t, plain.header.Get("ETag"), a.header.Get("ETag"))
		if !want {
			require.Equal(t, string(plain.body), string(a.body), accept)
			continue
		}
		require.Contains(t, a.header.Values("Vary"), "Accept-Encoding")
		require.Less(t, len(a.body), len(plain.body)/3)
		r, err := gzip.NewReader(strings.NewReader(string(a.body)))
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, string(plain.body), string(text))
	}
	unchanged := h.call(http.MethodGet, "/v1/templates", h.token("olga", "user", "operator"), nil, "Accept-Encoding", "gzip", "If-None-Match", plain.header.Get("ETag"))
	require.Equal(t, http.StatusNotModified, unchanged.status)
	require.Empty(t, unchanged.body)
	require.Empty(t, unchanged.header.Get("Content-Encoding"))
}

// What is short, an error, a stream, or may have secrets beside what a user chose, is not compressed.
func TestCompressed_OtherResponses_AsTheyAre(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	token := h.token("olga", "user", "operator")
	long := strings.Repeat("long ", 4000)
	submitted := h.call(http.MethodPost, "/v1/tasks", token, match(func(d doc) { d["variables"].(doc)["jobText"] = long }))
	require.Equal(t, http.StatusAccepted, submitted.status)
	id := h.call(http.MethodGet, "/v1/tasks/"+submitted.json(t)["taskId"].(string), token, nil).json(t)["variables"].(doc)["jobText"].(doc)["assetId"].(string)
	for _, path := range []string{"/v1/me", "/v1/templates?source=api", "/v1/templates/nope", "/v1/templates?limit=x", "/v1/tasks", "/v1/assets/" + id, "/healthz"} {
		a := h.call(http.MethodGet, path, token, nil, "Accept-Encoding", "gzip")
		require.Empty(t, a.header.Get("Content-Encoding"), path)
		require.NotEmpty(t, a.body, path)
	}
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, "/v1/templates", "", nil, "Accept-Encoding", "gzip").status)
}
