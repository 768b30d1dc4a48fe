package tests

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// O1, O2, O4, O7, O10: the demonstration of docs/openai.md in its short form: five programs of two teams, with a flood, lost replies, and a
// killed API process and worker. It exits with 1 if a line of its scoreboard is false.
func TestOpenAI_Demonstration_EveryLineIsTrue(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "../scripts/npm.sh", "examples/openai").CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 3 {
		t.Skipf("the programs need Node: %s", out)
	}
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "../bin/berth-demo", "-quick", "-root", "..").CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.NotContains(t, string(out), "FALSE")
	require.Regexp(t, `killed a process that had [1-9]\d* calls`, string(out))
	require.Equal(t, 14, strings.Count(string(out), "\nok "))
}
