// Package child runs server processes that end with this one.
package child

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"berth/internal/pause"
	"berth/internal/process"
)

// Process is a server's program.
type Process struct {
	// Name is for the log.
	Name, Binary string
	Args         []string
	// StopWithin is the time in which the process may end after SIGTERM before it is killed.
	StopWithin time.Duration
	// RestartAfter is the time between an unexpected exit and the restart.
	RestartAfter time.Duration
	// Log receives the output; nil discards it.
	Log    *os.File
	Logger *slog.Logger
}

// Supervise runs the process until running ends, and restarts it after an unexpected exit. It sends the error of each such
// exit to failed. It closes ended last.
func Supervise(running context.Context, p Process, ended chan<- struct{}, failed func(error)) {
	// The kernel kills the child when the thread that started it ends, so that thread must not be reused.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(ended)
	for {
		cmd := exec.CommandContext(running, p.Binary, p.Args...) //nolint:gosec // a program of this machine
		if p.Log != nil {
			cmd.Stdout, cmd.Stderr = p.Log, p.Log
		}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = p.StopWithin
		// In its own process group, a terminal's Ctrl-C does not reach the child, so that it is stopped after its users. It is
		// killed with this process.
		cmd.SysProcAttr = process.EndWithParent(&syscall.SysProcAttr{Setpgid: true})
		err := cmd.Run()
		if running.Err() != nil {
			return
		}
		failed(err)
		p.Logger.Warn("child process exited unexpectedly; restarting", "process", p.Name, "error", err)
		if !pause.For(running, p.RestartAfter) {
			return
		}
	}
}
