package ledger

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

// migrate applies the missing migrations of migrations/{dialect}. Existing migrations never change.
func (l *Ledger) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations/"+l.dialect.name)
	if err != nil {
		return err
	}
	if l.dialect.name == "sqlite" {
		// goose has no lock for SQLite: when two processes open a new file at the same time, one fails because of the
		// other's changes, and finds them applied when it retries.
		for range 3 {
			if err = l.up(ctx, goose.DialectSQLite3, files); err == nil {
				return nil
			}
		}
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // seconds, tries
	if err != nil {
		return fmt.Errorf("create the migration lock: %w", err)
	}
	return l.up(ctx, goose.DialectPostgres, files, goose.WithSessionLocker(locker))
}

func (l *Ledger) up(ctx context.Context, d goose.Dialect, files fs.FS, opts ...goose.ProviderOption) error {
	p, err := goose.NewProvider(d, l.write, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	applied, err := p.Up(ctx)
	if err != nil {
		return err
	}
	for _, m := range applied {
		l.logger.InfoContext(ctx, "database migrated", "dialect", l.dialect.name, "migration", m.Source.Path)
	}
	return nil
}
