package llm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"berth/internal/userfile"
	"berth/internal/yamlfile"
)

// Content is a routing file with what it means.
type Content struct {
	Text   string
	Config Config
	// Hash identifies the values of the file: comments, layout and the order of keys make no difference.
	Hash string
}

// ReadContent reads a routing file, the built-in one for an empty path. Its error is that of LoadConfig.
func ReadContent(path string) (Content, error) {
	if path == "" {
		return ParseContent("routing.yaml", string(builtinRouting))
	}
	b, err := userfile.Read(path, userfile.MaxSettings)
	if err != nil {
		return Content{}, fmt.Errorf("read routing: %w", err)
	}
	return ParseContent(path, string(b))
}

// ParseContent parses the text of a routing file that errors call name.
func ParseContent(name, text string) (Content, error) {
	cfg, err := parseConfig(name, []byte(text))
	if err != nil {
		return Content{}, err
	}
	if !utf8.ValidString(text) { // the parser reads UTF-16, which the database does not store
		return Content{}, fmt.Errorf("%s is not UTF-8: save the file in this encoding", name)
	}
	root, err := yamlfile.Parse([]byte(text))
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, err)
	}
	// The values as they are written, without the defaults: those of a later release do not make another content of the same file.
	var values any
	if err := root.Decode(&values); err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, err)
	}
	canonical, err := json.Marshal(values) // sorts keys
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.Sum256(canonical)
	return Content{Text: text, Config: cfg, Hash: hex.EncodeToString(sum[:])}, nil
}

// Sections are the fields of a routing file.
var Sections = []string{"providers", "models", "queues", "routes"}

// ParseSections parses the sections of a routing file in a larger document, of which src is the text. Its errors have the lines of the document.
func ParseSections(name string, document *yaml.Node, src []byte) (Content, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Line: document.Line}
	for i := 0; i+1 < len(document.Content); i += 2 {
		if slices.Contains(Sections, document.Content[i].Value) {
			root.Content = append(root.Content, document.Content[i:i+2]...)
		}
	}
	if _, err := decodeConfig(name, root, src); err != nil {
		return Content{}, err
	}
	if len(root.Content) == len(document.Content) {
		return ParseContent(name, string(src))
	}
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, err)
	}
	c, err := ParseContent(name, text.String())
	if err != nil {
		return Content{}, fmt.Errorf("%w: the routing cannot be read without the rest of the file; write anchors (&) beside their aliases (*)", err)
	}
	return c, nil
}

// Models returns the names of the models, sorted.
func (c Content) Models() []string { return slices.Sorted(maps.Keys(c.Config.Models)) }
