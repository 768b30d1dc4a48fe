package api_test

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// describedCall is one call of the description.
type describedCall struct {
	ID        string              `yaml:"operationId"`
	Security  *[]map[string][]any `yaml:"security"`
	Responses map[string]struct {
		Description string         `yaml:"description"`
		Content     map[string]any `yaml:"content"`
	} `yaml:"responses"`
	path     *regexp.Regexp
	template string
}

// description returns the calls of openapi.yaml by method.
var description = sync.OnceValues(func() (map[string][]describedCall, error) {
	b, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Servers []map[string]any                    `yaml:"servers"`
		Paths   map[string]map[string]describedCall `yaml:"paths"`
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	calls := map[string][]describedCall{}
	for path, item := range doc.Paths {
		for method, op := range item {
			op.path = regexp.MustCompile("^" + braces.ReplaceAllString(path, "[^/]+") + "$")
			op.template = path
			calls[strings.ToUpper(method)] = append(calls[strings.ToUpper(method)], op)
		}
	}
	return calls, nil
})

// requireDescribed fails unless the description has the status and the code of a problem. Every test of the API calls it.
func requireDescribed(t *testing.T, method, path string, a answer) {
	t.Helper()
	calls, err := description()
	require.NoError(t, err)
	for _, op := range calls[method] {
		if a.status == http.StatusMethodNotAllowed || !op.path.MatchString(path) {
			continue
		}
		if got := op.Responses[strconv.Itoa(a.status)]; !strings.Contains(got.Description, "`"+string(a.problem.Code)+"`") {
			t.Errorf("%s: status %d with code %s is not described: %q; add the code to ownCodes", op.ID, a.status, a.problem.Code, got.Description)
		}
		return
	}
}

// Generators of clients need to know what a call requires and returns.
func TestDescription_EachCall_StatesSecurityServerAndErrors(t *testing.T) { // FP8
	t.Parallel()
	b, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	require.Contains(t, string(b), "\nservers:\n  - description: ")
	calls, err := description()
	require.NoError(t, err)
	open := map[string]bool{}
	for _, route := range public {
		open[route] = true
	}
	n := 0
	for method, ops := range calls {
		for _, op := range ops {
			n++
			require.NotNil(t, op.Security, "%s: security is absent, which readers take for the default", op.ID)
			route := method + " " + op.template
			require.Equal(t, open[route] || ownTokens[route] != 0, len(*op.Security) == 0, route)
			require.Contains(t, op.Responses, "500", op.ID)
			if len(*op.Security) > 0 {
				require.Contains(t, op.Responses, "401", op.ID)
			}
			for status, r := range op.Responses {
				if len(status) == 3 && status >= "400" && op.ID != "readyz" {
					require.Contains(t, r.Content, "application/problem+json", "%s %s", op.ID, status)
				}
			}
		}
	}
	require.Greater(t, n, 80)
}
