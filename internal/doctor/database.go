package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/ledger"
)

// database checks that the database accepts what a process needs. It states a problem as a process does at its start.
func (d *doctor) database(ctx context.Context) {
	const subject = "database"
	sent := d.now()
	s, err := ledger.Inspect(ctx, d.cfg.Database.Source())
	received := d.now()
	problem := ledger.Diagnose(err)
	switch {
	case errors.Is(err, fs.ErrNotExist) && problem == nil:
		if denied := creatable(err); denied != nil {
			d.add(Error, subject, "let the user of berth write to the directory of BERTH_DATABASE, or set another file", "%s", denied)
			return
		}
		d.add(Warning, subject, "check BERTH_DATABASE unless this is the first start", "the file does not exist; berth creates it: %s", err)
		return
	case problem != nil:
		d.add(Error, subject, problem.Advice, "%s", problem.Said)
		return
	case err != nil:
		d.add(Error, subject, "check BERTH_DATABASE", "%s", err)
		return
	case s.Schema < s.Latest:
		d.add(OK, subject, "", "%s %s, schema version %d; berth migrates it to %d at the next start", s.Name, s.Version, s.Schema, s.Latest)
	default:
		d.add(OK, subject, "", "%s %s, schema version %d, accepts writes", s.Name, s.Version, s.Schema)
	}
	for _, p := range s.Warnings() {
		d.add(Warning, subject, p.Advice, "%s", p.Said)
	}
	if s.Pooled {
		d.add(OK, subject, "", "connections pass through a pooler; statements are not prepared")
	}
	if s.Name == "sqlite" && d.cfg.Production {
		d.add(Warning, subject, "set BERTH_DATABASE to postgres://…", "SQLite serves the processes of one host only")
	}
	if !s.Now.IsZero() {
		d.clock(subject, s.Now, sent, received)
	}
}

// emptyDatabase is about the size of a database without tasks.
const emptyDatabase = 512 << 10

// creatable returns why the file that an error names cannot be created, nil if it can.
func creatable(missing error) error {
	file, ok := errors.AsType[*fs.PathError](missing)
	if !ok {
		return nil
	}
	dir := filepath.Dir(file.Path)
	for {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if parent := filepath.Dir(dir); !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return err
		}
		dir = filepath.Dir(dir)
	}
	probe, err := os.CreateTemp(dir, ".berth-doctor-*")
	if err != nil {
		return err
	}
	_, err = probe.Write(make([]byte, emptyDatabase)) // the disk may be full
	return errors.Join(err, probe.Close(), os.Remove(probe.Name()))
}
