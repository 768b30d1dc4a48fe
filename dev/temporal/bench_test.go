package temporal_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/dev/temporal"
)

// BenchmarkWorkflow measures an empty workflow, and of one with an activity, one after the other (the
// latency of its hops) and sixteen concurrently (throughput), with Temporal's own poll rate for comparison.
func BenchmarkWorkflow(b *testing.B) {
	settings := map[string]map[string]any{
		"tuned": nil,
		"defaults": {
			"history.transferProcessorMaxPollRPS":   20,
			"history.timerProcessorMaxPollRPS":      20,
			"history.visibilityProcessorMaxPollRPS": 20,
			"matching.numTaskqueueReadPartitions":   4,
			"matching.numTaskqueueWritePartitions":  4,
		},
	}
	for _, name := range []string{"tuned", "defaults"} {
		b.Run(name, func(b *testing.B) {
			o := options(b)
			o.DBFile = filepath.Join(b.TempDir(), "temporal.db")
			o.DynamicConfig = settings[name]
			s, err := temporal.Start(b.Context(), o)
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Stop()) }()
			c, err := client.Dial(client.Options{HostPort: o.FrontendAddr, Logger: quiet{}})
			require.NoError(b, err)
			defer c.Close()
			w := worker.New(c, "bench", worker.Options{})
			w.RegisterWorkflow(empty)
			w.RegisterWorkflow(oneActivity)
			w.RegisterActivity(nothing)
			require.NoError(b, w.Start())
			defer w.Stop()
			for _, wf := range []struct {
				name string
				run  any
			}{{"empty", empty}, {"activity", oneActivity}} {
				execute := func() error {
					run, err := c.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{TaskQueue: "bench"}, wf.run)
					if err != nil {
						return err
					}
					return run.Get(context.Background(), nil)
				}
				require.NoError(b, execute())
				b.Run(wf.name+"/sequential", func(b *testing.B) {
					for b.Loop() {
						require.NoError(b, execute())
					}
				})
				b.Run(wf.name+"/parallel", func(b *testing.B) {
					b.SetParallelism(8)
					began, cpu := time.Now(), cpuTime(b)
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if err := execute(); err != nil {
								b.Error(err)
							}
						}
					})
					b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "workflows/s")
					b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				})
			}
		})
	}
}

func empty(workflow.Context) error { return nil }

func nothing(context.Context) error { return nil }

func oneActivity(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	return workflow.ExecuteActivity(ctx, nothing).Get(ctx, nil)
}

// cpuTime returns the CPU time of this process, server and worker together. It depends little on other load.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var _ sdklog.Logger = quiet{}
