package litellm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value is a value of a configuration with its place. Its node is nil if the configuration does not have it.
type value struct {
	node *yaml.Node
	path string
	line int
}

// field is a field of a mapping.
type field struct {
	name string
	value
}

// maxMerged bounds the mappings that are merged into one another: an anchor may refer to itself.
const maxMerged = 20

// of returns the value of a node, following anchors.
func of(node *yaml.Node, path string) value {
	v := value{node: node, path: path, line: node.Line}
	for range maxMerged {
		if v.node.Kind != yaml.AliasNode {
			break
		}
		v.node = v.node.Alias
	}
	return v
}

// fields returns the fields of a mapping, with those that `<<` merges into it, and nil for any other value.
func (v value) fields() []field { return v.merged(maxMerged) }

func (v value) merged(depth int) (all []field) {
	if v.node == nil || v.node.Kind != yaml.MappingNode || depth == 0 {
		return nil
	}
	at := map[string]int{} // of a name in all
	var bases []value
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		name := v.node.Content[i].Value
		child := of(v.node.Content[i+1], v.path+"."+name)
		child.path = strings.TrimPrefix(child.path, ".")
		switch {
		case v.node.Content[i].Tag == "!!merge" && child.node.Kind == yaml.SequenceNode:
			for _, n := range child.node.Content {
				bases = append(bases, of(n, v.path))
			}
		case v.node.Content[i].Tag == "!!merge":
			bases = append(bases, of(child.node, v.path))
		default:
			child.line = v.node.Content[i].Line
			if i, again := at[name]; again { // the last one is in effect, as in Python
				all[i] = field{name, child}
				continue
			}
			at[name], all = len(all), append(all, field{name, child})
		}
	}
	for _, base := range bases {
		for _, f := range base.merged(depth - 1) {
			if _, known := at[f.name]; !known {
				at[f.name], all = len(all), append(all, f)
			}
		}
	}
	return all
}

// get returns a field of a mapping.
func (v value) get(name string) value {
	for _, f := range v.fields() {
		if f.name == name {
			return f.value
		}
	}
	return value{path: strings.TrimPrefix(v.path+"."+name, "."), line: v.line}
}

// items returns the items of a list, and nil for any other value.
func (v value) items() (all []value) {
	if v.node == nil || v.node.Kind != yaml.SequenceNode {
		return nil
	}
	for i, n := range v.node.Content {
		all = append(all, of(n, fmt.Sprintf("%s[%d]", v.path, i)))
	}
	return all
}

// text returns a scalar as it is written, "" for null and for any other value.
func (v value) text() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode || v.node.Tag == "!!null" {
		return ""
	}
	return strings.TrimSpace(v.node.Value)
}

// empty reports whether a value is missing, null or has nothing in it.
func (v value) empty() bool { return v.text() == "" && len(v.fields()) == 0 && len(v.items()) == 0 }

// isTrue reports whether a value is true, as LiteLLM reads it.
func (v value) isTrue() bool { return strings.EqualFold(v.text(), "true") }

// number returns a number, also one that is written as a text; false if it is none.
func (v value) number() (float64, bool) {
	n, err := strconv.ParseFloat(strings.ReplaceAll(v.text(), "_", ""), 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}
