package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
	// bodies are the schemas of successful responses, by status and media type.
	bodies map[string]*jsonschema.Schema
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
	compiler, err := schemasOf(b)
	if err != nil {
		return nil, err
	}
	calls := map[string][]describedCall{}
	for path, item := range doc.Paths {
		for method, op := range item {
			op.bodies = map[string]*jsonschema.Schema{}
			for status, r := range op.Responses {
				for media := range r.Content {
					if status >= "300" || media != "application/json" && media != "text/event-stream" {
						continue
					}
					place := "#/paths/" + pointer.Replace(path) + "/" + method + "/responses/" + status + "/content/" + pointer.Replace(media) + "/schema"
					if op.bodies[status+" "+media], err = compiler.Compile("openapi.json" + place); err != nil {
						return nil, err
					}
				}
			}
			op.path = regexp.MustCompile("^" + braces.ReplaceAllString(path, "[^/]+") + "$")
			op.template = path
			calls[strings.ToUpper(method)] = append(calls[strings.ToUpper(method)], op)
		}
	}
	return calls, nil
})

var pointer = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")

// schemasOf returns a compiler of the schemas in a description.
func schemasOf(description []byte) (*jsonschema.Compiler, error) {
	var doc any
	if err := yaml.Unmarshal(description, &doc); err != nil {
		return nil, err
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(b)); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	return c, c.AddResource("openapi.json", doc)
}

// requireBody fails unless the description has the body of a successful response, or an event, with exactly the fields that it has. The types
// of clients are generated from it. Every test of the API calls it.
func requireBody(t *testing.T, method, path string, status int, media string, body []byte) {
	t.Helper()
	calls, err := description()
	require.NoError(t, err)
	for _, op := range calls[method] {
		if !op.path.MatchString(path) {
			continue
		}
		schema := op.bodies[strconv.Itoa(status)+" "+media]
		if schema == nil {
			t.Errorf("%s: status %d with %s is not described", op.ID, status, media)
			return
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		require.NoError(t, err, "%s: %s", op.ID, body)
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: the description does not have %.500s: %v", op.ID, body, err)
		}
		return
	}
}

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
