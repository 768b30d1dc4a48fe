package testlivekit

import "syscall"

// killWithParent kills the server when the test binary ends, even if that is killed.
func killWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
