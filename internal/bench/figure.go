package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Figure is one measured value. Baseline, Ratio, Goal and Met are set only where there is a baseline or a goal.
type Figure struct {
	Name         string  `json:"name"`
	Unit         string  `json:"unit"`
	Value        float64 `json:"value"`
	BaselineName string  `json:"baselineName,omitempty"`
	Baseline     float64 `json:"baseline,omitempty"`
	Ratio        float64 `json:"ratio,omitempty"`   // of the value to the baseline
	Missing      string  `json:"missing,omitempty"` // why the baseline was not measured
	Goal         string  `json:"goal,omitempty"`
	Met          *bool   `json:"met,omitempty"`
}

// beside adds the baseline, in the same unit.
func (f Figure) beside(name string, baseline float64) Figure {
	f.BaselineName, f.Baseline = name, baseline
	if baseline != 0 {
		f.Ratio = f.Value / baseline
	}
	return f
}

// without names a baseline that was not measured.
func (f Figure) without(name, why string) Figure {
	f.BaselineName, f.Missing = name, why
	return f
}

// goal is a limit of a figure's value, of its ratio to the baseline, or of the difference.
type goal struct {
	ratio, more, least bool
	limit              float64
}

func maximum(limit float64) goal  { return goal{limit: limit} }
func minimum(limit float64) goal  { return goal{least: true, limit: limit} }
func maxMore(limit float64) goal  { return goal{more: true, limit: limit} }
func maxRatio(limit float64) goal { return goal{ratio: true, limit: limit} }
func minRatio(limit float64) goal { return goal{ratio: true, least: true, limit: limit} }

// within adds the goal and whether the figure meets it.
func (f Figure) within(g goal) Figure {
	value, of, unit := f.Value, "", f.Unit
	if g.ratio {
		value, of, unit = f.Ratio, "ratio ", ""
	}
	if g.more {
		value, of = f.Value-f.Baseline, "difference "
	}
	met, relation := value <= g.limit, "<="
	if g.least {
		met, relation = value >= g.limit, ">="
	}
	f.Goal = strings.TrimSpace(fmt.Sprintf("%s%s %g %s", of, relation, g.limit, unit))
	f.Met = &met
	return f
}

// result returns "met", "missed", or an empty string without a goal.
func (f Figure) result() string {
	switch {
	case f.Met == nil:
		return ""
	case *f.Met:
		return "met"
	default:
		return "missed"
	}
}

// number formats a value with three significant digits, and whole numbers completely.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

func withUnit(v float64, unit string) string {
	if unit == "" {
		return number(v)
	}
	return number(v) + " " + unit
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantiles adds the median and the 99th percentile of latencies, with those of a baseline and with goals, each if it is given.
func (r *Run) quantiles(name string, measured latencies, baselineName string, baseline latencies, goals ...goal) {
	for i, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		f := Figure{Name: fmt.Sprintf("%s, %s", name, q.name), Unit: "ms", Value: milliseconds(measured.at(q.at))}
		if baselineName != "" {
			f = f.beside(baselineName, milliseconds(baseline.at(q.at)))
		}
		if i < len(goals) {
			f = f.within(goals[i])
		}
		r.add(f)
	}
}
