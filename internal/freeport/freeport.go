// Package freeport finds TCP ports for servers that are started, stopped and started again on the same one.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that systems take those of outgoing connections from: a server that is down for a
// moment would find its port in use by somebody's connection.
const (
	lowest  = 15_000
	highest = 32_000
	tries   = 100
)

// Find returns a loopback port that nobody listens on. Somebody else may take it before the caller does: use it at once.
func Find() (int, error) {
	var err error
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil { //nolint:noctx // does not block
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
