package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is the result of benchmarks.
type Report struct {
	Parts []Part `json:"benchmarks"`
}

// Part is the result of one benchmark.
type Part struct {
	Name        string      `json:"name"`
	Title       string      `json:"title"`
	Environment Environment `json:"environment"`
	Began       time.Time   `json:"began"`
	Seconds     float64     `json:"seconds"`
	// Load is the mean number of runnable processes in the minute before the benchmark began and before it ended. More than the
	// number of cores before it began means that something else was running.
	Load    [2]float64 `json:"load"`
	Figures []Figure   `json:"figures"`
	// Error is why a benchmark ended early. It has the figures until then.
	Error string `json:"error,omitempty"`
}

// ReadReport reads a report. One that does not exist is empty.
func ReadReport(file string) (r Report, err error) {
	b, err := os.ReadFile(file) //nolint:gosec // the caller's file
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("read report: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Report{}, fmt.Errorf("%s is not a report of `berth-bench`: %w", file, err)
	}
	return r, nil
}

// Write writes the report as JSON.
func (r Report) Write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil { //nolint:gosec // contains nothing secret
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Put adds a part, or replaces the one of the same benchmark.
func (r *Report) Put(p Part) {
	if i := slices.IndexFunc(r.Parts, func(o Part) bool { return o.Name == p.Name }); i >= 0 {
		r.Parts[i] = p
		return
	}
	r.Parts = append(r.Parts, p)
}

// figure returns the value of a figure.
func (r Report) figure(part, name string) (float64, error) {
	for _, p := range r.Parts {
		for _, f := range p.Figures {
			if p.Name == part && f.Name == name {
				return f.Value, nil
			}
		}
	}
	return 0, fmt.Errorf("the report has no figure %q of the benchmark %s", name, part)
}

// Print prints the report as tables.
func (r Report) Print(w io.Writer) error {
	var last Environment
	for _, p := range r.Parts {
		if p.Environment != last {
			last = p.Environment
			_, _ = fmt.Fprintf(w, "%s\n", last)
		}
		if err := p.print(w); err != nil {
			return err
		}
	}
	return nil
}

func (p Part) print(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "\n%s: %s (%s, %.0f s, load average %.1f before, %.1f after)\n",
		p.Name, p.Title, p.Began.UTC().Format(time.DateTime), p.Seconds, p.Load[0], p.Load[1])
	if p.Error != "" {
		_, _ = fmt.Fprintf(w, "  ended early: %s\n", p.Error)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := Row{"figure", "berth", "baseline", "ratio", "goal", "", "what the baseline is"}
	for _, row := range append([]Row{header}, p.Rows()...) {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.cells()...)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}

// Row is a figure as text.
type Row struct{ Figure, Berth, Baseline, Ratio, Goal, Result, BaselineName string }

func (r Row) cells() []any {
	return []any{r.Figure, r.Berth, r.Baseline, r.Ratio, r.Goal, r.Result, r.BaselineName}
}

// Rows returns the figures as text.
func (p Part) Rows() (rows []Row) {
	for _, f := range p.Figures {
		r := Row{Figure: f.Name, Berth: withUnit(f.Value, f.Unit), Goal: f.Goal, Result: f.result(), BaselineName: f.BaselineName}
		if f.BaselineName != "" {
			r.Baseline, r.Ratio = withUnit(f.Baseline, f.Unit), number(f.Ratio)
		}
		if f.Missing != "" {
			r.Baseline, r.Ratio = "not measured: "+f.Missing, ""
		}
		rows = append(rows, r)
	}
	return rows
}
