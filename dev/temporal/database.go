package temporal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.temporal.io/server/common/config"
	plugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retention is the time for which histories of closed workflows are kept.
const retention = 7 * 24 * time.Hour

// databaseConfig returns a private database in memory for an empty file name. In a file, what the server acknowledged
// survives any end of the process. A power failure may lose the last moments, because a sync at each
// commit would cost every workflow several milliseconds (measured: 2 ms each).
func databaseConfig(file string) *config.SQL {
	if file == "" {
		return &config.SQL{
			PluginName:        plugin.PluginName,
			DatabaseName:      "temporal-" + rand.Text(),
			ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
		}
	}
	return &config.SQL{
		PluginName:   plugin.PluginName,
		DatabaseName: file,
		ConnectAttributes: map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "normal", "busy_timeout": "5000",
		},
	}
}

// prepareDatabase creates the schema and the namespace if they do not exist.
func prepareDatabase(cfg *config.Config, o Options) error {
	database := cfg.Persistence.DataStores[store].SQL
	if o.Postgres != "" {
		if err := setUpPostgres(database); err != nil {
			return err
		}
	} else if o.DBFile != "" {
		if err := createFile(o.DBFile); err != nil {
			return err
		}
	}
	ns, err := sqlite.NewNamespaceConfig(clusterName, o.Namespace, false, SearchAttributes())
	if err != nil {
		return fmt.Errorf("describe temporal namespace: %w", err)
	}
	ns.Detail.Config.Retention = durationpb.New(retention)
	if err := sqlite.CreateNamespaces(database, ns); err != nil {
		return fmt.Errorf("create temporal namespace: %w", err)
	}
	return nil
}

// createFile creates the schema under another name first, so that a start that was killed leaves no file that
// looks complete.
func createFile(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("temporal database: %w", err)
	}
	draft := file + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("temporal database: %w", err)
	}
	err := sqlite.SetupSchema(&config.SQL{
		PluginName:        plugin.PluginName,
		DatabaseName:      draft,
		ConnectAttributes: map[string]string{"mode": "rwc", "synchronous": "off"},
	})
	if err != nil {
		return fmt.Errorf("make temporal schema: %w", err)
	}
	if err := os.Rename(draft, file); err != nil {
		return fmt.Errorf("temporal database: %w", err)
	}
	return nil
}
