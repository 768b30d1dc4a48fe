// Package doctor checks the servers that berth is configured to use, and states what to change.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/config"
)

// Level is the weight of a finding.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // berth works, with a risk that the text states
	Error   Level = "error"   // berth does not work
)

// Finding is the result of one check.
type Finding struct {
	Level   Level
	Subject string // "settings", "models", "redis", "database", "temporal", "identity" or "uploads"
	Text    string
	Advice  string // what to change; empty if nothing has to be
}

const (
	// checkTimeout limits the checks of one server.
	checkTimeout = 10 * time.Second
	// maxSkew is the difference between clocks that tokens and tickets of event streams tolerate.
	maxSkew = time.Second
)

// Run checks everything, in order. now is the local clock.
func Run(ctx context.Context, cfg config.Config, searchAttributes []string, now func() time.Time) []Finding {
	d := &doctor{cfg: cfg, now: now, pdfToText: "pdftotext", tesseract: "tesseract"}
	catalog := d.settings()
	checks := []func(context.Context){
		d.redis, d.database, func(ctx context.Context) { d.temporal(ctx, searchAttributes) }, d.identity, d.uploads, d.limits,
	}
	if catalog != nil {
		for _, name := range catalog.Providers() {
			checks = append(checks, func(ctx context.Context) { d.provider(ctx, catalog, name) })
		}
	}
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		check(ctx)
		cancel()
	}
	return d.findings
}

type doctor struct {
	cfg      config.Config
	now      func() time.Time
	findings []Finding
	// pdfToText and tesseract are the programs that read uploads.
	pdfToText, tesseract string
}

func (d *doctor) add(l Level, subject, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, subject, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) clock(subject string, skew time.Duration) {
	if skew.Abs() > maxSkew {
		d.add(Warning, subject, "synchronize the clocks of all hosts (NTP)",
			"its clock differs from this host's by %s: tokens and tickets of event streams may be refused", skew.Round(time.Millisecond))
		return
	}
	d.add(OK, subject, "", "its clock differs from this host's by less than %s", maxSkew)
}

// Failed reports whether a finding is an error.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Error })
}
