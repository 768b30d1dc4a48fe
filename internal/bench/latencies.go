package bench

import (
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
