package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// connector makes the connections to PostgreSQL. Each leads to a server that accepts writes.
type connector struct {
	from  Source
	cfg   pgx.ConnConfig
	hosts []host
	*connections
}

// connections is what the connections of one connector have in common.
type connections struct {
	// accepted are the credentials of the last connection that was made.
	accepted atomic.Pointer[credentials]
	// last is the index of the host of the last connection that was made. It is tried first.
	last atomic.Int64
	// generation rises when connections made before may lead to a server that does not accept writes any more. They are not used again.
	generation atomic.Int64
	// pooled: the last connection passes through a connection pooler, which may give each transaction another session of the server.
	pooled atomic.Bool
	// limit is max_connections of the server, nil while none has been reached.
	limit atomic.Pointer[string]
}

// maximum returns max_connections of the server of the last connection.
func (c *connections) maximum() string {
	if limit := c.limit.Load(); limit != nil {
		return *limit
	}
	return "unknown"
}

type credentials struct{ user, password string }

// host is one server of the URL, with the ways to reach it that sslmode permits.
type host struct {
	name string
	ways []pgconn.FallbackConfig
}

// hostError is why a server of several did not accept a connection.
type hostError struct {
	host string
	err  error
}

func (e *hostError) Error() string { return e.host + ": " + e.err.Error() }
func (e *hostError) Unwrap() error { return e.err }

// keepAlive finds a server that has vanished without closing its connections.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

func (s Source) connector(cfg pgx.ConnConfig) connector {
	c := connector{from: s, connections: &connections{}}
	for _, way := range append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...) {
		name := net.JoinHostPort(way.Host, strconv.Itoa(int(way.Port)))
		if n := len(c.hosts); n == 0 || c.hosts[n-1].name != name {
			c.hosts = append(c.hosts, host{name: name})
		}
		h := &c.hosts[len(c.hosts)-1]
		h.ways = append(h.ways, *way)
	}
	cfg.DialFunc = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	cfg.ValidateConnect, cfg.OnPgError = c.validate, c.onError
	c.cfg = cfg
	return c
}

// Driver is part of driver.Connector.
func (connector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Connect is part of driver.Connector. Where the server refuses what the files have, it tries what it has accepted last: a role has one
// password, so that file and server cannot change at the same time.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	now, err := c.current()
	if err != nil {
		return nil, err
	}
	conn, err := c.connect(ctx, now)
	last := c.accepted.Load()
	if isRefused(err) && last != nil && *last != now {
		if former, formerErr := c.connect(ctx, *last); formerErr == nil {
			return former, nil
		}
	}
	switch refused, ok := errors.AsType[*pgconn.PgError](err); {
	case err == nil:
		c.accepted.Store(&now)
	case ok && refused.Code == stateTooMany:
		r := problems[stateTooMany]
		r.Text += fmt.Sprintf("; this process uses up to %d connections, of max_connections=%s", c.from.connections()+probeConnections, c.maximum())
		err = problem(r, err)
	case ok && isRefused(err):
		from := c.from.password()
		if !from.IsSet() {
			from = c.from.address()
		}
		err = from.Refused(refused)
	}
	return conn, err
}

// isRefused reports whether the server does not accept user and password.
func isRefused(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code[:min(2, len(refused.Code))] == "28"
}

// connect tries the hosts, beginning with the one that accepted the last connection. Each gets an equal part of the time that is left:
// one that does not reply must not use that of the others.
func (c connector) connect(ctx context.Context, as credentials) (driver.Conn, error) {
	cfg := c.cfg
	cfg.User, cfg.Password = as.user, as.password
	first := int(c.last.Load())
	var failed []error
	for i := range c.hosts {
		n := (first + i) % len(c.hosts)
		if deadline, ok := ctx.Deadline(); ok {
			cfg.ConnectTimeout = max(1, min(c.cfg.ConnectTimeout, time.Until(deadline)/time.Duration(len(c.hosts)-i)))
		}
		conn, err := c.connectTo(ctx, cfg, n)
		if err == nil {
			return conn, nil
		}
		if len(c.hosts) > 1 {
			err = &hostError{c.hosts[n].name, err}
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// connectTo connects to the nth host.
func (c connector) connectTo(ctx context.Context, cfg pgx.ConnConfig, n int) (driver.Conn, error) {
	ways := c.hosts[n].ways
	cfg.Host, cfg.Port, cfg.TLSConfig, cfg.Fallbacks = ways[0].Host, ways[0].Port, ways[0].TLSConfig, nil
	for _, way := range ways[1:] {
		cfg.Fallbacks = append(cfg.Fallbacks, &way)
	}
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && c.pooled.Load() {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // a prepared statement would be one of another session
	}
	var generation int64
	conn, err := stdlib.GetConnector(cfg, stdlib.OptionResetSession(func(context.Context, *pgx.Conn) error {
		if c.generation.Load() != generation {
			return driver.ErrBadConn
		}
		return nil
	})).Connect(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && c.pooled.Load() { // recognised now
		_ = conn.Close() // it was not used
		return c.connectTo(ctx, cfg, n)
	}
	if c.last.Swap(int64(n)) != int64(n) {
		c.generation.Add(1) // connections to the former host
	}
	generation = c.generation.Load()
	return conn, nil
}

// validate rejects a server that does not accept writes, and recognises a connection pooler: the number of the process that it
// announces is not that of the server's process.
func (c connector) validate(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx,
		"SELECT pg_backend_pid(), current_setting('transaction_read_only'), current_setting('max_connections')").ReadAll()
	if err != nil {
		return err
	}
	row := results[0].Rows[0]
	c.pooled.Store(string(row[0]) != strconv.FormatUint(uint64(conn.PID()), 10))
	limit := string(row[2])
	c.limit.Store(&limit)
	if string(row[1]) == "on" {
		return pgconn.ErrReadOnlyConnection
	}
	return nil
}

// onError ends a connection to a server that has become read-only, and the use of those that were made before.
func (c connector) onError(_ *pgconn.PgConn, err *pgconn.PgError) (keep bool) {
	if err.Code == stateReadOnly {
		c.generation.Add(1)
		return false
	}
	return err.Severity != "FATAL" && err.SeverityUnlocalized != "FATAL"
}
