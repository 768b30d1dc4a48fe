package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"berth/internal/pause"
)

const (
	// gpuEvery is the interval of the measurements, gpuRetry the one after a measurement without a value: the tool of a GPU that
	// hangs may not even end when it is killed.
	gpuEvery = 5 * time.Second
	gpuRetry = time.Minute
	// gpuTimeout bounds a measurement. nvidia-smi takes about a second where no other process keeps the driver loaded.
	gpuTimeout = 4 * time.Second
)

// gpus measures the host's GPUs, in its own goroutine: their tool may take longer than a heartbeat.
type gpus struct {
	tool  []string // prints the usage of each GPU in percent, one per line
	files []string // patterns of files, each with the usage of one GPU
	usage atomic.Pointer[float64]
}

// newGPUs returns the meter of GPUs of NVIDIA and, by the kernel's amdgpu driver, of AMD. Drivers of Intel's GPUs report their usage only to
// privileged tools.
func newGPUs() *gpus {
	const sys = "/sys/class/drm/"
	return &gpus{
		tool:  []string{"nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"},
		files: []string{sys + "card[0-9]/device/gpu_busy_percent", sys + "card[0-9][0-9]/device/gpu_busy_percent"},
	}
}

// run measures until ctx ends.
func (g *gpus) run(ctx context.Context) {
	for wait := time.Duration(0); pause.For(ctx, wait); {
		wait = gpuEvery
		if g.usage.Store(g.measure(ctx)); g.usage.Load() == nil {
			wait = gpuRetry
		}
	}
}

// measure returns the mean usage of the GPUs, 0-100; nil if there is none or it is not known.
func (g *gpus) measure(ctx context.Context) *float64 {
	readings := g.ask(ctx)
	for _, pattern := range g.files {
		files, _ := filepath.Glob(pattern) // the patterns are valid
		for _, f := range files {
			b, err := os.ReadFile(f) //nolint:gosec // a file of the kernel
			if err == nil {
				readings = append(readings, string(b))
			}
		}
	}
	sum, n := 0.0, 0.0
	for _, reading := range readings {
		if v, err := strconv.ParseFloat(strings.TrimSpace(reading), 64); err == nil && v >= 0 && v <= 100 {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return nil
	}
	return new(tenths(sum / n))
}

// ask returns what the tool prints; nothing if it is not installed, fails or does not end in time.
func (g *gpus) ask(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, gpuTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.tool[0], g.tool[1:]...) //nolint:gosec // a constant
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return strings.Split(string(out), "\n")
}
