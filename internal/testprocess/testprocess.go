// Package testprocess runs server processes for tests.
package testprocess

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"berth/internal/pause"
	"berth/internal/process"
)

// Process is a server that a test can kill, start again and suspend. It ends with the test.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	out  bytes.Buffer
}

// New returns the process of the server with that name, which does not run yet.
func New(tb testing.TB, name string) *Process {
	p := &Process{tb: tb, name: name}
	tb.Cleanup(p.Kill)
	return p
}

// Start kills a running process, starts cmd, and returns when ready returns nil. It fails the test, with the server's
// output, if that takes longer than within.
func (p *Process) Start(cmd *exec.Cmd, within time.Duration, ready func(context.Context) error) {
	p.tb.Helper()
	p.Kill()
	p.out.Reset()
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = process.EndWithParent(&syscall.SysProcAttr{})
	if err := cmd.Start(); err != nil {
		p.tb.Fatalf("start %s: %v", p.name, err)
	}
	p.cmd = cmd
	if err := pause.Until(context.Background(), within, 10*time.Millisecond, ready); err != nil {
		p.Kill() // completes its output
		p.tb.Fatalf("%s did not start: %v: %s", p.name, err, p.out.String())
	}
}

// PID returns the process id, 0 if no process runs.
func (p *Process) PID() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kill ends the process with SIGKILL, if it runs.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have exited already
	_ = p.cmd.Wait()
	p.cmd = nil
}

// Pause suspends the process: connections stay open and get no replies, until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("signal %s: %v", p.name, err)
	}
}
