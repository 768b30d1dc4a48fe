package llm

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"berth/internal/rawjson"
)

// takeEmbeddings processes the answer to a request for vectors. Not all servers know the encoding that the client wants: then the vectors
// are converted, because some clients do not look which one they get.
func (s *session) takeEmbeddings(words []byte, mediaType string) error {
	a := s.raw
	list := rawField(words, "data")
	if !hasItems(list) {
		doc := gjson.ParseBytes(words)
		if e, failed := errorIn(doc); failed || causeOf(http.StatusOK, e) != CauseUnknown {
			return s.reportedError(e, words)
		}
		return s.notAnAnswer(mediaType, words)
	}
	s.takeUsage(rawField(words, "usage"))
	out := make([]byte, 0, len(words)+256)
	all := rawjson.Read(words)
	hasModel := false
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch string(key) {
		case "error", "object", "usage":
			continue
		case "model":
			hasModel, value = true, a.shownModel(rawParts{model: value})
		case "data":
			out = appendField(out, key, nil)
			var err error
			if out, err = a.vectors(out, value); err != nil {
				return s.failure(CauseMalformed, http.StatusOK, err.Error(), nil)
			}
			continue
		}
		out = appendField(out, key, value)
	}
	out = appendField(out, []byte("object"), []byte(`"list"`))
	if !hasModel {
		out = appendField(out, []byte("model"), a.shownModel(rawParts{}))
	}
	out = append(appendField(out, []byte("usage"), s.shownUsage()), '}')
	if err := s.pass(out); err != nil {
		return err
	}
	s.ended = true
	return nil
}

// vectors appends the list of vectors as the client reads them.
func (a *rawAnswer) vectors(out, list []byte) ([]byte, error) {
	out = append(out, '[')
	all := rawjson.Read(list)
	for position := 0; ; position++ {
		item, ok := all.Item()
		if !ok {
			return append(out, ']'), nil
		}
		if position > 0 {
			out = append(out, ',')
		}
		vector := rawField(item, "embedding")
		if a.req.Base64 && rawjson.IsString(vector) || !a.req.Base64 && rawjson.IsList(vector) {
			out = append(out, item...)
			continue
		}
		shown, err := a.vector(vector)
		if err != nil {
			return nil, err
		}
		var object []byte
		fields := rawjson.Read(item)
		for key, value, ok := fields.Field(); ok; key, value, ok = fields.Field() {
			if string(key) == "embedding" {
				value = shown
			}
			object = appendField(object, key, value)
		}
		out = append(append(out, object...), '}')
	}
}

// vector returns a vector in the other encoding.
func (a *rawAnswer) vector(given []byte) ([]byte, error) {
	switch {
	case rawjson.IsList(given) && a.req.Base64:
		return encodeVector(given)
	case rawjson.IsString(given):
		return decodeVector(given)
	default:
		return nil, malformed("a vector that is " + typeName(gjson.ParseBytes(given)))
	}
}

// vectorSize is the size of one number in base64: 32 bits, the lowest first.
const vectorSize = 4

func encodeVector(list []byte) ([]byte, error) {
	var numbers []byte
	all := rawjson.Read(list)
	for item, ok := all.Item(); ok; item, ok = all.Item() {
		n, err := strconv.ParseFloat(string(item), 32)
		if err != nil {
			return nil, malformed("a vector with something other than numbers")
		}
		numbers = binary.LittleEndian.AppendUint32(numbers, math.Float32bits(float32(n)))
	}
	return append(base64.StdEncoding.AppendEncode([]byte{'"'}, numbers), '"'), nil
}

func decodeVector(text []byte) ([]byte, error) {
	given, _ := rawjson.String(text)
	numbers, err := base64.StdEncoding.DecodeString(given)
	if err != nil || len(numbers)%vectorSize != 0 {
		return nil, malformed("a vector that is not in base64")
	}
	out := []byte{'['}
	for ; len(numbers) > 0; numbers = numbers[vectorSize:] {
		if len(out) > 1 {
			out = append(out, ',')
		}
		n := float64(math.Float32frombits(binary.LittleEndian.Uint32(numbers)))
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return nil, malformed("a vector with a number that JSON does not have")
		}
		out = strconv.AppendFloat(out, n, 'g', -1, 32)
	}
	return append(out, ']'), nil
}
