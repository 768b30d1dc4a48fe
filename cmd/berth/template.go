package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"berth"
	"berth/client"
	"berth/internal/agent"
	"berth/internal/ledger"
	"berth/internal/setting"
	"berth/internal/template"
	"berth/internal/yamlfile"
	"berth/templates"
)

type templateCommands struct {
	List     templateList     `cmd:"" help:"List the built-in templates, those of a directory or those of the server."`
	Show     templateShow     `cmd:"" help:"Show the variables, steps and models of a template."`
	Validate templateValidate `cmd:"" help:"Check templates, and print each mistake with its file, line and field."`
	Render   templateRender   `cmd:"" help:"Print the messages that a step sends to its model."`
	Export   templateExport   `cmd:"" help:"Write the files of a template to a directory, to start from."`
	Apply    templateApply    `cmd:"" help:"Store templates on the server, and let new tasks use them."`
	Versions templateVersions `cmd:"" help:"List the versions of a template on the server, newest first."`
	Activate templateActivate `cmd:"" help:"Let new tasks use a stored version of a template."`
	Delete   templateDelete   `cmd:"" help:"Refuse new tasks of a template. Accepted tasks keep their version."`
}

// templateSource is where the templates of a command are.
type templateSource struct {
	Dir    string       `help:"Use the templates of this directory, or this prompt file, instead of the built-in ones." type:"existingpath" xor:"source"`
	Server bool         `help:"Use the active templates of the server instead of the built-in ones." xor:"source"`
	API    agent.Server `embed:""`
}

func (s templateSource) tree() (template.Tree, error) {
	if s.Dir == "" {
		return builtin(), nil
	}
	return readTemplates(s.Dir)
}

// find returns a template. Mistakes of others do not matter.
func (s templateSource) find(ctx context.Context, name berth.Template) (*template.Template, error) {
	t, state, err := s.findWithState(ctx, name)
	if state.State == stateDeleted {
		fmt.Fprintln(os.Stderr, "berth: warning:", deletion(state))
	}
	return t, err
}

// findWithState returns a template, and its state on the server, if it is that of a server.
func (s templateSource) findWithState(ctx context.Context, name berth.Template) (*template.Template, client.TemplateState, error) {
	if s.Server {
		api, err := s.API.ProvideClient()
		if err != nil {
			return nil, client.TemplateState{}, err
		}
		return storedTemplate(ctx, api, name)
	}
	t, err := s.own(name)
	return t, client.TemplateState{}, err
}

// stateDeleted is that of a template whose new tasks are refused.
const stateDeleted = "deleted"

// deletion says that a template was deleted, and how to restore it.
func deletion(state client.TemplateState) string {
	by := "with its files"
	if state.ChangedBy != "" {
		by = "by " + named(state.ChangedBy)
	}
	return fmt.Sprintf("deleted %s %s: new tasks are refused; berth template activate %s %.12s restores it",
		state.ChangedAt.Local().Format(time.DateTime), by, state.Name, state.Version)
}

func (s templateSource) own(name berth.Template) (*template.Template, error) {
	tree, err := s.tree()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(tree.Templates, func(t *template.Template) bool { return t.Name == name }); i >= 0 {
		return tree.Templates[i], nil
	}
	if _, ok := tree.Paths[name]; ok {
		return nil, setting.Wrong(fmt.Errorf("the template %s has mistakes:\n%w", name, tree.Mistakes))
	}
	return nil, setting.Wrong(fmt.Errorf("template %q not found: use one of %s", name, join(slices.Sorted(maps.Keys(tree.Paths)))))
}

// maxShared is how many directories above a template may have shared files, as in a tree of templates.
const maxShared = 5

// readTemplates reads a directory, a template.yaml or a prompt, with the shared files of the directories above it.
func readTemplates(at string) (template.Tree, error) {
	full, err := filepath.Abs(at)
	if err != nil {
		return template.Tree{}, err
	}
	if filepath.Base(full) == "template.yaml" {
		full = filepath.Dir(full)
	}
	dir := full
	if info, err := os.Stat(full); err != nil {
		return template.Tree{}, setting.Wrong(err)
	} else if !info.IsDir() {
		if filepath.Ext(full) != ".prompt" || strings.HasPrefix(filepath.Base(full), "_") {
			return template.Tree{}, setting.Wrong(fmt.Errorf("%s is neither a directory, a template.yaml nor the .prompt file of a template", at))
		}
		dir = filepath.Dir(full)
	}
	root := dir
	for range maxShared {
		above := filepath.Dir(root)
		shared, _ := filepath.Glob(filepath.Join(above, "_*.prompt")) // the pattern is valid
		schemas, _ := filepath.Glob(filepath.Join(above, "*.schema.json"))
		if len(shared)+len(schemas) == 0 {
			break
		}
		root = above
	}
	opened, err := os.OpenRoot(root)
	if err != nil {
		return template.Tree{}, setting.Wrong(err)
	}
	defer func() { _ = opened.Close() }() // it was only read
	inside, err := filepath.Rel(root, full)
	if err != nil {
		return template.Tree{}, err
	}
	tree := template.LoadTree(opened.FS(), filepath.ToSlash(inside), filepath.Base(root))
	shown := root
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, root); err == nil && !strings.HasPrefix(rel, filepath.Join("..", "..", "..")) {
			shown = rel
		}
	}
	for i := range tree.Mistakes {
		tree.Mistakes[i].File = filepath.Join(shown, filepath.FromSlash(tree.Mistakes[i].File))
	}
	for name, at := range tree.Paths {
		tree.Paths[name] = filepath.Join(shown, filepath.FromSlash(at))
	}
	return tree, nil
}

// readAllTemplates reads several paths as one tree, in which each template has a name of its own. A path within another one has the same templates.
func readAllTemplates(paths []string) (template.Tree, error) {
	all := template.Tree{Paths: map[berth.Template]string{}}
	for _, at := range paths {
		tree, err := readTemplates(at)
		if err != nil {
			return all, err
		}
		if len(tree.Paths) == 0 && len(tree.Mistakes) == 0 {
			return all, setting.Wrong(fmt.Errorf("%s has no template: a directory with a template.yaml, or a .prompt file", at))
		}
		again := map[berth.Template]bool{}
		for _, name := range slices.Sorted(maps.Keys(tree.Paths)) {
			at := tree.Paths[name]
			first, ok := all.Paths[name]
			again[name] = ok
			switch {
			case !ok:
				all.Paths[name] = at
			case !samePath(first, at):
				all.Mistakes = append(all.Mistakes, template.Twice(name, at, first))
			}
		}
		for _, m := range tree.Mistakes {
			if !slices.Contains(all.Mistakes, m) {
				all.Mistakes = append(all.Mistakes, m)
			}
		}
		all.Templates = append(all.Templates, slices.DeleteFunc(tree.Templates, func(t *template.Template) bool { return again[t.Name] })...)
	}
	return all, nil
}

func samePath(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

type templateList struct {
	templateSource
	Source  string `help:"List only templates of this source of the server: builtin, directory or api."`
	Deleted bool   `help:"List the deleted templates of the server, with the version that 'berth template activate' restores."`
}

// Run prints the templates as a table.
func (c *templateList) Run(ctx context.Context) error { return c.run(ctx, os.Stdout) }

func (c *templateList) run(ctx context.Context, out io.Writer) error {
	if c.Server {
		return c.stored(ctx, out)
	}
	if c.Source != "" || c.Deleted {
		return setting.Wrong(errors.New("--source and --deleted are of the templates of the server: add --server"))
	}
	tree, err := c.tree()
	if err != nil {
		return err
	}
	w := newTable(out)
	fmt.Fprintln(w, "TEMPLATE\tTITLE\tMODE\tCREDITS\tLANGUAGES\tSTEPS\tVERSION\tSOURCE")
	for _, t := range tree.Templates {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.12s\t%s\n", t.Name, named(t.Title.In(berth.LocaleEN)), t.Mode(), t.Price, languages(t.Locales),
			join(namesOf(t.Steps, func(s template.Step) string { return s.ID })), t.Version, c.ownSource(t))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return reportMistakes(out, tree.Mistakes)
}

var builtin = sync.OnceValue(template.Builtin)

// ownSource is where a template is that was not read from a server.
func (s templateSource) ownSource(t *template.Template) string {
	if s.Dir == "" {
		return string(ledger.TemplateBuiltIn)
	}
	i := slices.IndexFunc(builtin().Templates, func(b *template.Template) bool { return b.Name == t.Name && b.Version != t.Version })
	if i < 0 {
		return string(ledger.TemplateDirectory)
	}
	return sourceOf(string(ledger.TemplateDirectory), []string{string(ledger.TemplateBuiltIn)})
}

// sourceOf says where a version comes from, and which other ones it replaces.
func sourceOf(source string, replaces []string) string {
	if len(replaces) == 0 {
		return source
	}
	return source + ", replaces " + strings.Join(replaces, " and ")
}

// stored lists the templates of the server.
func (c *templateList) stored(ctx context.Context, out io.Writer) error {
	api, err := c.API.ProvideClient()
	if err != nil {
		return err
	}
	all, err := api.Templates(ctx, client.TemplateQuery{Source: c.Source, Deleted: c.Deleted})
	if err != nil {
		return err
	}
	w := newTable(out)
	title := func(t client.Template) string { return named(template.Text(t.Title).In(berth.LocaleEN)) }
	if c.Deleted {
		fmt.Fprintln(w, "TEMPLATE\tTITLE\tVERSION\tSOURCE\tDELETED\tBY")
		for _, t := range all {
			fmt.Fprintf(w, "%s\t%s\t%.12s\t%s\t%s\t%s\n", t.Name, title(t), t.Version, t.Source, t.DeletedAt.Local().Format(time.DateTime), named(changedBy(t.DeletedBy)))
		}
		return w.Flush()
	}
	fmt.Fprintln(w, "TEMPLATE\tTITLE\tMODE\tCREDITS\tLANGUAGES\tSTEPS\tVERSION\tSTATE\tSOURCE")
	for _, t := range all {
		state := "active"
		if len(t.Unserved) > 0 {
			state = "no model: " + join(t.Unserved)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.12s\t%s\t%s\n", t.Name, title(t), t.Mode, priceOf(t), languages(t.Locales),
			join(namesOf(t.Steps, func(s client.TemplateStep) berth.StepName { return s.ID })), t.Version, state, sourceOf(t.Source, t.Replaces))
	}
	return w.Flush()
}

// changedBy is who changed a template.
func changedBy(operator string) string { return cmp.Or(operator, "(files removed)") }

func namesOf[T any, N ~string](all []T, name func(T) N) []N {
	names := make([]N, len(all))
	for i, one := range all {
		names[i] = name(one)
	}
	return names
}

// reportMistakes prints mistakes, and returns an error if there are any.
func reportMistakes(out io.Writer, mistakes template.Mistakes) error {
	if len(mistakes) == 0 {
		return nil
	}
	files := map[string]bool{}
	for _, m := range mistakes {
		files[m.File] = true
		fmt.Fprintln(out, printable(m.Error()))
	}
	return setting.Wrong(fmt.Errorf("%s in %s", count(len(mistakes), "mistake"), count(len(files), "file")))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type templateName struct {
	Name berth.Template `arg:"" help:"Name of the template."`
}

type templateShow struct {
	templateName
	templateSource
	JSON bool `help:"Print everything as JSON." name:"json"`
}

// Run prints the template.
func (c *templateShow) Run(ctx context.Context) error { return c.run(ctx, os.Stdout) }

func (c *templateShow) run(ctx context.Context, out io.Writer) error {
	t, state, err := c.findWithState(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		if state.State == stateDeleted {
			fmt.Fprintln(os.Stderr, "berth: warning:", deletion(state))
		}
		return writeJSON(out, t)
	}
	fmt.Fprintf(out, "%s: %s\n", t.Name, named(t.Title.In(berth.LocaleEN)))
	if s := t.Description.In(berth.LocaleEN); s != "" {
		fmt.Fprintln(out, named(s))
	}
	fmt.Fprintf(out, "version %.12s, %s, languages %s\n", t.Version, inWords(t.Price), languages(t.Locales))
	source := c.ownSource(t)
	if c.Server {
		source = sourceOf(state.Source, state.Replaces)
	}
	fmt.Fprintf(out, "source %s\n", source)
	if state.State == stateDeleted {
		fmt.Fprintln(out, deletion(state))
	}
	for _, text := range state.Warnings {
		fmt.Fprintln(out, "warning:", inLine(text))
	}
	w := newTable(out)
	if len(t.Variables) > 0 {
		fmt.Fprintln(w, "\nVARIABLE\tKIND\tGIVEN\tLABEL")
	}
	for _, v := range t.Variables {
		given := "optional"
		switch {
		case v.Required:
			given = "required"
		case v.Group != "":
			given = "one of " + v.Group
		case v.Default != "":
			given = fmt.Sprintf("default %.40q", v.Default)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Name, v.Kind, given, named(v.Label.In(berth.LocaleEN)))
	}
	fmt.Fprintln(w, "\nSTEP\tMODE\tPAID\tFREE\tWHEN\tREADS\tOUTPUT")
	for _, s := range t.Steps {
		output := "text"
		if s.Schema != nil {
			output = "JSON"
		}
		if s.Into != "" {
			output += " into " + s.Into
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Mode, routed(s.Models.Paid), routed(s.Models.Free), strings.Join(s.When, ","), strings.Join(s.Reads, ","), output)
	}
	return w.Flush()
}

// routed is a model, or who names it.
func routed(model string) string {
	if model == "" {
		return "(routing file)"
	}
	return model
}

// writeJSON writes a value as JSON. Characters that are not for terminals are escaped, which changes no value.
func writeJSON(out io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	for _, r := range b.String() {
		if r != '\n' && yamlfile.Unsafe(r) { // within a text: all else is ASCII
			fmt.Fprintf(w, `\u%04x`, r)
			continue
		}
		_, _ = w.WriteRune(r) // Flush returns the error
	}
	return w.Flush()
}

type templateExport struct {
	templateName
	To string `arg:"" name:"directory" help:"Directory to write to, which is created." type:"path"`
	templateSource
}

// editorSchema finds the place of the JSON Schema in a template.yaml.
var editorSchema = regexp.MustCompile(`\$schema=\S*template\.schema\.json`)

// Run writes the files, none of which may exist.
func (c *templateExport) Run(ctx context.Context) error { return c.run(ctx, os.Stdout) }

func (c *templateExport) run(ctx context.Context, out io.Writer) error {
	t, err := c.find(ctx, c.Name)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for name, text := range t.Files() {
		if _, directory := t.Files()["template.yaml"]; directory {
			name = filepath.Join(string(t.Name), name)
		}
		files[name] = editorSchema.ReplaceAllString(text, "$$schema=../template.schema.json")
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(c.To, name)); err == nil {
			return setting.Wrong(fmt.Errorf("%s exists: remove it, or use another directory", filepath.Join(c.To, name)))
		}
	}
	files["template.schema.json"] = string(templates.Schema)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(c.To, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // files for editors
			return setting.Wrong(err)
		}
		if err := os.WriteFile(at, []byte(files[name]), 0o644); err != nil { //nolint:gosec // files for editors
			return setting.Wrong(err)
		}
		fmt.Fprintln(out, at)
	}
	return nil
}

// priceOf returns the price of a template as its files state it.
func priceOf(t client.Template) template.Price {
	return template.Price{Credits: t.Credits, Metered: t.Metered}
}

func inWords(p template.Price) string {
	switch {
	case p.Metered:
		return p.String()
	case p.Credits == berth.Credit:
		return "1 credit"
	default:
		return p.String() + " credits"
	}
}
