// Package port waits for TCP ports.
package port

import (
	"context"
	"net"
	"time"

	"berth/internal/pause"
)

const timeout = 30 * time.Second

// AwaitOpen returns nil as soon as a process accepts connections at addr, or an error after 30 s or when ctx ends.
func AwaitOpen(ctx context.Context, addr string) error {
	return pause.Until(ctx, timeout, 5*time.Millisecond, func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
