package health_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
)

var replica, full = broken(health.Reason{Code: "read_only"}), broken(health.Reason{Code: "memory_full"})

// part is a part of a process that logs each second what an outage of a dependency means to it.
func part(ctx context.Context, logger *slog.Logger, down *atomic.Bool, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		if down.Load() {
			logger.Warn("redis subscription lost", "dependency", "redis", "subscription", name, "error", errors.New("EOF"))
			logger.Warn("task not stored; retrying", "task", n, "error", errors.New("EOF"))
		} else {
			logger.Info("redis subscription restored", "dependency", "redis", "subscription", name)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// D9: an outage, however it shows and however long it lasts, is one line of each kind when it begins, one a minute while it lasts, and one when
// it ends.
func TestQuiet_DependencyFails_IsLoggedOnceAMinute(t *testing.T) { // L11
	t.Parallel()
	for name, failure := range map[string]func(n int64) error{
		"one cause":     func(int64) error { return replica },
		"two in turn":   func(n int64) error { return []error{replica, full}[n%2] },
		"it hangs":      func(int64) error { <-time.After(2 * time.Second); return context.DeadlineExceeded },
		"unknown cause": func(n int64) error { return fmt.Errorf("attempt %d", n) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				var checks atomic.Int64
				var log syncBuffer
				logger := slog.New(slog.NewTextHandler(&log, nil))
				probe := health.New("test", logger)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() {
					probe.Watch(ctx, map[string]health.Check{"redis": func(context.Context) error {
						if n := checks.Add(1); down.Load() {
							return failure(n)
						}
						return nil
					}})
				})
				quiet := probe.Quiet(logger).With("part", "test")
				for _, name := range []string{"streams", "fleet", "slots"} {
					running.Go(func() { part(ctx, quiet, &down, name) })
				}
				defer func() { cancel(); running.Wait() }()
				<-time.After(time.Minute)
				require.Empty(t, log.lines(""), "it works")
				for range 2 {
					log.reset()
					down.Store(true)
					<-time.After(10 * time.Second)
					causes := 1
					if name == "two in turn" {
						causes = 2
					}
					require.Len(t, log.lines(`msg="dependency unavailable"`), causes)
					require.LessOrEqual(t, len(log.lines("task not stored")), 1)
					<-time.After(10 * time.Minute)
					reminders := len(log.lines(`msg="dependency still unavailable"`))
					require.GreaterOrEqual(t, reminders, 8)
					require.LessOrEqual(t, reminders, 10)
					require.LessOrEqual(t, len(log.lines("task not stored")), 12) // one before the outage is known, and one a minute
					require.Empty(t, log.lines("subscription"))
					down.Store(false)
					<-time.After(4500 * time.Millisecond)
					require.Len(t, log.lines(`msg="dependency available again"`), 1)
					require.Empty(t, log.lines("for a moment"))
				}
			})
		})
	}
}

// D9: the first part that notices a failure makes the probe check, so that the log has it soon. A failure that has ended then is one line.
func TestQuiet_PartNoticesFailure_ProbeChecks(t *testing.T) { // L11
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis dependency
		var log syncBuffer
		redis.up.Store(true)
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
		probe := health.New("test", logger)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { probe.Watch(ctx, map[string]health.Check{"redis": redis.check}) })
		defer func() { cancel(); running.Wait() }()
		quiet := probe.Quiet(logger)
		<-time.After(2 * time.Second)
		for range 3 {
			quiet.Warn("redis subscription lost", "dependency", "redis", "error", errors.New("EOF"))
			<-time.After(100 * time.Millisecond)
		}
		require.Len(t, log.lines(""), 1)
		require.Contains(t, log.lines("")[0], `msg="dependency failed for a moment" dependency=redis symptom="redis subscription lost" error=EOF`)
		<-time.After(8 * time.Second)
		log.reset()
		redis.up.Store(false)
		quiet.Warn("redis subscription lost", "dependency", "redis", "error", errors.New("EOF"))
		synctest.Wait()
		require.Len(t, log.lines(`msg="dependency unavailable"`), 1, "immediately")
		quiet.Error("slot lost", "error", errors.New("bug"))
		quiet.Error("slot lost", "error", errors.New("bug"))
		require.Len(t, log.lines("slot lost"), 2, "errors are always logged")
	})
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}

// lines returns the lines that contain a text.
func (s *syncBuffer) lines(text string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.b.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
