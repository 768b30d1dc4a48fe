package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/pause"
)

// bareName describes the baseline of the slots.
const bareName = "a list of tokens in Redis and one process, without order of users, leases, storage and workflows"

// bareSlots makes as many calls of the provider as a run of berth. The cap is a list of tokens in Redis, for which all calls wait in
// one process.
func bareSlots(ctx context.Context, r *Run, provider string) (err error) {
	options := redisOptions(r.Config)
	options.PoolSize = allCalls + slotCap // each waiting call occupies a connection
	rdb := redis.NewClient(options)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	tokens := "bare-slots-" + berth.NewID("")
	transport := &http.Transport{MaxIdleConnsPerHost: slotCap}
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport}
	waiting, ctx := errgroup.WithContext(ctx)
	for range allCalls {
		waiting.Go(func() error {
			if err := rdb.BLPop(ctx, 0, tokens).Err(); err != nil {
				return fmt.Errorf("wait for a token: %w", err)
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider, strings.NewReader(`{"content": "I am `+bigUser+`."}`))
			if err != nil {
				return err
			}
			res, err := calls.Do(req)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				return err
			}
			if err := res.Body.Close(); err != nil {
				return err
			}
			return rdb.RPush(ctx, tokens, "").Err()
		})
	}
	err = pause.Until(ctx, settled, 10*time.Millisecond, func(ctx context.Context) error {
		all, err := rdb.ClientList(ctx).Result()
		if blocked := strings.Count(all, "cmd=blpop"); err == nil && blocked < allCalls {
			return fmt.Errorf("%d of %d calls wait", blocked, allCalls)
		}
		return err
	})
	if err != nil {
		return err
	}
	begin := make([]any, slotCap)
	for i := range begin {
		begin[i] = ""
	}
	if err := rdb.RPush(ctx, tokens, begin...).Err(); err != nil {
		return fmt.Errorf("add tokens: %w", err)
	}
	err = waiting.Wait()
	return errors.Join(err, rdb.Del(context.WithoutCancel(ctx), tokens).Err())
}
