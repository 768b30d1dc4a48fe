//go:build !linux

package testlivekit

import "syscall"

// endWithUs would end the server with the test binary; only Linux can.
func endWithUs() *syscall.SysProcAttr { return nil }
