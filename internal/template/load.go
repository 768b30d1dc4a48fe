package template

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/yamlfile"
)

// Limits of the files of a template.
const (
	MaxFileBytes = 256 << 10
	MaxBytes     = 1 << 20
	MaxFiles     = 100
)

// mainFile is the description of a template that has more than one prompt.
const mainFile = "template.yaml"

const promptEnd = ".prompt"

var (
	validName = regexp.MustCompile(`^[a-z][a-z0-9]*([_-][a-z0-9]+)*$`)
	validFile = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)
)

// maxName is the longest name of a template.
const maxName = 64

// Template is a template of one version.
type Template struct {
	Name        berth.Template `json:"name"`
	Version     string         `json:"version"` // 64 hexadecimal digits
	Title       Text           `json:"title"`
	Description Text           `json:"description,omitempty"`
	Price       Price          `json:"credits"`
	// Locales are the languages of its prompts, the preferred one first; empty if they do not depend on the language.
	Locales    []berth.Locale `json:"locales"`
	Variables  []Variable     `json:"variables"`
	Steps      []Step         `json:"steps"`
	Stages     []Stage        `json:"stages,omitempty"`
	Items      []Item         `json:"items,omitempty"`
	Background []Background   `json:"background,omitempty"`

	files   map[string]string
	prompts map[promptKey]*dotprompt.Prompt
	outputs map[string]*jsonschema.Schema // by step
	items   map[string]*jsonschema.Schema
}

type promptKey struct {
	step   string
	locale berth.Locale
}

// Files returns the files that the template consists of by name, shared ones included: what Load needs.
func (t *Template) Files() map[string]string { return maps.Clone(t.files) }

// Output returns the schema of a step's output, nil for text.
func (t *Template) Output(step string) *jsonschema.Schema { return t.outputs[step] }

// Item returns the schema of an item of the stream, nil for a name that is not declared.
func (t *Template) Item(id string) *jsonschema.Schema { return t.items[id] }

// Load reads a template from its files. Their names have no directory. Its error is of type Mistakes.
func Load(name berth.Template, files map[string]string) (*Template, error) {
	l := &loader{name: name, dirs: []directory{{files: maps.Clone(files)}}}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !validFile.MatchString(file) {
			l.add(file, 0, nil, "the name of a file has letters, digits, dots, _ and - only, and no directory: rename it")
			delete(l.dirs[0].files, file)
		}
	}
	t := l.load()
	if len(l.mistakes) > 0 {
		return nil, l.mistakes.sorted()
	}
	return t, nil
}

// directory is a directory with the files of a template, or one above it with shared files.
type directory struct {
	path  string // before the names of its files in mistakes
	files map[string]string
}

// loader reads one template.
type loader struct {
	name berth.Template
	// dirs are its directory and those above.
	dirs []directory
	// single is the only prompt of a template without template.yaml, empty to find it.
	single   string
	mistakes Mistakes
	used     map[string]string
	bad      map[string]bool // files that cannot be read
	// doc is the document with its fields; step i is at stepPath(i).
	doc  *document
	spec spec
	out  *Template
	// violated are the places of doc that violate its schema: nothing else is reported of them.
	violated [][]string
	texts    []textAt
	// languages are those that prompts are compiled for, one without a name if there are none.
	languages []berth.Locale
	// localized: a prompt depends on the language. unread: a prompt, or a part of one, cannot be read. unsure: a name has a mistake, so that not
	// all are known. incomplete: a step has no prompt. unsureMarks: a stage or item has a mistake.
	localized, unread, unsure, incomplete, unsureMarks bool
}

func (l *loader) add(file string, line int, path []string, format string, args ...any) {
	l.addAt(file, line, 0, path, format, args...)
}

func (l *loader) addAt(file string, line, column int, path []string, format string, args ...any) {
	l.mistakes = append(l.mistakes, Mistake{shorten(file), line, column, shorten(fieldOf(path)), shorten(fmt.Sprintf(format, args...))})
}

// maxShown bounds what a mistake quotes, in bytes.
const maxShown = 500

// shorten returns a text of a mistake on one line, without what a terminal would execute.
func shorten(s string) string {
	s = yamlfile.Safe(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "))
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

// at reports a mistake in a field of a document.
func (l *loader) at(d *document, path []string, format string, args ...any) {
	n := yamlfile.Find(d.root, path)
	l.addAt(d.file, n.Line+d.offset, n.Column, path, format, args...)
}

// invalid reports a mistake in a field of the template, unless it, or what it is a part of, violates the schema.
func (l *loader) invalid(path []string, format string, args ...any) {
	if !l.isViolated(path) {
		l.at(l.doc, path, format, args...)
	}
}

func (l *loader) isViolated(path []string) bool {
	return slices.ContainsFunc(l.violated, func(of []string) bool {
		return slices.Equal(of, path) || len(of) > 1 && len(of) < len(path) && slices.Equal(of, path[:len(of)])
	})
}

// listViolated reports whether a list, one of its entries, or one of these fields of an entry violates the schema.
func (l *loader) listViolated(list string, fields ...string) bool {
	return slices.ContainsFunc(l.violated, func(path []string) bool {
		return len(path) > 0 && path[0] == list && (len(path) <= 2 || slices.Contains(fields, path[len(path)-1]))
	})
}

// find returns a file of the template's directory or, if it is shared, of one above. One that cannot be read is empty.
func (l *loader) find(name string, shared bool) (dotprompt.Source, bool) {
	for i, dir := range l.dirs {
		if text, ok := dir.files[name]; ok && (i == 0 || shared) {
			src := dotprompt.Source{File: path.Join(dir.path, name), Line: 1, Text: normal(text)}
			if _, again := l.used[name]; !again {
				l.used[name] = src.Text
				l.bad[name] = !l.checkFile(src.File, src.Text)
			}
			if l.bad[name] {
				src.Text, l.used[name], l.unread = "", "", true
			}
			return src, true
		}
	}
	return dotprompt.Source{}, false
}

// normal returns the text of a file without what editors and systems add.
func normal(text string) string {
	return strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
}

// checkFile reports a file that is too large or no text. It returns false if it cannot be read.
func (l *loader) checkFile(file, text string) bool {
	switch bytes := total(l.used); {
	case len(text) > MaxFileBytes:
		l.add(file, 0, nil, "has more than %d bytes: shorten or divide it", MaxFileBytes)
		return false
	case bytes > MaxBytes:
		l.add(file, 0, nil, "the files of the template have more than %d bytes together: shorten them", MaxBytes)
		return false
	case len(l.used) > MaxFiles:
		l.add(file, 0, nil, "the template has more than %d files: join some", MaxFiles)
		return false
	}
	line := 0
	for text := range strings.Lines(text) {
		line++
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			l.add(file, line, nil, "is not a text in UTF-8: save the file in this encoding")
			return false
		}
	}
	return true
}

func total(files map[string]string) (n int) {
	for _, text := range files {
		n += len(text)
	}
	return n
}

// load returns the template, or nil and the loader's mistakes.
func (l *loader) load() *Template {
	l.used, l.bad = map[string]string{}, map[string]bool{}
	l.out = &Template{
		Name: l.name, prompts: map[promptKey]*dotprompt.Prompt{}, outputs: map[string]*jsonschema.Schema{}, items: map[string]*jsonschema.Schema{},
	}
	own := l.dirs[0].files
	_, described := own[mainFile]
	prompts := promptsIn(own)
	file := cmp.Or(strings.TrimSuffix(l.dirs[0].path, "/"), string(l.name), mainFile)
	switch {
	case described && l.single == "":
		file = l.dirs[0].path + mainFile
	case l.single != "":
		file = l.dirs[0].path + l.single
	case len(prompts) == 1:
		file, l.single = l.dirs[0].path+prompts[0], prompts[0]
	}
	if !isName(l.name) {
		hint := ""
		if lower := berth.Template(strings.ToLower(string(l.name))); isName(lower) {
			hint = ": write " + string(lower)
		}
		l.add(file, 0, nil, "invalid name %.80q: a template has a name such as ticket_summary, with at most %d small letters, digits, _ and -%s", l.name, maxName, hint)
	}
	switch {
	case l.single != "":
		l.readSingle(l.single)
	case described:
		l.readDirectory()
	case len(prompts) == 0:
		l.add(file, 0, nil, "has no %s and no file *%s", mainFile, promptEnd)
	default:
		l.add(file, 0, nil, "has several prompts (%s) and no %s", strings.Join(prompts, ", "), mainFile)
	}
	if len(l.mistakes) > 0 {
		return nil
	}
	l.out.files = l.used
	l.out.Version = hash(l.used)
	return l.out
}

func isName(name berth.Template) bool {
	return validName.MatchString(string(name)) && len(name) <= maxName
}

// promptsIn returns the prompts of a directory that are not shared.
func promptsIn(files map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, promptEnd) && !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	return names
}

// readDirectory reads a template.yaml and what it names.
func (l *loader) readDirectory() {
	src, _ := l.find(mainFile, false)
	if l.bad[mainFile] {
		return
	}
	l.doc = l.parseYAML(src.File, 0, src.Text, fileSchema)
	if l.doc == nil {
		return
	}
	if err := l.doc.root.Decode(&l.spec); err != nil && len(l.violated) == 0 {
		l.syntax(src.File, 0, yamlfile.Unreadable([]byte(src.Text), err))
		return
	}
	l.build(func(i int, field ...string) []string {
		return append([]string{"steps", fmt.Sprint(i)}, field...)
	})
	for _, name := range promptsIn(l.dirs[0].files) {
		if _, ok := l.used[name]; !ok && !l.incomplete && len(l.spec.Steps) > 0 && !l.listViolated("steps", "id", "prompt") {
			l.add(path.Join(l.dirs[0].path, name), 0, nil, "no step uses this prompt: name it in a step, or remove it%s", l.unusedHint(name))
		}
	}
}

// unusedHint states why a prompt of a step is not used.
func (l *loader) unusedHint(name string) string {
	stem, locale := splitPrompt(name)
	for _, s := range l.spec.Steps {
		if locale != "" && stem == promptStem(s) {
			return fmt.Sprintf("; %s is not among locales", locale)
		}
	}
	return ""
}

// onlyStep is the id of the step of a template that is one prompt.
const onlyStep = "answer"

// readSingle reads a prompt that is a template of one step.
func (l *loader) readSingle(name string) {
	src, _ := l.find(name, false)
	if l.bad[name] {
		return
	}
	front, _, ok := dotprompt.Split(src)
	if l.unclosed(src) {
		return
	}
	if !ok {
		l.add(src.File, 1, nil, "a prompt that is a template begins with its fields between two lines ---, at least title: between them")
		return
	}
	l.doc = l.parseYAML(src.File, front.Line-1, front.Text, matterSchema)
	if l.doc == nil {
		return
	}
	var m matter
	if err := l.doc.root.Decode(&m); err != nil && len(l.violated) == 0 {
		l.syntax(src.File, front.Line-1, yamlfile.Unreadable([]byte(front.Text), err))
		return
	}
	stem, locale := splitPrompt(name)
	l.spec = spec{about: m.about, Steps: []stepSpec{{Prompt: stem, Step: Step{
		ID: onlyStep, Label: m.Label, Mode: m.Mode, Models: m.Models, Status: m.Status, MaxOutputTokens: m.MaxOutputTokens, Timeout: m.Timeout,
		Truncated: m.Truncated, Empty: m.Empty,
	}}}}
	if yamlfile.Key(l.doc.root, "title") == l.doc.root {
		l.at(l.doc, nil, "title is missing: add it")
	}
	if locale != "" {
		if len(m.Locales) > 0 && !slices.Equal(m.Locales, []berth.Locale{locale}) {
			l.invalid([]string{"locales"}, "differs from the name of the file, which ends with .%s%s", locale, promptEnd)
		}
		l.spec.Locales = []berth.Locale{locale}
	}
	l.inputs(m.Input)
	l.build(func(_ int, field ...string) []string { return field })
}

// inputs reads the variables that dotprompt's input declares.
func (l *loader) inputs(in inputSpec) {
	if len(in.Schema.Content) > 0 && len(l.spec.Variables) > 0 {
		l.invalid([]string{"input", "schema"}, "the variables are declared under variables already: remove one of both")
	}
	for i := 0; i+1 < len(in.Schema.Content); i += 2 {
		key, value := in.Schema.Content[i], in.Schema.Content[i+1]
		name, optional := strings.CutSuffix(key.Value, "?")
		kind, help, _ := strings.Cut(value.Value, ",")
		if !slices.Contains([]string{"string", "number", "integer", "boolean", "any"}, strings.TrimSpace(kind)) {
			l.invalid([]string{"input", "schema", key.Value}, "unknown type %q: a variable is a string; declare images and documents under variables", kind)
		}
		v := Variable{Name: name, Kind: KindText, Required: !optional}
		if help = strings.TrimSpace(help); help != "" {
			v.Help = Text{"": help}
		}
		l.spec.Variables = append(l.spec.Variables, v)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Default)) {
		i := slices.IndexFunc(l.spec.Variables, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			var names []string
			for _, v := range l.spec.Variables {
				names = append(names, v.Name)
			}
			l.invalid([]string{"input", "default", name}, "there is no variable %s%s", name, meant(name, names))
			continue
		}
		l.spec.Variables[i].Default, l.spec.Variables[i].Required = in.Default[name], false
	}
}

// splitPrompt separates the name of a prompt file: the stem and, if it has one, the locale.
func splitPrompt(file string) (stem string, locale berth.Locale) {
	stem = strings.TrimSuffix(file, promptEnd)
	if i := strings.LastIndexByte(stem, '.'); i > 0 {
		return stem[:i], berth.Locale(stem[i+1:])
	}
	return stem, ""
}

func promptStem(s stepSpec) string {
	return strings.TrimSuffix(cmp.Or(s.Prompt, s.ID), promptEnd)
}
