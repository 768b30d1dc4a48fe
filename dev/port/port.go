// Package port waits for TCP ports.
package port

import (
	"context"
	"fmt"
	"net"
	"time"
)

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
