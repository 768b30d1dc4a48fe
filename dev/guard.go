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

// portPatience covers the moment in which the kernel still ends the children of a killed predecessor.
const portPatience = 500 * time.Millisecond

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
