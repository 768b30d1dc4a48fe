package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"berth"
	"berth/internal/config"
)

// Stream measures and prints the latency from provider chunk to SSE client compared with a bare Redis publish, the Redis
// calls per token, and the time from submission to first token compared with a bare workflow with one activity.
func Stream(ctx context.Context, w io.Writer, cfg config.Config, samples int) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Redis.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()

	publish, err := barePublish(ctx, rdb, samples, 2*time.Millisecond)
	if err != nil {
		return err
	}
	// Batching delays tokens on purpose, so the path itself is measured without it.
	unbatched := cfg
	unbatched.Stream.FlushSize = 1
	path, _, err := tokens(ctx, unbatched, rdb, samples, 2*time.Millisecond)
	if err != nil {
		return err
	}
	compare(w, "provider chunk -> SSE client, unbatched, 500 tokens/s", path, publish, "bare Redis publish -> subscriber", "p50 <= 3x")

	for _, rate := range []int{50, 500} {
		batched, calls, err := tokens(ctx, cfg, rdb, min(samples, 10*rate), time.Second/time.Duration(rate))
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "batched (%d ms or %d tokens), %d tokens/s\n  provider chunk -> SSE client  %s\n  Redis calls per token         %.3f   goal <= 0.3\n\n",
			cfg.Stream.FlushIntervalMs, cfg.Stream.FlushSize, rate, batched, calls)
	}
	return firstToken(ctx, w, cfg, max(samples/20, 20))
}

// barePublish measures the time from PUBLISH to a subscriber in the same process.
func barePublish(ctx context.Context, rdb *redis.Client, n int, pause time.Duration) (f latencies, err error) {
	sub := rdb.Subscribe(ctx, "berth:bench")
	defer func() { err = errors.Join(err, sub.Close()) }()
	if _, err := sub.Receive(ctx); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	messages := sub.Channel()
	tick := time.NewTicker(pause)
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
// calls per token that Redis served.
func tokens(ctx context.Context, cfg config.Config, rdb *redis.Client, n int, pause time.Duration) (f latencies, calls float64, err error) {
	h, err := open(ctx, cfg, provider{tokens: n, pause: pause})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	before, err := scriptCalls(ctx, rdb)
	if err != nil {
		return nil, 0, err
	}
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
	after, err := scriptCalls(ctx, rdb)
	if err != nil {
		return nil, 0, err
	}
	if len(f) != n {
		return nil, 0, fmt.Errorf("%d of %d tokens arrived", len(f), n)
	}
	return f, float64(after-before) / float64(n), nil
}

// scriptCalls returns the number of scripts that Redis has run, including lease renewals.
func scriptCalls(ctx context.Context, rdb *redis.Client) (int64, error) {
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("read Redis command statistics: %w", err)
	}
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, nil
}

// firstToken measures the time from a submission over HTTP until its first token reaches the SSE client.
func firstToken(ctx context.Context, w io.Writer, cfg config.Config, n int) (err error) {
	one, stop, err := bareWorkflow(ctx, cfg, 1)
	if err != nil {
		return err
	}
	bare, err := concurrently(ctx, n, 1, one)
	stop()
	if err != nil {
		return err
	}
	h, err := open(ctx, cfg, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	var measured latencies
	for range n {
		began := time.Now()
		err := h.run(ctx, streamTask(), func(ev berth.Event) {
			if ev.Type == berth.EventToken {
				measured = append(measured, time.Since(began))
			}
		})
		if err != nil {
			return err
		}
	}
	compare(w, "submission over HTTP -> first token at the SSE client (provider without delay)", measured, bare.took,
		"bare workflow with one empty activity, start to result", "<= 1.5x")
	return nil
}
