package redis

import (
	"context"
	"log/slog"
	"os/exec"
	"runtime"
	"syscall"

	"berth/internal/pause"
	"berth/internal/process"
)

// supervise runs the redis-server process until running ends, and restarts it after an unexpected exit. It sends the
// error of each such exit to failed. It closes ended last.
func supervise(running context.Context, binary string, args []string, logger *slog.Logger, ended chan<- struct{}, failed func(error)) {
	// The kernel kills the child when the thread that started it ends, so that thread must not be reused.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(ended)
	for {
		cmd := exec.CommandContext(running, binary, args...) //nolint:gosec // redis-server as PATH finds it
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopTimeout
		// In its own process group, a terminal's Ctrl-C does not reach the child, so that it is stopped after its users. When
		// it is killed with this process, what it acknowledged is in the append-only file.
		cmd.SysProcAttr = process.EndWithParent(&syscall.SysProcAttr{Setpgid: true})
		err := cmd.Run()
		if running.Err() != nil {
			return
		}
		failed(err)
		logger.Warn("redis-server exited unexpectedly; restarting", "error", err)
		if !pause.For(running, restartPause) {
			return
		}
	}
}
