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

// migrate applies what is missing of migrations/{dialect}. Migrations are only ever added.
func (l *Ledger) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations/"+l.dialect.name)
	if err != nil {
		return err
	}
	if l.dialect.name == "sqlite" {
		// goose has no lock for SQLite. Of two processes that open a new file at once one fails on what
		// the other has just made, and finds it made when it looks again.
		for range 3 {
			if err = l.up(ctx, goose.DialectSQLite3, files); err == nil {
				return nil
			}
		}
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60)) // seconds, tries
	if err != nil {
		return fmt.Errorf("make the migration lock: %w", err)
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
