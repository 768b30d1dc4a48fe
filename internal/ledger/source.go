package ledger

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"berth/internal/secret"
)

// Source is where the address and the password of a database come from.
type Source struct {
	// URL is sqlite:FILE or postgres://…. URLFile names a file with it instead, whose user and password are read again for every
	// connection; the other parts apply at the next start.
	URL, URLFile string
	// PasswordFile names a file with the password of PostgreSQL, which is read for every connection.
	PasswordFile string
	// Connections is the maximum number of connections to PostgreSQL for work, 0 for the default. Two more are for Ping.
	Connections int
}

// connections returns the maximum number of connections for work.
func (s Source) connections() int { return cmp.Or(s.Connections, DefaultConnections) }

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
		cfg, parseErr := parseAddress(dsn)
		if parseErr != nil {
			return now, c.from.address().Invalid("invalid PostgreSQL address; special characters of the password must be encoded, such as %%40 for @")
		}
		now = credentials{cfg.User, cfg.Password}
	}
	return now, err
}
