package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/schema"
)

// chain returns definitions of which each refers to the next one as often as stated, in the form.
func chain(length int, form string) string {
	var defs []string
	for i := range length {
		defs = append(defs, fmt.Sprintf(`"d%d": %s`, i, strings.ReplaceAll(form, "NEXT", fmt.Sprintf(`{"$ref": "#/$defs/d%d"}`, i+1))))
	}
	return fmt.Sprintf(`{"$ref": "#/$defs/d0", "$defs": {%s, "d%d": {"type": "string"}}}`, strings.Join(defs, ","), length)
}

func TestCompile_CheckWouldNotEnd_IsRefused(t *testing.T) {
	t.Parallel()
	const cost, number = "lead to the same parts more than 10000 times", "a number is too large, too small or too long"
	for name, c := range map[string]struct{ schema, problem string }{
		"twice":              {chain(40, `{"allOf": [NEXT, NEXT]}`), cost},
		"twice in a part":    {chain(40, `{"properties": {"a": {"anyOf": [NEXT, NEXT]}}}`), cost},
		"items":              {chain(40, `{"items": NEXT, "contains": NEXT}`), cost},
		"patterns":           {chain(40, `{"patternProperties": {"a": NEXT, "b": NEXT}}`), cost},
		"once":               {chain(400, `{"properties": {"a": NEXT}}`), ""},
		"different parts":    {chain(40, `{"properties": {"a": NEXT, "b": NEXT, "c": NEXT}}`), ""},
		"within itself":      {`{"properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}, "anyOf": [{}, {"$ref": "#/properties/b"}]}`, ""},
		"large number":       {`{"maximum": 1e999}`, number},
		"small number":       {`{"multipleOf": 1e-99999}`, number},
		"many digits":        {`{"const": ` + strings.Repeat("1", 500) + `}`, number},
		"numbers of 64 bits": {`{"maximum": 1e300, "minimum": 0e5, "multipleOf": 1e-300}`, ""},
	} {
		_, err := schema.Compile("s.json", []byte(c.schema))
		if c.problem == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.problem, name)
	}
}

func TestCompile_Formats_AreCheckedOnRequest(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"type": "string", "format": "date"}`)
	plain, err := schema.Compile("s.json", raw)
	require.NoError(t, err)
	require.NoError(t, plain.Validate("today"))
	checked, err := schema.CompileWithFormats("s.json", raw)
	require.NoError(t, err)
	require.Error(t, checked.Validate("today"))
	require.NoError(t, checked.Validate("2026-11-27"))
}
