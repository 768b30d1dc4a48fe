package tests

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
)

// installExamples installs the packages of the programs in examples/openai.
func installExamples(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../scripts/npm.sh", "examples/openai").CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 3 {
		t.Skipf("the programs need Node: %s", out)
	}
	require.NoError(t, err, "%s", out)
}

// runExample starts a program with what users set.
func (d *durable) runExample(t *testing.T, settings []string, command ...string) *process {
	t.Helper()
	return d.run(command[0], command[1:], append([]string{"OPENAI_BASE_URL=http://" + d.httpAddr + "/openai/v1", "OPENAI_API_KEY=" + d.secret, "MODEL=m"}, settings...))
}

// jobs returns the commands of the recipe for jobs in the background, by language.
func jobs(t *testing.T) map[string][]string {
	t.Helper()
	installExamples(t)
	script, err := filepath.Abs("../examples/openai/job.mjs")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "job")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../examples/openai/job").CombinedOutput() //nolint:gosec // a program of this repository
	require.NoError(t, err, "%s", out)
	return map[string][]string{"Node": {"node", script}, "Go": {program}}
}

// jobFile is the file of a job.
type jobFile string

func (f jobFile) read() gjson.Result {
	b, _ := os.ReadFile(string(f)) // it may not exist yet
	return gjson.ParseBytes(b)
}

// forget returns a job to before its response was known, as if the program had crashed before it stored the id.
func (f jobFile) forget(t *testing.T) {
	t.Helper()
	state := map[string]json.RawMessage{} // the request stays as it was sent
	require.NoError(t, json.Unmarshal([]byte(f.read().Raw), &state))
	require.Contains(t, state, "id")
	delete(state, "id")
	delete(state, "status")
	state["after"], state["text"] = json.RawMessage("-1"), json.RawMessage(`""`)
	b, err := json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(string(f), b, 0o600))
}

// O8: the recipe for jobs continues with the response that replaces one whose worker died.
func TestExamples_WorkerOfJobKilled_ReplacementIsRead(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.replaces(t, 1000*berth.Credit)
	for language, command := range jobs(t) {
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		file := jobFile(filepath.Join(t.TempDir(), "job.json"))
		p := d.runExample(t, nil, append(command, string(file), "Hello")...)
		d.eventually(language+": the beginning", func() bool { return file.read().Get("text").Str == "The beginning" })
		first := file.read().Get("id").Str
		d.worker.kill()
		d.worker = d.startWorker()
		close(free)
		<-p.done
		require.True(t, p.cmd.ProcessState.Success(), "%s: %s", language, p.output())
		state := file.read()
		require.Equal(t, "The beginning and the end.", state.Get("text").Str)
		require.Equal(t, first, d.response(t, 200, "GET", "/"+state.Get("id").Str, "").Get("replaces").Str)
	}
	d.settled(t)
}

// O8: the recipe for jobs, as users run it. A job whose program is killed in mid-answer, while the API restarts and before the id was stored continues: it
// has the whole text once, and is bought once.
func TestExamples_JobKilled_ContinuesWhereItWas(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_HOLD=1ms")
	for language, command := range jobs(t) {
		before := d.provider.Calls.Load()
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		file := jobFile(filepath.Join(t.TempDir(), "job.json"))
		start := func() *process { return d.runExample(t, nil, append(command, string(file), "Hello")...) }
		ends := func(p *process, when string) string {
			<-p.done
			require.True(t, p.cmd.ProcessState.Success(), "%s, %s: %s", language, when, p.output())
			require.Contains(t, string(p.output()), "\nThe beginning and the end.\n", "%s, %s", language, when)
			state := file.read()
			require.Equal(t, "The beginning and the end.", state.Get("text").Str)
			return state.Get("id").Str
		}

		p := start()
		d.eventually(language+": the beginning", func() bool { return file.read().Get("text").Str == "The beginning" })
		p.kill()
		reached := file.read().Get("after").Int()
		p = start()
		d.awaitOutput(p, "continues after event "+strconv.FormatInt(reached, 10))
		d.api.kill()
		d.startAPI()
		close(free)
		id := ends(p, "after the crash")
		require.True(t, strings.HasPrefix(id, "resp_"), id)

		require.Equal(t, id, ends(start(), "it has ended"))
		file.forget(t)
		require.Equal(t, id, ends(start(), "its id was not stored"))
		require.EqualValues(t, 1, d.provider.Calls.Load()-before, language)
	}
	d.settled(t)
}
