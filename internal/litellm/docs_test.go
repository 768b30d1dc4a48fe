package litellm_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/litellm"
)

// The page shows a configuration, and what is made of it.
func TestDocs_Example_IsWhatTheCommandWrites(t *testing.T) { // O10
	t.Parallel()
	const page = "../../docs/providers.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)(## Moving from LiteLLM.*?`config.yaml`:\n\n```yaml\n)(.*?)(```\n\n`imported.yaml` is then:\n\n```yaml\n)(.*?)(```\n\nOn standard error:\n\n```\n)(.*?)(```\n)")
	parts := block.FindSubmatch(text)
	require.Len(t, parts, 8)
	result, err := litellm.Convert(parts[2])
	require.NoError(t, err)
	var notes strings.Builder
	for _, n := range result.Notes {
		fmt.Fprintf(&notes, "config.yaml:%d: %s: %s\n", n.Line, n.Path, n.Text)
	}
	if *update {
		made := string(parts[1]) + string(parts[2]) + string(parts[3]) + string(result.Routing) + string(parts[5]) + notes.String() + string(parts[7])
		require.NoError(t, os.WriteFile(page, []byte(strings.Replace(string(text), string(parts[0]), made, 1)), 0o600))
		return
	}
	require.Equal(t, string(parts[4]), string(result.Routing))
	require.Equal(t, string(parts[6]), notes.String())
}
