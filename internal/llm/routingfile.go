package llm

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth/internal/schema"
	"berth/internal/template"
	"berth/internal/yamlfile"
)

//go:embed routing.schema.json
var routingSchemaFile []byte

var routingSchema = schema.MustCompile("routing.schema.json", routingSchemaFile)

// names describes those of routing.schema.json that operators choose.
var names = map[string]string{
	"models": "the name of a model: letters, digits, dots, _ and -, at most 64, the first one a letter or digit",
	"queues": "the name of a queue: small letters, digits, _ and -, at most 64, the first one a letter",
	"routes": "default, the name of a template such as ticket_summary, or of one of its steps such as ticket_summary.read",
}

// routingFile is a parsed routing file that collects the errors in it.
type routingFile struct {
	name string
	root *yaml.Node
	errs []error
}

// checkRoutingFile validates a document, of which src is the text, against routing.schema.json.
func checkRoutingFile(name string, root *yaml.Node, src []byte) (*routingFile, error) {
	f := &routingFile{name: name, root: root}
	var value any
	if err := f.root.Decode(&value); err != nil {
		return nil, fmt.Errorf("%s: %w", name, yamlfile.Unreadable(src, err))
	}
	for _, p := range schema.Problems(routingSchema.Validate(value)) {
		if len(p.Path) > 0 && p.Path[len(p.Path)-1] == "keySetting" {
			p.Message = "must be the name of a setting in capitals, such as OPENAI_API_KEY; the key itself belongs into BERTH_PROVIDER_KEYS"
		}
		if len(p.Path) == 3 && p.Path[0] == "models" && p.Path[2] == "cap" || len(p.Path) == 5 && p.Path[4] == "cap" {
			p.Message = "must be a number of concurrent calls, at most 10000, or auto"
		}
		if len(p.Path) == 3 && p.Path[0] == "routes" && p.Path[2] == "credits" {
			p.Message = template.NoPrice
		}
		if len(p.Path) > 1 && p.Path[len(p.Path)-2] == "aliases" {
			p.Message = "must be a name: letters, digits, and any of ._:/- but at the beginning, at most 128"
		}
		if len(p.Unknown) == 0 {
			f.invalid(p.Path, "%s", p.Message)
		}
		for _, key := range p.Unknown {
			said := "unknown field; see docs/providers.md"
			if len(p.Path) == 1 && names[p.Path[0]] != "" {
				said = "must be " + names[p.Path[0]]
			}
			line := yamlfile.Key(yamlfile.Find(root, p.Path), key).Line
			f.invalidAt(line, slices.Concat(p.Path, []string{key}), "%s", said)
		}
	}
	return f, f.err()
}

// has reports whether the file has a value at a path.
func (f *routingFile) has(path []string) bool {
	last := len(path) - 1
	return yamlfile.Child(yamlfile.Find(f.root, path[:last]), path[last]) != nil
}

func (f *routingFile) err() error { return errors.Join(f.errs...) }

// invalid records an error at a value. A path that the file does not contain gets the line of its parent.
func (f *routingFile) invalid(path []string, format string, args ...any) {
	f.invalidAt(yamlfile.Line(f.root, path), path, format, args...)
}

func (f *routingFile) invalidAt(line int, path []string, format string, args ...any) {
	at := f.name
	if len(path) > 0 {
		at += ": " + yamlfile.Safe(strings.Join(path, "."))
	}
	f.errs = append(f.errs, fmt.Errorf("%s (line %d): %s", at, line, fmt.Sprintf(format, args...)))
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
