// Package freeport finds TCP ports for servers that are stopped and restarted on the same port.
package freeport

import (
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
// before the caller does, so callers should use them immediately.
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
		ports = append(ports, port)
	}
	return ports, nil
}
