package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// ParseJSON returns a JSON text as Parse does YAML: with the line of each value. A name that an object has twice is an error.
func ParseJSON(src []byte) (*yaml.Node, error) {
	r := &jsonReader{src: src, dec: json.NewDecoder(bytes.NewReader(src)), line: 1}
	r.dec.UseNumber()
	n, err := r.value()
	if err == nil {
		if _, err = r.dec.Token(); errors.Is(err, io.EOF) {
			return n, nil
		} else if err == nil {
			err = errors.New("more follows the end of the value")
		}
	}
	at := r.dec.InputOffset()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		at = int64(len(bytes.TrimRight(src, " \t\r\n")))
		err = errors.New("the text ends too early: a bracket or quotation mark is missing")
	}
	if invalid, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = max(invalid.Offset, at)
	}
	return nil, &SyntaxError{Line: r.lineAt(at), Message: err.Error()}
}

type jsonReader struct {
	src     []byte
	dec     *json.Decoder
	line    int // of counted
	counted int
}

func (r *jsonReader) lineAt(offset int64) int {
	end := min(int(offset), len(r.src))
	if end > r.counted {
		r.line += bytes.Count(r.src[r.counted:end], []byte("\n"))
		r.counted = end
	}
	return r.line
}

func (r *jsonReader) value() (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token), Line: r.lineAt(r.dec.InputOffset())}
	switch token {
	case json.Delim('{'):
		n.Kind, n.Value = yaml.MappingNode, ""
		err = r.object(n)
	case json.Delim('['):
		n.Kind, n.Value = yaml.SequenceNode, ""
		for err == nil && r.dec.More() {
			var e *yaml.Node
			e, err = r.value()
			n.Content = append(n.Content, e)
		}
	default:
		return n, nil
	}
	if err == nil {
		_, err = r.dec.Token() // the end
	}
	return n, err
}

func (r *jsonReader) object(n *yaml.Node) error {
	first := map[string]int{}
	for r.dec.More() {
		key, err := r.value()
		if err != nil {
			return err
		}
		if line, again := first[key.Value]; again {
			return fmt.Errorf("%.40q is written twice, first in line %d", key.Value, line)
		}
		first[key.Value] = key.Line
		value, err := r.value()
		if err != nil {
			return err
		}
		n.Content = append(n.Content, key, value)
	}
	return nil
}
