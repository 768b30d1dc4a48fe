// Package health determines whether a process can do its work.
package health

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"berth/internal/metrics"
)

const (
	// interval is the time between two checks of a dependency.
	interval = 5 * time.Second
	// failingInterval is that time while it is unavailable.
	failingInterval = 2 * time.Second
	// startInterval is that time until the first success: a process is ready as soon as its dependencies are.
	startInterval = 100 * time.Millisecond
	// timeout limits a check.
	timeout = 2 * time.Second
)

// Status of a process or of a dependency.
type Status string

// The statuses.
const (
	OK          Status = "ok"
	Starting    Status = "starting"    // a dependency has not succeeded yet
	Degraded    Status = "degraded"    // a dependency fails that has succeeded before
	Stopping    Status = "stopping"    // the process accepts no more work
	Unavailable Status = "unavailable" // of a dependency: the last check failed
)

// Check returns an error if a dependency is unavailable. The error may be one with a Reason.
type Check func(context.Context) error

// Report is the state of a process. It contains no error texts, which would show addresses to any caller; the log has them.
type Report struct {
	Status       Status                `json:"status"`
	Version      string                `json:"version"`
	Dependencies map[string]Dependency `json:"dependencies"`
}

// Dependency is the state of a dependency.
type Dependency struct {
	Status Status    `json:"status"`
	Since  time.Time `json:"since"` // of the status
	Reason *Reason   `json:"reason,omitempty" doc:"Why it is unavailable, or what puts data at risk while it is ok, where that is known"`
}

// Ready reports whether the process should receive requests: every dependency has succeeded once, and it is not stopping.
// Later outages do not change that, because the process can still serve reads.
func (r Report) Ready() bool { return r.Status == OK || r.Status == Degraded }

// StatusCode returns the HTTP status of the report: 200, or 503 for a process that should not receive requests.
func (r Report) StatusCode() int {
	if r.Ready() {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// Probe keeps the state of one process, which may have several parts with the same dependencies.
type Probe struct {
	version string
	logger  *slog.Logger

	suspected sync.Map     // name -> chan symptom: dependencies to check soon
	noticed   atomic.Int64 // when a symptom was last noticed, in Unix ns

	mu       sync.Mutex //nolint:forbidigo // held for map operations only
	deps     map[string]Dependency
	stopping bool
}

// New returns a probe without dependencies.
func New(version string, logger *slog.Logger) *Probe {
	return &Probe{version: version, logger: logger, deps: map[string]Dependency{}}
}

// Version returns the version of the process.
func (p *Probe) Version() string { return p.version }

// Watch checks dependencies until ctx ends, which means that the process stops.
func (p *Probe) Watch(ctx context.Context, checks map[string]Check) {
	var running sync.WaitGroup
	for name, check := range checks {
		p.set(name, finding{status: Starting})
		running.Go(func() { p.watch(ctx, name, check) })
	}
	<-ctx.Done()
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	running.Wait()
}

func (p *Probe) watch(ctx context.Context, name string, check Check) {
	labels := metrics.With(metrics.Dependency.String(name))
	defer metrics.Observe(func(o metric.Observer) {
		up := int64(0)
		d := p.Report().Dependencies[name]
		if d.Status == OK {
			up = 1
		}
		o.ObserveInt64(metrics.DependencyState, up, labels)
		if d.Reason != nil {
			o.ObserveInt64(metrics.DependencyReason, 1, metrics.With(metrics.Dependency.String(name),
				metrics.Reason.String(d.Reason.Code), metrics.Setting.String(d.Reason.Setting)))
		}
	}, metrics.DependencyState, metrics.DependencyReason)()
	suspected := make(chan symptom, 1)
	p.suspected.Store(name, suspected)
	logged := record{logger: p.logger, name: name, last: finding{status: OK}}
	wait := startInterval
	for noticed := (*symptom)(nil); ; {
		drain(suspected) // this is the check
		checking, cancel := context.WithTimeout(ctx, timeout)
		err := check(checking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		found := find(err)
		switch {
		case found.status == OK:
			wait = interval
		case wait == interval:
			wait = failingInterval
		}
		p.set(name, found)
		if noticed != nil && found.status == OK {
			logged.disturbed(ctx, *noticed)
		}
		ended := logged.last.status != OK && found.status == OK
		logged.log(ctx, found, err)
		var early <-chan symptom
		if found.status == OK && noticed == nil { // else it is known, or was checked a moment ago
			early = suspected
		}
		if ended {
			drain(suspected) // what was noticed of this failure
		}
		var ok bool
		if noticed, ok = await(ctx, wait, early); !ok {
			return
		}
	}
}

func drain(suspected <-chan symptom) {
	select {
	case <-suspected:
	default:
	}
}

// await waits for a time, or until a symptom is noticed. It returns false when ctx ends.
func await(ctx context.Context, d time.Duration, early <-chan symptom) (noticed *symptom, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, true
	case s := <-early:
		return &s, true
	case <-ctx.Done():
		return nil, false
	}
}

// Waiting records why a process waits for a dependency at its start, before it can watch it.
func (p *Probe) Waiting(name string, err error) {
	reason, _ := ReasonOf(err)
	p.set(name, finding{status: Starting, reason: reason})
}

// finding is the result of a check.
type finding struct {
	status Status
	reason Reason // zero: none is known
}

func find(err error) finding {
	f := finding{status: OK}
	if err == nil {
		return f
	}
	if r, ok := ReasonOf(err); ok {
		f.reason = r
	}
	if !f.reason.Risk {
		f.status = Unavailable
	}
	return f
}

// set records what was found about a dependency. One that has never responded is starting, not unavailable.
func (p *Probe) set(name string, f finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.deps[name]
	switch {
	case f.status == d.Status, f.status == Unavailable && d.Status == Starting:
	case f.status == Starting && d.Status != "":
		return
	default:
		d = Dependency{Status: f.status, Since: time.Now()}
	}
	if d.Reason = nil; f.reason != (Reason{}) {
		d.Reason = &f.reason
	}
	p.deps[name] = d
}

// Report returns the current state.
func (p *Probe) Report() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Report{Status: OK, Version: p.version, Dependencies: maps.Clone(p.deps)}
	for _, d := range p.deps {
		switch {
		case d.Status == Starting:
			r.Status = Starting
		case d.Status == Unavailable && r.Status == OK:
			r.Status = Degraded
		}
	}
	switch {
	case p.stopping:
		r.Status = Stopping
	case len(p.deps) == 0: // Watch was not called yet
		r.Status = Starting
	}
	return r
}

// Handler serves /healthz and /readyz.
func (p *Probe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": string(OK), "version": p.version})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.Report()
		reply(w, r.StatusCode(), r)
	})
	return mux
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
