// Package port finds free TCP ports and waits for used ones.
package port

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Free returns n different loopback ports that nobody listens on. Somebody else may take one before the
// caller does: use them at once.
func Free(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		// Held until all are found, or the system would give the same one twice.
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listening on loopback does not block
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("find a free port: %s is no TCP address", l.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}

// AwaitOpen returns nil as soon as something accepts connections at addr, the context's error when it ends first.
func AwaitOpen(ctx context.Context, addr string) error {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", addr, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
