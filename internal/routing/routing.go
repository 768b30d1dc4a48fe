// Package routing has the routing of a process: its providers, models, queues and routes. The ledger numbers the contents of routing files,
// and every process uses the newest one that it can read; a file is how a content gets there. A snapshot is replaced as a whole, within a
// second of a change in any process.
package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/pause"
	"berth/internal/setting"
)

const (
	// lookEvery is the time between two looks at the file. Networks and container systems send no notice of a change.
	lookEvery = 250 * time.Millisecond
	// refreshEvery is how often the database is asked for a new revision.
	refreshEvery = 500 * time.Millisecond
)

// store is what a process needs of *ledger.Ledger, which documents the methods.
type store interface {
	OfferRouting(ctx context.Context, r ledger.RoutingRevision, changed bool) (ledger.OfferedRouting, error)
	NewestRouting(ctx context.Context) (int64, error)
	Routing(ctx context.Context, revision int64) (ledger.RoutingRevision, error)
	RaiseRouting(ctx context.Context, r ledger.RoutingRevision, above int64) (ledger.OfferedRouting, error)
	RoutingModels(ctx context.Context) (map[string]int64, error)
	OpenModels(ctx context.Context) (map[string]int, error)
}

// Routing is the routing of a process. It is safe for concurrent use.
type Routing struct {
	settings llm.Settings
	log      *slog.Logger
	own      file
	ledger   store // nil for Fixed

	current    atomic.Pointer[Snapshot]
	refreshing sync.Mutex             //nolint:forbidigo // one caller reads the ledger at a time, and readers of current do not wait; it guards what follows
	seen       int64                  // the newest revision that was read, or could not be
	used       ledger.RoutingRevision // the current one
	checked    time.Time              // when the models of open tasks were last read
	warned     map[string]bool
}

// Read reads and checks the file of a process; that of the program for an empty path. Its error names the setting.
func Read(path string, settings llm.Settings, log *slog.Logger) (*Routing, error) {
	r := &Routing{settings: settings, log: log, own: file{path: path}, warned: map[string]bool{}}
	r.current.Store(&Snapshot{})
	if err := r.own.read(); err != nil {
		return nil, setting.Wrong(fmt.Errorf("--routing-file (BERTH_ROUTING_FILE): %w", err))
	}
	_, err := llm.NewCatalog(r.own.content.Config, settings)
	return r, setting.Wrong(err)
}

// Fixed returns a routing that never changes.
func Fixed(c *llm.Catalog) *Routing {
	r := &Routing{log: slog.New(slog.DiscardHandler)}
	r.current.Store(&Snapshot{Catalog: c, Revision: 1})
	return r
}

// Open offers the file of this process to all processes, and reads the newest revision. It waits for a database that is unavailable.
func (r *Routing) Open(ctx context.Context, l *ledger.Ledger) error {
	r.ledger = l
	for backoff := pause.NewBackoff(time.Second, 10*time.Second); ; {
		err := r.offer(ctx, false)
		if err == nil {
			err = r.Refresh(ctx)
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, errUnreadable) {
			return err
		}
		r.log.WarnContext(ctx, "routing not read; retrying", "error", err)
		if !backoff.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// Current returns the routing of this moment.
func (r *Routing) Current() *Snapshot { return r.current.Load() }

// Of returns the catalog for calls of a model at this moment, see Snapshot.Of.
func (r *Routing) Of(model string) *llm.Catalog { return r.Current().Of(model) }

// Run follows the file and the changes of all processes until ctx ends, and calls changed after each.
func (r *Routing) Run(ctx context.Context, changed func()) {
	var last error
	refreshed := time.Now()
	for reported := r.Current(); pause.For(ctx, lookEvery); {
		offered, err := r.follow(ctx)
		if err == nil && (offered || time.Since(refreshed) >= refreshEvery-lookEvery/2) {
			err = r.Refresh(ctx)
			refreshed = time.Now()
		}
		if err != nil && last == nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "routing not read from the database; the known revision remains", "revision", reported.Revision, "error", err)
		}
		last = err
		if now := r.Current(); now != reported {
			reported = now
			changed()
		}
	}
}

// Refresh reads the changes that have been made before.
func (r *Routing) Refresh(ctx context.Context) error {
	if r.ledger == nil {
		return nil
	}
	r.refreshing.Lock()
	defer r.refreshing.Unlock()
	newest, err := r.ledger.NewestRouting(ctx)
	if err != nil {
		return err
	}
	if now := r.Current().Revision; newest < now {
		if newest, err = r.raise(ctx, now); err != nil {
			return err
		}
	}
	if newest != r.seen {
		if err := r.replace(ctx, newest); err != nil {
			return err
		}
	}
	if r.checked.IsZero() || time.Since(r.checked) >= openEvery {
		return r.check(ctx)
	}
	return nil
}

// Exceed publishes the current revision again above a known one that the database has lost, as after an older backup was restored: Redis ignores
// limits of lower revisions.
func (r *Routing) Exceed(ctx context.Context, known int64) error {
	if r.ledger == nil || known <= r.Current().Revision {
		return nil
	}
	if err := r.Refresh(ctx); err != nil || known <= r.Current().Revision { // it was only not read yet
		return err
	}
	r.refreshing.Lock()
	_, err := r.raise(ctx, known)
	r.refreshing.Unlock()
	if err != nil {
		return err
	}
	return r.Refresh(ctx)
}

// raise publishes the current content above a revision, unless the database has a newer one, and returns the newest.
func (r *Routing) raise(ctx context.Context, above int64) (newest int64, err error) {
	out, err := r.ledger.RaiseRouting(ctx, r.used, above)
	if err == nil && out.Published {
		r.log.WarnContext(ctx, "routing published again: the database has lost the revision that processes use, as after an older backup was restored",
			"lost", above, "revision", out.Newest.Revision, "advice", "berth routing list shows the revisions; berth routing activate returns to another one")
	}
	return out.Newest.Revision, err
}

// errUnreadable: no revision can be read by this release.
var errUnreadable = errors.New("no revision of the routing is readable by this release of berth; store a routing file with 'berth routing apply'")

// replace makes the newest revision that this release can read the current one.
func (r *Routing) replace(ctx context.Context, newest int64) error {
	old := r.Current()
	for revision := newest; revision > old.Revision; revision-- {
		found, catalog, err := r.read(ctx, revision)
		if err != nil {
			return err
		}
		if catalog == nil {
			continue
		}
		next := &Snapshot{Catalog: catalog, Revision: revision, former: lacking(old.former, catalog), unknown: lacking(old.unknown, catalog), open: old.open}
		if old.Revision > 0 {
			if err := r.addRemoved(ctx, next, old.Revision); err != nil {
				return err
			}
		}
		r.current.Store(next)
		r.used = found
		r.used.Models = catalog.ModelNames()
		r.seen, r.checked = newest, time.Time{}
		r.log.InfoContext(ctx, "routing changed", "revision", revision, "former", old.Revision, "source", found.Source, "origin", found.Origin, "by", found.CreatedBy)
		r.warnOfFile(ctx, found)
		return nil
	}
	if old.Catalog == nil {
		return errUnreadable
	}
	r.seen = newest
	return nil
}

// read returns a revision with its catalog, nil if this release cannot read it.
func (r *Routing) read(ctx context.Context, revision int64) (ledger.RoutingRevision, *llm.Catalog, error) {
	found, err := r.ledger.Routing(ctx, revision)
	if err != nil {
		return found, nil, err
	}
	content, err := llm.ParseContent(fmt.Sprintf("revision %d", revision), found.Content)
	if err == nil {
		var catalog *llm.Catalog
		if catalog, err = llm.NewCatalog(content.Config, r.settings); err == nil {
			return found, catalog, nil
		}
	}
	r.log.ErrorContext(ctx, "revision of the routing not readable; it is of another release", "revision", revision, "source", found.Source, "origin", found.Origin, "error", err)
	return found, nil, nil
}

// warnOfFile logs that the file of this process has another content than the revision in use.
func (r *Routing) warnOfFile(ctx context.Context, used ledger.RoutingRevision) {
	if r.own.path == "" || r.own.content.Hash == used.Hash {
		return
	}
	r.log.WarnContext(ctx, "routing file not used: a newer revision is", "file", r.own.path, "revision", r.own.revision, "used", used.Revision,
		"source", used.Source, "origin", used.Origin, "by", used.CreatedBy,
		"advice", fmt.Sprintf("berth routing apply %s lets all processes use it; berth routing show prints the revision that they use", r.own.path))
}
