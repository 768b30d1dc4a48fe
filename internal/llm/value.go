package llm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	settingName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
	modelName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

const (
	maxTokens           = "max_tokens"
	maxCompletionTokens = "max_completion_tokens"
)

// value is one node of a routing file with its path. A decoder of structs would say which line is wrong,
// but not which value; operators think in values.
type value struct {
	file string
	path string
	node *yaml.Node // nil when the file does not have it
	errs *[]error
}

func parseYAML(file string, src []byte) (value, error) {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return value{}, fmt.Errorf("%s: is empty", file)
		}
		return value{}, fmt.Errorf("%s: %w", file, err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return value{}, fmt.Errorf("%s: holds more than one document", file)
	}
	return value{file: file, node: doc.Content[0], errs: &[]error{}}, nil
}

func (v value) err() error { return errors.Join(*v.errs...) }

func (v value) wrong(format string, args ...any) {
	where := v.file
	if v.path != "" {
		where += ": " + v.path
	}
	if v.node != nil {
		where += fmt.Sprintf(" (line %d)", v.node.Line)
	}
	*v.errs = append(*v.errs, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

func (v value) child(key string, node *yaml.Node) value {
	path := key
	if v.path != "" {
		path = v.path + "." + key
	}
	return value{file: v.file, path: path, node: node, errs: v.errs}
}

// at is the value under the keys, without a node when the file does not have it.
func (v value) at(keys ...string) value {
	for _, k := range keys {
		var node *yaml.Node
		if v.node != nil && v.node.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(v.node.Content); i += 2 {
				if v.node.Content[i].Value == k {
					node = v.node.Content[i+1]
				}
			}
		}
		v = v.child(k, node)
	}
	return v
}

// entries visits the entries of a mapping; a key given twice is refused.
func (v value) entries(each func(key string, v value)) {
	if v.node.Kind != yaml.MappingNode {
		v.wrong("must be a mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i].Value, v.node.Content[i+1]
		c := v.child(key, node)
		switch {
		case seen[key]:
			c.wrong("is given twice")
		case node.Kind == yaml.AliasNode:
			c.wrong("must be written out: aliases are not read")
		default:
			each(key, c)
		}
		seen[key] = true
	}
}

// object reads a mapping of known fields.
func (v value) object(fields map[string]func(value), required ...string) {
	given := map[string]bool{}
	v.entries(func(key string, c value) {
		given[key] = true
		read, ok := fields[key]
		if !ok {
			c.wrong("unknown field; known are %s", strings.Join(sortedKeys(fields), ", "))
			return
		}
		read(c)
	})
	if v.node.Kind != yaml.MappingNode {
		return
	}
	for _, key := range required {
		if !given[key] {
			v.child(key, nil).wrong("is missing")
		}
	}
}

func (v value) text() string {
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!str" || strings.TrimSpace(v.node.Value) == "" {
		v.wrong("must be text")
		return ""
	}
	return v.node.Value
}

func (v value) matching(re *regexp.Regexp, what string) string {
	s := v.text()
	if s != "" && !re.MatchString(s) {
		v.wrong("%q is not %s", s, what)
	}
	return s
}

func (v value) oneOf(known ...string) string {
	s := v.text()
	for _, k := range known {
		if s == k {
			return s
		}
	}
	if s != "" {
		v.wrong("%q is none of %s", s, strings.Join(known, ", "))
	}
	return ""
}

func (v value) boolean() bool {
	var b bool
	if v.node.Tag != "!!bool" || v.node.Decode(&b) != nil {
		v.wrong("must be true or false")
	}
	return b
}

func (v value) integer(least, most int) int {
	n, err := strconv.Atoi(v.node.Value)
	if v.node.Tag != "!!int" || err != nil || n < least || n > most {
		v.wrong("must be a whole number from %d to %d", least, most)
	}
	return n
}

func (v value) price() float64 {
	f, err := strconv.ParseFloat(v.node.Value, 64)
	if (v.node.Tag != "!!int" && v.node.Tag != "!!float") || err != nil || !(f >= 0 && f <= 1e6) {
		v.wrong("must be a price in US dollars per million tokens, 0 or more")
	}
	return f
}

func (v value) duration() time.Duration {
	d, err := time.ParseDuration(v.node.Value)
	if err != nil || d <= 0 || d > time.Hour {
		v.wrong("must be a duration of at most an hour, like 30s")
	}
	return d
}

func (v value) url() string {
	s := v.text()
	if s == "" {
		return ""
	}
	if err := checkBaseURL(s); err != nil {
		v.wrong("%s", err)
	}
	return s
}

// checkBaseURL refuses what would send calls, or a key, elsewhere than the operator reads.
func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return errors.New("must be a URL like https://api.example.com/v1")
	case u.User != nil:
		return errors.New("must not hold a user or password: keys go into settings")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("must not hold a query or fragment")
	}
	return nil
}
