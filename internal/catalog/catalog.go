// Package catalog has the templates of a process. Versions are stored in the database, which says which of them new tasks use; a process
// adds those of its binary and of its directory. A snapshot is replaced as a whole, within a second of a change in any process.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"berth"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/template"
)

const (
	// interval is how often the database is asked for changes.
	interval = 500 * time.Millisecond
	// maxKept is how many versions are kept that are not, or no longer, those of new tasks.
	maxKept = 2000
)

// store is what a catalog needs of *ledger.Ledger, which documents the methods.
type store interface {
	OfferTemplates(ctx context.Context, versions []ledger.TemplateVersion, changed bool) ([]ledger.OfferedTemplate, error)
	WithdrawTemplate(ctx context.Context, name berth.Template, version, builtin string) (state ledger.TemplateState, withdrawn bool, err error)
	TemplateChanges(ctx context.Context) (int64, error)
	Templates(ctx context.Context) ([]ledger.TemplateState, error)
	TemplateVersion(ctx context.Context, name berth.Template, version string) (ledger.TemplateVersion, error)
	OpenTemplateVersions(ctx context.Context) ([]ledger.TemplateVersion, error)
}

// Catalog is the catalog of a process. It is safe for concurrent use.
type Catalog struct {
	ledger store
	log    *slog.Logger

	current atomic.Pointer[snapshot]
	kept    atomic.Pointer[map[key]*template.Template]
	own     atomic.Pointer[ownVersions]
	loading singleflight.Group
}

type key struct {
	name    berth.Template
	version string
}

// snapshot is what new tasks use. It is immutable.
type snapshot struct {
	changes int64 // as ledger.TemplateChanges, read before all else
	entries map[berth.Template]entry
	list    []*template.Template
}

// Revision identifies what a catalog knows: after a change it differs.
type Revision struct {
	current *snapshot
	own     *ownVersions
}

// Listed is a template with its state.
type Listed struct {
	State    ledger.TemplateState
	Template *template.Template
}

type entry struct {
	ledger.TemplateState
	template *template.Template // nil if this release cannot read it
}

// New returns the catalog of a ledger, whose templates are known after Refresh.
func New(l *ledger.Ledger, log *slog.Logger) *Catalog {
	c := &Catalog{ledger: l, log: log}
	c.current.Store(&snapshot{changes: -1})
	c.kept.Store(&map[key]*template.Template{})
	c.own.Store(&ownVersions{})
	return c
}

// Run follows the changes of all processes until ctx ends, and calls changed after each.
func (c *Catalog) Run(ctx context.Context, changed func()) {
	var last error
	for reported := c.current.Load(); pause.For(ctx, interval); {
		err := c.Refresh(ctx)
		if err != nil && last == nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "templates not read; those known remain", "error", err)
		}
		last = err
		if now := c.current.Load(); now != reported {
			reported = now
			changed()
		}
	}
}

// Refresh reads the changes that have been made before.
func (c *Catalog) Refresh(ctx context.Context) error {
	changes, err := c.ledger.TemplateChanges(ctx)
	if err != nil {
		return err
	}
	old := c.current.Load()
	if changes == old.changes {
		return nil
	}
	states, err := c.ledger.Templates(ctx)
	if err != nil {
		return err
	}
	next := &snapshot{changes: changes, entries: make(map[berth.Template]entry, len(states))}
	for _, state := range states {
		e := entry{TemplateState: state, template: old.entries[state.Template].template}
		if e.template == nil || e.template.Version != state.Version {
			if e.template, err = c.read(ctx, state); err != nil {
				return err
			}
		}
		next.entries[state.Template] = e
		if e.template != nil && !state.Deleted {
			next.list = append(next.list, e.template)
		}
	}
	for !c.current.CompareAndSwap(old, next) {
		if old = c.current.Load(); old.changes >= next.changes {
			break // another caller has read more
		}
	}
	return nil
}

// read returns the template of a state, nil if this release cannot read it.
func (c *Catalog) read(ctx context.Context, state ledger.TemplateState) (*template.Template, error) {
	t, err := c.Version(ctx, state.Template, state.Version)
	if mistakes, ok := errors.AsType[template.Mistakes](err); ok {
		c.log.ErrorContext(ctx, "template not readable; it is of another release", "template", state.Template, "version", state.Version, "error", mistakes)
		return nil, nil //nolint:nilnil // see above
	}
	return t, err
}

// Used returns the templates of new tasks and, as far as this release can read them, the other versions that accepted tasks use.
func (c *Catalog) Used(ctx context.Context) ([]*template.Template, error) {
	open, err := c.ledger.OpenTemplateVersions(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(c.List())
	for _, v := range open {
		if slices.ContainsFunc(list, func(t *template.Template) bool { return t.Name == v.Template && t.Version == v.Version }) {
			continue
		}
		t, err := c.Version(ctx, v.Template, v.Version)
		if mistakes := template.Mistakes(nil); errors.As(err, &mistakes) || berth.CodeOf(err) == berth.CodeNotFound {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// List returns the templates of new tasks, by name.
func (c *Catalog) List() []*template.Template { return c.current.Load().list }

// Listed returns the templates of new tasks, or those that were deleted, as far as this release can read them.
func (c *Catalog) Listed(deleted bool) (list []Listed) {
	for _, e := range c.current.Load().entries {
		if e.template != nil && e.Deleted == deleted {
			list = append(list, Listed{e.TemplateState, e.template})
		}
	}
	return list
}

// Revision returns the revision of what Listed and Replaces return.
func (c *Catalog) Revision() Revision { return Revision{c.current.Load(), c.own.Load()} }

// Template returns the template of new tasks; its error has berth.CodeInvalid for one that does not exist.
func (c *Catalog) Template(name berth.Template) (*template.Template, error) {
	e, ok := c.current.Load().entries[name]
	switch {
	case !ok:
		return nil, berth.Invalid("template", "unknown template %q; GET /v1/templates lists those that exist", name)
	case e.Deleted:
		return nil, berth.Invalid("template", "template %s was deleted: new tasks cannot use it", name)
	case e.template == nil:
		return nil, berth.Errorf(berth.CodeUnavailable, "template %s was written for another release of berth; retry after the upgrade", name)
	}
	return e.template, nil
}

// State returns which version of a template new tasks use; CodeNotFound for an unknown one.
func (c *Catalog) State(name berth.Template) (ledger.TemplateState, error) {
	e, ok := c.current.Load().entries[name]
	if !ok {
		return ledger.TemplateState{}, berth.Errorf(berth.CodeNotFound, "template %s not found", name)
	}
	return e.TemplateState, nil
}

// Version returns a version of a template. Its error has berth.CodeNotFound for an unknown one, and is of type template.Mistakes for one
// that this release cannot read.
func (c *Catalog) Version(ctx context.Context, name berth.Template, version string) (*template.Template, error) {
	if t := c.current.Load().entries[name].template; t != nil && t.Version == version {
		return t, nil
	}
	k := key{name, version}
	if t := (*c.kept.Load())[k]; t != nil {
		return t, nil
	}
	// The first caller may leave; others wait for the same result.
	loaded := c.loading.DoChan(string(name)+" "+version, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		stored, err := c.ledger.TemplateVersion(ctx, name, version)
		if err != nil {
			return nil, err
		}
		t, err := template.Load(name, stored.Files)
		if err != nil {
			return nil, fmt.Errorf("template %s, version %s: %w", name, version, err)
		}
		c.keep(t)
		return t, nil
	})
	select {
	case r := <-loaded:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*template.Template), nil //nolint:errcheck,forcetypeassert // nothing else is returned
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// keep keeps versions for those that ask for them next. Others are dropped where there are too many.
func (c *Catalog) keep(versions ...*template.Template) {
	for {
		old := c.kept.Load()
		next := make(map[key]*template.Template, len(*old)+len(versions))
		if len(*old)+len(versions) <= maxKept {
			maps.Copy(next, *old)
		}
		for _, t := range versions {
			next[key{t.Name, t.Version}] = t
		}
		if c.kept.CompareAndSwap(old, &next) {
			return
		}
	}
}
