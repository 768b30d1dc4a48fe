package routing

import (
	"context"
	"os"
	"path/filepath"

	"berth/internal/ledger"
	"berth/internal/llm"
)

// file is the routing file of a process. One goroutine follows it.
type file struct {
	path     string // empty for that of the program
	content  llm.Content
	revision int64       // of content, 0 while it was not offered
	looked   os.FileInfo // of the file as last read, nil for one that cannot be followed
	before   os.FileInfo // of the last look
	mistake  string      // which was logged
}

// read reads the file. The content remains if that fails.
func (f *file) read() error {
	looked := f.look()
	content, err := llm.ReadContent(f.path)
	f.looked, f.before = looked, looked
	if err == nil {
		f.content = content
	}
	return err
}

// look returns what differs after a change of the file, nil if there is none.
func (f *file) look() os.FileInfo {
	info, err := os.Stat(f.path) // of what a link leads to
	if err != nil {
		return nil
	}
	return info
}

// same reports whether two looks have found the same file.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// follow offers the file once it has changed, and stopped changing.
func (r *Routing) follow(ctx context.Context) (offered bool, err error) {
	f := &r.own
	if f.path == "" || f.looked != nil && !f.looked.Mode().IsRegular() { // a pipe is read once
		return false, nil
	}
	now := f.look()
	changing := !same(now, f.before)
	f.before = now
	if changing || same(now, f.looked) {
		return false, nil
	}
	read, known := f.looked, f.content
	if err := f.read(); err != nil {
		if text := err.Error(); text != f.mistake {
			f.mistake = text
			r.log.ErrorContext(ctx, "routing file not used; the revision in use remains", "file", f.path, "revision", r.Current().Revision, "error", err)
		}
		return false, nil
	}
	if f.mistake != "" {
		f.mistake = ""
		r.log.InfoContext(ctx, "mistakes in the routing file are gone", "file", f.path)
	}
	if f.content.Hash == known.Hash {
		return false, nil
	}
	if err := r.offer(ctx, true); err != nil {
		f.looked, f.content = read, known // again at the next look
		return false, err
	}
	return true, nil
}

// offer offers the content of the file to all processes. changed: it is not the one with which the process started.
func (r *Routing) offer(ctx context.Context, changed bool) error {
	f := &r.own
	revision := ledger.RoutingRevision{Hash: f.content.Hash, Source: ledger.RoutingBuiltIn, Content: f.content.Text, Models: f.content.Models()}
	if f.path != "" {
		revision.Source, revision.Origin = ledger.RoutingFile, origin(f.path)
	}
	out, err := r.ledger.OfferRouting(ctx, revision, changed)
	if err != nil {
		return err
	}
	f.revision = out.Own
	switch {
	case out.Published:
		r.log.InfoContext(ctx, "routing file published", "file", f.path, "revision", out.Own)
	case out.Newest.Revision == r.Current().Revision: // else Refresh warns
		r.warnOfFile(ctx, out.Newest)
	}
	return nil
}

// origin names a file of this host.
func origin(path string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return host + ":" + path
}
