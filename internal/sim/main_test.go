package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The simulator knows the request alone: no template, no document and no subject by its name.
func TestSources_Words_AreOfNoDomain(t *testing.T) {
	t.Parallel()
	known := regexp.MustCompile(`(?i)resume|résumé|posting|job_|career|skill|ticket|contract|简历|职位|"berth"|"berth/internal/(?:llm|template)`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	texts, err := filepath.Glob("answers/*")
	require.NoError(t, err)
	require.Len(t, texts, 2)
	for _, name := range append(files, texts...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Empty(t, known.FindString(string(text)), name)
	}
}
