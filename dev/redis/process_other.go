//go:build unix && !linux

package redis

import "syscall"

// ownProcess keeps a terminal's Ctrl-C from the child, so that it is stopped after those who use it. Only
// Linux can also end it when we are killed.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
