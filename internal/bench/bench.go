// Package bench compares berth with baselines. Both sides of every ratio are measured in one run on the same servers.
package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/config"
)

// benchmark measures one subject.
type benchmark struct {
	name, title string
	run         func(context.Context, *Run) error
}

// benchmarks returns all benchmarks, in the order in which they run on the same servers: the last ones leave most behind.
func benchmarks() []benchmark {
	return []benchmark{
		{"stream", "tokens from the provider to the client, and the first token of a task", stream},
		{"readers", "open event streams", readers},
		{"openai", "calls of OpenAI's protocol, beside a reverse proxy, another gateway and a bare workflow", openai},
		{"chain", "chains of three model calls", chain},
		{"telemetry", "the same work with and without exported traces", telemetry},
		{"dispatch", "choosing nodes, turns, nodes over HTTP", dispatch},
		{"cost", "processor time of each process for each kind of work", cost},
		{"recovery", "conferences after the loss of their unit", recovery},
		{"slots", "how the calls of a model share its slots", slots},
	}
}

// Names returns the names of all benchmarks.
func Names() []string {
	var names []string
	for _, b := range benchmarks() {
		names = append(names, b.name)
	}
	return names
}

// Options are the settings of a run.
type Options struct {
	Config config.Config
	// Berth is the program that is measured, and Commit its commit; an empty one is read from the program.
	Berth  Berth
	Commit string
	// Scale multiplies the number of repetitions.
	Scale float64
	// Processes are further processes whose processor time is measured, such as Temporal's, by name.
	Processes map[string]int
	// Peer is the directory in which npm has installed the gateway that calls of OpenAI's protocol are compared with. It may be empty.
	Peer string
	// Progress gets a line for each step.
	Progress io.Writer
}

// Measure runs one benchmark. If it fails, the part has the figures until then.
func Measure(ctx context.Context, name string, o Options) (p Part, err error) {
	for _, b := range benchmarks() {
		if b.name != name {
			continue
		}
		r := &Run{Options: o, name: name}
		p = Part{Name: b.name, Title: b.title, Began: time.Now(), Load: [2]float64{loadAverage(ctx)}}
		if p.Environment, err = environment(ctx, o); err != nil {
			return p, err
		}
		if err = b.run(ctx, r); err != nil {
			p.Error, err = err.Error(), fmt.Errorf("%s: %w", name, err)
		}
		p.Seconds, p.Load[1], p.Figures = time.Since(p.Began).Seconds(), loadAverage(ctx), r.figures
		return p, err
	}
	return Part{}, fmt.Errorf("unknown benchmark %q", name)
}

// Run is a run of one benchmark.
type Run struct {
	Options
	name    string
	figures []Figure
}

// add adds a figure to the result.
func (r *Run) add(f Figure) { r.figures = append(r.figures, f) }

// step prints what is measured now.
func (r *Run) step(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Progress, "  %s: %s\n", r.name, fmt.Sprintf(format, args...))
}

// times returns how often something is repeated that is done n times at a scale of 1.
func (r *Run) times(n int) int { return max(1, int(float64(n)*r.Scale)) }

// redisClient returns a client of the Redis of the settings.
func redisClient(cfg config.Config) *redis.Client { return redis.NewClient(redisOptions(cfg)) }

func redisOptions(cfg config.Config) *redis.Options {
	return &redis.Options{Addr: string(cfg.Redis.Addr), CredentialsProviderContext: cfg.Redis.Options().Credentials}
}
