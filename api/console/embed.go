// Package console serves berth's web page. `make console` builds it from src into dist, whose files are embedded in the
// binary. A binary built without them serves a page with build instructions.
package console

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
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
<p>The API works without it: <a href="openapi.yaml">openapi.yaml</a></p></body></html>
`

// NotFound returns the page of a path that does not exist. Its link is relative, because a proxy may add a path prefix.
func NotFound(path string) string {
	return fmt.Sprintf(notFound, cmp.Or(strings.Repeat("../", max(strings.Count(path, "/")-1, 0)), "./"))
}

// notFound has no styles for the same reason.
const notFound = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Not found – berth</title></head>
<body><h1>Not found</h1>
<p>There is nothing at this address. <a href="%[1]s">Start page</a></p>
<p lang="zh">此地址没有内容。<a href="%[1]s">返回首页</a></p></body></html>
`

// Page serves the page and its files for GET and HEAD. Files named by their hash are cached without a time limit; all other
// responses are revalidated on each request and answered with 304 if unchanged. The caller sets the security policy.
type Page struct {
	files      fs.FS
	index      []byte
	tag        string
	fileServer http.Handler
}

// New returns the page of this binary.
func New() *Page {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(fmt.Sprintf("open the embedded page: %v", err)) // the binary itself is broken
	}
	return newPage(files)
}

func newPage(files fs.FS) *Page {
	index, err := fs.ReadFile(files, indexFile)
	if err != nil {
		index = []byte(notBuilt)
	}
	sum := sha256.Sum256(index)
	return &Page{files: files, index: index, tag: `"` + hex.EncodeToString(sum[:12]) + `"`, fileServer: http.FileServerFS(files)}
}

// Has reports whether the path is the page or one of its files. The views of the page have the same path: their names follow a #.
func (p *Page) Has(path string) bool { return isIndex(path) || p.isFile(path) }

func isIndex(path string) bool { return path == "/" || path == "/"+indexFile }

func (p *Page) isFile(name string) bool {
	name = strings.TrimPrefix(name, "/")
	if !fs.ValidPath(name) || strings.HasPrefix(path.Base(name), ".") {
		return false
	}
	info, err := fs.Stat(p.files, name)
	return err == nil && info.Mode().IsRegular()
}

// ServeHTTP serves a path that Has reports.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if !isIndex(r.URL.Path) {
		cache := "no-cache"
		if strings.HasPrefix(r.URL.Path, "/"+assetDir) {
			cache = "public, max-age=31536000, immutable"
		}
		h.Set("Cache-Control", cache)
		p.fileServer.ServeHTTP(w, r)
		return
	}
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("ETag", p.tag)
	if r.Header.Get("If-None-Match") == p.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(p.index) // an error means that the client disconnected
	}
}
