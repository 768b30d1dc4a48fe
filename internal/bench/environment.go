package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
	"go.temporal.io/api/workflowservice/v1"
)

// Environment is the machine and the servers of a benchmark.
type Environment struct {
	Version   string  `json:"version"`
	Commit    string  `json:"commit"`
	Go        string  `json:"go"`
	System    string  `json:"system"`
	Processor string  `json:"processor"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memoryGiB"`
	Redis     string  `json:"redis"`
	Temporal  string  `json:"temporal"`
	Database  string  `json:"database"`
}

func (e Environment) String() string {
	return fmt.Sprintf("berth %s, commit %s, %s, %s\n%s, %d cores, %s GiB of memory\nRedis %s, Temporal %s, %s",
		e.Version, e.Commit, e.Go, e.System, e.Processor, e.Cores, number(e.MemoryGiB), e.Redis, e.Temporal, e.Database)
}

// environment returns the environment of the program and of the servers.
func environment(ctx context.Context, o Options) (e Environment, err error) {
	e = Environment{
		Version: o.Berth.Version, Commit: o.Commit, Go: o.Berth.build.GoVersion, System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), Database: "SQLite",
	}
	for _, s := range o.Berth.build.Settings {
		if s.Key == "vcs.revision" && e.Commit == "" {
			e.Commit = s.Value[:min(12, len(s.Value))]
		}
	}
	for _, m := range o.Berth.build.Deps {
		if m.Path == "modernc.org/sqlite" {
			e.Database += " (" + m.Path + " " + m.Version + ")"
		}
	}
	e.Commit = cmp.Or(e.Commit, "unknown")
	if memory, err := mem.VirtualMemoryWithContext(ctx); err == nil { // 0 where it cannot be read
		e.MemoryGiB = float64(memory.Total) / (1 << 30)
	}
	if p, err := cpu.InfoWithContext(ctx); err == nil && len(p) > 0 {
		e.Processor = p[0].ModelName
	}
	rdb := redisClient(o.Config)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return e, fmt.Errorf("read the version of Redis: %w", err)
	}
	e.Redis = info["Server"]["redis_version"]
	c, err := dial(ctx, o.Config)
	if err != nil {
		return e, err
	}
	defer c.Close()
	system, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return e, fmt.Errorf("read the version of Temporal: %w", err)
	}
	e.Temporal = system.GetServerVersion()
	return e, nil
}

// loadAverage returns the load average of the last minute, 0 where there is none.
func loadAverage(ctx context.Context) float64 {
	avg, err := load.AvgWithContext(ctx)
	if err != nil {
		return 0
	}
	return avg.Load1
}
