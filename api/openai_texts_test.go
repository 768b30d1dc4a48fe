package api_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clientTexts are the files with texts that clients of OpenAI's protocol can read.
var clientTexts = []string{
	"../internal/openai/*.go", "../internal/gateway/*.go", "../internal/failover/*.go", "../internal/apikey/*.go", "../internal/lease/*.go",
	"../internal/llm/callerror.go", "../internal/llm/cause*.go", "../internal/llm/raw*.go", "../internal/llm/session.go", "../internal/llm/upstream.go",
	"../internal/ledger/call.go", "../internal/ledger/asset.go", "../internal/ledger/errors.go", "../internal/ledger/settle.go",
	"../internal/starter/task.go", "../internal/starter/starter.go", "../internal/starter/update.go",
	"../activities/errors.go", "../activities/step*.go", "../activities/task.go", "../activities/reconcile_task.go", "../workflows/task.go",
	"openai*.go", "problem.go",
}

// ofTasks are words of tasks, which are not those of a client that makes calls.
var ofTasks = regexp.MustCompile(`(?i)\b(tasks?|submit\w*|submission|steps?|template)\b`)

// unread are texts in these files that no such client reads: of tasks with a template, of bugs, and those that name both calls and tasks.
var unread = []string{
	"calls and tasks", "call or task", "task input has no id or no steps", "deadline of the task", "the task was cancelled",
	"this worker cannot read the template", "template %s has no step %s", "the input of the run is of task", "%s belongs to",
}

// What a client reads of an error is true for its call: the same texts are those of tasks.
func TestOpenAI_TextsOfErrors_TrueForCalls(t *testing.T) { // O5
	t.Parallel()
	read := 0
	for _, pattern := range clientTexts {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := gotoken.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && hidden(call) {
					return false
				}
				text, ok := n.(*ast.BasicLit)
				if !ok || text.Kind != gotoken.STRING || !strings.Contains(text.Value, " ") || strings.HasPrefix(text.Value, "`") {
					return true
				}
				read++
				if !slices.ContainsFunc(unread, func(s string) bool { return strings.Contains(text.Value, s) }) {
					assert.NotRegexp(t, ofTasks, text.Value, "%s", set.Position(text.Pos()))
				}
				return true
			})
		}
	}
	require.Greater(t, read, 200)
}

// hidden reports whether a call has texts for logs only, or the cause of an error, which is not shown.
func hidden(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return slices.Contains([]string{"list", "find", "collect", "listPage"}, ident(call.Fun)) // the operation, for logs
	}
	switch of := ident(f.X); f.Sel.Name {
	case "Errorf":
		return of == "fmt"
	case "New":
		return of == "errors"
	case "inTx", "TerminateRun":
		return true
	default:
		return regexp.MustCompile(`^(Debug|Info|Warn|Error|Log)(Context)?$`).MatchString(f.Sel.Name) && len(call.Args) > 0
	}
}

func ident(e ast.Expr) string {
	if i, ok := e.(*ast.Ident); ok {
		return i.Name
	}
	if i, ok := e.(*ast.IndexExpr); ok {
		return ident(i.X)
	}
	return ""
}
