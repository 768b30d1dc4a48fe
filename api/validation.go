package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/labstack/echo/v4"

	"berth"
)

// CursorParam is the cursor of every list. A cursor contains the ids of a row, whose characters it may escape: the longest have half of
// the limit.
type CursorParam struct {
	Cursor string `query:"cursor" maxLength:"4096" doc:"nextCursor of the previous page"`
}

// The messages of huma's validation, in the words of berth's own. They are package variables that huma reads when routes are
// registered and when requests are validated; only this package uses huma.
func init() {
	validation.MsgUnexpectedProperty = "unknown field"
	validation.MsgExpectedRFC3339DateTime = "must be a time such as 2006-01-02T15:04:05Z"
	validation.MsgExpectedRFC3339Date = "must be a date such as 2006-01-02"
	validation.MsgExpectedRFC3986URI = "must be a URL: %v"
	validation.MsgExpectedMatchExactlyOneSchema = `must be a string or {"assetId": "…"}` // only variables have alternatives
	validation.MsgExpectedBoolean = "must be true or false"
	validation.MsgExpectedNumber = "must be a number"
	validation.MsgExpectedInteger = "must be an integer"
	validation.MsgExpectedString = "must be a string"
	validation.MsgExpectedBase64String = "must be base64"
	validation.MsgExpectedArray = "must be an array"
	validation.MsgExpectedObject = "must be an object"
	validation.MsgExpectedArrayItemsUnique = "must not contain an item twice"
	validation.MsgExpectedOneOf = "must be one of %s"
	validation.MsgExpectedMinimumNumber = "must be at least %v"
	validation.MsgExpectedExclusiveMinimumNumber = "must be more than %v"
	validation.MsgExpectedMaximumNumber = "must be at most %v"
	validation.MsgExpectedExclusiveMaximumNumber = "must be less than %v"
	validation.MsgExpectedNumberBeMultipleOf = "must be a multiple of %v"
	validation.MsgExpectedMinLength = "must be at least %d characters"
	validation.MsgExpectedMaxLength = "must be at most %d characters"
	validation.MsgExpectedBePattern = "must be %s"
	validation.MsgExpectedMatchPattern = "must match the pattern %s"
	validation.MsgExpectedMinItems = "must have at least %d items"
	validation.MsgExpectedMaxItems = "must have at most %d items"
	validation.MsgExpectedMinProperties = "must have at least %d fields"
	validation.MsgExpectedMaxProperties = "must have at most %d fields"
	validation.MsgExpectedRequiredProperty = missingField + "%s"
	huma.ErrorFormatter = formatMessage //nolint:reassign // a variable in order to be set
	huma.ValidateStrictCasing = true
}

// missingField and wrongField precede the name of a field, from which fieldError makes the field of the error. givenTwice is the message of
// a field, parameter or header that a request has more than once.
const (
	missingField = "missing field "
	wrongField   = "wrong field "
	givenTwice   = "must not be given twice"
)

// invalidID is the message of an id that does not match berth.IDPattern.
var invalidID = describe(berth.ValidID("", "")).Detail

// formatMessage is fmt.Sprintf, with limits as users write them: 9007199254740991 instead of 9.007199254740991e+15.
func formatMessage(format string, args ...any) string {
	for i, a := range args {
		if f, ok := a.(float64); ok {
			args[i] = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	return fmt.Sprintf(format, args...)
}

// readJSON is json.Unmarshal, whose error names a field in the client's words where a value matches the schema but not the Go type: huma's
// validation reads all numbers as float64. What is read for the validation must not have a field twice. A byte order mark is ignored, as
// RFC 8259, 8.1, permits: editors and shells of Windows write it.
func readJSON(data []byte, v any) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	err := json.Unmarshal(data, v)
	if _, validates := v.(*any); validates && err == nil {
		return refuseDuplicate(data)
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok || !strings.HasPrefix(wrong.Value, "number"):
		return err
	case wrong.Field == "":
		return errors.New(wrongField + "body: contains a number that is out of range")
	case strings.ContainsAny(strings.TrimPrefix(wrong.Value, "number"), ".eE"):
		if wrong.Type == reflect.TypeFor[berth.Credits]() {
			return errors.New(wrongField + wrong.Field + ": must have at most three decimals")
		}
		return errors.New(wrongField + wrong.Field + ": must be an integer without a decimal point or exponent")
	default:
		return errors.New(wrongField + wrong.Field + ": is out of range")
	}
}

// refuseDuplicate returns an error that names the first field that a JSON text has twice. The text is valid.
func refuseDuplicate(data []byte) error {
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	path := duplicateField(in)
	if path == nil {
		return nil
	}
	slices.Reverse(path)
	return errors.New(wrongField + strings.TrimPrefix(strings.Join(path, ""), ".") + ": " + givenTwice)
}

// duplicateField reads one value and returns the path to the first field that is twice in one of its objects, innermost element first;
// nil for none.
func duplicateField(in *json.Decoder) []string {
	tok, _ := in.Token() // of valid text
	if tok != json.Delim('{') && tok != json.Delim('[') {
		return nil
	}
	seen := map[string]bool{}
	for i := 0; in.More(); i++ {
		name := "[" + strconv.Itoa(i) + "]"
		if tok == json.Delim('{') {
			key, _ := in.Token()
			if name = fmt.Sprintf(".%s", key); seen[name] {
				return []string{name}
			}
			seen[name] = true
		}
		if path := duplicateField(in); path != nil {
			return append(path, name)
		}
	}
	_, _ = in.Token() // the closing delimiter
	return nil
}

// fieldName returns the client's name of a huma location such as body.variables.resume or query.limit.
func fieldName(location string) string {
	for _, prefix := range []string{"body.", "query.", "path.", "header."} {
		if rest, ok := strings.CutPrefix(location, prefix); ok {
			return rest
		}
	}
	return location
}

// fieldError returns the error of a field, in berth's words where huma has no variable for the message.
func fieldError(location, msg string) FieldError {
	field := fieldName(location)
	if name, missing := strings.CutPrefix(msg, missingField); missing {
		if field == "body" {
			return FieldError{Field: name, Message: "is missing"}
		}
		return FieldError{Field: field + "." + name, Message: "is missing"}
	}
	if wrong, ok := strings.CutPrefix(msg, wrongField); ok {
		name, what, _ := strings.Cut(wrong, ": ")
		return FieldError{Field: name, Message: what}
	}
	if msg == fmt.Sprintf(validation.MsgExpectedMatchPattern, berth.IDPattern) {
		return FieldError{Field: field, Message: invalidID}
	}
	switch what, invalid := strings.CutPrefix(msg, "invalid "); {
	case invalid && (what == "integer" || what == "boolean"):
		return FieldError{Field: field, Message: map[string]string{"integer": validation.MsgExpectedInteger, "boolean": validation.MsgExpectedBoolean}[what]}
	case invalid && (what == "float" || what == "floating value"):
		return FieldError{Field: field, Message: validation.MsgExpectedNumber}
	case invalid && strings.HasPrefix(what, "date/time"):
		return FieldError{Field: field, Message: validation.MsgExpectedRFC3339DateTime}
	case invalid && strings.HasPrefix(what, "character"), msg == "unexpected end of JSON input":
		return FieldError{Field: field, Message: "must be JSON: " + msg}
	case strings.HasPrefix(msg, "json: "): // the rest names Go types
		return FieldError{Field: field, Message: "must be JSON that matches the schema"}
	case strings.HasPrefix(msg, "required ") && strings.HasSuffix(msg, " parameter is missing"):
		return FieldError{Field: field, Message: "is missing"}
	case strings.HasSuffix(msg, "at least 1 characters"), strings.HasSuffix(msg, "at least 1 items"), strings.HasSuffix(msg, "at least 1 fields"):
		return FieldError{Field: field, Message: "must not be empty"}
	case strings.Contains(msg, " one of , "): // hide the empty value, which is equivalent to none
		return FieldError{Field: field, Message: strings.Replace(msg, " one of , ", " one of ", 1)}
	case strings.HasPrefix(msg, "unknown content type"):
		return FieldError{Field: echo.HeaderContentType, Message: "must be application/json"}
	}
	return FieldError{Field: field, Message: msg}
}
