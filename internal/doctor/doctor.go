// Package doctor checks the servers that berth is configured to use, and states what to change.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/internal/config"
	"berth/internal/llm"
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
	Subject string // "settings", "models", "routing", "templates", "redis", "database", "temporal", "identity", "addresses", "uploads", "limits", "providers" or "calls"
	Text    string
	Advice  string // what to change; empty if nothing has to be
}

const (
	// checkTimeout limits the checks of one server.
	checkTimeout = 10 * time.Second
	// maxSkew is the difference between clocks that tokens and tickets of event streams tolerate.
	maxSkew = time.Second
)

// Run checks everything, in order. now is the local clock. When ctx ends it returns what was found before; a check that was interrupted has no
// findings.
func Run(ctx context.Context, cfg config.Config, searchAttributes []string, now func() time.Time) []Finding {
	d := newDoctor(cfg, now)
	return d.run(ctx, d.checks(searchAttributes))
}

// check is one check, whose findings have the subject.
type check struct {
	subject string
	run     func(context.Context)
}

func (d *doctor) checks(searchAttributes []string) []check {
	checks := []check{
		{"redis", d.redis},
		{"database", d.database},
		{"temporal", func(ctx context.Context) { d.temporal(ctx, searchAttributes) }},
		{"identity", d.identity},
		{"addresses", d.addresses},
		{"uploads", d.uploads},
		{"limits", d.limits},
	}
	if d.file = d.settings(); d.file != nil {
		checks = append(checks, check{"routing", d.routing}, check{"models", d.models}, check{"templates", d.templates}, check{"providers", d.providers})
	}
	return checks
}

func (d *doctor) run(ctx context.Context, checks []check) []Finding {
	for _, c := range checks {
		before := len(d.findings)
		checking, cancel := context.WithTimeout(ctx, checkTimeout)
		c.run(checking)
		cancel()
		if ctx.Err() != nil {
			return d.findings[:before]
		}
	}
	return d.findings
}

type doctor struct {
	cfg      config.Config
	now      func() time.Time
	findings []Finding
	// file has the models of the routing file, and used those that all processes use, once they were read.
	file, used *llm.Catalog
	// pdfToText and tesseract are the programs that read uploads.
	pdfToText, tesseract string
}

func newDoctor(cfg config.Config, now func() time.Time) *doctor {
	return &doctor{cfg: cfg, now: now, pdfToText: "pdftotext", tesseract: "tesseract"}
}

func (d *doctor) add(l Level, subject, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, subject, fmt.Sprintf(format, args...), advice})
}

// clock judges a time that a server had between two times of this host, however long its response took.
func (d *doctor) clock(subject string, server, sent, received time.Time) {
	var skew time.Duration
	switch {
	case server.Before(sent):
		skew = server.Sub(sent)
	case server.After(received):
		skew = server.Sub(received)
	}
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
