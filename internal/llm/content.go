package llm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

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

// Models returns the names of the models, sorted.
func (c Content) Models() []string { return slices.Sorted(maps.Keys(c.Config.Models)) }
