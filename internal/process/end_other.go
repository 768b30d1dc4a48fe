//go:build unix && !linux

// Package process has attributes of child processes that depend on the operating system.
package process

import "syscall"

// EndWithParent changes nothing: only Linux can end a child process with its parent.
func EndWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr { return attr }
