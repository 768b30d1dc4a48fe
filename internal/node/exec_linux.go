package node

import "syscall"

// ownGroup puts a command into a process group of its own, so that it and all it starts can be ended together and a
// terminal's Ctrl-C does not reach it while the node drains. The command itself ends with us, even when we are killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
