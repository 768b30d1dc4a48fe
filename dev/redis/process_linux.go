package redis

import "syscall"

// ownProcess returns attributes that keep a terminal's Ctrl-C from the child, so that it is stopped after its
// users, and kills it when this process is killed. What it acknowledged is in the append-only file by then.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
