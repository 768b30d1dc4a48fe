package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/freeport"
)

// portWait is the time in which the kernel ends the children of a killed predecessor.
const portWait = 500 * time.Millisecond

// choosePorts replaces port 0 with a free port. It returns an error that names the setting if an address is in use, before
// any part has started.
func choosePorts(o *options) error {
	deadline := time.Now().Add(portWait)
	for {
		busy, err := tryPorts(o)
		if err != nil {
			return err
		}
		if len(busy) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("address in use: %s: stop the process that listens there, or set another address", strings.Join(busy, ", "))
		}
		time.Sleep(portWait / 10)
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
		// All listeners stay open until the last was tried, so that two settings with the same port are reported.
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
