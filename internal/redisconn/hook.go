package redisconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// hook is what a client of one server does besides go-redis: it names settings in errors, and drops the connections to a server that is not
// the master any more.
type hook struct {
	opt  Options
	open sync.Map // *conn -> nil: its connections
}

func newHook(opt Options) *hook { return &hook{opt: opt} }

// DialHook is part of redis.Hook.
func (h *hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			return h.track(c), nil
		}
		if h.opt.tls && reasonOf(err).Code == noReply.Code {
			err = fmt.Errorf("connect with TLS: %w", problem(noHandshake, err)) // go-redis drops the outermost error
		}
		return nil, err
	}
}

// ProcessHook is part of redis.Hook.
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.after(next(ctx, cmd)) }
}

// ProcessPipelineHook is part of redis.Hook.
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.after(next(ctx, cmds)) }
}

func (h *hook) after(err error) error {
	if redis.HasErrorPrefix(err, "READONLY") || redis.HasErrorPrefix(err, "MASTERDOWN") {
		h.drop()
	}
	return h.opt.named(err)
}

// minAge is how old a connection is at least that is dropped: while the only server is a replica, new connections are not better.
const minAge = time.Second

// drop closes the connections. The address may lead to the new master, to which only new connections do: the others would fail one by
// one, or read what the old master has. It keeps those of subscriptions, which a replica serves as well: a Listener notices when the commands
// reach another server.
func (h *hook) drop() {
	h.open.Range(func(c, _ any) bool {
		if c, ok := c.(*conn); ok && time.Since(c.made) >= minAge && !c.subscribes.Load() {
			_ = c.Close() // nothing is lost that the server would have accepted
		}
		return true
	})
}

// conn is a connection of a client.
type conn struct {
	net.Conn
	made  time.Time
	close func()
	read  bool // something was read
	// subscribes is whether the connection receives messages.
	subscribes atomic.Bool
	first      string // the first reply, if it is an error
	opt        *Options
}

func (h *hook) track(raw net.Conn) net.Conn {
	c := &conn{Conn: raw, made: time.Now(), opt: &h.opt}
	c.close = func() { h.open.Delete(c) }
	h.open.Store(c, nil)
	if s, ok := raw.(syscall.Conn); ok { // go-redis checks such a connection before it is used
		return &socket{c, s}
	}
	return c
}

// socket is a connection without TLS.
type socket struct {
	*conn
	syscall.Conn
}

// subscribeAt is the length of a command in which the name of SUBSCRIBE ends.
const subscribeAt = 24

// Close closes the connection.
func (c *conn) Close() error {
	c.close()
	return c.Conn.Close()
}

// Read reads from the connection.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.read {
		c.read = true
		if line, _, _ := strings.Cut(string(b[:n]), "\r\n"); strings.HasPrefix(line, "-") {
			c.first = line[1:]
		}
	}
	return n, c.explain(err)
}

// Write writes to the connection.
func (c *conn) Write(b []byte) (int, error) {
	if bytes.Contains(b[:min(len(b), subscribeAt)], []byte("\r\n$9\r\nsubscribe")) {
		c.subscribes.Store(true)
	}
	n, err := c.Conn.Write(b)
	if err != nil && !c.read && c.SetReadDeadline(time.Now().Add(minAge)) == nil {
		_, _ = c.Read(make([]byte, 1024)) // for c.first
	}
	return n, c.explain(err)
}

// explain returns an error with the first reply of a server that has closed the connection. A server that accepts no further connection, or
// none of this host, sends why and closes it. go-redis ignores that reply, because it is the one to HELLO. A server that has requested a
// certificate and closes the connection before any reply refuses the certificate.
func (c *conn) explain(err error) error {
	var network net.Error
	switch {
	case err == nil:
		return nil
	case c.first != "":
		err = &farewell{c.first, err}
	case !c.read && c.opt.tls && c.opt.mutual.Load() && !errors.Is(err, net.ErrClosed) && (!errors.As(err, &network) || !network.Timeout()):
		r := ownCertificate
		r.Lasting = c.opt.TLS.Cert == "" // else the server may have stopped at this moment
		err = problem(r, err)
	default:
		return err
	}
	return fmt.Errorf("redis has closed the connection: %w", err) // go-redis drops the outermost error of a new connection
}

// farewell is the reply of a server that has closed the connection.
type farewell struct {
	reply string
	err   error
}

func (f *farewell) Error() string { return f.reply }

func (f *farewell) Unwrap() error { return f.err }
