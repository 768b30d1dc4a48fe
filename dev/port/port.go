// Package port finds free TCP ports and waits for used ones.
package port

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"berth/internal/freeport"
)

// Free returns n different loopback ports that nobody listens on. Somebody else may take one before the
// caller does: use them at once.
func Free(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for len(ports) < n {
		p, err := freeport.Find()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
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
