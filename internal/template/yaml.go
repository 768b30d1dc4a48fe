package template

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"berth/internal/editdistance"
	"berth/internal/schema"
	"berth/internal/yamlfile"
	"berth/templates"
)

// The schemas of template.yaml and of the front matter of prompts.
var (
	fileSchema   = schema.MustCompile("template.schema.json", templates.Schema)
	matterSchema = schema.MustCompile("template.schema.json#/$defs/prompt", templates.Schema)
)

// Limits of YAML. A document is small: what describes a template has a few hundred values.
const (
	maxYAMLDepth  = 40
	maxYAMLValues = 20_000
)

// document is a parsed YAML document of a template.
type document struct {
	file string
	// offset is the number of lines before it in its file.
	offset int
	root   *yaml.Node
}

// parseYAML reads a document and compares it with its schema. A misspelled field is read as the one that is meant, so that the mistake is one. It
// returns nil if nothing of the document can be decoded.
func (l *loader) parseYAML(file string, offset int, text string, want *jsonschema.Schema) *document {
	root, err := yamlfile.Parse([]byte(text))
	if err != nil {
		l.syntax(file, offset, err)
		return nil
	}
	d := &document{file, offset, root}
	count := 0
	if !l.checkYAML(d, root, nil, 0, &count) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		l.at(d, nil, "must be fields such as title: and steps:")
		return nil
	}
	for {
		var value any
		if err := root.Decode(&value); err != nil {
			l.syntax(file, offset, yamlfile.Unreadable([]byte(text), err))
			return nil
		}
		problems := schema.Problems(want.Validate(yamlfile.Plain(value)))
		if !l.renamed(d, want, problems) {
			l.violations(d, want, problems)
			return d
		}
	}
}

// renamed reports misspelled fields and gives them the names that are meant. It returns false if there are none.
func (l *loader) renamed(d *document, want *jsonschema.Schema, problems []schema.Problem) (found bool) {
	for _, p := range problems {
		object := findExact(d.root, p.Path)
		for _, name := range p.Unknown {
			meant := editdistance.Nearest(name, schema.Fields(want, p.Path))
			if meant == "" || object == nil || yamlfile.Child(object, meant) != nil {
				continue
			}
			key := yamlfile.Key(object, name)
			l.addAt(d.file, key.Line+d.offset, key.Column, child(p.Path, name), "unknown field: write %s", meant)
			key.Value, found = meant, true
		}
	}
	return found
}

// violations reports what violates the schema of the files.
func (l *loader) violations(d *document, want *jsonschema.Schema, problems []schema.Problem) {
	for _, p := range problems {
		n := yamlfile.Find(d.root, p.Path)
		if len(p.Unknown) == 0 {
			said := phrase(p, n)
			if len(p.Path) == 1 && p.Path[0] == "credits" {
				said = NoPrice
			}
			l.at(d, p.Path, "%s", said)
			l.violated = append(l.violated, p.Path)
		}
		for _, name := range p.Unknown {
			key, text := yamlfile.Key(n, name), "unknown field"+meant(name, schema.Fields(want, p.Path))
			switch strings.Join(p.Schema, "/") {
			case "$defs/title", "$defs/text":
				text = noLanguage
			case "$defs/prompt/properties/input/properties/schema":
				text = "must be a name of letters, digits and _, with ? at its end if it is optional"
			}
			l.addAt(d.file, key.Line+d.offset, key.Column, child(p.Path, name), "%s", text)
			l.violated = append(l.violated, child(p.Path, name))
		}
	}
}

// noLanguage is the mistake of a text whose language is none.
const noLanguage = "is not a language: write a tag such as en, pt-BR or zh"

// position is the line in the words of the parser, which the mistake has already.
var position = regexp.MustCompile(`^(yaml: )?line \d+:? `)

// quoted is the advice for a text that means something else in YAML.
const quoted = "put a text between quotation marks if it contains a colon before a space, or begins with one of { } [ ] * & ! | > % @ ` ' \" , ? -"

// advice states what to do after an error of the parser, by a part of its words. The first counts.
var advice = []struct{ of, text string }{
	{"did not find expected ',' or '}'", `within braces, write a name with a question mark between quotation marks: {"x?": string}`},
	{"unknown anchor", "anchors (&) and aliases (*) are not supported: write a value that begins with * between quotation marks"},
	{"found unknown escape character", `write \\ for \ between double quotation marks, or put the text between single ones`},
	{"mapping values are not allowed", quoted},
	{"block sequence entries are not allowed", quoted},
	{"cannot start any token", quoted},
	{"did not find expected", quoted},
	{"did not find URI escaped", quoted},
	{"mapping keys are not allowed", quoted},
}

func (l *loader) syntax(file string, offset int, err error) {
	line, message := 1, err.Error()
	if s, ok := errors.AsType[*yamlfile.SyntaxError](err); ok {
		line, message = max(s.Line, 1), s.Message
	}
	for _, a := range advice {
		if strings.Contains(message, a.of) {
			message += "; " + a.text
			break
		}
	}
	l.add(file, line+offset, nil, "%s", position.ReplaceAllString(strings.TrimPrefix(message, "yaml: "), ""))
}

// checkYAML reports what the parser accepts and a template must not have. It returns false if the rest cannot be checked.
func (l *loader) checkYAML(d *document, n *yaml.Node, path []string, depth int, count *int) bool {
	if *count++; *count > maxYAMLValues {
		l.at(d, nil, "has more than %d values", maxYAMLValues)
		return false
	}
	switch {
	case depth > maxYAMLDepth:
		l.addAt(d.file, n.Line+d.offset, n.Column, path[:3], "is nested more than %d deep", maxYAMLDepth)
		return false
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		l.addAt(d.file, n.Line+d.offset, n.Column, path, "anchors (&) and aliases (*) are not supported: write the value")
		return false
	}
	ok := true
	switch n.Kind {
	case yaml.MappingNode:
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); {
			key := n.Content[i]
			inner := append(slices.Clone(path), key.Value)
			first, again := lines[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || key.Anchor != "":
				l.addAt(d.file, key.Line+d.offset, key.Column, path, "the name of a field must be a word")
				ok = false
			case again: // the first counts
				l.addAt(d.file, key.Line+d.offset, key.Column, inner, "is written twice, first in line %d", first+d.offset)
				n.Content = slices.Delete(n.Content, i, i+2)
				continue
			default:
				lines[key.Value] = key.Line
				ok = l.checkYAML(d, n.Content[i+1], inner, depth+1, count) && ok
			}
			i += 2
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			ok = l.checkYAML(d, e, append(slices.Clone(path), fmt.Sprint(i)), depth+1, count) && ok
		}
	}
	return ok
}

// meant states which fields there are, the one that is probably meant first.
func meant(name string, fields []string) string {
	if best := editdistance.Nearest(name, fields); best != "" {
		return ": write " + best
	}
	if len(fields) == 0 {
		return ": remove it"
	}
	return ": use one of " + strings.Join(fields, ", ")
}
