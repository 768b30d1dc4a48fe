package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
	"berth/internal/pause"
)

// stream measures the latency from provider chunk to SSE client compared with a bare Redis publish, the Redis calls per token,
// and the time from submission to first token compared with a bare workflow with one activity.
func stream(ctx context.Context, r *Run) (err error) {
	samples := r.times(2000)
	rdb := redisClient(r.Config)
	defer func() { err = errors.Join(err, rdb.Close()) }()

	r.step("%d bare publishes", samples)
	publish, err := barePublish(ctx, rdb, samples, 2*time.Millisecond)
	if err != nil {
		return err
	}
	// Batching delays tokens on purpose, so the path itself is measured without it.
	r.step("%d tokens, not batched", samples)
	path, _, err := r.tokens(ctx, rdb, samples, 2*time.Millisecond, "STREAM_FLUSH_SIZE=1")
	if err != nil {
		return err
	}
	r.quantiles("provider chunk to SSE client, not batched, 500 tokens/s", path, "bare Redis publish to a subscriber", publish, maxRatio(2))
	for _, rate := range []int{50, 500} {
		n := min(samples, 10*rate)
		r.step("%d tokens at %d/s", n, rate)
		batched, calls, err := r.tokens(ctx, rdb, n, time.Second/time.Duration(rate))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("batched (%d ms or %d tokens), %d tokens/s", r.Config.Stream.FlushIntervalMs, r.Config.Stream.FlushSize, rate)
		r.quantiles(name+": provider chunk to SSE client", batched, "", nil)
		r.add(Figure{Name: name + ": Redis calls per token", Value: calls}.within(maximum(0.25)))
	}
	return r.firstToken(ctx, r.times(100))
}

// barePublish measures the time from PUBLISH to a subscriber in the same process.
func barePublish(ctx context.Context, rdb *redis.Client, n int, every time.Duration) (f latencies, err error) {
	sub := rdb.Subscribe(ctx, "berth:bench")
	defer func() { err = errors.Join(err, sub.Close()) }()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	messages := sub.Channel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range n {
		<-tick.C
		if err := rdb.Publish(ctx, "berth:bench", strconv.FormatInt(time.Now().UnixNano(), 10)).Err(); err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		msg := <-messages
		f = append(f, since(msg.Payload))
	}
	return f, nil
}

func since(nanos string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(nanos), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - n)
}

// tokens runs one task with a stream of n tokens. It returns the latency of each token to the SSE client and the script
// calls per token that Redis served, beyond those of processes without work.
func (r *Run) tokens(ctx context.Context, rdb *redis.Client, n int, every time.Duration, settings ...string) (f latencies, calls float64, err error) {
	h, err := r.open(ctx, provider{tokens: n, pause: every}, settings...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	idle, err := scripts(ctx, rdb)
	if err != nil {
		return nil, 0, err
	}
	if !pause.For(ctx, idleFor) {
		return nil, 0, context.Cause(ctx)
	}
	before, err := scripts(ctx, rdb)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	err = h.run(ctx, streamTask(), func(ev berth.Event) {
		if ev.Type == berth.EventToken || ev.Type == berth.EventTokenBatch {
			for stamp := range strings.FieldsSeq(ev.Text) {
				f = append(f, since(stamp))
			}
		}
	})
	if err != nil {
		return nil, 0, err
	}
	after, err := scripts(ctx, rdb)
	if err != nil {
		return nil, 0, err
	}
	if len(f) != n {
		return nil, 0, fmt.Errorf("%d of %d tokens arrived", len(f), n)
	}
	background := float64(before.calls-idle.calls) * time.Since(began).Seconds() / idleFor.Seconds()
	return f, (float64(after.calls-before.calls) - background) / float64(n), nil
}

// scriptStats are Redis's statistics of scripts.
type scriptStats struct{ calls, microseconds int64 }

var scriptLine = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// scripts returns the scripts that Redis has run, including lease renewals.
func scripts(ctx context.Context, rdb *redis.Client) (s scriptStats, err error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return s, fmt.Errorf("read Redis command statistics: %w", err)
	}
	if m := scriptLine.FindStringSubmatch(info); m != nil { // none before the first script
		_, err = fmt.Sscan(m[1]+" "+m[2], &s.calls, &s.microseconds)
	}
	return s, err
}

// firstToken measures the time from a submission over HTTP until its first token reaches the SSE client. The provider responds
// without delay. The two sides alternate, so that both are slowed equally by a growing database.
func (r *Run) firstToken(ctx context.Context, n int) (err error) {
	r.step("%d first tokens", n)
	bare, stop, err := bareWorkflow(ctx, r.Config, 1)
	if err != nil {
		return err
	}
	defer stop()
	h, err := r.open(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	var measured, baseline latencies
	for range n {
		began := time.Now()
		if err := bare(ctx, 0); err != nil {
			return err
		}
		baseline = append(baseline, time.Since(began))
		began = time.Now()
		err := h.run(ctx, streamTask(), func(ev berth.Event) {
			if ev.Type == berth.EventToken {
				measured = append(measured, time.Since(began))
			}
		})
		if err != nil {
			return err
		}
	}
	r.quantiles("submission over HTTP to first token at the SSE client, provider without delay", measured,
		"bare workflow with one empty activity, start to result", baseline, maxRatio(1.2))
	return nil
}
