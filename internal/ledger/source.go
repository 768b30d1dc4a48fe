package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"berth/internal/secret"
)

// Source is where the address and the password of a database come from.
type Source struct {
	// URL is sqlite:FILE or postgres://…. URLFile names a file with it instead, whose user and password are read again for every
	// connection; the other parts apply at the next start.
	URL, URLFile string
	// PasswordFile names a file with the password of PostgreSQL, which is read for every connection.
	PasswordFile string
}

// address and password are the settings of Source.
func (s Source) address() secret.Secret { return secret.New("BERTH_DATABASE", s.URL, s.URLFile) }

func (s Source) password() secret.Secret {
	return secret.New("BERTH_DATABASE_PASSWORD", "", s.PasswordFile)
}

// Validate returns an error for files that cannot be used, and for a password that is set twice. It names the setting.
func (s Source) Validate() error {
	if err := errors.Join(s.address().Validate(), s.password().Validate()); err != nil {
		return err
	}
	dsn, err := s.Address()
	if err != nil {
		return err
	}
	switch u, err := url.Parse(dsn); {
	case strings.HasPrefix(dsn, "sqlite:") && s.password().IsSet():
		return s.password().Invalid("SQLite has no password")
	case strings.HasPrefix(dsn, "sqlite:"):
		return nil
	case !isPostgres(dsn):
		return s.address().Invalid("must start with sqlite: or postgres://")
	case err == nil && s.password().IsSet() && hasPassword(u): // a URL that cannot be parsed is another error
		return s.password().Invalid("%s already has a password; remove one of them", s.address().Setting())
	default:
		return nil
	}
}

func hasPassword(u *url.URL) bool {
	_, ok := u.User.Password()
	return ok || u.Query().Has("password")
}

// Address returns the URL. Its errors name the setting.
func (s Source) Address() (string, error) { return s.address().Read() }

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// connector makes the connections to PostgreSQL.
type connector struct {
	from Source
	cfg  pgx.ConnConfig
	// accepted are the credentials of the last connection that was made.
	accepted *atomic.Pointer[credentials]
}

type credentials struct{ user, password string }

func (s Source) connector(cfg pgx.ConnConfig) connector {
	return connector{s, cfg, new(atomic.Pointer[credentials])}
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
	case ok && isRefused(err):
		from := c.from.password()
		if !from.IsSet() {
			from = c.from.address()
		}
		err = from.Refused(fmt.Errorf("%s (SQLSTATE %s)", refused.Message, refused.Code)) // err has the address
	}
	return conn, err
}

func (c connector) connect(ctx context.Context, as credentials) (driver.Conn, error) {
	cfg := c.cfg
	cfg.User, cfg.Password = as.user, as.password
	return stdlib.GetConnector(cfg).Connect(ctx)
}

// isRefused reports whether the server does not accept user and password.
func isRefused(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(refused.Code, "28")
}

// current returns user and password of a new connection.
func (c connector) current() (now credentials, err error) {
	now = credentials{c.cfg.User, c.cfg.Password}
	switch {
	case c.from.PasswordFile != "":
		now.password, err = c.from.password().Read()
	case c.from.URLFile != "":
		var dsn string
		if dsn, err = c.from.Address(); err != nil {
			return now, err
		}
		cfg, parseErr := pgx.ParseConfig(dsn)
		if parseErr != nil { // the error has the address
			return now, c.from.address().Invalid("invalid PostgreSQL address")
		}
		now = credentials{cfg.User, cfg.Password}
	}
	return now, err
}
