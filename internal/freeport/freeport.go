// Package freeport finds TCP ports for servers that are stopped and restarted on the same port.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// Ports are below the ephemeral range, so that no outgoing connection occupies the port of a server during its restart.
const (
	minPort         = 15_000
	maxPort         = 32_000
	attemptsPerPort = 100
)

// Find returns n different loopback ports that are free at the time of the call. Another process may bind one of them
// before the caller does, so callers should use them immediately. Ports that a process has reserved are left out.
func Find(n int) ([]int, error) {
	var ports []int
	var err error
	for left := n * attemptsPerPort; len(ports) < n; left-- {
		if left == 0 {
			return nil, fmt.Errorf("find %d free ports: %w", n, err)
		}
		port := minPort + rand.IntN(maxPort-minPort)
		if slices.Contains(ports, port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil { //nolint:noctx // does not block
			continue
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		if reserved(port) {
			continue
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// Reserve returns a loopback TCP port that no process gets from Find until release is called, so that a server can be
// restarted on it. It holds the UDP port of the same number, which Find checks.
func Reserve() (port int, release func(), err error) {
	for range attemptsPerPort {
		ports, err := Find(1)
		if err != nil {
			return 0, nil, err
		}
		if c, err := holdUDP(ports[0]); err == nil { // another process may have taken it meanwhile
			return ports[0], func() { _ = c.Close() }, nil
		}
	}
	return 0, nil, errors.New("reserve a port: each one found was taken")
}

func reserved(port int) bool {
	c, err := holdUDP(port)
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}

func holdUDP(port int) (net.PacketConn, error) {
	return net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // does not block
}
