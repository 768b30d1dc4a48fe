package api

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

// streamWriteBuffer is the size of the kernel's send buffer of an event stream. A small buffer reveals a stalled reader: with
// the default, the kernel accepts megabytes of events before a write deadline can expire.
const streamWriteBuffer = 32 << 10

type connKey struct{}

type drainKey struct{}

// NewServer returns the HTTP server of a router returned by New. Its Shutdown lets calls finish and ends event streams,
// whose clients resume on another process. trustTraceparent continues the traces of callers, which must be trusted then;
// otherwise a request begins a trace of its own, which links to the caller's.
func NewServer(e *echo.Echo, addr string, trustTraceparent bool) *http.Server {
	drain, stop := context.WithCancel(context.Background())
	srv := &http.Server{
		Addr:              addr,
		Handler:           observed(e, trustTraceparent),
		ReadHeaderTimeout: 10 * time.Second,
		// A client that does not read its response would keep it indefinitely. Streams and exports set their own deadlines.
		WriteTimeout:   responseTimeout,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       e.StdLogger,
		BaseContext:    func(net.Listener) context.Context { return context.WithValue(context.Background(), drainKey{}, drain) },
		ConnContext:    func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	srv.RegisterOnShutdown(stop)
	return srv
}

// observed records the requests of the API: not those of the page and of operations, not heartbeats, and not event streams,
// whose duration is their reader's. The instrumentation's own filter would add its frame to the stack of every reader.
func observed(e http.Handler, trustTraceparent bool) http.Handler {
	recorded := otelhttp.NewHandler(e, "berth", otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return !trustTraceparent }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if (strings.HasPrefix(path, "/v1/") || ofOpenAI(path)) && !strings.HasSuffix(path, "/events") && !strings.HasSuffix(path, "/heartbeat") {
			recorded.ServeHTTP(w, r)
			return
		}
		e.ServeHTTP(w, r)
	})
}

// streamContext returns a context that ends with the request or when the server begins to stop.
func streamContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// shrinkWriteBuffer sets the send buffer of a request's connection to streamWriteBuffer.
func shrinkWriteBuffer(ctx context.Context) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	if t, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = t.SetWriteBuffer(streamWriteBuffer) // the deadline works without it
	}
}
