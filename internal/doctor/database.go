package doctor

import (
	"context"
	"errors"
	"io/fs"

	"berth/internal/ledger"
)

func (d *doctor) database(ctx context.Context) {
	const subject = "database"
	s, err := ledger.Inspect(ctx, d.cfg.Database.Source())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add(Warning, subject, "check BERTH_DATABASE unless this is the first start", "the file does not exist; berth creates it: %s", err)
		return
	case err != nil:
		d.add(Error, subject, "check BERTH_DATABASE", "%s", err)
		return
	case s.Schema > s.Latest:
		d.add(Error, subject, "upgrade berth", "%s %s has schema version %d, this program knows up to %d", s.Name, s.Version, s.Schema, s.Latest)
	case s.Schema < s.Latest:
		d.add(OK, subject, "", "%s %s, schema version %d; berth migrates it to %d at the next start", s.Name, s.Version, s.Schema, s.Latest)
	default:
		d.add(OK, subject, "", "%s %s, schema version %d", s.Name, s.Version, s.Schema)
	}
	if s.Name == "sqlite" && d.cfg.Production {
		d.add(Warning, subject, "set BERTH_DATABASE to postgres://…", "SQLite serves the processes of one host only")
	}
	if !s.Now.IsZero() {
		d.clock(subject, s.Now.Sub(d.now()))
	}
}
