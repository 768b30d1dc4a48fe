// Package process has attributes of child processes that depend on the operating system.
package process

import "syscall"

// EndWithParent makes the kernel kill a child process when this process ends, even if that is killed.
func EndWithParent(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	attr.Pdeathsig = syscall.SIGKILL
	return attr
}
