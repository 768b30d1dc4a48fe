package redis

import "syscall"

// ownProcess keeps a terminal's Ctrl-C from the child, so that it is stopped after those who use it, and
// ends it when we are killed; what it acknowledged is in the append-only file by then.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
