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
	started bool
	seen    map[berth.Template]seen
	// mistaken are the mistakes that were logged, with the template whose files have them, empty for other files.
	mistaken map[template.Mistake]berth.Template
}

// seen is what a directory had of a template.
type seen struct {
	file    string // in the directory
	version string // the last one without mistakes, empty if there was none
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
	now, paths := map[berth.Template]seen{}, map[berth.Template]string{}
	for name, file := range tree.Paths {
		paths[name] = filepath.Join(d.path, file)
		now[name] = seen{file, d.seen[name].version} // that of one with mistakes remains
	}
	var changed []*template.Template
	for _, t := range tree.Templates {
		if now[t.Name].version != t.Version {
			changed = append(changed, t)
		}
		now[t.Name] = seen{now[t.Name].file, t.Version}
	}
	if err := d.catalog.offer(ctx, ledger.TemplateDirectory, changed, d.started, paths); err != nil {
		return err
	}
	if err := d.withdraw(ctx, now); err != nil {
		return err
	}
	started := d.started
	d.looked, d.seen, d.started = looked, now, true
	if err := d.catalog.Refresh(ctx); err != nil {
		return err
	}
	d.logMistakes(ctx, tree, changed)
	for _, t := range changed {
		if state, err := d.catalog.State(t.Name); err == nil && (state.Version != t.Version || state.Deleted) {
			logNotUsed(ctx, d.log.With("file", paths[t.Name]), "the directory", t.Name, t.Version, state)
		}
	}
	if !started {
		d.logAbsent(ctx)
	}
	return nil
}

// withdraw deletes the templates whose files were removed. Those whose files only cannot be read stay in now.
func (d *Directory) withdraw(ctx context.Context, now map[berth.Template]seen) error {
	for _, name := range slices.Sorted(maps.Keys(d.seen)) {
		was := d.seen[name]
		if _, ok := now[name]; ok {
			continue
		}
		log := d.log.With("template", name, "version", was.version, "file", filepath.Join(d.path, was.file))
		switch gone, err := d.gone(was.file); {
		case err != nil:
			return err
		case !gone:
			now[name] = was
			log.WarnContext(ctx, "template of the directory cannot be read any more; its version remains")
			continue
		}
		d.catalog.setOwn(ledger.TemplateDirectory, func(own map[berth.Template]string) { delete(own, name) })
		if was.version == "" {
			log.InfoContext(ctx, "files of a template with mistakes removed")
			continue
		}
		state, withdrawn, err := d.catalog.ledger.WithdrawTemplate(ctx, name, was.version, d.catalog.ownVersion(ledger.TemplateBuiltIn, name))
		switch {
		case err != nil:
			return err
		case withdrawn && state.Deleted:
			log.WarnContext(ctx, "template deleted with its files: new tasks are refused")
		case withdrawn:
			log.WarnContext(ctx, "template deleted with its files: that of the program is used again", "active", state.Version)
		case state.Deleted && state.ChangedBy == "":
			log.InfoContext(ctx, "template deleted with its files by another process")
		case state.ChangedBy == "" && state.Version == d.catalog.ownVersion(ledger.TemplateBuiltIn, name):
			log.InfoContext(ctx, "template deleted with its files by another process: that of the program is used again", "active", state.Version)
		case state.Version == was.version && !state.Deleted:
			log.WarnContext(ctx, "files of a template removed that stays active, because an operator activated it", "by", state.ChangedBy,
				"advice", fmt.Sprintf("berth template delete %s refuses new tasks", name))
		default:
			log.InfoContext(ctx, "files of a template removed that was not in use", "active", state.Version, "deleted", state.Deleted, "by", state.ChangedBy)
		}
	}
	return nil
}

// gone reports whether the files of a template were removed.
func (d *Directory) gone(file string) (gone bool, err error) {
	err = inDirectory(d.path, func(fsys fs.FS) error {
		info, err := fs.Stat(fsys, file)
		if err == nil && info.IsDir() {
			_, err = fs.Stat(fsys, path.Join(file, "template.yaml"))
		}
		gone = errors.Is(err, fs.ErrNotExist)
		return nil
	})
	return gone, err
}

// logMistakes logs the mistakes that were not there before, and which are gone.
func (d *Directory) logMistakes(ctx context.Context, tree template.Tree, changed []*template.Template) {
	mistaken := map[template.Mistake]berth.Template{}
	for _, m := range tree.Mistakes {
		mistaken[m] = owner(tree, m.File)
	}
	d.logCorrected(ctx, tree, mistaken, changed)
	for _, m := range tree.Mistakes {
		if _, logged := d.mistaken[m]; logged {
			continue
		}
		at := m
		at.File = filepath.Join(d.path, m.File)
		args, remains := []any{slog.Any("", at)}, false
		if name := mistaken[m]; name != "" {
			args = append(args, "template", name)
			if was := d.seen[name].version; was != "" {
				remains, args = true, append(args, "remains", was)
			}
		}
		if remains {
			d.log.ErrorContext(ctx, "mistake in a template; its former version remains", args...)
		} else {
			d.log.ErrorContext(ctx, "mistake in a template; its files are not used", args...)
		}
	}
	d.mistaken = mistaken
}

// owner returns the template to which a file belongs, empty for none.
func owner(tree template.Tree, file string) berth.Template {
	for name, at := range tree.Paths {
		if at == file || at == "." || strings.HasPrefix(file, at+"/") {
			return name
		}
	}
	return ""
}

// logCorrected logs once for a template, or another file, that it has no mistakes any more. What has changed or was removed has its own line.
func (d *Directory) logCorrected(ctx context.Context, tree template.Tree, now map[template.Mistake]berth.Template, changed []*template.Template) {
	templates, files := map[berth.Template]bool{}, map[string]bool{}
	for m, name := range d.mistaken {
		if name == "" {
			files[m.File] = true
		} else if _, ok := tree.Paths[name]; ok {
			templates[name] = true
		}
	}
	for m, name := range now {
		delete(templates, name)
		delete(files, m.File)
	}
	for _, t := range changed {
		delete(templates, t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		d.log.InfoContext(ctx, "mistakes in a template are gone", "template", name, "version", d.seen[name].version,
			"file", filepath.Join(d.path, tree.Paths[name]))
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		d.log.InfoContext(ctx, "mistakes in a file are gone", "file", filepath.Join(d.path, file))
	}
}

// logAbsent logs the templates that another directory, or this one before a start, had. They may be those of another host.
func (d *Directory) logAbsent(ctx context.Context) {
	var absent []string
	for _, t := range d.catalog.List() {
		state, err := d.catalog.State(t.Name)
		if _, has := d.seen[t.Name]; err == nil && !has && state.Source == ledger.TemplateDirectory && state.ChangedBy == "" {
			absent = append(absent, string(t.Name))
		}
	}
	if n := len(absent); n > 0 {
		if n > maxNamed {
			absent = append(absent[:maxNamed], "…")
		}
		d.log.WarnContext(ctx, "active templates of a directory are not in this one; delete those that are not used any more (berth template delete)",
			"dir", d.path, "count", n, "templates", strings.Join(absent, " "))
	}
}

// maxNamed bounds how many templates one line of the log names.
const maxNamed = 10

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
