package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/testclients"
	"berth/internal/testdocs"
)

// Official clients are used as they are published: each feature that a client has works.
func TestOpenAI_OfficialClients_EveryFeatureWorks(t *testing.T) { // O1, O5, O7, O10
	t.Parallel()
	noNode := testclients.Install(t)
	for _, client := range testclients.Calls.Clients {
		t.Run(client.Name, func(t *testing.T) {
			t.Parallel()
			m := newModels(t, []int{4})
			m.providers[0].Answer(testclients.Provider())
			testclients.Calls.Try(t, client, noNode, m.base, m.secret)
			require.Eventually(t, func() bool { return m.count("calls") == 0 }, 10*time.Second, 20*time.Millisecond, "a call was not settled")
		})
	}
}

func TestOpenAI_DocsOfClients_HaveTheTables(t *testing.T) { // O10
	t.Parallel()
	for block, suite := range map[string]testclients.Suite{"clients": testclients.Calls, "clients of responses": testclients.Responses} {
		var b strings.Builder
		head, line, versions := "|", "| ---", "| version"
		for _, c := range suite.Clients {
			head += " | `" + c.Name + "`"
			line += " | ---"
			versions += " | " + clientVersion(t, c.Name)
		}
		fmt.Fprintf(&b, "%s |\n%s |\n%s |\n", head, line, versions)
		for _, feature := range suite.Features {
			fmt.Fprintf(&b, "| %s", feature)
			for _, c := range suite.Clients {
				if slices.Contains(c.Lacks, feature) {
					b.WriteString(" | –")
				} else {
					b.WriteString(" | yes")
				}
			}
			b.WriteString(" |\n")
		}
		testdocs.RequireBlock(t, "../docs/openai.md", block, b.String(), *update)
	}
}

// clientVersion returns the version of a client that the tests use.
func clientVersion(t *testing.T, name string) string {
	t.Helper()
	if name == "openai-go" {
		mod, err := os.ReadFile("../go.mod")
		require.NoError(t, err)
		found := regexp.MustCompile(`openai/openai-go/v\d+ v(\S+)`).FindSubmatch(mod)
		require.NotNil(t, found)
		return string(found[1])
	}
	text, err := os.ReadFile(testclients.Programs + "/package.json")
	require.NoError(t, err)
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	require.NoError(t, json.Unmarshal(text, &manifest))
	require.Contains(t, manifest.Dependencies, name)
	return manifest.Dependencies[name]
}
