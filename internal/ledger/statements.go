package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"modernc.org/sqlite"
)

// maxStatements bounds the prepared statements per connection; the ledger has about a hundred, and as many again for combinations
// of filters.
const maxStatements = 512

// openPrepared opens SQLite so that each connection prepares a statement only once: preparing it for each execution took a
// quarter of a task's processor time. database/sql caches no statements inside transactions; PostgreSQL's driver does.
func openPrepared(dsn string) (*sql.DB, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("open sqlite: %w", err)
	}
	return sql.OpenDB(preparing{c}), nil
}

// preparing wraps a connector so that its connections cache statements.
type preparing struct{ driver.Connector }

func (p preparing) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(sqliteConn)
	if !ok {
		return nil, fmt.Errorf("sqlite: %T cannot prepare statements", c)
	}
	return &preparedConn{sqliteConn: conn, kept: map[string]*keptStatement{}}, nil
}

// sqliteConn lists the interfaces of SQLite's connections that database/sql uses.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// sqliteStmt lists those of its statements.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// preparedConn caches its statements. Like every connection it is used by one goroutine at a time.
type preparedConn struct {
	sqliteConn
	kept map[string]*keptStatement
}

type keptStatement struct {
	stmt sqliteStmt
	// reading: its rows are not closed, so it cannot run again yet.
	reading bool
}

// statement returns the cached statement of a query; nil when it is in use or cannot be cached.
func (c *preparedConn) statement(ctx context.Context, query string) *keptStatement {
	k, ok := c.kept[query]
	if !ok && len(c.kept) < maxStatements {
		s, err := c.PrepareContext(ctx, query)
		if err != nil {
			return nil // running it returns the same error
		}
		k = &keptStatement{}
		if k.stmt, ok = s.(sqliteStmt); !ok {
			_ = s.Close() // cannot be cached
			return nil
		}
		c.kept[query] = k
	}
	if k == nil || k.reading {
		return nil
	}
	return k
}

func (c *preparedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if k := c.statement(ctx, query); k != nil {
		return k.stmt.ExecContext(ctx, args)
	}
	return c.sqliteConn.ExecContext(ctx, query, args)
}

func (c *preparedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	k := c.statement(ctx, query)
	if k == nil {
		return c.sqliteConn.QueryContext(ctx, query, args)
	}
	rows, err := k.stmt.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	k.reading = true
	return &keptRows{rows, k}, nil
}

// Close closes the statements, then the connection.
func (c *preparedConn) Close() error {
	for _, k := range c.kept {
		_ = k.stmt.Close() // closing the connection reports errors
	}
	return c.sqliteConn.Close()
}

// keptRows releases its statement on Close.
type keptRows struct {
	driver.Rows
	of *keptStatement
}

func (r *keptRows) Close() error {
	r.of.reading = false
	return r.Rows.Close()
}
