package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func get(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestHandler_BuiltPage_ServesFilesAndViews(t *testing.T) {
	t.Parallel()
	h := handler(fstest.MapFS{
		".gitkeep":              {},
		"index.html":            {Data: []byte("<html>page</html>")},
		"favicon.svg":           {Data: []byte("<svg/>")},
		"assets/index-a1b2.js":  {Data: []byte("let x")},
		"assets/index-a1b2.css": {Data: []byte("p{}")},
	})
	const page, none = "<html>page</html>", "404 page not found\n"
	for _, tt := range []struct {
		path   string
		status int
		body   string
		cache  string
		kind   string
	}{
		{"/", 200, page, "no-cache", "text/html"},
		{"/index.html", 200, page, "no-cache", "text/html"},
		{"/tasks/t_1", 200, page, "no-cache", "text/html"},
		{"/assets/index-a1b2.js", 200, "let x", "public, max-age=31536000, immutable", "text/javascript"},
		{"/assets/index-a1b2.css", 200, "p{}", "public, max-age=31536000, immutable", "text/css"},
		{"/favicon.svg", 200, "<svg/>", "no-cache", "image/svg+xml"},
		{"/assets/index-old.js", 404, none, "", "text/plain"},
		{"/assets/", 200, page, "no-cache", "text/html"},
		{"/assets", 200, page, "no-cache", "text/html"},
		{"/robots.txt", 404, none, "", "text/plain"},
		{"/.gitkeep", 404, none, "", "text/plain"},
		{"/../../etc/passwd", 200, page, "no-cache", "text/html"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			rec := get(h, http.MethodGet, tt.path)
			require.Equal(t, tt.status, rec.Code)
			require.Equal(t, tt.body, rec.Body.String())
			require.Equal(t, tt.cache, rec.Header().Get("Cache-Control"))
			require.Contains(t, rec.Header().Get("Content-Type"), tt.kind)
		})
	}
}

func TestHandler_SameETag_Returns304(t *testing.T) {
	t.Parallel()
	h := handler(fstest.MapFS{"index.html": {Data: []byte("page")}})
	tag := get(h, http.MethodGet, "/").Header().Get("ETag")
	require.NotEmpty(t, tag)
	rec := get(h, http.MethodGet, "/", "If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, rec.Code)
	require.Empty(t, rec.Body.String())
}

func TestHandler_OtherMethods_AreRejected(t *testing.T) {
	t.Parallel()
	h := handler(fstest.MapFS{"index.html": {Data: []byte("page")}})
	require.Empty(t, get(h, http.MethodHead, "/").Body.String())
	rec := get(h, http.MethodPost, "/")
	require.Equal(t, http.StatusMethodNotAllowed, rec.Code)
	require.Equal(t, "GET, HEAD", rec.Header().Get("Allow"))
}

func TestHandler_PageNotBuilt_ServesBuildInstructions(t *testing.T) {
	t.Parallel()
	rec := get(handler(fstest.MapFS{".gitkeep": {}}), http.MethodGet, "/")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "make console")
}

func TestHandler_EmbeddedFiles_AreServed(t *testing.T) {
	t.Parallel()
	rec := get(Handler(), http.MethodGet, "/")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "berth")
}
