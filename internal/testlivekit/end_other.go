//go:build !linux

package testlivekit

import "syscall"

// killWithParent does nothing: only Linux can end the server with the test binary.
func killWithParent() *syscall.SysProcAttr { return nil }
