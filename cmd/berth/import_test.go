package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/llm"
)

const liteLLM = `model_list:
  - model_name: gpt-4o
    litellm_params: {model: azure/gpt-4o, api_base: "https://eu.openai.azure.com", api_key: os.environ/AZURE_EU_KEY, max_parallel_requests: 20}
    model_info: {max_output_tokens: 16384, input_cost_per_token: 2.5e-06}
general_settings: {master_key: sk-a-secret}
`

func TestImportLiteLLM_File_WritesRoutingAndNotes(t *testing.T) { // O10
	t.Parallel()
	dir := t.TempDir()
	file, output := write(t, dir, "config.yaml", liteLLM), filepath.Join(dir, "models.yaml")
	var out, info, none bytes.Buffer
	require.NoError(t, (&importLiteLLM{File: file}).run(&out, &info))
	require.Equal(t, "config.yaml:1: model_list: budgets count credits: a dollar is written as 1000 credits, by the most expensive upstream of a model\n"+
		"config.yaml:5: general_settings.master_key: not carried: a secret, and berth has keys, teams and tokens of its own: docs/operations.md\n"+
		"· models: 1, upstreams: 1, notes: 2\n· BERTH_PROVIDER_KEYS needs AZURE_EU_KEY\n", info.String())
	require.NoError(t, (&importLiteLLM{File: file, Output: output}).run(&none, &info))
	require.Empty(t, none.String())
	written, err := os.ReadFile(output)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(written))
	cfg, err := llm.LoadConfig(output)
	require.NoError(t, err)
	require.Equal(t, 20, cfg.Models["gpt-4o"].Cap.Calls)
	require.ErrorContains(t, (&importLiteLLM{File: file, Output: output}).run(&none, &info), "file exists", "another file is not replaced")
}

func TestImportLiteLLM_NotYAML_ErrorNamesFileAndLine(t *testing.T) { // O10
	t.Parallel()
	file := write(t, t.TempDir(), "config.yaml", "model_list:\n\t- a\n")
	var out, info bytes.Buffer
	err := (&importLiteLLM{File: file}).run(&out, &info)
	require.ErrorContains(t, err, "config.yaml: line 2 is indented with a tab")
	require.Equal(t, statusWrong, statusOf(err))
	require.Empty(t, out.String())
	require.ErrorContains(t, (&importLiteLLM{File: file + ".missing"}).run(&out, &info), "no such file")
}

func TestImportLiteLLM_NothingToCarry_NotesAndError(t *testing.T) { // O10
	t.Parallel()
	for text, note := range map[string]string{
		"model_list: []": "config.yaml:1: model_list: no model was carried",
		"model_list:\n- {model_name: m, litellm_params: {model: bedrock/x}}": "config.yaml:2: model_list[0]: not carried: the model m: bedrock does not speak",
	} {
		var out, info bytes.Buffer
		err := (&importLiteLLM{File: write(t, t.TempDir(), "config.yaml", text)}).run(&out, &info)
		require.EqualError(t, err, "config.yaml: no model can be carried: see the notes")
		require.Equal(t, statusWrong, statusOf(err))
		require.Contains(t, info.String(), note)
		require.Empty(t, out.String())
	}
}

func TestImportLiteLLM_StandardInput_Read(t *testing.T) { // O10
	t.Parallel()
	if os.Getenv("BERTH_TEST_CHILD") != "" {
		require.NoError(t, (&importLiteLLM{File: "-"}).Run())
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:gosec // this program
	child.Env, child.Stdin = append(os.Environ(), "BERTH_TEST_CHILD=1"), strings.NewReader(liteLLM)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "standard input:5: general_settings.master_key: not carried")
	require.Contains(t, string(out), "gpt-4o: {provider: azure")
}
