package berth_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/template"
)

// G7: the built-in templates are examples. Their names, and those of their variables that are no other words, are in no code.
func TestCode_NamesNoTemplate(t *testing.T) {
	t.Parallel()
	var words []string
	for _, one := range template.Builtin().Templates {
		if _, err := os.Stat(filepath.Join("templates", "career", string(one.Name))); err != nil {
			continue
		}
		words = append(words, string(one.Name))
		for _, v := range one.Variables {
			if strings.ToLower(v.Name) != v.Name {
				words = append(words, v.Name)
			}
		}
	}
	require.Contains(t, words, "job_match")
	require.Contains(t, words, "jobText")
	found := regexp.MustCompile(`(?i)\bcareer\b|\b(?:job )?posting\b|\b(?:` + strings.Join(words, "|") + `)\b`)
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains([]string{".git", "bin", "examples", "node_modules", "dist", "templates", "tests", "testdata"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		case strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".d.ts") || // generated from the descriptions of the API
			!slices.Contains([]string{".go", ".lua", ".sql", ".ts", ".svelte", ".css"}, filepath.Ext(path)):
			return nil
		}
		files++
		text, err := os.ReadFile(path) //nolint:gosec // the project's own files
		if at := found.FindIndex(text); at != nil {
			t.Errorf("%s:%d: %s", path, bytes.Count(text[:at[0]], []byte("\n"))+1, text[at[0]:at[1]])
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, files, 300)
}
