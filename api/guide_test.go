package api_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// X4: docs/api.md has a curl command for each operation of the description, and none for another path or method.
func TestGuide_EveryOperation_HasAnExample(t *testing.T) {
	t.Parallel()
	examples := map[string]bool{} // by operation, as "GET /v1/tasks/{id}"
	for _, operation := range described(t, newHarness(t)) {
		examples[operation] = false
	}
	require.NotEmpty(t, examples)
	guide, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	calls := curlCommands(string(guide))
	require.NotEmpty(t, calls)
	for _, call := range calls {
		found := ""
		for operation := range examples {
			method, path, _ := strings.Cut(operation, " ")
			// The most specific path: report in /v1/conferences/report does not match {e164}.
			if call.method == method && matches(path, call.path) && (found == "" || strings.Count(operation, "{") < strings.Count(found, "{")) {
				found = operation
			}
		}
		require.NotEmpty(t, found, "%s %s is not in the description", call.method, call.path)
		examples[found] = true
	}
	for operation, shown := range examples {
		require.True(t, shown, "docs/api.md has no example of %s", operation)
	}
}

type curlCommand struct{ method, path string }

var (
	shellBlock  = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	curlCall    = regexp.MustCompile(`\bcurl ((?:[^\n']|'[^']*')*)`)
	curlURL     = regexp.MustCompile(`\$BERTH_URL(/[^\s"?)]*)`)
	curlMethod  = regexp.MustCompile(`-X ([A-Z]+)`)
	curlContent = regexp.MustCompile(`--json |-F `)
)

// curlCommands returns the calls of the API in the shell commands of a page.
func curlCommands(page string) []curlCommand {
	var calls []curlCommand
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		for _, call := range curlCall.FindAllString(strings.ReplaceAll(block[1], "\\\n", " "), -1) {
			url := curlURL.FindStringSubmatch(call)
			if url == nil {
				continue
			}
			method := http.MethodGet
			if m := curlMethod.FindStringSubmatch(call); m != nil {
				method = m[1]
			} else if curlContent.MatchString(call) {
				method = http.MethodPost
			}
			calls = append(calls, curlCommand{method, url[1]})
		}
	}
	return calls
}

// matches reports whether a path of an example is one of the template /v1/tasks/{id}.
func matches(template, path string) bool {
	want, is := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(is) {
		return false
	}
	for i, segment := range want {
		if !strings.HasPrefix(segment, "{") && segment != is[i] || is[i] == "" && i > 0 {
			return false
		}
	}
	return true
}
