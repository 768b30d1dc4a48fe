package template

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/testdocs"
	"berth/internal/yamlfile"
)

var update = flag.Bool("update", false, "write the generated parts of docs/templates.md")

const docsFile = "../../docs/templates.md"

// fieldTable returns the properties of a schema as rows, in their order.
func fieldTable(t *testing.T, path ...string) string {
	t.Helper()
	n := findExact(describedSchema(), append(path, "properties"))
	require.NotNil(t, n)
	var b strings.Builder
	b.WriteString("| field | value | meaning |\n| --- | --- | --- |\n")
	for i := 0; i+1 < len(n.Content); i += 2 {
		described := yamlfile.Child(n.Content[i+1], "description")
		require.NotNil(t, described, n.Content[i].Value)
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", n.Content[i].Value, valueOf(n.Content[i+1]), strings.ReplaceAll(described.Value, "|", `\|`))
	}
	return b.String()
}

// valueOf returns what a property takes, with its limits.
func valueOf(property *yaml.Node) string {
	get := func(key string) string {
		if n := yamlfile.Child(property, key); n != nil {
			return n.Value
		}
		return ""
	}
	limited := func(text, key, unit string) string {
		if limit := get(key); limit != "" {
			text += ", at most " + limit + unit
		}
		return text
	}
	if ref := get("$ref"); ref != "" {
		definition := findExact(describedSchema(), strings.Split(strings.TrimPrefix(ref, "#/"), "/"))
		if described := yamlfile.Child(definition, "description"); described != nil {
			text := limited(described.Value, "maxItems", "")
			if limit := yamlfile.Child(definition, "maxLength"); limit != nil && !strings.Contains(text, limit.Value) {
				text += ", at most " + limit.Value + " characters"
			}
			return text
		}
		property = definition
	}
	switch kind := get("type"); {
	case get("multipleOf") != "":
		return "a number from " + get("minimum") + " to " + get("maximum") + ", or `" + strings.Trim(get("pattern"), "^$") + "`"
	case kind == "array":
		text := limited("a list", "maxItems", "")
		if texts := findExact(property, []string{"items", "maxLength"}); texts != nil {
			text += ", of texts of at most " + texts.Value + " characters"
		}
		return text
	case kind == "integer":
		return "a whole number from " + get("minimum") + " to " + get("maximum")
	case kind == "string":
		return limited("a text", "maxLength", " characters")
	case kind != "":
		return typeWords[kind]
	}
	var words []string
	for _, word := range yamlfile.Child(property, "enum").Content {
		words = append(words, "`"+word.Value+"`")
	}
	return strings.Join(words, ", ")
}

// limits are the bounds that authors may reach: what is bounded, by the constant.
var limits = []struct{ name, what string }{
	{"template.MaxFileBytes", "bytes of a file"},
	{"template.MaxBytes", "bytes of the files of a template"},
	{"template.MaxFiles", "files of a template"},
	{"template.maxName", "characters of the name of a template"},
	{"api.maxTextBytes", "bytes of a text that a task is given"},
	{"template.maxYAMLValues", "values in `template.yaml`, or in the fields of a prompt"},
	{"template.maxYAMLDepth", "levels of values within each other there"},
	{"template.maxTreeDepth", "levels of directories"},
	{"template.maxTreeEntries", "files and directories of all templates"},
	{"template.maxTreeBytes", "bytes of all templates in a directory"},
	{"template.maxMistakes", "mistakes that are reported"},
	{"template.maxMarkLine", "bytes of a line that is a stage or an item"},
	{"schema.maxDepth", "levels of a JSON Schema"},
	{"schema.maxCost", "parts of a JSON Schema that apply to one value, with its references"},
	{"dotprompt.maxSchemaDepth", "levels of a schema in Picoschema"},
	{"dotprompt.maxNodes", "tags and texts of a prompt"},
	{"dotprompt.maxNested", "blocks within each other"},
	{"dotprompt.maxSubexpressions", "parentheses within each other in a tag"},
	{"dotprompt.maxPartialDepth", "shared texts within each other"},
	{"dotprompt.maxChecked", "tags and texts of a prompt with its shared texts, each as often as it is inserted"},
	{"dotprompt.maxSteps", "steps of rendering a prompt"},
	{"dotprompt.MaxOutput", "bytes of a rendered prompt"},
	{"dotprompt.maxMessages", "messages of a prompt"},
	{"dotprompt.maxValueDepth", "levels of a value in a prompt"},
}

// internals bound what is shown or searched: no author notices them.
var internals = []string{
	"template.maxShown", "template.maxReferences", "template.maxIndent", "dotprompt.maxProblems", "dotprompt.maxQuoted", "dotprompt.maxIndent",
	"schema.maxProblems", "schema.maxMisspelled", "schema.maxShown", "schema.maxNames", "schema.maxListed",
	"template.minTimeout", "template.maxTimeout", "dotprompt.MaxTime", // durations, which are checked below
}

// A limit that is not described is found only by authors who reach it.
func TestDocs_Limits_AreThoseOfTheCode(t *testing.T) { // G1
	values := map[string]string{}
	for _, of := range []string{"*.go", "../dotprompt/*.go", "../schema/*.go", "../../api/variables.go"} {
		files, err := filepath.Glob(of)
		require.NoError(t, err)
		fset := token.NewFileSet()
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(fset, file, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok || len(spec.Values) != 1 || !regexp.MustCompile("^(max|Max|min)[A-Z]").MatchString(spec.Names[0].Name) {
					return true
				}
				value := "not a number"
				if v, err := types.Eval(fset, nil, token.NoPos, types.ExprString(spec.Values[0])); err == nil && v.Value != nil {
					value = v.Value.String()
				}
				values[parsed.Name.Name+"."+spec.Names[0].Name] = value
				return true
			})
		}
	}
	var b strings.Builder
	b.WriteString("| at most | of |\n| --- | --- |\n")
	for _, l := range limits {
		require.Contains(t, values, l.name)
		fmt.Fprintf(&b, "| %s | %s |\n", grouped(values[l.name]), l.what)
		delete(values, l.name)
	}
	for _, name := range internals {
		require.Contains(t, values, name)
		delete(values, name)
	}
	require.Empty(t, values, "describe each limit")
	testdocs.RequireBlock(t, docsFile, "limits", b.String(), *update)
	for _, c := range []struct {
		path []string
		want int
	}{
		{[]string{"$defs", "title", "maxLength"}, berth.MaxTemplateTitle}, {[]string{"$defs", "text", "maxLength"}, berth.MaxTemplateText}, {[]string{"$defs", "template", "maxLength"}, maxName},
	} {
		require.Equal(t, strconv.Itoa(c.want), findExact(describedSchema(), c.path).Value)
	}
	require.Contains(t, findExact(describedSchema(), []string{"$defs", "duration", "description"}).Value, fmt.Sprintf("from %s to %.0fh,", minTimeout, maxTimeout.Hours()))
	text, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("more than %.0f seconds", dotprompt.MaxTime.Seconds()))
}

// grouped writes a number with commas.
func grouped(number string) string {
	for i := len(number) - 3; i > 0; i -= 3 {
		number = number[:i] + "," + number[i:]
	}
	return number
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
