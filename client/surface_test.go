package client

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs of other modules cannot name types of internal packages.
func TestClient_ExportedDeclarations_NameNoInternalTypes(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	declared := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		internal := map[string]bool{} // names of imported packages
		for _, i := range file.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			internal[path.Base(name)] = strings.Contains(name, "/internal/")
		}
		check := func(n ast.Node) {
			declared++
			ast.Inspect(n, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok {
						require.False(t, internal[pkg.Name], "%s: %s.%s", files.Position(s.Pos()), pkg.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					check(d.Type)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
						check(s.Type)
					}
				}
			}
		}
	}
	require.Greater(t, declared, 50)
}
