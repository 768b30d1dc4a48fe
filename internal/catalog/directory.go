package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/setting"
	"berth/internal/template"
)

const (
	// pollEvery is the shortest time between two looks at a directory. Networks and container systems send no notice of a change.
	pollEvery = 250 * time.Millisecond
	// pollShare bounds the part of the time that is spent looking, as its inverse.
	pollShare = 20
	// maxLooked bounds how many files are looked at, as in template.LoadTree.
	maxLooked = 50_000
)

// ReadDirectory returns the templates of a directory. Its error is that of the directory itself.
func ReadDirectory(dir string) (tree template.Tree, err error) {
	err = inDirectory(dir, func(fsys fs.FS) error {
		tree = template.LoadTree(fsys, ".", filepath.Base(dir))
		return nil
	})
	return tree, err
}

// Own returns what a process has without a database: the templates of the binary and of a directory, which precede; "" for none.
func Own(dir string) (template.Tree, error) {
	own := template.Builtin()
	if dir == "" {
		return own, nil
	}
	tree, err := ReadDirectory(dir)
	if err != nil {
		return own, err
	}
	own.Templates = slices.DeleteFunc(own.Templates, func(t *template.Template) bool { return tree.Paths[t.Name] != "" })
	own.Templates = append(own.Templates, tree.Templates...)
	maps.Copy(own.Paths, tree.Paths)
	for _, m := range tree.Mistakes {
		m.File = filepath.Join(dir, m.File)
		own.Mistakes = append(own.Mistakes, m)
	}
	return own, nil
}

func inDirectory(dir string, use func(fs.FS) error) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err
		}
		return setting.Wrong(fmt.Errorf("--templates-dir (BERTH_TEMPLATES_DIR): %s: %w", dir, err))
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return use(root.FS())
}

// Directory offers the templates of a directory to a catalog. It is for one goroutine.
type Directory struct {
	path    string
	catalog *Catalog
	log     *slog.Logger
	looked  uint64 // of the files as last offered
	seen    map[berth.Template]string
}

// OfferDirectory offers the templates of a directory. Templates with mistakes are logged, and keep the version that they had.
func (c *Catalog) OfferDirectory(ctx context.Context, dir string) (*Directory, error) {
	d := &Directory{path: dir, catalog: c, log: c.log}
	looked, err := d.look()
	if err != nil {
		return nil, err
	}
	return d, d.offer(ctx, looked)
}

// Run follows the changes of the directory until ctx ends. Its files are read once they have stopped changing, because most changes
// are written file by file.
func (d *Directory) Run(ctx context.Context) {
	before, every := d.looked, pollEvery
	var last error
	for pause.For(ctx, every) {
		began := time.Now()
		looked, err := d.look()
		if err == nil && looked == before && looked != d.looked {
			err = d.offer(ctx, looked)
		}
		if err != nil && last == nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "directory of templates not read; those known remain", "dir", d.path, "error", err)
		}
		before, last = looked, err
		every = max(pollEvery, pollShare*time.Since(began))
	}
}

// offer reads the files and offers what has changed.
func (d *Directory) offer(ctx context.Context, looked uint64) error {
	tree, err := ReadDirectory(d.path)
	if err != nil {
		return err
	}
	for _, m := range tree.Mistakes {
		m.File = filepath.Join(d.path, m.File)
		d.log.ErrorContext(ctx, "mistake in a template; its former version remains", slog.Any("", m))
	}
	first, seen := d.seen == nil, map[berth.Template]string{}
	var changed []*template.Template
	for _, t := range tree.Templates {
		seen[t.Name] = t.Version
		if d.seen[t.Name] != t.Version {
			changed = append(changed, t)
		}
	}
	if err := d.catalog.Offer(ctx, ledger.TemplateDirectory, changed, !first); err != nil {
		return err
	}
	d.looked, d.seen = looked, seen
	if err := d.catalog.Refresh(ctx); err != nil {
		return err
	}
	for _, t := range changed {
		if state, err := d.catalog.State(t.Name); err == nil && (state.Version != t.Version || state.Deleted) {
			d.log.WarnContext(ctx, "template of the directory not used: another version was activated, or it was deleted",
				"template", t.Name, "version", t.Version, "active", state.Version, "deleted", state.Deleted, "by", state.ChangedBy)
		}
	}
	return nil
}

// look returns a number that differs after a change of the files, without reading them.
func (d *Directory) look() (uint64, error) {
	sum, count := fnv.New64a(), 0
	var walk func(fsys fs.FS, dir string, depth int) error
	walk = func(fsys fs.FS, dir string, depth int) error {
		entries, err := fs.ReadDir(fsys, dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if count++; count > maxLooked || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			at := path.Join(dir, e.Name())
			info, err := fs.Stat(fsys, at) // of what a link leads to
			if err != nil {
				_, _ = fmt.Fprintf(sum, "%s?\n", at)
				continue
			}
			_, _ = fmt.Fprintf(sum, "%s %d %s %d\n", at, info.Size(), info.Mode(), info.ModTime().UnixNano())
			if info.IsDir() && depth < maxDepth {
				if err := walk(fsys, at, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := inDirectory(d.path, func(fsys fs.FS) error { return walk(fsys, ".", 0) })
	return sum.Sum64(), err
}

// maxDepth is how deep the files are looked at.
const maxDepth = 8
