package testlivekit

import "syscall"

// endWithUs ends the server with the test binary, however that ends.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
