package node

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"

	"berth"
)

// meter measures the host's load between two heartbeats. Values that cannot be measured are 0, except for the GPU's.
type meter struct {
	gpus *gpus
	last cpu.TimesStat
	// latency is the moving average of the heartbeats' round trip in ms.
	latency float64
}

func newMeter() *meter {
	m := &meter{gpus: newGPUs()}
	m.cpu(context.Background())
	return m
}

// latencyWeight is the weight of the newest round trip in the average.
const latencyWeight = 0.2

// addRoundTrip records a heartbeat's round trip.
func (m *meter) addRoundTrip(d time.Duration) {
	ms := float64(d.Microseconds()) / 1000
	m.latency = cmp.Or(m.latency, ms)
	m.latency += latencyWeight * (ms - m.latency)
}

func (m *meter) read(ctx context.Context, w Work) berth.NodeLoad {
	running, executing := w.Load()
	return berth.NodeLoad{
		CPUUsage: m.cpu(ctx), GPUUsage: m.gpus.usage.Load(), MemoryUsage: memory(ctx), LatencyMs: tenths(m.latency),
		CurrentJobs: running, ActiveWorkflows: executing,
	}
}

// cpu returns the use of the host's processors since the last call, 0-100.
func (m *meter) cpu(ctx context.Context) float64 {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) == 0 {
		return 0
	}
	previous, now := m.last, times[0]
	m.last = now
	all := total(now) - total(previous)
	if all <= 0 {
		return 0
	}
	return percent(100 * (1 - (now.Idle+now.Iowait-previous.Idle-previous.Iowait)/all))
}

// total omits guest times, which user and nice already include.
func total(t cpu.TimesStat) float64 {
	return t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal
}

func memory(ctx context.Context) float64 {
	v, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return 0
	}
	return percent(v.UsedPercent)
}

func percent(p float64) float64 {
	if math.IsNaN(p) {
		return 0
	}
	return tenths(min(max(p, 0), 100))
}

func tenths(v float64) float64 { return math.Round(v*10) / 10 }
