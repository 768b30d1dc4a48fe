package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"berth/internal/freeport"
	"berth/internal/process"
)

// child is a process that a benchmark starts.
type child struct{ cmd *exec.Cmd }

// started has the ids of all processes that this one started.
var started sync.Map

// startChild starts a program. Its environment is this process's with env added.
func startChild(ctx context.Context, program string, env []string, args ...string) (c child, err error) {
	c.cmd = exec.CommandContext(ctx, program, args...) //nolint:gosec // berth, or this program itself
	c.cmd.Env = append(c.cmd.Environ(), env...)
	c.cmd.Stderr, c.cmd.SysProcAttr = os.Stderr, process.EndWithParent(&syscall.SysProcAttr{})
	if err := c.cmd.Start(); err != nil {
		return child{}, fmt.Errorf("start %s: %w", args[0], err)
	}
	started.Store(c.cmd.Process.Pid, true)
	return c, nil
}

// kill sends SIGKILL. It has no effect on a process that was not started or has ended.
func (c child) kill() { c.signal(syscall.SIGKILL) }

// end lets the process stop.
func (c child) end() { c.signal(syscall.SIGTERM) }

func (c child) signal(s syscall.Signal) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(s) // the process may have ended
	_ = c.cmd.Wait()            // the exit code has no meaning here
}

// freeAddr returns a loopback address with a free port.
func freeAddr() (string, error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), nil
}
