package responses

import (
	"encoding/json"
	"strconv"
)

// builder makes a JSON object.
type builder struct{ b []byte }

// raw adds a field with a value that is JSON. The key is as it is written between quotes.
func (o *builder) raw(key string, v []byte) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), key...), '"', ':')
	if v == nil {
		o.b = append(o.b, "null"...)
	}
	o.b = append(o.b, v...)
}

// given adds a field unless its value is nil.
func (o *builder) given(key string, v []byte) {
	if v != nil {
		o.raw(key, v)
	}
}

func (o *builder) text(key, s string)         { o.raw(key, quoted(s)) }
func (o *builder) number(key string, n int64) { o.raw(key, strconv.AppendInt(nil, n, 10)) }

// end returns the object, which must have a field.
func (o *builder) end() []byte { return append(o.b, '}') }

// joined returns a list of values.
func joined(values [][]byte) []byte {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // no text fails
	}
	return b
}
