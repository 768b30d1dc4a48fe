package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"berth"
	"berth/internal/health"
)

// Server is what a database reports about itself.
type Server struct {
	Name, Version string
	// Schema is the version of its schema, 0 for a new database; Latest is the one to which Open brings it.
	Schema, Latest int64
	// Now is its clock; zero for SQLite.
	Now time.Time
	// Pooled: connections pass through a connection pooler.
	Pooled bool
	// Connections is how many connections to PostgreSQL a process of berth uses, MaxConnections how many the server or its limit for the role or
	// the database permits to all clients together, without those that it reserves. With a pooler they are those of the pooler to the server.
	Connections, MaxConnections int
}

// Warnings are problems with which berth works.
func (s Server) Warnings() (found []*health.Problem) {
	if s.Schema > s.Latest {
		newer := health.Reason{Code: "schema_newer", Setting: setting, Text: "this is permitted during an upgrade only: upgrade berth"}
		found = append(found, problem(newer, fmt.Errorf("the schema has version %d, this program knows up to %d", s.Schema, s.Latest)))
	}
	if !s.Pooled && s.MaxConnections > 0 && s.MaxConnections < 2*s.Connections {
		found = append(found, problem(problems[stateTooMany],
			fmt.Errorf("the server permits %d connections to this role and database, and each process of berth uses up to %d", s.MaxConnections, s.Connections)))
	}
	return found
}

// Inspect checks whether a process of berth can work with a database. It changes nothing but a row that Ping writes, too. It returns a
// *health.Problem if a process cannot. The error of a SQLite file that does not exist wraps fs.ErrNotExist.
func Inspect(ctx context.Context, src Source) (s Server, err error) {
	dsn, err := src.Address()
	if err != nil {
		return s, problemOf(err)
	}
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if _, err := os.Stat(file); err != nil {
			return s, err // not that of a certificate
		}
	}
	l, err := connect(src)
	if err != nil {
		return s, problemOf(err)
	}
	l.logger = slog.New(slog.DiscardHandler)
	defer func() { err = errors.Join(problemOf(err), l.Close()) }()
	if s, err = l.server(ctx); err != nil {
		return s, err
	}
	if s.Schema < s.Latest {
		return s, l.checkOwner(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s, l.checkWrite(ctx)
}

// ReadTemplates returns the versions of a database that new tasks use, with their files, and changes nothing.
func ReadTemplates(ctx context.Context, src Source) (active []TemplateVersion, err error) {
	l, err := openRead(src)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return list(ctx, l, "list active templates", templateFiles, `SELECT `+templateVersionColumns.names("v.")+`, v.files FROM template_versions v
		JOIN templates t ON t.template = v.template AND t.version = v.version WHERE NOT t.deleted ORDER BY v.template`)
}

// ReadRouting returns the newest revision of the routing of a database, the revision of a content by its hash, 0 if it was never published, and
// how many open tasks need each model that no revision has. It changes nothing.
func ReadRouting(ctx context.Context, src Source, hash string) (newest RoutingRevision, own int64, unknown map[string]int, err error) {
	l, err := openRead(src)
	if err != nil {
		return newest, 0, nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	revision, err := l.NewestRouting(ctx)
	if err != nil || revision == 0 {
		return newest, 0, nil, err
	}
	if newest, err = l.Routing(ctx, revision); err != nil {
		return newest, 0, nil, err
	}
	if own, err = l.KnownRouting(ctx, hash); err != nil {
		return newest, 0, nil, err
	}
	models, err := l.RoutingModels(ctx)
	if err != nil {
		return newest, own, nil, err
	}
	unknown, err = l.OpenModels(ctx)
	maps.DeleteFunc(unknown, func(name string, _ int) bool { return models[name] > 0 })
	return newest, own, unknown, err
}

// openRead opens a database as it is.
func openRead(src Source) (*Ledger, error) {
	dsn, err := src.Address()
	if err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if _, err := os.Stat(file); err != nil {
			return nil, err // it would be created
		}
	}
	l, err := connect(src)
	if err != nil {
		return nil, err
	}
	l.logger = slog.New(slog.DiscardHandler)
	return l, nil
}

// problemOf returns the *health.Problem of an error that has one.
func problemOf(err error) error {
	if p := Diagnose(err); p != nil {
		return p
	}
	return err
}

// server reads what the database reports about itself.
func (l *Ledger) server(ctx context.Context) (s Server, err error) {
	s.Name = l.dialect.name
	known, err := versions(s.Name)
	if err != nil {
		return s, err
	}
	s.Latest = known[len(known)-1]
	if s.Name == "sqlite" {
		if err = l.read.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&s.Version); err != nil {
			return s, err
		}
		_ = l.read.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&s.Schema) // a new database has no such table
		return s, nil
	}
	if err := l.checkPooler(ctx); err != nil {
		return s, err
	}
	s.Pooled, s.Connections = l.connections.pooled.Load(), l.write.Stats().MaxOpenConnections+probeConnections
	err = l.read.QueryRowContext(ctx, `SELECT current_setting('server_version'), clock_timestamp(), least(
			current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
			(SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
			(SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))`).Scan(&s.Version, &s.Now, &s.MaxConnections)
	if err != nil {
		return s, err
	}
	applied, err := l.applied(ctx)
	if len(applied) > 0 {
		s.Schema = slices.Max(applied)
	}
	return s, err
}

// checkPooler runs a statement with parameters on two connections in turn. A connection pooler that was not recognised lets each use what
// the other one has prepared.
func (l *Ledger) checkPooler(ctx context.Context) error {
	var conns [2]*sql.Conn
	for i := range conns {
		c, err := l.read.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }() // it was only read
		conns[i] = c
	}
	for range 3 {
		for _, c := range conns {
			var got int64
			if err := c.QueryRowContext(ctx, "SELECT $1::bigint", int64(1)).Scan(&got); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOwner returns the problem missingRight if the role may not create tables, or change those that there are.
func (l *Ledger) checkOwner(ctx context.Context) error {
	if l.dialect.name != "postgres" {
		return nil
	}
	var role, schema, foreign string
	var creates bool
	err := l.read.QueryRowContext(ctx, `SELECT current_user, coalesce(current_schema(), ''), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
		coalesce((SELECT string_agg(tablename, ', ' ORDER BY tablename) FROM pg_tables
			WHERE schemaname = current_schema() AND tablename = ANY(string_to_array($1, ',')) AND NOT pg_has_role(tableowner, 'USAGE')), '')`,
		strings.Join(tables, ",")).Scan(&role, &schema, &creates, &foreign)
	switch {
	case err != nil:
		return err
	case schema == "":
		return &pgconn.PgError{Code: "3F000", Message: "no schema has been selected to create in"} // as the migration would get it
	case !creates:
		return problem(missingRight, fmt.Errorf("permission denied for schema %s: role %s may not create tables", schema, role))
	case foreign != "":
		return problem(missingRight, fmt.Errorf("role %s is not an owner of tables that have to be changed: %s", role, foreign))
	default:
		return nil
	}
}

// versions returns the numbers of the migrations of a dialect, sorted.
func versions(dialect string) (all []int64, err error) {
	files, err := fs.Glob(migrations, "migrations/"+dialect+"/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	for _, file := range files {
		number, _, _ := strings.Cut(file[strings.LastIndexByte(file, '/')+1:], "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, berth.Errorf(berth.CodeInternal, "migration %s has no number", file).With(err)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all, nil
}
