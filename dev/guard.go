package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/freeport"
)

// portPatience covers the moment in which the kernel still ends the children of a killed predecessor.
const portPatience = 500 * time.Millisecond

// claimDataDir makes the folder and takes it for this process: the kernel gives it back however we end.
func claimDataDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the user's own folder
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path) //nolint:gosec // only to name the other one
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another one (pid %s) runs on the data folder %s: stop it, or set BERTH_DATA_DIR and the ports to run a second",
				strings.TrimSpace(string(holder)), dir)
		}
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return func() { _ = f.Close() }, nil
}

// choosePorts fails when an address is in use, naming its setting, before anything has started. A port of 0
// becomes a free one.
func choosePorts(o *options) error {
	deadline := time.Now().Add(portPatience)
	for {
		busy, err := tryPorts(o)
		if err != nil {
			return err
		}
		if len(busy) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("in use: %s: stop what listens there, or set another address", strings.Join(busy, ", "))
		}
		time.Sleep(portPatience / 10)
	}
}

func tryPorts(o *options) (busy []string, err error) {
	for _, a := range o.addresses() {
		if host, port, err := net.SplitHostPort(*a.addr); err == nil && port == "0" {
			free, err := freeport.Find(1)
			if err != nil {
				return nil, err
			}
			*a.addr = net.JoinHostPort(host, strconv.Itoa(free[0]))
		}
		// All are held until the last was tried: two settings with one port are noticed, too.
		l, err := net.Listen("tcp", *a.addr) //nolint:noctx // listening does not block
		if errors.Is(err, syscall.EADDRINUSE) {
			busy = append(busy, fmt.Sprintf("%s (%s)", *a.addr, a.env))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.env, err)
		}
		defer func() { _ = l.Close() }()
	}
	return busy, nil
}
