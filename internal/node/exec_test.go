package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func command(t *testing.T, line string, env ...string) *Exec {
	t.Helper()
	d, err := NewExec(line, append([]string{"PATH=" + os.Getenv("PATH")}, env...)) //nolint:forbidigo // the test's commands need it
	require.NoError(t, err)
	return d
}

var segment = berth.JobInput{
	Job:  berth.Job{SessionID: "s1", TurnID: "t1", JobID: "t1-0", Dispatch: 2, Index: 0, SpeakerID: "anna", SrcLang: "en", TgtLang: "es"},
	Text: "hello",
}

func TestExec_Translate_ReturnsTheCommandsOutput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, text, want string }{
		"the input":                    {`cat`, "hello", "hello"},
		"a pipe":                       {`tr a-z A-Z | sed 's/^/> /'`, "hello", "> HELLO"},
		"an empty line":                {`cat`, "", ""},
		"unicode":                      {`cat`, "¿Qué? 船到了泊位。 🚢 ß", "¿Qué? 船到了泊位。 🚢 ß"},
		"lines":                        {`cat`, "one\ntwo\n", "one\ntwo"},
		"its variables":                {`cat >/dev/null; echo "$BERTH_SRC_LANG>$BERTH_TGT_LANG $BERTH_JOB_ID $BERTH_TURN_ID $BERTH_SESSION_ID $BERTH_DISPATCH $BERTH_INDEX $BERTH_SPEAKER_ID $MINE"`, "x", "en>es t1-0 t1 s1 2 0 anna own"},
		"a command that reads nothing": {`echo done`, strings.Repeat("x", berth.MaxSegmentBytes), "done"},
		"no shell in the text":         {`cat`, `$(touch hacked); "'`, `$(touch hacked); "'`},
		"output at the limit":          {`cat`, strings.Repeat("é", berth.MaxTranslationBytes/2), strings.Repeat("é", berth.MaxTranslationBytes/2)},
		"standard error is not output": {`cat; echo warning >&2`, "hello", "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := segment
			in.Text = c.text
			out, err := command(t, c.line, "MINE=own").Translate(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, c.want, out.Text)
		})
	}
}

func TestExec_CommandFails_ErrorHasCodeAndMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line    string
		code    berth.Code
		message string
	}{
		"the last line of standard error":       {`echo first >&2; echo 'no dictionary for it' >&2; echo >&2; exit 3`, berth.CodeNodeFailed, "no dictionary for it"},
		"nothing on standard error":             {`exit 3`, berth.CodeNodeFailed, "the command failed: exit status 3"},
		"a signal":                              {`kill -TERM $$`, berth.CodeNodeFailed, "the command failed: signal: terminated"},
		"an invalid input":                      {`echo 'not a sentence' >&2; exit 65`, berth.CodeInvalid, "not a sentence"},
		"no output":                             {`cat >/dev/null`, berth.CodeNodeFailed, "printed nothing"},
		"no such command":                       {`/no/such/command`, berth.CodeNodeFailed, "not found"},
		"output that is not text":               {`printf '\377\376'`, berth.CodeNodeFailed, "not UTF-8"},
		"output beyond the limit":               {`head -c 270000 /dev/zero | tr '\0' x`, berth.CodeTooLarge, "limit of 262144 bytes"},
		"endless output":                        {`yes`, berth.CodeTooLarge, "limit of 262144 bytes"},
		"a process left behind":                 {`cat; sleep 600 &`, berth.CodeNodeFailed, "holds its output open"},
		"unprintable characters in the message": {`printf 'a\033[31mb\tc' >&2; exit 1`, berth.CodeNodeFailed, "a[31mb c"},
		"much on standard error":                {`yes 'a long complaint' | head -c 1000000 >&2; printf '\nthe end' >&2; exit 1`, berth.CodeNodeFailed, "the end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := command(t, c.line).Translate(t.Context(), segment)
			require.Equal(t, c.code, berth.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, c.message)
			require.Empty(t, out.Text)
		})
	}
}

func TestExec_JobCancelled_KillsTheProcessGroup(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	// A child, a grandchild in the background, and a shell that ignores SIGTERM.
	d := command(t, fmt.Sprintf(`trap '' TERM; (sleep 601 & echo $! >>%[1]s; wait) & sleep 602 & echo $! >>%[1]s; echo $$ >>%[1]s; wait`, pids))
	go func() {
		_, err := d.Translate(ctx, segment)
		done <- err
	}()
	var running []int
	require.Eventually(t, func() bool { running = readPIDs(pids); return len(running) == 3 }, 20*time.Second, 5*time.Millisecond)
	for _, pid := range running {
		require.True(t, alive(pid))
	}
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(20 * time.Second):
		t.Fatal("the command outlived its job")
	}
	for _, pid := range running {
		require.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 5*time.Millisecond)
	}
}

func TestExec_DeadlineExceeded_Returns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := command(t, `sleep 600`).Translate(ctx, segment)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestExec_Execute_PassesJSON(t *testing.T) {
	t.Parallel()
	in := berth.ExecuteInput{UserID: "alice", ExecutionID: "e1", Executor: "report", Attempt: 3, Input: json.RawMessage(`{"a":[1,"ü"]}`)}
	out, err := command(t, `printf '{"in":'; cat; printf ',"as":"%s %s %s %s"}' "$BERTH_EXECUTOR" "$BERTH_USER_ID" "$BERTH_EXECUTION_ID" "$BERTH_ATTEMPT"`).Execute(t.Context(), in)
	require.NoError(t, err)
	require.JSONEq(t, `{"in":{"a":[1,"ü"]},"as":"report alice e1 3"}`, string(out.Output))

	in.Input = nil
	out, err = command(t, `cat`).Execute(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "null", string(out.Output))

	out, err = command(t, `true`).Execute(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, out.Output)

	_, err = command(t, `echo no json`).Execute(t.Context(), in)
	require.Equal(t, berth.CodeNodeFailed, berth.CodeOf(err))

	_, err = command(t, `head -c 300000 /dev/zero | tr '\0' 1`).Execute(t.Context(), in)
	require.ErrorContains(t, err, "limit of 262144 bytes")
}

func TestNewExec_NoCommand_Fails(t *testing.T) {
	t.Parallel()
	_, err := NewExec("  ", nil)
	require.Error(t, err)
}

func readPIDs(file string) (out []int) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for _, line := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(line); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}
