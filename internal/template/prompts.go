package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/schema"
	"berth/internal/yamlfile"
)

func findExact(root *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		if root = yamlfile.Child(root, key); root == nil {
			return nil
		}
	}
	return root
}

// schema returns a JSON Schema as it is written, and compiled: a file, inline, or Picoschema.
func (l *loader) schema(d *document, path []string, n *yaml.Node) (json.RawMessage, *jsonschema.Schema) {
	if n.IsZero() || d == l.doc && l.isViolated(path) {
		return nil, nil
	}
	if n.Kind == yaml.ScalarNode && dotprompt.Type(n.Value) == "" && strings.ContainsAny(n.Value, `./\`) {
		return l.schemaFile(d, path, n.Value)
	}
	raw, err := dotprompt.Schema(n)
	if err != nil {
		line := n.Line
		if s, ok := err.(*dotprompt.SchemaError); ok { //nolint:errorlint // it is never wrapped
			line = s.Line
		}
		l.add(d.file, line+d.offset, path, "%s", err)
		return nil, nil
	}
	return raw, l.compile(&document{d.file, d.offset, n}, path, raw)
}

// schemaFile returns the schema of a file that a field names.
func (l *loader) schemaFile(d *document, path []string, name string) (json.RawMessage, *jsonschema.Schema) {
	switch {
	case strings.ContainsAny(name, `/\`):
		l.at(d, path, "%q has a path, which cannot leave the template: write the name of a .json file in its directory or in one above", name)
		return nil, nil
	case !strings.HasSuffix(name, schemaEnd):
		l.at(d, path, "%q is not the name of a %s file, nor a type: use one of %s", name, schemaEnd, strings.Join(dotprompt.Types(), ", "))
		return nil, nil
	}
	src, ok := l.find(name, true)
	if !ok {
		l.at(d, path, "there is no file %s in the directory of the template or above it%s", name, meant(name, l.filesWith(schemaEnd)))
		return nil, nil
	}
	if l.bad[name] {
		return nil, nil
	}
	root, err := yamlfile.ParseJSON([]byte(src.Text))
	if invalid, ok := errors.AsType[*yamlfile.SyntaxError](err); ok {
		l.add(src.File, invalid.Line, nil, "is not JSON: %s", invalid.Message)
		return nil, nil
	}
	raw := json.RawMessage(strings.TrimSpace(src.Text))
	return raw, l.compile(&document{src.File, 0, root}, nil, raw)
}

// schemaEnd ends the names of files with a schema.
const schemaEnd = ".json"

// filesWith returns the names of the files that a template can use and that end so.
func (l *loader) filesWith(end string) (names []string) {
	for _, dir := range l.dirs {
		for name := range dir.files {
			if strings.HasSuffix(name, end) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxReferences is how many schemas may refer to the next one before there is a type.
const maxReferences = 10

// compile reports what is wrong with a schema, whose document begins at a path, or one of something else than an object.
func (l *loader) compile(d *document, path []string, raw []byte) *jsonschema.Schema {
	at := func(inner []string, format string, args ...any) {
		n := yamlfile.Find(d.root, inner)
		if n.Line == 0 { // of Picoschema
			n = d.root
		}
		l.addAt(d.file, n.Line+d.offset, n.Column, child(path, inner...), format, args...)
	}
	compiled, problems := schema.Check(raw)
	for _, p := range problems {
		at(p.Path, "%s", p.Message)
	}
	if len(problems) > 0 {
		return nil
	}
	s := compiled
	for range maxReferences {
		if s.Ref != nil && s.Types == nil {
			s = s.Ref
		}
	}
	if s.Types == nil || !slices.Contains(s.Types.ToStrings(), "object") {
		at(nil, "must describe an object: write type: object and properties")
	}
	l.shownSchema(raw, at)
	return compiled
}

// prompts reads and compiles the prompts of a step in all languages.
func (l *loader) prompts(i int, s *Step, at fieldPath) {
	stem := promptStem(l.spec.Steps[i])
	var missing []string
	sources := map[berth.Locale]dotprompt.Source{}
	for _, locale := range l.languages {
		src, ok := l.promptFile(stem, locale)
		if !ok {
			missing = append(missing, localizedName(stem, locale))
			continue
		}
		if !l.unclosed(src) {
			sources[locale] = src
		}
	}
	if len(missing) > 0 {
		l.unread, l.incomplete = true, true
		hint, stems := ": add it, or remove the language from locales", l.stems(strings.HasPrefix(stem, "_"))
		if !slices.Contains(stems, stem) {
			hint = meant(stem, stems)
		}
		if l.spec.Steps[i].Prompt != "" || !l.isViolated(at(i, "id")) {
			l.invalid(at(i, "prompt"), "there is no file %s%s", orAll(missing, stem), hint)
		}
	}
	read := map[string]bool{}
	for _, locale := range l.languages {
		src, ok := sources[locale]
		if !ok {
			continue
		}
		if !read[src.File] {
			l.frontMatter(i, s, src, at)
		}
		read[src.File] = true
	}
	reads, images := map[string]bool{}, map[string]bool{}
	for _, locale := range l.languages {
		src, ok := sources[locale]
		if !ok {
			continue
		}
		_, body, fields := dotprompt.Split(src)
		p, problems := dotprompt.Compile(body, dotprompt.Config{
			Names: l.names(i), Context: contextNames, Schema: s.Schema != nil || l.spec.Steps[i].Schema.Kind != 0,
			Partial: func(name string) (dotprompt.Source, error) { return l.partial(name, locale) },
		})
		for _, problem := range problems {
			l.add(problem.File, problem.Line, nil, "%s", problem.Message)
		}
		if len(problems) == 0 && !p.Uses().Content && !slices.Contains(slices.Collect(maps.Values(l.bad)), true) {
			l.add(src.File, 0, nil, "the prompt has no text: write what the model shall do%s", below(fields))
			l.unread = true
		}
		l.out.prompts[promptKey{s.ID, locale}] = p
		l.checkMarkers(p, i == len(l.spec.Steps)-1)
		uses := p.Uses()
		l.unread = l.unread || uses.Unread
		l.localized = l.localized || slices.Contains(uses.Context, contextLocale)
		for _, name := range uses.Names {
			reads[name] = true
		}
		for _, name := range uses.Images {
			images[name] = true
		}
	}
	s.Reads, s.Images = slices.Sorted(maps.Keys(reads)), slices.Sorted(maps.Keys(images))
}

// unclosed reports fields of a prompt without an end: they would be a part of its text.
func (l *loader) unclosed(src dotprompt.Source) bool {
	line, ok := dotprompt.Unclosed(src)
	if ok {
		l.add(src.File, line, nil, "the line --- at the start has no end: close it with ---, or write {{! text}}--- if the text begins with this line")
		l.unread = true
	}
	return ok
}

// below states where the text of a prompt is.
func below(fields bool) string {
	if fields {
		return ", below the line --- that ends its fields"
	}
	return ""
}

// contextLocale is the language of the task, after @ in prompts.
const contextLocale = "locale"

// contextNames are the names after @ in prompts.
var contextNames = []string{contextLocale}

// localizedName returns the name of a prompt file in a language, empty for none.
func localizedName(stem string, locale berth.Locale) string {
	if locale == "" {
		return stem + promptEnd
	}
	return stem + "." + string(locale) + promptEnd
}

// orAll names files of which one, or one for all languages, is missing.
func orAll(missing []string, stem string) string {
	text := strings.Join(missing, " or ")
	if all := stem + promptEnd; !slices.Contains(missing, all) {
		text += ", nor " + all + " for all languages"
	}
	return text
}

// stems returns the names of prompts without language, of shared ones or others.
func (l *loader) stems(shared bool) (names []string) {
	for _, file := range l.filesWith(promptEnd) {
		if stem, _ := splitPrompt(file); strings.HasPrefix(stem, "_") == shared {
			names = append(names, stem)
		}
	}
	return slices.Compact(names)
}

// promptFile returns the prompt of a step in a language, else the one for all languages.
func (l *loader) promptFile(stem string, locale berth.Locale) (dotprompt.Source, bool) {
	return l.inLanguage(stem, locale, strings.HasPrefix(stem, "_"))
}

// inLanguage returns the file of a language, or the one for all languages, from the nearest directory that has one.
func (l *loader) inLanguage(stem string, locale berth.Locale, shared bool) (dotprompt.Source, bool) {
	for i, dir := range l.dirs {
		for _, name := range []string{localizedName(stem, locale), stem + promptEnd} {
			if _, ok := dir.files[name]; ok && (i == 0 || shared) {
				l.localized = l.localized || name != stem+promptEnd
				return l.find(name, shared)
			}
		}
	}
	return dotprompt.Source{}, false
}

// partial returns a shared text in a language.
func (l *loader) partial(name string, locale berth.Locale) (dotprompt.Source, error) {
	stem := "_" + strings.TrimPrefix(name, "_")
	src, ok := l.inLanguage(stem, locale, true)
	if !ok {
		return src, l.noPartial(name, stem, locale)
	}
	if _, _, front := dotprompt.Split(src); front {
		l.add(src.File, 1, nil, "a shared text has no fields: remove what stands between the lines ---")
	}
	return src, nil
}

// noPartial returns the mistake of a shared text that a language does not have.
func (l *loader) noPartial(name, stem string, locale berth.Locale) error {
	var others []string
	for _, file := range l.filesWith(promptEnd) {
		if found, other := splitPrompt(file); found == stem {
			others = append(others, string(other))
		}
	}
	switch list := strings.Join(others, ", "); {
	case len(others) == 0:
		var names []string
		for _, stem := range l.stems(true) {
			names = append(names, strings.TrimPrefix(stem, "_"))
		}
		return fmt.Errorf("there is no partial %q%s", name, meant(name, names))
	case locale == "":
		return fmt.Errorf("the partial %q exists for %s only: write locales: [%s]", name, list, list)
	default:
		return fmt.Errorf("the partial %q exists for %s only: add %s, or remove %s from locales", name, list, localizedName(stem, locale), locale)
	}
}

// names returns what the prompts of step i can name, nil if it is not known because of mistakes.
func (l *loader) names(i int) map[string]dotprompt.Kind {
	if !l.namesKnown() {
		return nil
	}
	names := map[string]dotprompt.Kind{}
	for _, v := range l.out.Variables {
		names[v.Name] = dotprompt.KindText
		if v.Kind == KindImage {
			names[v.Name] = dotprompt.KindImage
		}
	}
	for _, s := range l.spec.Steps[:i] {
		if s.Into != "" {
			names[s.Into] = dotprompt.KindText
		}
	}
	for _, b := range l.out.Background {
		names[b.Name] = dotprompt.KindList
	}
	return names
}

// namesKnown reports whether the names of all variables, outputs and lists are known.
func (l *loader) namesKnown() bool {
	return !l.unsure && !l.listViolated("variables", "name") && !l.listViolated("background", "name") && !l.listViolated("steps", "into") && !l.listViolated("input") &&
		!slices.ContainsFunc(l.violated, func(path []string) bool { return len(path) > 2 && path[0] == "input" })
}

// frontMatter reads the fields of a prompt: its schema, model and bound.
func (l *loader) frontMatter(i int, s *Step, src dotprompt.Source, at fieldPath) {
	front, _, ok := dotprompt.Split(src)
	if !ok {
		return
	}
	d, m := l.doc, matter{}
	single := l.doc.file == src.File
	if !single {
		if d = l.parseYAML(src.File, front.Line-1, front.Text, matterSchema); d == nil {
			return
		}
		for j := 0; j+1 < len(d.root.Content); j += 2 {
			if name := d.root.Content[j].Value; !slices.Contains(beside, name) && fieldExists(name) {
				l.at(d, []string{name}, "belongs into %s: a prompt beside it has %s only", mainFile, strings.Join(beside, ", "))
			}
		}
	}
	_ = d.root.Decode(&m) // its schema has said why not
	set := func(path []string, taken bool, apply func()) {
		if taken {
			l.at(d, path, "is stated twice: here, and as %s", fieldOf(at(i, path[len(path)-1])))
			return
		}
		apply()
	}
	if m.Model != "" {
		both := Models{m.Model, m.Model}
		set([]string{"model"}, s.Models != Models{} && s.Models != both, func() { s.Models = both })
	}
	if n := m.Config.MaxOutputTokens; n > 0 {
		set([]string{"config", "maxOutputTokens"}, s.MaxOutputTokens > 0 && s.MaxOutputTokens != n, func() { s.MaxOutputTokens = n })
	}
	path := []string{"output", "schema"}
	if raw, compiled := l.schema(d, path, &m.Output.Schema); raw != nil {
		set(path, s.Schema != nil && string(s.Schema) != string(raw), func() { s.Schema, l.out.outputs[s.ID] = raw, compiled })
	}
	if m.Output.Format == "json" && m.Output.Schema.IsZero() && s.Schema == nil {
		l.at(d, []string{"output", "format"}, "JSON needs a schema: add output.schema")
	}
}

// fieldExists reports whether front matter has a field at all: another one is already a mistake.
func fieldExists(name string) bool {
	return matterSchema.Properties[name] != nil || matterSchema.Ref != nil && matterSchema.Ref.Properties[name] != nil
}

// marker finds the lines that prompts ask a model to write for stages and items.
var marker = regexp.MustCompile(`(?m)^[ \t]*<<(stage:)?([A-Za-z0-9_]+)(>>| \{)`)

// checkMarkers reports a stage or item that a prompt asks for and the template does not declare.
func (l *loader) checkMarkers(p *dotprompt.Prompt, last bool) {
	for _, text := range p.Uses().Literals {
		for _, at := range marker.FindAllStringSubmatchIndex(text.Text, -1) {
			line := text.Line + strings.Count(text.Text[:at[0]], "\n")
			stage, name := at[2] >= 0, text.Text[at[4]:at[5]]
			item := strings.HasSuffix(text.Text[at[0]:at[1]], "{")
			switch {
			case stage && item || !stage && !item:
				continue // another text
			case l.unsureMarks || l.listViolated("stages", "id") || l.listViolated("items", "id"):
			case !last:
				l.add(text.File, line, nil, "only the last step has stages and items: remove %s", text.Text[at[0]:at[5]])
			case stage && !slices.ContainsFunc(l.out.Stages, func(s Stage) bool { return string(s.ID) == name }):
				l.add(text.File, line, nil, "the stage %s is not declared: add it under stages", name)
			case item && !slices.ContainsFunc(l.out.Items, func(s Item) bool { return s.ID == name }):
				l.add(text.File, line, nil, "the item %s is not declared: add it under items", name)
			}
		}
	}
}
