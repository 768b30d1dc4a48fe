package rawjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// values generates JSON as it may be written: with white space, escapes and numbers of any size.
func values(depth int) *rapid.Generator[string] {
	leaf := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", "0", "-1.50e+10", "12345678901234567890123", `""`, `"\\"`, `"\\\""`, `"{\"a\":[1]}"`, `"\u00e9\ud83d\ude00"`, `"你好"`}),
		rapid.Map(rapid.String(), func(s string) string {
			b, _ := json.Marshal(s)
			return string(b)
		}))
	if depth == 0 {
		return leaf
	}
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r\n"})
	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		object := rapid.Bool().Draw(t, "object")
		for i := range rapid.IntRange(0, 4).Draw(t, "fields") {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(space.Draw(t, "space"))
			if object {
				fmt.Fprintf(&b, `"%s%d"%s:%s`, rapid.SampledFrom([]string{"k", `\"`, `\\`, `\u006b`, "ü"}).Draw(t, "key"), i, space.Draw(t, "space"), space.Draw(t, "space"))
			}
			b.WriteString(values(depth-1).Draw(t, "value"))
			b.WriteString(space.Draw(t, "space"))
		}
		if object {
			return "{" + b.String() + "}"
		}
		return "[" + b.String() + "]"
	}))
}

func TestCursor_AnyValue_FieldsAndItemsAsWritten(t *testing.T) { // O1
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := values(4).Draw(t, "text")
		require.NoError(t, Check([]byte(text)))
		require.Equal(t, gjsonOf(text), cursorOf(text))
	})
}

func gjsonOf(text string) (all []string) {
	if v := gjson.Parse(text); v.IsObject() || v.IsArray() {
		v.ForEach(func(key, value gjson.Result) bool {
			all = append(all, key.Str, value.Raw)
			return true
		})
	}
	return all
}

func cursorOf(text string) (all []string) {
	c := Read([]byte(text))
	if IsObject(trimmed([]byte(text))) {
		for key, value, ok := c.Field(); ok; key, value, ok = c.Field() {
			all = append(all, Key(key), string(value))
		}
		return all
	}
	for value, ok := c.Item(); ok; value, ok = c.Item() {
		all = append(all, "", string(value))
	}
	return all
}

func TestCheck_EachMistake_NamedWithItsPlace(t *testing.T) { // O1
	t.Parallel()
	many := ""
	for i := range 100 {
		many += fmt.Sprintf(`"k%d":1,`, i)
	}
	for text, want := range map[string]string{
		"":                   "unexpected end of JSON input, at byte 0",
		"{":                  "unexpected end of JSON input, at byte 1",
		`{"a":1}x`:           "invalid character 'x' after top-level value, at byte 8",
		`{"a":1}{"a":1}`:     "invalid character '{' after top-level value, at byte 8",
		`{"a":NaN}`:          "invalid character 'N' looking for beginning of value, at byte 6",
		"\ufeff{}":           "invalid character 'ï' looking for beginning of value, at byte 1",
		"{\"a\":\"\xff\"}":   "byte 6 is not UTF-8",
		`{"a":1,"a":2}`:      `an object has the key "a" twice, at byte 7`,
		`{"a":1,"\u0061":2}`: `an object has the key "a" twice, at byte 7`,
		`[{"b":{"a":{"a":1},"c":"a"}},{"b":1 , "b" :2}]`: `an object has the key "b" twice, at byte 38`,
		"{" + many + `"k7":1}`:                           `an object has the key "k7" twice, at byte 791`,
		strings.Repeat("[", 100_000):                     "invalid character '[' exceeded max depth, at byte 10001",
		strings.Repeat(`{"a":`, MaxDepth+1):              "unexpected end of JSON input, at byte 1005",
		nested(MaxDepth + 1):                             "nested deeper than 200 levels, at byte 200",
		nested(20_000):                                   "invalid character '[' exceeded max depth, at byte 10001",
		nested(MaxDepth):                                 "",
		`{"a":{"a":[{"a":1},{"a":1}]},"b":2}`:            "",
	} {
		err := Check([]byte(text))
		if want == "" {
			require.NoError(t, err, "%.40s", text)
			continue
		}
		require.EqualError(t, err, want, "%.40s", text)
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// What is valid is read as another parser reads it.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\",{}],"b":null}`, `"\`, `{"a"`, `[1,]`, "{\"\\u00", ` {"a" : "b\"c" } `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if Check(text) != nil {
			return
		}
		var whole any
		require.NoError(t, json.Unmarshal(text, &whole))
		require.Equal(t, gjsonOf(string(text)), cursorOf(string(text)))
	})
}
