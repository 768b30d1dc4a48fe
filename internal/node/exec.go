package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"berth"
)

const (
	// exitInvalid is sysexits.h's EX_DATAERR: the input is wrong, and no other node would do better with it.
	exitInvalid = 65
	// stderrKept is how much of the end of a command's standard error is kept, messageBytes how much of its last line
	// is told.
	stderrKept   = 4 << 10
	messageBytes = 300
	// afterKill is how long the pipes of a command that has ended are waited for.
	afterKill = time.Second
)

// Exec is a driver that runs a command per job with `sh -c`, in a process group of its own: text in on standard input,
// text out on standard output. Exit status 65 is an invalid input, any other but 0 a failure, told by the last line of
// standard error. When the job ends early, the whole group is killed.
type Exec struct {
	command string
	env     []string
}

// ExecFlags configure the exec driver.
type ExecFlags struct {
	Exec string `help:"exec: command per job, run by sh -c; reads the text from standard input and writes the translation to standard output." placeholder:"COMMAND"`
}

// secretSettings are the environment variables that commands must not see.
var secretSettings = []string{"BERTH_TOKEN=", "BERTH_NODE_HTTP_KEY=", "BERTH_AUTH_SECRET="}

func newExecDriver(c driverContext) (Driver, error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(secretSettings, func(s string) bool { return strings.HasPrefix(v, s) })
	})
	d, err := NewExec(c.Exec, append(env, "BERTH_NODE_ID="+c.spec.ID))
	if err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	return d, nil
}

// NewExec makes the driver. env is the commands' environment, as "NAME=value"; what a command should not see, such as
// tokens, is left out by the caller.
func NewExec(command string, env []string) (*Exec, error) {
	if strings.TrimSpace(command) == "" {
		return nil, errors.New("the exec driver needs a command")
	}
	return &Exec{command: command, env: slices.Clip(slices.Clone(env))}, nil
}

// Translate has the command translate the segment. The line break at the end of the input is ours, those at the end of
// the output are dropped, as a shell's $(…) does.
func (e *Exec) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	// Beyond the text's own bound there may be the line breaks that are dropped.
	out, err := e.run(ctx, []byte(in.Text+"\n"), berth.MaxSegmentBytes+2, map[string]string{
		"BERTH_SESSION_ID": in.SessionID, "BERTH_TURN_ID": in.TurnID, "BERTH_JOB_ID": in.JobID,
		"BERTH_DISPATCH": strconv.Itoa(in.Dispatch), "BERTH_INDEX": strconv.Itoa(in.Index), "BERTH_SPEAKER_ID": in.SpeakerID,
		"BERTH_SRC_LANG": in.SrcLang, "BERTH_TGT_LANG": in.TgtLang,
	})
	if err != nil {
		return berth.JobOutput{}, err
	}
	if !utf8.Valid(out) {
		return berth.JobOutput{}, berth.Errorf(berth.CodeNodeFailed, "the command's output is not UTF-8")
	}
	return berth.JobOutput{Text: strings.TrimRight(string(out), "\r\n")}, nil
}

// Execute has the command run the executor: JSON in, JSON or nothing out.
func (e *Exec) Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	input := in.Input
	if len(input) == 0 {
		input = json.RawMessage("null")
	}
	out, err := e.run(ctx, append(bytes.Clone(input), '\n'), berth.MaxExecutionBytes+2, map[string]string{
		"BERTH_EXECUTION_ID": in.ExecutionID, "BERTH_EXECUTOR": in.Executor, "BERTH_ATTEMPT": strconv.Itoa(in.Attempt),
	})
	if err != nil {
		return berth.ExecuteOutput{}, err
	}
	out = bytes.TrimSpace(out)
	if len(out) > 0 && !json.Valid(out) {
		return berth.ExecuteOutput{}, berth.Errorf(berth.CodeNodeFailed, "the command's output is not JSON")
	}
	return berth.ExecuteOutput{Output: out}, nil
}

var errTooMuchOutput = errors.New("too much output")

func (e *Exec) run(ctx context.Context, stdin []byte, most int, vars map[string]string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", e.command) //nolint:gosec // the operator's own command; what comes from jobs is in variables and on standard input
	cmd.Env = e.env
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		cmd.Env = append(cmd.Env, name+"="+strings.ReplaceAll(vars[name], "\x00", ""))
	}
	out := &bounded{most: most, over: func() { cancel(errTooMuchOutput) }}
	last := &tail{most: stderrKept}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), out, last
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = afterKill
	err := cmd.Run()
	switch {
	case errors.Is(context.Cause(ctx), errTooMuchOutput):
		return nil, berth.Errorf(berth.CodeNodeFailed, "the command's output is over %d bytes", most-2)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run command: %w", ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		// It has ended and something it started has not: its output may be half of it.
		_ = killGroup(cmd.Process.Pid) // the failure is told either way
		return nil, berth.Errorf(berth.CodeNodeFailed, "the command left a process behind that holds its output")
	case err != nil:
		return nil, failure(err, last.line())
	}
	return out.kept, nil
}

// killGroup ends a process and all of its group.
func killGroup(leader int) error {
	if err := syscall.Kill(-leader, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

// failure words why a command failed, by the last line of its standard error.
func failure(err error, line string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return berth.Errorf(berth.CodeNodeFailed, "the command could not be run").With(err)
	}
	if line == "" {
		line = "the command ended with " + exit.Error()
	}
	if exit.ExitCode() == exitInvalid {
		return berth.Errorf(berth.CodeInvalid, "%s", line)
	}
	return berth.Errorf(berth.CodeNodeFailed, "%s", line).With(exit)
}

// bounded keeps what is written up to a bound, and tells when there is more.
type bounded struct {
	kept []byte
	most int
	over func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > b.most {
		b.over()
	} else {
		b.kept = append(b.kept, p...)
	}
	return len(p), nil // a command that is being killed need not see a broken pipe first
}

// tail keeps the end of what is written.
type tail struct {
	kept []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - t.most; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// line is the last line that is not empty, fit for a message.
func (t *tail) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), ""))
	return shown(text[strings.LastIndexByte(text, '\n')+1:])
}

// shown makes words of others fit for a message: short, printable, on one line.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if len(s) > messageBytes {
		s = strings.ToValidUTF8(s[:messageBytes], "") + "…"
	}
	return s
}
