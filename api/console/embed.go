// Package console serves berth's web page. `make console` builds it from src into dist, whose files are embedded in the
// binary. A binary built without them serves a page with build instructions.
package console

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// dist contains only a placeholder until the page is built, so that a fresh clone compiles without Node.
//
//go:embed all:dist
var dist embed.FS

const (
	indexFile = "index.html"
	assetDir  = "assets/" // Vite names every file in it by its content's hash
)

// notBuilt is served if the page was not built. It has no styles because the security policy forbids inline styles.
const notBuilt = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>berth</title></head>
<body><h1>berth</h1>
<p>The task page was not built into this binary: run <code>make console</code> (it needs Node), then build and start again.</p>
<p>任务页面尚未构建：请运行 <code>make console</code>（需要 Node），然后重新构建并启动。</p>
<p>The API works without it: <a href="/openapi.yaml">openapi.yaml</a></p></body></html>
`

// Handler serves the page for GET and HEAD. Files named by their hash are cached without a time limit; all other
// responses are revalidated on each request and answered with 304 if unchanged. A path without an extension that is not a
// file is a view of the page and returns its HTML. The caller sets the security policy.
func Handler() http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(fmt.Sprintf("open the embedded page: %v", err)) // the binary itself is broken
	}
	return handler(files)
}

func handler(files fs.FS) http.Handler {
	index, err := fs.ReadFile(files, indexFile)
	if err != nil {
		index = []byte(notBuilt)
	}
	sum := sha256.Sum256(index)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		name := cmp.Or(strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/"), indexFile)
		info, err := fs.Stat(files, name)
		switch {
		case name != indexFile && err == nil && info.Mode().IsRegular() && !strings.HasPrefix(path.Base(name), "."):
			cache := "no-cache"
			if strings.HasPrefix(name, assetDir) {
				cache = "public, max-age=31536000, immutable"
			}
			w.Header().Set("Cache-Control", cache)
			server.ServeHTTP(w, r)
		case strings.HasPrefix(name, assetDir), err != nil && !errors.Is(err, fs.ErrNotExist), path.Ext(name) != "" && name != indexFile:
			http.NotFound(w, r)
		default:
			h := w.Header()
			h.Set("Cache-Control", "no-cache")
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			if r.Method == http.MethodGet {
				_, _ = w.Write(index) // an error means that the client disconnected
			}
		}
	})
}
