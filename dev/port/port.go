// Package port waits for TCP ports.
package port

import (
	"context"
	"fmt"
	"net"
	"time"
)

// AwaitOpen returns nil as soon as a process accepts connections at addr, or the context's error if it ends first.
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
