package setting

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
)

// ListenError is why a process cannot serve the address of a setting.
type ListenError struct {
	Setting, Addr string
	Advice        string // what to change
	Err           error  // of the system
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("%s: listen on %s: %s; %s", e.Setting, e.Addr, e.Err, e.Advice)
}

func (e *ListenError) Unwrap() error { return e.Err }

// InUse reports whether another socket has the address.
func (e *ListenError) InUse() bool { return errors.Is(e.Err, syscall.EADDRINUSE) }

// Listen listens on the address of a setting. Its error is a *ListenError.
func Listen(ctx context.Context, name, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err == nil {
		return l, nil
	}
	out := &ListenError{name, addr, advice(err), err}
	var failed *net.OpError
	if errors.As(err, &failed) { // its text has the address again
		out.Err = failed.Err
	}
	return nil, out
}

// advice returns what to change.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what uses the address, or set another one"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "raise the limit of open files (ulimit -n)"
	case errors.Is(err, fs.ErrPermission):
		return "set a port from 1024 on, or let the user of berth use lower ones"
	}
	return "set an address of this host"
}
