//go:build unix && !linux

package node

import "syscall"

// ownGroup puts a command into its own process group, so that it can be killed together with everything it starts, and a
// terminal's Ctrl-C does not reach it while the node drains. Only Linux can also end it when the agent is killed.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
