// Package freeport finds TCP ports for servers that are started, stopped and started again on the same one.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

// Ports are taken from below the range that systems take those of outgoing connections from: a server that is down for a
// moment would find its port in use by somebody's connection.
const (
	lowest  = 15_000
	highest = 32_000
	tries   = 100 // a port
)

// Find returns n different loopback ports that nobody listens on. Somebody else may take one before the caller does: use
// them at once.
func Find(n int) ([]int, error) {
	var ports []int
	var err error
	for left := n * tries; len(ports) < n; left-- {
		if left == 0 {
			return nil, fmt.Errorf("find %d free ports: %w", n, err)
		}
		port := lowest + rand.IntN(highest-lowest)
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
