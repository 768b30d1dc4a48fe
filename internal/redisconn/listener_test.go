package redisconn

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth/internal/testredis"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every refused connection
	goleak.VerifyTestMain(m)
}

const timeout = 20 * time.Second // for conditions that take far less

// subscriber is a Subscriber for tests that do not need scripts.
type subscriber struct{ *redis.Client }

func (subscriber) TickChannel() string { return "tick:" + rand.Text() }

func (s subscriber) Tick(ctx context.Context, channel string) (int64, error) {
	return s.Publish(ctx, channel, "").Result()
}

// listen runs a Listener until the test ends.
func listen(t *testing.T, server *testredis.Server, channels ...string) *Listener {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return listenOn(t, subscriber{rdb}, channels...)
}

func listenOn(t *testing.T, s Subscriber, channels ...string) *Listener {
	t.Helper()
	return listenEvery(t, 500*time.Millisecond, s, channels...)
}

// listenEvery is listenOn with a time between ticks.
func listenEvery(t *testing.T, tick time.Duration, s Subscriber, channels ...string) *Listener {
	t.Helper()
	l := NewListener(s, ListenerOptions{
		Name: "test", Channels: channels, Tick: tick, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return l
}

// next returns the next event that is not another Down: an outage reports one for each attempt to reconnect.
func next(t *testing.T, l *Listener, skipDown bool) Event {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case e := <-l.Events():
			if _, down := e.(Down); down && skipDown {
				continue
			}
			return e
		case <-deadline:
			require.Fail(t, "no event")
		}
	}
}

func TestListener_ChannelsConfirmed_ReportsUpThenMessages(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server, "a", "b")
	require.Equal(t, Up{}, next(t, l, false))
	require.NoError(t, server.Client().Publish(t.Context(), "b", "1").Err())
	require.Equal(t, Message{"b", "1"}, next(t, l, false))
	l.Subscribe("c")
	require.Equal(t, Confirmed{"c"}, next(t, l, false))
	require.NoError(t, server.Client().Publish(t.Context(), "c", "2").Err())
	require.Equal(t, Message{"c", "2"}, next(t, l, false))
}

func TestListener_ServerRestarts_ReportsDownAndSubscribesAgain(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server, "a")
	require.Equal(t, Up{}, next(t, l, false))
	l.Subscribe("b")
	require.Equal(t, Confirmed{"b"}, next(t, l, false))
	server.Kill()
	require.IsType(t, Down{}, next(t, l, false))
	server.Restart()
	require.ElementsMatch(t, []Event{Up{}, Confirmed{"b"}}, []Event{next(t, l, true), next(t, l, false)})
}

func TestListener_ServerDoesNotReply_ReportsDown(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server, "a")
	require.Equal(t, Up{}, next(t, l, false))
	server.Pause()
	down, ok := next(t, l, false).(Down)
	server.Resume()
	require.True(t, ok)
	require.ErrorIs(t, down.Err, ErrNoTick)
	require.Equal(t, Up{}, next(t, l, true))
}

func TestListener_ReaderIsSlow_KeepsConnection(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server, "a")
	require.Equal(t, Up{}, next(t, l, false))
	rdb, n := server.Client(), 3*cap(l.events)
	pipe := rdb.Pipeline()
	for range n {
		pipe.Publish(t.Context(), "a", "x")
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(l.events) == cap(l.events) }, timeout, time.Millisecond)
	blocked := time.Now()
	require.Eventually(t, func() bool { return time.Since(blocked) > 5*l.opt.Tick }, timeout, time.Millisecond)
	for range n {
		require.Equal(t, Message{"a", "x"}, next(t, l, false))
	}
}

// A channel that is given up and subscribed again is confirmed again, whatever was under way.
func TestListener_ChannelChangesQuickly_EndsConfirmed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server)
	rdb := server.Client()
	for range 200 {
		l.Subscribe("a")
		l.Unsubscribe("a")
	}
	l.Subscribe("a")
	require.Equal(t, Confirmed{"a"}, next(t, l, false))
	// It may have been that of an earlier subscription: then another one follows.
	for e := Event(Confirmed{"a"}); e == Event(Confirmed{"a"}); e = next(t, l, false) {
		require.NoError(t, rdb.Publish(t.Context(), "a", "1").Err())
	}

	l.Unsubscribe("a")
	l.Subscribe("a")
	for e := next(t, l, false); e != Event(Confirmed{"a"}); {
		e = next(t, l, false) // a message that was published twice
	}

	l.Unsubscribe("a")
	require.Eventually(t, func() bool {
		n, err := rdb.PubSubNumSub(t.Context(), "a").Result()
		return err == nil && n["a"] == 0
	}, timeout, time.Millisecond)
}

// go-redis replaces a connection in some cases without an error; only a second confirmation shows it.
func TestSubscriptions_ConfirmedTwice_ConnectionFails(t *testing.T) {
	t.Parallel()
	s := newSubscriptions([]string{"a"})
	s.reset()
	join, leave := s.take()
	require.Equal(t, []string{"a"}, join)
	require.Empty(t, leave)
	e, err := s.confirmed("a", true)
	require.NoError(t, err)
	require.Equal(t, Up{}, e)
	_, err = s.confirmed("a", true)
	require.ErrorIs(t, err, errReconnected)
}

func TestSubscriptions_ManyChannels_AreSentInBatches(t *testing.T) {
	t.Parallel()
	s := newSubscriptions(nil)
	for i := range 2*maxChannels + 1 {
		s.add(strconv.Itoa(i))
	}
	var sizes []int
	for s.due() {
		join, _ := s.take()
		sizes = append(sizes, len(join))
	}
	slices.Sort(sizes)
	require.Equal(t, []int{1, maxChannels, maxChannels}, sizes)
}

func TestListener_NoMessages_KeepsConnection(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	l := listen(t, server, "a")
	require.Equal(t, Up{}, next(t, l, false))
	idle := time.Now()
	require.Eventually(t, func() bool { return time.Since(idle) > 10*l.opt.Tick }, timeout, time.Millisecond)
	require.Empty(t, l.events)
}
