package llm

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"

	"berth/internal/setting"
)

//go:embed routing.schema.json
var routingSchemaFile []byte

var routingSchema = mustCompile("routing.schema.json", routingSchemaFile)

// routingFile is a parsed routing file that collects the errors in it.
type routingFile struct {
	name string
	root *yaml.Node
	errs []error
}

// parseRoutingFile parses one YAML document and validates it against routing.schema.json.
func parseRoutingFile(name string, src []byte) (*routingFile, error) {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: empty file", name)
	case err != nil:
		return nil, unreadable(name, src, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: contains more than one document", name)
	}
	f := &routingFile{name: name, root: doc.Content[0]}
	var value any
	if err := f.root.Decode(&value); err != nil {
		return nil, unreadable(name, src, err)
	}
	for _, p := range schemaProblems(routingSchema.Validate(value)) {
		if len(p.path) > 0 && p.path[len(p.path)-1] == "keySetting" {
			p.message = "must be the name of a setting in capitals, such as OPENAI_API_KEY; the key itself belongs into BERTH_PROVIDER_KEYS"
		}
		if len(p.unknown) == 0 {
			f.invalid(p.path, "%s", p.message)
		}
		for _, key := range p.unknown {
			f.invalid(slices.Concat(p.path, []string{key}), "unknown field; see docs/providers.md")
		}
	}
	return f, f.err()
}

// unreadable returns the error of a text that is not YAML, in one line. The parser's own words do not name what editors hide.
func unreadable(name string, src []byte, err error) error {
	if invalid, ok := errors.AsType[*yaml.TypeError](err); ok {
		return fmt.Errorf("%s: %s", name, strings.Join(invalid.Errors, "; "))
	}
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(string(src), "\ufeff")) {
		number++
		if !utf8.ValidString(line) {
			return fmt.Errorf("%s: line %d is not UTF-8: save the file in this encoding: %w", name, number, err)
		}
		for _, r := range line {
			if r != ' ' && r != '\n' && r != '\r' && setting.Trim(string(r)) == "" && setting.Trim(line) != "" {
				return fmt.Errorf("%s: line %d is indented with %s: indent with spaces: %w", name, number, setting.Describe(r), err)
			}
			if r != ' ' {
				break
			}
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (f *routingFile) err() error { return errors.Join(f.errs...) }

// invalid records an error at a value. A path that the file does not contain gets the line of its parent.
func (f *routingFile) invalid(path []string, format string, args ...any) {
	at := f.name
	if len(path) > 0 {
		at += ": " + strings.Join(path, ".")
	}
	f.errs = append(f.errs, fmt.Errorf("%s (line %d): %s", at, f.line(path), fmt.Sprintf(format, args...)))
}

func (f *routingFile) line(path []string) int {
	node := f.root
	for _, key := range path {
		next := child(node, key)
		if next == nil {
			break
		}
		node = next
	}
	return node.Line
}

// child returns the value of a mapping's key, nil when there is none.
func child(node *yaml.Node, key string) *yaml.Node {
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// checkBaseURL rejects addresses that would send calls, or a key, elsewhere than the operator reads.
func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return errors.New("must be a URL such as https://api.example.com/v1")
	case u.User != nil:
		return errors.New("must not contain a user or password: keys belong into settings")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must not contain a query or fragment")
	}
	return nil
}

// schemaProblem is one violation of a JSON schema.
type schemaProblem struct {
	path    []string
	message string
	unknown []string // properties at the path that the schema does not have
}

// schemaProblems returns the violations that a validation found, nil when err is nil.
func schemaProblems(err error) []schemaProblem {
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []schemaProblem{{message: err.Error()}}
	}
	var out []schemaProblem
	var walk func(e *jsonschema.ValidationError, of jsonschema.ErrorKind)
	walk = func(e *jsonschema.ValidationError, of jsonschema.ErrorKind) {
		for _, cause := range e.Causes {
			walk(cause, e.ErrorKind)
		}
		if len(e.Causes) == 0 {
			p := schemaProblem{path: e.InstanceLocation, message: schemaMessage(e.ErrorKind, of)}
			if more, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
				p.unknown = more.Properties
			}
			out = append(out, p)
		}
	}
	walk(invalid, nil)
	return out
}

// schemaMessage returns what a violation is, without the value: it may be a key that was written in the wrong place. The name of a property
// is none.
func schemaMessage(violation, of jsonschema.ErrorKind) string {
	_, name := of.(*kind.PropertyNames)
	if p, ok := violation.(*kind.Pattern); ok && !name {
		return "does not match pattern " + p.Want
	}
	return violation.LocalizedString(english)
}
