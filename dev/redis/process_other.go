//go:build unix && !linux

package redis

import "syscall"

// ownProcess returns attributes that keep a terminal's Ctrl-C from the child, so that it is stopped after its
// users. Only Linux can also kill it when this process is killed.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
