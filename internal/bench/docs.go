package bench

import (
	"bytes"
	"embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// docs has the templates of the pages that contain figures.
//
//go:embed docs
var docs embed.FS

// busy is the share of a core that a process may use in the computations of sizing.md.
const busy = 0.6

// WriteDocs writes measurements.md and sizing.md with the figures of the report.
func (r Report) WriteDocs(dir string) error {
	pages, err := docs.ReadDir("docs")
	if err != nil {
		return err
	}
	for _, p := range pages {
		name := strings.TrimSuffix(p.Name(), ".tmpl")
		b, err := r.page(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil { //nolint:gosec // documentation
			return fmt.Errorf("write page: %w", err)
		}
	}
	return nil
}

// page returns a page with the figures of the report.
func (r Report) page(name string) ([]byte, error) {
	costOf := func(work, process string) (float64, error) { return r.figure("cost", costName(work, process)) }
	cores := func(rate, times float64, work, process string) (string, error) {
		ms, err := costOf(work, process)
		return number(math.Ceil(10*rate*times*ms/1000/busy) / 10), err
	}
	t, err := template.New(name+".tmpl").Funcs(template.FuncMap{
		"number": number, "num": number,
		"figure": r.figure, "cost": costOf,
		"ceil": func(v float64) string { return number(math.Ceil(v)) },
		"mul":  func(a, b float64) float64 { return a * b },
		"div":  func(a, b float64) float64 { return a / b },
		"ms": func(work, process string) (string, error) {
			ms, err := costOf(work, process)
			return number(ms), err
		},
		// The process that uses most for the work.
		"largest": func(work string) (name string, err error) {
			var highest float64
			for _, process := range processNames() {
				ms, err := costOf(work, process)
				if err != nil {
					return "", err
				}
				if ms > highest {
					name, highest = process, ms
				}
			}
			return name, nil
		},
		"perCore": func(work, process string) (string, error) {
			ms, err := costOf(work, process)
			if ms < 0.01 {
				return "-", err
			}
			return number(math.Round(1000 / ms)), err
		},
		// Units of work per second that one Redis executes.
		"cellRate": func(work string) (float64, error) {
			ms, err := costOf(work, processRedis)
			return busy * 1000 / ms, err
		},
		// Units of other work per second that one Redis executes beside this work.
		"rest": func(rate float64, work, other string) (float64, error) {
			used, err := costOf(work, processRedis)
			if err != nil {
				return 0, err
			}
			ms, err := costOf(other, processRedis)
			return max(0, (busy*1000-rate*used)/ms), err
		},
		"cores":      func(rate float64, work, process string) (string, error) { return cores(rate, 1, work, process) },
		"coresTwice": func(rate float64, work, process string) (string, error) { return cores(rate, 2, work, process) },
	}).ParseFS(docs, "docs/"+name+".tmpl")
	if err != nil {
		return nil, fmt.Errorf("parse the template of %s: %w", name, err)
	}
	const perDay = 10_000_000.0 / 86_400
	data := struct {
		Report
		Environments                                        []Environment
		Goals, Met                                          int
		Works                                               []string
		Idle, Task, Long, Turn, Conference, Heartbeat, Poll string
		Mean, Peak                                          float64
	}{
		Report: r, Works: works(), Idle: workNone, Task: workTask, Long: workLong, Turn: workTurn, Conference: workConference,
		Heartbeat: workHeartbeat, Poll: workPoll,
		Mean: perDay, Peak: 3 * perDay,
	}
	for _, p := range r.Parts {
		if !slices.Contains(data.Environments, p.Environment) {
			data.Environments = append(data.Environments, p.Environment)
		}
		for _, f := range p.Figures {
			if f.Met != nil {
				data.Goals++
			}
			if f.result() == "met" {
				data.Met++
			}
		}
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return out.Bytes(), nil
}
