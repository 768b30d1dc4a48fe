package litellm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"berth/internal/litellm"
	"berth/internal/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the converted configurations of testdata")

// Each configuration of testdata has the routing file that is made of it, and the notes. A new one is written by -update.
func TestConvert_Configurations_RoutingFileAndNotes(t *testing.T) { // O10
	t.Parallel()
	files, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	converted := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".want") {
			continue
		}
		converted++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			result, err := litellm.Convert(src)
			require.NoError(t, err)
			got := string(result.Routing) + "---\n"
			for _, n := range result.Notes {
				got += fmt.Sprintf("%d: %s: %s\n", n.Line, n.Path, n.Text)
			}
			got += "keys: " + strings.Join(result.Keys, " ") + "\n"
			for _, secret := range []string{"-secret", "hunter2", "sk-1234", "12345678"} {
				require.NotContains(t, got, secret)
			}
			want := file + ".want"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o600))
			}
			golden, err := os.ReadFile(want)
			require.NoError(t, err)
			require.Equal(t, string(golden), got)

			routing := filepath.Join(t.TempDir(), "models.yaml")
			require.NoError(t, os.WriteFile(routing, result.Routing, 0o600))
			cfg, err := llm.LoadConfig(routing)
			require.NoError(t, err, "berth reads it")
			require.Len(t, cfg.Models, result.Models)
			_, err = llm.NewCatalog(cfg, llm.Settings{})
			require.NoError(t, err)
		})
	}
	require.GreaterOrEqual(t, converted, 12)
}

func TestConvert_NotAConfiguration_ErrorSaysWhy(t *testing.T) { // O10
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "empty file",
		"- a":                          "must have model_list",
		"a: 1":                         "must have model_list",
		"model_list: {a: 1}":           "line 1: model_list is not a list",
		"a: 1\nmodel_list: gpt":        "line 2: model_list is not a list",
		"a: 1\nmodel_lists: [b]":       "line 2: model_lists is not a field of LiteLLM: did you mean model_list?",
		"ModelList: []":                "line 1: ModelList is not a field of LiteLLM: did you mean model_list?",
		"include: [a.yaml]":            "line 1: the models are in files that include names",
		"model_list:":                  "",
		"text":                         "must have model_list",
		"model_list:\n\t- a":           "line 2",
		"model_list:\n  - model_name:": "",
		"model_list: *":                "alphabetic",
		"a: 1\n---\nb: 2":              "more than one document",
	} {
		_, err := litellm.Convert([]byte(text))
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}

// Whatever an entry has, the result is a routing file.
func TestConvert_AnyEntries_ResultIsARoutingFile(t *testing.T) { // O10
	t.Parallel()
	text := rapid.SampledFrom([]string{
		"", "~", "a", "gpt-4", "a/b", "A b", "é", "'-'", "0", "1", "3.7", "-1", "1e9", "1e-7", "true", "[]", "{}", "[1, 2]", "{a: 1}", "os.environ/NAME", "os.environ/nome",
		"openai/gpt-4", "azure/x", "ollama/x", "groq/y", "https://x.example/v1", "http://h:1", "https://x.example/openai/deployments/d?api-version=1", "embedding", "x.-_", ".", strings.Repeat("n", 200),
	})
	params := []string{"model", "custom_llm_provider", "api_base", "api_key", "rpm", "tpm", "max_parallel_requests", "order", "timeout", "stream_timeout", "max_tokens", "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "other"}
	infos := []string{"id", "mode", "max_tokens", "max_input_tokens", "max_output_tokens", "input_cost_per_token"}
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("model_list:\n")
		for range rapid.IntRange(0, 4).Draw(t, "entries") {
			fmt.Fprintf(&b, "- model_name: %s\n  litellm_params:\n    model: openai/gpt-4\n", text.Draw(t, "name"))
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(params[1:]), rapid.ID[string]).Draw(t, "params") {
				fmt.Fprintf(&b, "    %s: %s\n", name, text.Draw(t, name))
			}
			b.WriteString("  model_info:\n    x: 1\n")
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(infos), rapid.ID[string]).Draw(t, "infos") {
				fmt.Fprintf(&b, "    %s: %s\n", name, text.Draw(t, name))
			}
		}
		fmt.Fprintf(&b, "router_settings:\n  timeout: %s\n  default_max_parallel_requests: %s\n  model_group_alias:\n    al: %s\n    gpt-4: gpt-4\n    %q: a/b\n",
			text.Draw(t, "timeout"), text.Draw(t, "parallel"), text.Draw(t, "alias"), text.Draw(t, "alias name"))
		result, err := litellm.Convert([]byte(b.String()))
		require.NoError(t, err, b.String())
		_, err = llm.ParseContent("models.yaml", string(result.Routing))
		require.NoError(t, err, "%s\n%s", b.String(), result.Routing)
	})
}
