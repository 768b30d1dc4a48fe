package redis

import (
	"context"
	"log/slog"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// supervise owns the redis-server process until running ends: starts it, starts it again when it ends by
// itself, and stops it. failed takes the first end that nobody asked for. It closes ended last.
func supervise(running context.Context, binary string, args []string, logger *slog.Logger, ended chan<- struct{}, failed chan<- error) {
	// The system ends the child when the thread that started it ends, so the thread is ours alone.
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
		logger.Warn("redis-server ended by itself: starting it again", "error", err)
		select {
		case <-running.Done():
			return
		case <-time.After(restartPause):
		}
	}
}
