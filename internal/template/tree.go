package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"berth"
	"berth/templates"
)

// Limits of a directory tree of templates.
const (
	maxTreeDepth   = 6
	maxTreeEntries = 50_000
	maxTreeBytes   = 256 << 20
)

// Tree is what a directory tree contains.
type Tree struct {
	// Templates are those without mistakes, by name.
	Templates []*Template
	// Paths are the directory or file of each template, also of those with mistakes, by name.
	Paths map[berth.Template]string
	// Mistakes are those of all files.
	Mistakes Mistakes
}

// LoadTree reads the templates of a directory tree: each directory with a template.yaml, and each prompt in another one. Shared files, whose names
// begin with _, and schemas may be in the directory of a template or above it. What editors and systems leave behind is ignored: hidden
// names, and all but prompts, schemas and template.yaml. Links are followed as far as the file system follows them; one of os.Root does
// not leave its directory. at is the directory, or the only prompt, to read; those above it in the file system have its shared files.
// rootName is the name of a template whose template.yaml is in the root.
func LoadTree(fsys fs.FS, at, rootName string) Tree {
	r := &treeReader{fsys: fsys, tree: Tree{Paths: map[berth.Template]string{}}, rootName: rootName}
	dir := at
	if strings.HasSuffix(at, promptEnd) {
		dir, r.only = path.Dir(at), path.Base(at)
	}
	var above []directory
	for i := range len(dir) {
		if dir[i] == '/' {
			own, _ := r.files(dir[:i])
			above = append([]directory{own}, above...)
		}
	}
	if dir != "." {
		own, _ := r.files(".")
		above = append(above, own)
	}
	r.tree.Mistakes = nil // those above are not asked for
	r.walk(dir, above)
	slices.SortFunc(r.tree.Templates, func(a, b *Template) int { return strings.Compare(string(a.Name), string(b.Name)) })
	r.tree.Mistakes = r.tree.Mistakes.sorted()
	return r.tree
}

// Builtin returns the templates of the binary.
func Builtin() Tree { return LoadTree(templates.FS, ".", "") }

type treeReader struct {
	fsys     fs.FS
	rootName string
	only     string // the only prompt to read, empty for all
	entries  int
	bytes    int
	tree     Tree
}

func (r *treeReader) mistake(file string, format string, args ...any) {
	r.tree.Mistakes = append(r.tree.Mistakes, Mistake{File: file, Message: fmt.Sprintf(format, args...)})
}

// unread notes a file that cannot be read, unless another one is the only one to read.
func (r *treeReader) unread(file string, format string, args ...any) {
	name := path.Base(file)
	if r.only == "" || name == r.only || relevant(name) && (strings.HasPrefix(name, "_") || !strings.HasSuffix(name, promptEnd)) {
		r.mistake(file, format, args...)
	}
}

// relevant reports whether a file can belong to a template.
func relevant(name string) bool {
	return name == mainFile || strings.HasSuffix(name, promptEnd) || strings.HasSuffix(name, ".json")
}

func (r *treeReader) walk(dir string, above []directory) {
	own, below := r.files(dir)
	dirs := append([]directory{own}, above...)
	r.templates(dir, dirs)
	switch {
	case r.only != "" || r.full():
		return
	case len(above) == maxTreeDepth && len(below) > 0:
		r.mistake(below[0], "directories are nested more than %d deep", maxTreeDepth)
		return
	}
	for _, d := range below {
		r.walk(d, dirs)
	}
}

// files reads the files of a directory, and returns the directories below it.
func (r *treeReader) files(dir string) (own directory, below []string) {
	own = directory{path: strings.TrimPrefix(dir+"/", "./"), files: map[string]string{}}
	entries, err := fs.ReadDir(r.fsys, dir)
	if err != nil {
		r.mistake(dir, "cannot be read: %s", reason(err))
	}
	for _, e := range entries {
		name := e.Name()
		full := path.Join(dir, name)
		if strings.HasPrefix(name, ".") {
			continue
		}
		if r.entries++; r.full() {
			r.mistake(dir, "more than %d files and directories, or %d bytes, together with those before: divide the directory", maxTreeEntries, maxTreeBytes)
			return own, nil
		}
		isDir, regular, ok := r.kind(full, e)
		switch {
		case !ok:
		case isDir:
			below = append(below, full)
		case name == "template.yml":
			r.unread(full, "is ignored: name it %s", mainFile)
		case !relevant(name):
		case !regular:
			r.unread(full, "is not a regular file")
		default:
			text, err := r.read(full)
			if err != nil {
				r.unread(full, "cannot be read: %s", reason(err))
				continue
			}
			own.files[name] = text
			r.bytes += len(text)
		}
	}
	return own, below
}

// full reports whether nothing more is read.
func (r *treeReader) full() bool { return r.entries > maxTreeEntries || r.bytes > maxTreeBytes }

// kind returns what an entry is, or what its link leads to; not ok if it is to be ignored.
func (r *treeReader) kind(full string, e fs.DirEntry) (isDir, regular, ok bool) {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir(), e.Type().IsRegular(), true
	}
	info, err := fs.Stat(r.fsys, full)
	if err == nil {
		return info.IsDir(), info.Mode().IsRegular(), true
	}
	if name := path.Base(full); relevant(name) || path.Ext(name) == "" {
		r.unread(full, "is a link that cannot be followed within the directory: replace it with the file")
	}
	return false, false, false
}

// reason returns what prevents reading, without the path, which the mistake has.
func reason(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// read returns the content of a file, of one that is too large its beginning.
func (r *treeReader) read(file string) (string, error) {
	f, err := r.fsys.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	return string(b), err
}

// templates loads those of a directory.
func (r *treeReader) templates(dir string, dirs []directory) {
	if _, ok := dirs[0].files[mainFile]; ok {
		r.only = "" // it is a part of the template
		name := path.Base(dir)
		if dir == "." {
			name = r.rootName
		}
		r.load(berth.Template(name), dir, &loader{dirs: dirs})
		return
	}
	for _, file := range promptsIn(dirs[0].files) {
		if r.only != "" && r.only != file {
			continue
		}
		stem, _ := splitPrompt(file)
		r.load(berth.Template(stem), path.Join(dir, file), &loader{dirs: dirs, single: file})
	}
}

// Twice is the mistake of a second template of the same name.
func Twice(name berth.Template, at, first string) Mistake {
	return Mistake{File: at, Message: fmt.Sprintf("the template %s is in %s already: use another name", name, first)}
}

func (r *treeReader) load(name berth.Template, at string, l *loader) {
	if first, ok := r.tree.Paths[name]; ok {
		r.tree.Mistakes = append(r.tree.Mistakes, Twice(name, at, first))
		return
	}
	r.tree.Paths[name] = at
	l.name = name
	t := l.load()
	if len(l.mistakes) > 0 {
		r.tree.Mistakes = append(r.tree.Mistakes, l.mistakes...)
		return
	}
	r.tree.Templates = append(r.tree.Templates, t)
}
