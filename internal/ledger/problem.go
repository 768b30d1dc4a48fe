package ledger

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"berth/internal/health"
	"berth/internal/secret"
)

// setting names the database in messages.
const setting = "BERTH_DATABASE"

// problem returns one whose text names the setting.
func problem(r health.Reason, err error) *health.Problem {
	return &health.Problem{Reason: r, Said: said(err), Advice: r.Text, Err: err}
}

// stateReadOnly is the SQLSTATE of a write on a server that does not accept any.
const stateReadOnly = "25006"

// stateTooMany is the SQLSTATE of a server that accepts no more connections.
const stateTooMany = "53300"

// stateNoTable is the SQLSTATE of a statement about a table that does not exist.
const stateNoTable = "42P01"

// The reasons that are not named by a SQLSTATE alone.
var (
	readOnly = health.Reason{
		Code: "read_only", Setting: setting,
		Text: "the database is read-only (a standby, or default_transaction_read_only): promote it, or name all servers in BERTH_DATABASE, of which berth finds the primary",
	}
	missingRight = health.Reason{
		Code: "missing_right", Setting: setting, Lasting: true,
		Text: "the role of BERTH_DATABASE lacks a right: make it the owner of the database and its tables, or GRANT it USAGE and CREATE on the schema and SELECT, INSERT, UPDATE, DELETE on the tables",
	}
	unverifiable = health.Reason{
		Code: "certificate", Setting: setting, Lasting: true,
		Text: "the certificate of PostgreSQL could not be verified; check sslrootcert, sslmode and the host name in BERTH_DATABASE",
	}
	unreached = health.Reason{
		Code: "unreachable", Setting: setting,
		Text: "the database cannot be reached; check host and port in BERTH_DATABASE, and that the server runs",
	}
	withoutTLS = health.Reason{
		Code: "tls", Setting: setting, Lasting: true,
		Text: "the server does not use TLS: enable it there, or correct sslmode in BERTH_DATABASE",
	}
	diskFull = health.Reason{
		Code: "disk_full", Setting: setting,
		Text: "the disk of the database is full: free or add space",
	}
	standbyAwaited = health.Reason{
		Code: "standby_awaited", Setting: "synchronous_standby_names",
		Text: "commits wait for a standby that does not confirm them: start it, or change synchronous_standby_names of PostgreSQL",
	}
	busy = health.Reason{Code: "busy", Setting: setting, Text: "the database is busy"}
)

// problems are the reasons by SQLSTATE, or by its class of two characters.
var problems = map[string]health.Reason{
	"08":          unreached,
	stateReadOnly: readOnly,
	"26000":       pooler, "42P05": pooler,
	"28":         {Code: "login_refused", Setting: setting, Lasting: true, Text: "the server refused the login: check user, password and sslmode in BERTH_DATABASE, and pg_hba.conf"},
	"3D000":      {Code: "no_database", Setting: setting, Lasting: true, Text: "the database does not exist: create it, or correct its name in BERTH_DATABASE"},
	"3F000":      {Code: "no_schema", Setting: setting, Lasting: true, Text: "no schema of search_path exists: create it, or correct search_path of the role or in BERTH_DATABASE"},
	"40":         busy,
	"42501":      missingRight,
	"42704":      {Code: "unknown_parameter", Setting: setting, Lasting: true, Text: "correct the parameters of BERTH_DATABASE, or let the pooler ignore them"},
	stateNoTable: {Code: "no_schema", Setting: setting, Lasting: true, Text: "tables of berth are missing: check the name of the database in BERTH_DATABASE and search_path; a process creates the tables at its start"},
	"53":         {Code: "out_of_resources", Setting: setting, Text: "the server lacks memory or other resources"},
	"53100":      diskFull,
	stateTooMany: {Code: "too_many_connections", Setting: "BERTH_DATABASE_CONNECTIONS", Text: "the server accepts no more connections: lower BERTH_DATABASE_CONNECTIONS, or raise max_connections or the limit of the role; docs/sizing.md has the formula"},
	"57":         {Code: "shutting_down", Setting: setting, Text: "the server stops, or ended this connection"},
	"57P03":      {Code: "starting", Setting: setting, Text: "the server starts or recovers and accepts no connections yet"},
}

// internal are the reasons that are, for a request, an error of berth or of its schema.
var internal = []health.Reason{problems["42704"], problems[stateNoTable]}

// statePooler is the SQLSTATE of every refusal by PgBouncer, and poolerRefusals have the state that a server would give, by words of PgBouncer.
const statePooler = "08P01"

var poolerRefusals = []struct{ text, state string }{
	{"authentication failed", "28"},
	{"no such user", "28"},
	{"no such database", "3D000"},
	{"does not exist", "3D000"},
	{"does not allow connections", "3D000"},
	{"is disabled", "3D000"},
	{"unsupported startup parameter", "42704"},
	{"no more connections allowed", stateTooMany},
	{"too many connections", stateTooMany},
	{"query_wait_timeout", "40"},
	{"server login has been failing", "57P03"},
	{"cannot connect to server", "57P03"},
	{"server conn crashed", "57"},
}

// pooler is a proxy that assigns transactions to connections and was not recognised.
var pooler = health.Reason{
	Code: "pooler", Setting: setting, Lasting: true,
	Text: "a connection pooler lost or repeated a prepared statement: add default_query_exec_mode=cache_describe to the parameters of BERTH_DATABASE",
}

// quoted is a part of an address in the error of the driver. It may be one of a password.
var quoted = regexp.MustCompile(`"[^"]*"|` + "`[^`]*`" + `|'[^']*'`)

// parseAddress reads the address of a PostgreSQL database. One with a second @ is that of a password which is not encoded: a part of it would be
// looked up as the name of a host.
func parseAddress(dsn string) (*pgx.ConnConfig, error) {
	if before, _, _ := strings.Cut(dsn, "?"); strings.Count(dsn, "@") > 1 || strings.ContainsFunc(before, unicode.IsSpace) {
		return nil, invalidAddress(nil)
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, invalidAddress(err)
	}
	return cfg, nil
}

// invalidAddress returns the problem of an address that the driver does not accept. The error of the driver has the address; its cause has
// parts of it in quotes.
func invalidAddress(err error) error {
	r := health.Reason{
		Code: "invalid_address", Setting: setting, Lasting: true,
		Text: "correct BERTH_DATABASE: postgres://user:password@host:port/database?sslmode=verify-full, with special characters of the password encoded, such as %40 for @ and %25 for %",
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		r.Text = "correct sslrootcert, sslcert or sslkey in BERTH_DATABASE"
		return problem(r, file)
	}
	text := "invalid PostgreSQL address"
	if cause := errors.Unwrap(err); cause != nil {
		if _, ok := errors.AsType[*url.Error](err); !ok {
			text = quoted.ReplaceAllString(cause.Error(), "…")
		}
	}
	return problem(r, errors.New(text))
}

// Diagnose returns the problem of which an error of this package is the effect, nil if it is not one of the database or its settings.
func Diagnose(err error) *health.Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*health.Problem](err); ok {
		return p
	}
	known := func(r health.Reason) *health.Problem { return problem(r, err) }
	if s, ok := errors.AsType[*secret.Error](err); ok {
		r := health.Reason{Code: "secret", Setting: s.Setting, Lasting: true, Text: s.Setting + ": " + s.Problem}
		if refused, ok := errors.AsType[*pgconn.PgError](s.Err); ok {
			return problem(r, refused)
		}
		return problem(r, s)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return known(unverifiable)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, refusal := range poolerRefusals {
			if pg.Code == statePooler && strings.Contains(pg.Message, refusal.text) {
				return known(problems[refusal.state])
			}
		}
		for _, state := range []string{pg.Code, pg.Code[:min(2, len(pg.Code))]} {
			if r, ok := problems[state]; ok {
				return known(r)
			}
		}
		return nil
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return known(readOnly)
	}
	if !slices.ContainsFunc(tried(err), func(attempt error) bool { return !refusedTLS(attempt) }) {
		return known(withoutTLS)
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return diagnoseSQLite(lite.Code(), known)
	}
	if lostConnection(err) {
		return known(unreached)
	}
	return nil
}

// unwritten are the extended codes of SQLite for writes that the system refused. It reports a full disk as such only for the file itself.
var unwritten = []int{
	sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE,
	sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP,
}

func diagnoseSQLite(code int, known func(health.Reason) *health.Problem) *health.Problem {
	if slices.Contains(unwritten, code) {
		return known(health.Reason{
			Code: "disk_full", Setting: setting,
			Text: "the file of BERTH_DATABASE or those beside it cannot be written: free or add space on the disk, or raise the limit of file sizes (ulimit -f)",
		})
	}
	switch code & 0xff { // the primary code
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT:
		return known(busy)
	case sqlite3.SQLITE_FULL:
		return known(diskFull)
	case sqlite3.SQLITE_READONLY:
		return known(health.Reason{Code: "read_only", Setting: setting, Text: "the file of BERTH_DATABASE or its directory is not writable for this process"})
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return known(health.Reason{Code: "damaged", Setting: setting, Lasting: true, Text: "the file of BERTH_DATABASE is not a SQLite database, or is damaged: set another file, or restore a backup"})
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return known(health.Reason{Code: "unreachable", Setting: setting, Text: "the file of BERTH_DATABASE cannot be opened, read or written"})
	default:
		return nil
	}
}

// lostConnection reports whether there was no connection, or the time for a reply ended.
func lostConnection(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false
	}
	for _, is := range []error{context.DeadlineExceeded, driver.ErrBadConn, sql.ErrConnDone, pgconn.ErrConnClosed, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, is) {
			return true
		}
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect)
}

// said returns the words of the server, or else those of the driver, in one line. Where several servers were tried, it has those of each.
func said(err error) string {
	var all []string
	attempts := tried(err)
	for _, e := range attempts {
		if refusedTLS(e) && len(attempts) > 1 {
			continue // of sslmode=prefer, which tries without it then
		}
		text := strings.Join(strings.Fields(e.Error()), " ")
		for _, step := range []string{"dial error: ", "ValidateConnect failed: "} {
			if _, cause, ok := strings.Cut(text, step); ok {
				text = cause
			}
		}
		if pg, ok := errors.AsType[*pgconn.PgError](e); ok {
			text = fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
		}
		if h, ok := errors.AsType[*hostError](e); ok {
			text = h.host + ": " + text
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// refusedTLS reports whether the server of an attempt has no TLS.
func refusedTLS(attempt error) bool {
	return strings.Contains(attempt.Error(), "server refused TLS connection")
}

// tried returns the errors of all attempts to connect.
func tried(err error) (all []error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if of, ok := e.(*hostError); ok { //nolint:errorlint // this level of the chain
			for _, attempt := range tried(of.err) {
				all = append(all, &hostError{of.host, attempt})
			}
			return all
		}
		if joined, ok := e.(interface{ Unwrap() []error }); ok { // of several attempts
			for _, attempt := range joined.Unwrap() {
				all = append(all, tried(attempt)...)
			}
			return all
		}
	}
	return []error{err}
}
