// Package bench compares berth with baselines. Both sides of every ratio are measured in one run on the same servers.
package bench

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// latencies holds one measured duration per call.
type latencies []time.Duration

func (f latencies) at(quantile float64) time.Duration {
	if len(f) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(f))
	return s[min(int(quantile*float64(len(s))), len(s)-1)]
}

func (f latencies) String() string {
	return fmt.Sprintf("p50 %s  p99 %s  (%d)", round(f.at(0.5)), round(f.at(0.99)), len(f))
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// compare prints the measured latencies, the baseline, their ratio and the goal.
func compare(w io.Writer, what string, measured, baseline latencies, baselineName, goal string) {
	_, _ = fmt.Fprintf(w, "%s\n  berth     %s\n  baseline  %s  %s\n  ratio     p50 %.2fx  p99 %.2fx   goal %s\n\n",
		what, measured, baseline, baselineName, ratio(measured.at(0.5), baseline.at(0.5)), ratio(measured.at(0.99), baseline.at(0.99)), goal)
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
