package redis

import (
	"context"
	"log/slog"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// supervise runs the redis-server process until running ends, and restarts it after an unexpected exit. It sends the
// error of the first such exit to failed. It closes ended last.
func supervise(running context.Context, binary string, args []string, logger *slog.Logger, ended chan<- struct{}, failed chan<- error) {
	// The kernel kills the child when the thread that started it ends, so that thread must not be reused.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(ended)
	for {
		cmd := exec.CommandContext(running, binary, args...) //nolint:gosec // redis-server as PATH finds it
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopTimeout
		cmd.SysProcAttr = ownProcess()
		err := cmd.Run()
		if running.Err() != nil {
			return
		}
		select {
		case failed <- err:
		default:
		}
		logger.Warn("redis-server exited unexpectedly; restarting", "error", err)
		select {
		case <-running.Done():
			return
		case <-time.After(restartPause):
		}
	}
}
