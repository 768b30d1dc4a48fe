package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// streamWriteBuffer is the kernel's send buffer of an event stream. A small one makes a reader that has stalled
// visible: with the default, megabytes of events vanish into the kernel before a write deadline can strike (P13).
const streamWriteBuffer = 32 << 10

type connKey struct{}

type drainKey struct{}

// NewServer makes the HTTP server of an API made by New. Its Shutdown lets calls finish and ends event streams,
// whose clients resume elsewhere (X7).
func NewServer(e *echo.Echo, addr string) *http.Server {
	drain, stop := context.WithCancel(context.Background())
	srv := &http.Server{
		Addr:              addr,
		Handler:           e,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          e.StdLogger,
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(context.Background(), drainKey{}, drain) },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	srv.RegisterOnShutdown(stop)
	return srv
}

// streamContext ends with the request or when the server begins to stop, whichever is first.
func streamContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// shrinkWriteBuffer prepares the connection of a request for a stream.
func shrinkWriteBuffer(ctx context.Context) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	if t, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = t.SetWriteBuffer(streamWriteBuffer) // an optimisation; the deadline works without
	}
}
