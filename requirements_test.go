package berth_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requirementIDs lists the ids of all requirements: a letter and the number of rows.
func requirementIDs() []string {
	var ids []string
	for _, group := range []struct {
		letter string
		rows   int
	}{{"A", 11}, {"L", 13}, {"T", 30}, {"C", 23}, {"S", 11}, {"X", 9}, {"B", 12}, {"P", 22}, {"G", 16}, {"O", 11}} {
		for n := range group.rows {
			ids = append(ids, fmt.Sprintf("%s%d", group.letter, n+1))
		}
	}
	return ids
}

// requirementRow is a row of docs/requirements.md: id, requirement, packages, proof.
type requirementRow struct{ id, requirement, packages, proof string }

func readRequirements(t *testing.T) []requirementRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("docs", "requirements.md"))
	require.NoError(t, err)
	var rows []requirementRow
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || !regexp.MustCompile(`^ [A-Z]\d+ $`).MatchString(cells[1]) {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, requirementRow{cells[1], cells[2], cells[3], cells[4]})
	}
	return rows
}

func TestRequirements_EveryID_IsListedOnceInOrder(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, row := range readRequirements(t) {
		require.NotEmpty(t, row.requirement, row.id)
		require.NotEmpty(t, row.packages, row.id)
		listed = append(listed, row.id)
	}
	require.Equal(t, requirementIDs(), listed)
}

func TestRequirements_NamedTests_Exist(t *testing.T) {
	t.Parallel()
	tests := testFunctions(t)
	named := regexp.MustCompile("`([\\w/]+)\\.((?:Test|Fuzz)\\w+)`")
	for _, row := range readRequirements(t) {
		proofs := named.FindAllStringSubmatch(row.proof, -1)
		if !strings.Contains(row.proof, "not built") && !strings.Contains(row.proof, "partly: ") {
			require.NotEmpty(t, proofs, "%s: name a test, or state what is missing", row.id)
		}
		for _, p := range proofs {
			require.Contains(t, tests, path.Join(p[1], p[2]), "%s names a test that does not exist; update docs/requirements.md", row.id)
		}
	}
}

// testFunctions returns the tests of all packages, as package path and name. Those of this package are under "berth".
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(file string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && file != "."):
			return filepath.SkipDir
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		if dir == "." {
			dir = "berth"
		}
		for _, decl := range parsed.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[path.Join(dir, fn.Name.Name)] = true
			}
		}
		return nil
	}))
	return found
}
