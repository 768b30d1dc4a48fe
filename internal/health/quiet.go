package health

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// dependencyKey is the attribute of a record that names the dependency of whose failure, or its end, it is a consequence. See Quiet.
const dependencyKey = "dependency"

// remindEvery is the time after which a lasting fault is logged again.
const remindEvery = time.Minute

// Quiet returns a logger for the parts of a process, many of which notice when a dependency fails. The probe logs the failure, once for all of
// them: a record that names its dependency is logged at level debug, and makes the probe check that dependency. While a dependency is unavailable,
// each other warning is logged once in remindEvery.
func (p *Probe) Quiet(logger *slog.Logger) *slog.Logger {
	return slog.New(&quiet{Handler: logger.Handler(), probe: p, last: &sync.Map{}})
}

type quiet struct {
	slog.Handler

	probe *Probe
	last  *sync.Map // text of a warning -> when it was logged
}

// Handle is part of slog.Handler.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if !q.passes(r) {
		r.Level = slog.LevelDebug
	}
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

func (q *quiet) passes(r slog.Record) bool {
	if r.Level < slog.LevelInfo {
		return true
	}
	s := symptom{message: r.Message}
	var dependency string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case dependencyKey:
			dependency = a.Value.String()
		case "error", "Error":
			s.cause = a.Value.Any()
		}
		return true
	})
	switch {
	case dependency != "":
		if r.Level > slog.LevelInfo {
			q.probe.suspect(dependency, s)
		}
		return false
	case r.Level == slog.LevelWarn && q.probe.fails():
		at, logged := q.last.LoadOrStore(r.Message, r.Time)
		if at, ok := at.(time.Time); logged && ok {
			return r.Time.Sub(at) >= remindEvery && q.last.CompareAndSwap(r.Message, at, r.Time) // of parts that warn concurrently, one logs
		}
	}
	return true
}

// WithAttrs is part of slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.probe, q.last}
}

// WithGroup is part of slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.probe, q.last}
}

// symptom is a consequence of the failure of a dependency.
type symptom struct {
	message string
	cause   any
}

// suspect makes the probe check a dependency that it watches.
func (p *Probe) suspect(dependency string, s symptom) {
	p.noticed.Store(time.Now().UnixNano())
	watching, _ := p.suspected.Load(dependency)
	if suspected, ok := watching.(chan symptom); ok {
		select {
		case suspected <- s:
		default: // one is enough
		}
	}
}

// fails reports whether a dependency is unavailable, or may be.
func (p *Probe) fails() bool {
	if time.Since(time.Unix(0, p.noticed.Load())) < interval {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.deps {
		if d.Status == Unavailable || d.Status == Starting {
			return true
		}
	}
	return false
}

// record is what the log has about the failures of one dependency.
type record struct {
	logger   *slog.Logger
	name     string
	last     finding
	causes   map[string]time.Time // code of a reason -> when it was last logged in this outage
	symptoms time.Time            // when one was last logged
}

// log logs a change of the status or of its reason, and reminds of those that last. The error of a risk or of an unavailable dependency is not
// nil.
func (l *record) log(ctx context.Context, found finding, err error) {
	last, now := l.last, time.Now()
	l.last = found
	if last.status != OK && found.status == OK {
		l.logger.InfoContext(ctx, "dependency available again", dependencyKey, l.name)
	}
	if last.reason.Risk && !found.reason.Risk && found.status == OK {
		l.logger.InfoContext(ctx, "risk of dependency has ended", dependencyKey, l.name, "reason", last.reason.Code)
	}
	if found.status == OK && !found.reason.Risk || found.status != last.status || found.reason.Risk != last.reason.Risk {
		l.causes = map[string]time.Time{}
	}
	at, known := l.causes[found.reason.Code]
	if found.status == OK && !found.reason.Risk || known && (found.reason.Risk || now.Sub(at) < remindEvery) {
		return
	}
	for code := range l.causes { // a reminder of one cause is one of all
		l.causes[code] = now
	}
	l.causes[found.reason.Code] = now
	switch {
	case found.reason.Risk:
		l.logger.WarnContext(ctx, "dependency works with a risk", dependencyKey, l.name, "error", err)
	case known:
		l.logger.WarnContext(ctx, "dependency still unavailable", dependencyKey, l.name, "error", err)
	default:
		l.logger.WarnContext(ctx, "dependency unavailable", dependencyKey, l.name, "error", err)
	}
}

// disturbed logs a symptom of a dependency that works.
func (l *record) disturbed(ctx context.Context, s symptom) {
	if now := time.Now(); now.Sub(l.symptoms) >= remindEvery {
		l.symptoms = now
		l.logger.WarnContext(ctx, "dependency failed for a moment", dependencyKey, l.name, "symptom", s.message, "error", s.cause)
	}
}
