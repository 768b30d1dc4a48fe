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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"berth"
	"berth/internal/process"
)

const (
	// exitInvalid is EX_DATAERR of sysexits.h: the input is invalid, so that no other node could do better.
	exitInvalid = 65
	// exitBusy is EX_TEMPFAIL: the command cannot do the work at present.
	exitBusy = 75
	// stderrKept is how much of the end of a command's standard error is kept, messageBytes the maximum length of a
	// message made from it.
	stderrKept   = 4 << 10
	messageBytes = 300
	// afterKill is how long to wait for the pipes of a command that has ended.
	afterKill = time.Second
)

// Exec is a driver that runs a command per job with `sh -c`, in its own process group: it reads the text from standard
// input and writes the result to standard output. Exit status 65 is an invalid input, 75 means busy, any other status except 0 is a failure;
// the last line of standard error is the message. When the job ends early, the whole group is killed.
type Exec struct {
	command string
	env     []string
}

// ExecFlags configure the exec driver.
type ExecFlags struct {
	Exec    string   `help:"exec: command per job, run by sh -c; reads the text from standard input and writes the translation to standard output." placeholder:"COMMAND"`
	ExecEnv []string `help:"exec: pass these variables of the agent's environment to commands, too; a name may end with *." placeholder:"NAME" env:"BERTH_NODE_EXEC_ENV"`
}

func newExecDriver(c driverContext) (Driver, error) {
	env, err := allowedEnv(os.Environ(), c.ExecEnv) //nolint:forbidigo // the command inherits a part of the environment
	if err != nil {
		return nil, fmt.Errorf("--exec-env: %w", err)
	}
	if err := findProgram(c.Exec); err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	d, err := NewExec(c.Exec, append(env, "BERTH_NODE_ID="+c.spec.ID))
	if err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	return d, nil
}

// findProgram returns an error for a command whose program does not exist. Words that only a shell understands, its own commands and
// variables are left to the shell.
func findProgram(command string) error {
	words := strings.Fields(command)
	if len(words) == 0 || !plainWord.MatchString(words[0]) {
		return nil
	}
	if _, err := exec.LookPath(words[0]); err == nil {
		return nil
	}
	if !strings.Contains(words[0], "/") && exec.CommandContext(context.Background(), "/bin/sh", "-c", "command -v "+words[0]).Run() == nil { //nolint:gosec // a name
		return nil // the shell's own
	}
	return fmt.Errorf("the program %s is not found, or not executable; set its path, or install it", words[0])
}

// plainWord is the name or the path of a program without anything that a shell replaces.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./+-]+$`)

// NewExec returns the driver. env is the commands' environment as "NAME=value"; the caller leaves out secrets.
func NewExec(command string, env []string) (*Exec, error) {
	if strings.TrimSpace(command) == "" {
		return nil, errors.New("the exec driver needs a command")
	}
	return &Exec{command: command, env: slices.Clip(slices.Clone(env))}, nil
}

// Translate runs the command on a segment. It adds a line break to the input and removes those at the end of the output,
// like a shell's $(…).
func (e *Exec) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	// The removed line breaks may exceed the text's limit.
	out, err := e.run(ctx, []byte(in.Text+"\n"), berth.MaxTranslationBytes+2, map[string]string{
		"BERTH_SESSION_ID": in.SessionID, "BERTH_TURN_ID": in.TurnID, "BERTH_JOB_ID": in.JobID,
		"BERTH_DISPATCH": strconv.Itoa(in.Dispatch), "BERTH_INDEX": strconv.Itoa(in.Index), "BERTH_SPEAKER_ID": in.SpeakerID,
		"BERTH_SRC_LANG": in.SrcLang, "BERTH_TGT_LANG": in.TgtLang,
	})
	if err != nil {
		return berth.JobOutput{}, err
	}
	if len(out) == 0 {
		return berth.JobOutput{}, berth.Errorf(berth.CodeNodeFailed, "the command printed nothing; it prints an empty line for an empty translation")
	}
	if !utf8.Valid(out) {
		return berth.JobOutput{}, berth.Errorf(berth.CodeNodeFailed, "the command's output is not UTF-8")
	}
	return berth.JobOutput{Text: strings.TrimRight(string(out), "\r\n")}, nil
}

// Execute runs the command as an executor: JSON on standard input, JSON or nothing on standard output.
func (e *Exec) Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	input := in.Input
	if len(input) == 0 {
		input = json.RawMessage("null")
	}
	out, err := e.run(ctx, append(bytes.Clone(input), '\n'), berth.MaxExecutionBytes+2, map[string]string{
		"BERTH_USER_ID": in.UserID, "BERTH_EXECUTION_ID": in.ExecutionID, "BERTH_EXECUTOR": in.Executor, "BERTH_ATTEMPT": strconv.Itoa(in.Attempt),
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

var errTooMuchOutput = errors.New("output limit exceeded")

func (e *Exec) run(ctx context.Context, stdin []byte, limit int, vars map[string]string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", e.command) //nolint:gosec // configured by the operator; job data goes only into variables and standard input
	cmd.Env = e.env
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		cmd.Env = append(cmd.Env, name+"="+strings.ReplaceAll(vars[name], "\x00", ""))
	}
	out := &bounded{limit: limit, exceeded: func() { cancel(errTooMuchOutput) }}
	last := &tail{limit: stderrKept}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), out, last
	// In its own process group, a command can be killed together with everything it starts, and a terminal's Ctrl-C does
	// not reach it while the node drains.
	cmd.SysProcAttr = process.EndWithParent(&syscall.SysProcAttr{Setpgid: true})
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = afterKill
	err := cmd.Run()
	switch {
	case errors.Is(context.Cause(ctx), errTooMuchOutput):
		return nil, berth.Errorf(berth.CodeTooLarge, "the command's output exceeds the limit of %d bytes", limit-2)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run command: %w", ctx.Err())
	case errors.Is(err, exec.ErrWaitDelay):
		// The command has ended but a process it started has not: the output may be incomplete.
		_ = killGroup(cmd.Process.Pid) // the job fails either way
		return nil, berth.Errorf(berth.CodeNodeFailed, "a process started by the command still holds its output open")
	case err != nil:
		return nil, failure(err, last.line())
	}
	return out.kept, nil
}

// killGroup kills a process group.
func killGroup(leader int) error {
	if err := syscall.Kill(-leader, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

// failure converts the error of a command, with the last line of its standard error as message.
func failure(err error, line string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return berth.Errorf(berth.CodeNodeFailed, "the command could not be started").With(err)
	}
	if line == "" {
		line = "the command failed: " + exit.Error()
	}
	switch exit.ExitCode() {
	case exitInvalid:
		return berth.Errorf(berth.CodeInvalid, "%s", line)
	case exitBusy:
		return &busy{message: line}
	}
	return berth.Errorf(berth.CodeNodeFailed, "%s", line).With(exit)
}

// bounded keeps what is written up to a limit and calls exceeded beyond it.
type bounded struct {
	kept     []byte
	limit    int
	exceeded func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.kept)+len(p) > b.limit {
		b.exceeded()
	} else {
		b.kept = append(b.kept, p...)
	}
	return len(p), nil // the command is killed; it need not see a broken pipe before
}

// tail keeps the end of what is written.
type tail struct {
	kept  []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - t.limit; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(p), nil
}

// line returns the last line that is not empty.
func (t *tail) line() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), ""))
	return printable(text[strings.LastIndexByte(text, '\n')+1:])
}

// printable makes foreign text fit for a message: short, printable, on one line.
func printable(s string) string {
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
