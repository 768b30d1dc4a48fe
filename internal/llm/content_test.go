package llm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// G15: only what a file means makes a revision.
func TestParseContent_SameMeaning_SameHash(t *testing.T) {
	t.Parallel()
	const text = `
providers: {p: {baseURL: "http://a/v1"}}
models:
  a: {provider: p, cap: 5}
  b: {provider: p, price: {input: 0.5, output: 1}}
`
	first, err := ParseContent("f", text)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		text string
		same bool
	}{
		"comments and quotes":    {"# x\nproviders: {'p': {baseURL: http://a/v1}}\nmodels:\n  a: {provider: p, cap: 5} # y\n  b: {provider: \"p\", price: {input: 0.5, output: 1}}\n", true},
		"another order":          {"models:\n  b:\n    price: {output: 1, input: 0.5}\n    provider: p\n  a: {cap: 5, provider: p}\nproviders: {p: {baseURL: http://a/v1}}\n", true},
		"numbers otherwise":      {"providers: {p: {baseURL: http://a/v1}}\nmodels: {a: {provider: p, cap: 0x5}, b: {provider: p, price: {input: 5e-1, output: 1.0}}}", true},
		"an alias":               {"providers: {p: {baseURL: http://a/v1}}\nmodels: {a: {provider: &p p, cap: 5}, b: {provider: *p, price: {input: 0.5, output: 1}}}", true},
		"another cap":            {"providers: {p: {baseURL: http://a/v1}}\nmodels: {a: {provider: p, cap: 6}, b: {provider: p, price: {input: 0.5, output: 1}}}", false},
		"another name":           {"providers: {p: {baseURL: http://a/v1}}\nmodels: {A: {provider: p, cap: 5}, b: {provider: p, price: {input: 0.5, output: 1}}}", false},
		"a default made certain": {"providers: {p: {baseURL: http://a/v1}}\nmodels: {a: {provider: p, cap: 5}, b: {provider: p, cap: 5, price: {input: 0.5, output: 1}}}", false},
	} {
		other, err := ParseContent("f", c.text)
		require.NoError(t, err, name)
		require.Equal(t, c.same, other.Hash == first.Hash, name)
	}
	require.Equal(t, []string{"a", "b"}, first.Models())
	_, err = ParseContent("f", text+"# \xff")
	require.ErrorContains(t, err, "is not UTF-8")
}
