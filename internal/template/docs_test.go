package template

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"berth/internal/dotprompt"
	"berth/internal/testdocs"
	"berth/internal/yamlfile"
	"berth/templates"
)

var update = flag.Bool("update", false, "write the generated parts of docs/templates.md")

const docsFile = "../../docs/templates.md"

// fieldTable returns the properties of a schema as rows, in their order.
func fieldTable(t *testing.T, path ...string) string {
	t.Helper()
	root, err := yamlfile.Parse(templates.Schema)
	require.NoError(t, err)
	n := findExact(root, append(path, "properties"))
	require.NotNil(t, n)
	var b strings.Builder
	b.WriteString("| field | meaning |\n| --- | --- |\n")
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, described := n.Content[i].Value, yamlfile.Child(n.Content[i+1], "description")
		if described == nil && n.Content[i+1].Kind == yaml.MappingNode {
			continue // of front matter: as in template.yaml
		}
		if described != nil {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.ReplaceAll(described.Value, "|", `\|`))
		}
	}
	return b.String()
}

func TestDocs_Fields_AreThoseOfTheSchema(t *testing.T) { // G1
	for name, path := range map[string][]string{
		"fields of a template": nil, "fields of a variable": {"$defs", "variable"}, "fields of a step": {"$defs", "step"}, "fields of a stage": {"$defs", "stage"},
		"fields of an item": {"$defs", "item"}, "fields of background": {"$defs", "background"},
	} {
		testdocs.RequireBlock(t, docsFile, name, fieldTable(t, path...), *update)
	}
	testdocs.RequireBlock(t, docsFile, "helpers", dotprompt.HelperTable(), *update)
}

// A stranger copies the examples of the documentation: each is valid as it is.
func TestDocs_Examples_AreValid(t *testing.T) { // G1
	t.Parallel()
	text, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	found := 0
	for _, block := range regexp.MustCompile("(?ms)^`([a-z_]+)\\.prompt`:\n\n```[a-z]*\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		_, err := Load("example", map[string]string{block[1] + promptEnd: block[2]})
		require.NoError(t, err)
		found++
	}
	require.NotZero(t, found)
	files := map[string]string{}
	for _, block := range regexp.MustCompile("(?ms)^`triage/([a-z_.]+)`:\n\n```[a-z]*\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		files[block[1]] = block[2]
	}
	require.Len(t, files, 4)
	_, err = Load("triage", files)
	require.NoError(t, err)
}
