package temporal

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema"
	v12 "go.temporal.io/server/schema/postgresql/v12"
)

// postgresConns bounds the connections of each of the server's services.
const postgresConns = 20

// postgresConfig returns the configuration of a PostgreSQL database. A host that is a directory has the server's Unix socket.
func postgresConfig(dsn string) (*config.SQL, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("temporal database: invalid PostgreSQL address: %w", err)
	}
	out := &config.SQL{
		PluginName: postgresql.PluginName, DatabaseName: c.Database, User: c.User, Password: c.Password,
		MaxConns: postgresConns, MaxIdleConns: postgresConns, ConnectAttributes: map[string]string{},
	}
	if c.TLSConfig == nil {
		out.ConnectAttributes["sslmode"] = "disable"
	}
	if strings.HasPrefix(c.Host, "/") {
		out.ConnectAttributes["host"] = c.Host
		out.ConnectAttributes["port"] = strconv.Itoa(int(c.Port))
	} else {
		out.ConnectAddr = net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	}
	return out, nil
}

// setUpPostgres creates the schemas of histories and of visibility in an empty database. A start that was killed meanwhile leaves a
// database that has to be emptied.
func setUpPostgres(cfg *config.SQL) (err error) {
	db, err := sql.NewSQLAdminDB(sqlplugin.DbKindMain, cfg, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
	if err != nil {
		return fmt.Errorf("open temporal database: %w", err)
	}
	defer func() { _ = db.Close() }()
	if tables, err := db.ListTables(cfg.DatabaseName); err != nil || len(tables) > 0 {
		return err
	}
	for _, name := range []string{"temporal", "visibility"} {
		file, err := schema.Assets().Open("postgresql/v12/" + name + "/schema.sql")
		if err != nil {
			return fmt.Errorf("read temporal schema: %w", err)
		}
		statements, err := persistence.LoadAndSplitQueryFromReaders([]io.Reader{file})
		_ = file.Close() // it was only read
		if err != nil {
			return fmt.Errorf("read temporal schema: %w", err)
		}
		for _, statement := range statements {
			if err := db.Exec(statement); err != nil {
				return fmt.Errorf("make temporal schema: %w", err)
			}
		}
	}
	if err := db.CreateSchemaVersionTables(); err != nil {
		return fmt.Errorf("make temporal schema: %w", err)
	}
	// Both schemas have one version table here: it has that of the histories, which is the higher one.
	if err := db.UpdateSchemaVersion(cfg.DatabaseName, v12.Version, v12.Version); err != nil {
		return fmt.Errorf("make temporal schema: %w", err)
	}
	return nil
}
