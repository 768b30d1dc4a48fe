package routing

import (
	"context"
	"maps"
	"slices"
	"time"

	"berth/internal/llm"
	"berth/lua"
)

const (
	// openEvery is how often the models of open tasks are read, for which the database reads all open tasks.
	openEvery = time.Minute
	// removedWithin is how long after a model was removed another process may still accept tasks with it.
	removedWithin = time.Minute
)

// Snapshot is the routing at one moment. It is immutable.
type Snapshot struct {
	*llm.Catalog

	Revision int64
	former   map[string]FormerModel
	unknown  map[string]int
	open     []string
}

// FormerModel is a model that the routing does not have any more, but accepted tasks.
type FormerModel struct {
	// Revision is the last one that had the model, and Catalog is of it.
	Revision int64
	Catalog  *llm.Catalog
	// Tasks is how many open tasks there were when they were last counted.
	Tasks   int
	removed time.Time
}

// Of returns the catalog for calls of a model: of the last revision that has it, and the current one for a model that none has.
func (s *Snapshot) Of(model string) *llm.Catalog {
	if f, ok := s.former[model]; ok {
		return f.Catalog
	}
	return s.Catalog
}

// LimitsOf returns the limits of a model by this revision, or as it was before a later one removed it.
func (s *Snapshot) LimitsOf(model string, userSlots int) lua.ModelLimits {
	l := s.Of(model).Limits(model, userSlots)
	l.Queues = s.QueueWeights()
	if len(l.Upstreams) > 0 {
		l.Revision = s.Revision
	}
	return l
}

// Former returns the models that the routing does not have any more, but accepted tasks, by name. The caller must not change it.
func (s *Snapshot) Former() map[string]FormerModel { return s.former }

// Unknown returns how many open tasks need each model that no revision has. The caller must not change it.
func (s *Snapshot) Unknown() map[string]int { return s.unknown }

// Open returns the models that open tasks needed when they were last read, sorted. The caller must not change it.
func (s *Snapshot) Open() []string { return s.open }

// Names returns the names of the models, and of the former ones, sorted.
func (s *Snapshot) Names() []string {
	names := slices.AppendSeq(s.ModelNames(), maps.Keys(s.former))
	slices.Sort(names)
	return names
}

// lacking returns the entries for models that a catalog does not have.
func lacking[T any](models map[string]T, c *llm.Catalog) map[string]T {
	lacking := maps.Clone(models)
	maps.DeleteFunc(lacking, func(name string, _ T) bool { return c.Has(name) })
	return lacking
}

// addRemoved adds the models that some revision since a known one had, to a snapshot that is not in use yet. Tasks may have been accepted with them.
func (r *Routing) addRemoved(ctx context.Context, next *Snapshot, since int64) error {
	models, err := r.ledger.RoutingModels(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if last := models[name]; last >= since && last < next.Revision {
			if err := r.addFormer(ctx, next, name, last, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// addFormer adds a model that was removed, or not yet known to be, with the last revision that had it.
func (r *Routing) addFormer(ctx context.Context, next *Snapshot, name string, revision int64, tasks int) error {
	f := next.former[name]
	if f.Catalog == nil {
		f.removed = time.Now()
	}
	for _, other := range next.former { // one file may have lacked several
		if f.Revision != revision && other.Revision == revision {
			f.Revision, f.Catalog = revision, other.Catalog
		}
	}
	if f.Revision != revision {
		_, catalog, err := r.read(ctx, revision)
		if err != nil {
			return err
		}
		if catalog == nil {
			return nil // it was logged
		}
		f.Revision, f.Catalog = revision, catalog
		r.log.InfoContext(ctx, "model removed from the routing: new tasks are refused, accepted ones finish", "model", name, "revision", revision)
	}
	f.Tasks = tasks
	if next.former == nil {
		next.former = map[string]FormerModel{}
	}
	next.former[name] = f
	return nil
}

// check finds the models that the routing does not have, but open tasks. It forgets those that no task needs any more.
func (r *Routing) check(ctx context.Context) error {
	open, err := r.ledger.OpenModels(ctx)
	if err != nil {
		return err
	}
	models, err := r.ledger.RoutingModels(ctx)
	if err != nil {
		return err
	}
	old := r.Current()
	next := &Snapshot{
		Catalog: old.Catalog, Revision: old.Revision, former: map[string]FormerModel{}, unknown: map[string]int{},
		open: slices.Sorted(maps.Keys(open)),
	}
	for name, f := range old.former {
		if f.Tasks = open[name]; f.Tasks > 0 || time.Since(f.removed) < removedWithin {
			next.former[name] = f
			continue
		}
		r.log.InfoContext(ctx, "removed model not needed any more: its tasks have ended", "model", name)
	}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		revision, known := models[name]
		switch {
		case old.Has(name):
		case known:
			if err := r.addFormer(ctx, next, name, revision, open[name]); err != nil {
				return err
			}
		default:
			next.unknown[name] = open[name]
			if !r.warned[name] {
				r.warned[name] = true
				r.log.WarnContext(ctx, "tasks wait for a model that no revision of the routing has", "model", name, "tasks", open[name],
					"advice", "add the model to the routing file, or cancel the tasks; they fail at their deadline")
			}
		}
	}
	r.checked = time.Now()
	if !maps.Equal(old.former, next.former) || !maps.Equal(old.unknown, next.unknown) || !slices.Equal(old.open, next.open) {
		r.current.Store(next)
	}
	return nil
}
