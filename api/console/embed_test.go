package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestPage_Paths_OnlyThePageAndItsFilesExist(t *testing.T) { // FP6
	t.Parallel()
	p := newPage(fstest.MapFS{
		".gitkeep":              {},
		"index.html":            {Data: []byte("<html>page</html>")},
		"favicon.svg":           {Data: []byte("<svg/>")},
		"assets/index-a1b2.js":  {Data: []byte("let x")},
		"assets/index-a1b2.css": {Data: []byte("p{}")},
	})
	const page = "<html>page</html>"
	for _, tt := range []struct{ path, body, cache, kind string }{
		{"/", page, "no-cache", "text/html"},
		{"/index.html", page, "no-cache", "text/html"},
		{"/assets/index-a1b2.js", "let x", "public, max-age=31536000, immutable", "text/javascript"},
		{"/assets/index-a1b2.css", "p{}", "public, max-age=31536000, immutable", "text/css"},
		{"/favicon.svg", "<svg/>", "no-cache", "image/svg+xml"},
	} {
		require.True(t, p.Has(tt.path), tt.path)
		rec := get(p, http.MethodGet, tt.path)
		require.Equal(t, http.StatusOK, rec.Code, tt.path)
		require.Equal(t, tt.body, rec.Body.String())
		require.Equal(t, tt.cache, rec.Header().Get("Cache-Control"))
		require.Contains(t, rec.Header().Get("Content-Type"), tt.kind)
	}
	for _, path := range []string{
		"", "//", "/tasks/t_1", "/assets/index-old.js", "/assets/", "/assets", "/robots.txt", "/.gitkeep", "/../../etc/passwd", "/favicon.svg/", "/wp-login.php",
		"/console", "/index.html/x", "/\x00", "/Index.html",
	} {
		require.False(t, p.Has(path), path)
	}
}

// FI6: the link leads to the page, also where a proxy adds a path prefix.
func TestNotFound_AnyPath_LinkIsRelative(t *testing.T) {
	t.Parallel()
	for path, link := range map[string]string{"": "./", "/": "./", "/x": "./", "/x/": "../", "/tasks/t_1": "../", "/a/b/c": "../../"} {
		require.Equal(t, 2, strings.Count(NotFound(path), `<a href="`+link+`">`), path)
	}
	require.NotContains(t, NotFound("/x")+notBuilt, `="/`)
}

func TestPage_SameETag_Returns304(t *testing.T) {
	t.Parallel()
	p := newPage(fstest.MapFS{"index.html": {Data: []byte("page")}})
	tag := get(p, http.MethodGet, "/").Header().Get("ETag")
	require.NotEmpty(t, tag)
	rec := get(p, http.MethodGet, "/", "If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, rec.Code)
	require.Empty(t, rec.Body.String())
	require.Empty(t, get(p, http.MethodHead, "/").Body.String())
}

func TestPage_NotBuilt_ServesBuildInstructions(t *testing.T) {
	t.Parallel()
	rec := get(newPage(fstest.MapFS{".gitkeep": {}}), http.MethodGet, "/")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "make console")
}

func TestPage_EmbeddedFiles_AreServed(t *testing.T) {
	t.Parallel()
	rec := get(New(), http.MethodGet, "/")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "berth")
}
