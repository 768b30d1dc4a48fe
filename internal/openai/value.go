package openai

import (
	"math"
	"strconv"
	"unicode/utf8"

	"berth/internal/rawjson"
)

// Bounds of values. Those of metadata are OpenAI's.
const (
	// MaxTokens bounds the numbers of tokens that clients may ask for.
	MaxTokens = 1 << 30
	// MaxName bounds names, in bytes.
	MaxName = 512

	maxMetadata      = 16
	maxMetadataKey   = 64  // characters
	maxMetadataValue = 512 // characters
)

// Text reads a text of at most MaxName bytes.
func Text(value []byte) (string, *Error) {
	s, ok := rawjson.String(value)
	switch {
	case !ok:
		return "", WrongType("a text", value)
	case len(s) > MaxName:
		return "", Invalid("", "string_above_max_length", "must have at most %d bytes", MaxName)
	}
	return s, nil
}

// Number reads a whole number.
func Number(value []byte, least, limit int) (int, *Error) {
	n, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil || n != math.Trunc(n):
		return 0, WrongType("a whole number", value)
	case n < float64(least):
		return 0, Invalid("", "integer_below_min_value", "must be at least %d", least)
	case n > float64(limit):
		return 0, Invalid("", "integer_above_max_value", "must be at most %d", limit)
	}
	return int(n), nil
}

// Boolean reads true or false.
func Boolean(value []byte) (bool, *Error) {
	switch string(value) {
	case "true", "false":
		return value[0] == 't', nil
	}
	return false, WrongType("true or false", value)
}

// Metadata reads texts by their names. One that is null is as one that is missing.
func Metadata(value []byte) (map[string]string, *Error) {
	if !rawjson.IsObject(value) {
		return nil, WrongType("an object", value)
	}
	metadata := map[string]string{}
	all := rawjson.Read(value)
	for key, item, ok := all.Field(); ok; key, item, ok = all.Field() {
		if rawjson.IsNull(item) {
			continue
		}
		name := rawjson.Key(key)
		text, isText := rawjson.String(item)
		var err *Error
		switch {
		case len(metadata) == maxMetadata:
			return nil, Invalid("", "object_above_max_properties", "must have at most %d entries", maxMetadata)
		case utf8.RuneCountInString(name) > maxMetadataKey:
			return nil, Invalid("", "string_above_max_length", "must have keys of at most %d characters", maxMetadataKey)
		case !isText:
			err = WrongType("a text", item)
		case utf8.RuneCountInString(text) > maxMetadataValue:
			err = Invalid("", "string_above_max_length", "must have at most %d characters", maxMetadataValue)
		}
		if err != nil {
			err.Param = "." + name
			return nil, err
		}
		metadata[name] = text
	}
	return metadata, nil
}

// WrongType returns the error for a value of another type.
func WrongType(want string, value []byte) *Error {
	return Invalid("", "invalid_type", "must be %s, and is %s", want, typeName(value))
}

func typeName(value []byte) string {
	switch {
	case len(value) == 0:
		return "missing"
	case rawjson.IsNull(value):
		return "null"
	case rawjson.IsObject(value):
		return "an object"
	case rawjson.IsList(value):
		return "a list"
	case rawjson.IsString(value):
		return "a text"
	case value[0] == 't', value[0] == 'f':
		return "true or false"
	default:
		return "the number " + string(value[:min(len(value), 20)])
	}
}
