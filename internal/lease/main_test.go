package lease_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth/internal/lease"
	"berth/internal/testredis"
	"berth/lua"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every refused connection
	goleak.VerifyTestMain(m,
		// The proxy leaves these goroutines running for connections that it has disturbed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	)
}

const waitLimit = 20 * time.Second // for conditions that normally hold much sooner

// cell is a Redis with its own keys, accessed without a proxy.
type cell struct {
	t       *testing.T
	server  *testredis.Server
	keys    lua.Keys
	redis   *redis.Client
	scripts *lua.Scripts
}

func newCell(t *testing.T) *cell {
	t.Helper()
	c := &cell{t: t, server: testredis.Start(t), keys: lua.Keys{Cell: testredis.Cell(t)}}
	c.redis = c.server.Client()
	c.scripts = lua.New(c.redis, c.keys)
	_, err := c.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	return c
}

// slots runs one process with up to n slots of any model until the test ends or stop is called.
func (c *cell) slots(addr string, n int, set ...func(*lease.Options)) (s *lease.Slots, stop func()) {
	c.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	opts := lease.Options{
		Limits: func(string) lua.ModelLimits { return lua.OneUpstream(n) },
		Logger: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range set {
		f(&opts)
	}
	s = lease.New(lua.New(rdb, c.keys), opts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(c.t, err)
			ended <- nil
		case <-time.After(waitLimit):
			require.Fail(c.t, "Run does not end")
		}
	}
	c.t.Cleanup(func() {
		stop()
		_ = rdb.Close()
	})
	select {
	case <-s.Ready():
	case <-time.After(waitLimit):
		require.Fail(c.t, "the subscription is not confirmed")
	}
	return s, stop
}

func short(ttl, renew, grant time.Duration) func(*lease.Options) {
	return func(o *lease.Options) { o.TTL, o.RenewEvery, o.GrantTTL = ttl, renew, grant }
}

// link is a connection to Redis that can be disturbed.
type link struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

func (c *cell) link() *link {
	c.t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{t: c.t, proxy: toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", c.server.Addr())}
	require.NoError(c.t, l.proxy.Start())
	c.t.Cleanup(func() {
		l.heal()
		l.proxy.Stop()
	})
	return l
}

func (l *link) addr() string { return l.proxy.Listen }

// add disturbs the link with a toxic of toxiproxy, given as JSON.
func (l *link) add(toxics ...string) {
	l.t.Helper()
	for _, j := range toxics {
		_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(j))
		require.NoError(l.t, err)
	}
}

// cut blocks all data; connections stay open.
func (l *link) cut() {
	l.t.Helper()
	l.add(`{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		`{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(context.Background()) }

// pending is a running call of Acquire.
type pending struct {
	t         *testing.T
	slot      chan *lease.Slot
	err       chan error
	positions chan int
	cancel    context.CancelCauseFunc
}

func begin(t *testing.T, s *lease.Slots, model string) *pending {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	t.Cleanup(func() { cancel(nil) })
	p := &pending{
		t: t, cancel: cancel,
		slot: make(chan *lease.Slot, 1), err: make(chan error, 1), positions: make(chan int, 1000),
	}
	go func() {
		slot, err := s.Acquire(ctx, lease.Request{
			Model: model, Queue: "q_paid_stream", UserID: "u", LeaseID: "task:step", OnPosition: func(n int) { p.positions <- n },
		})
		if err != nil {
			p.err <- err
			return
		}
		p.slot <- slot
	}()
	return p
}

// waits returns when the request has received the position.
func (p *pending) waits(position int) {
	p.t.Helper()
	limit := time.After(waitLimit)
	for {
		select {
		case n := <-p.positions:
			if n == position {
				return
			}
		case <-p.slot:
			require.Fail(p.t, "granted instead of waiting")
		case err := <-p.err:
			require.NoError(p.t, err)
		case <-limit:
			require.Fail(p.t, "position not received", "%d", position)
		}
	}
}

func (p *pending) granted() *lease.Slot {
	p.t.Helper()
	select {
	case slot := <-p.slot:
		return slot
	case err := <-p.err:
		require.NoError(p.t, err)
	case <-time.After(waitLimit):
		require.Fail(p.t, "not granted")
	}
	return nil
}

func (p *pending) failed() error {
	p.t.Helper()
	select {
	case <-p.slot:
		require.Fail(p.t, "granted")
	case err := <-p.err:
		return err
	case <-time.After(waitLimit):
		require.Fail(p.t, "neither granted nor failed")
	}
	return nil
}

func (p *pending) stillWaits() {
	p.t.Helper()
	select {
	case <-p.slot:
		require.Fail(p.t, "granted")
	case err := <-p.err:
		require.NoError(p.t, err)
	default:
	}
}

// settled waits until Redis has executed all calls of processes, of which those of new requests have no place yet: after a loss of data
// they would enter a request as a new one.
func settled(t *testing.T, all ...*lease.Slots) {
	t.Helper()
	for _, s := range all {
		require.Eventually(t, s.Settled, waitLimit, time.Millisecond)
	}
}

// ends waits for the end of the slot's context and returns its time and cause.
func ends(t *testing.T, slot *lease.Slot) (at time.Time, cause error) {
	t.Helper()
	select {
	case <-slot.Context().Done():
		return time.Now(), context.Cause(slot.Context())
	case <-time.After(waitLimit):
		require.Fail(t, "the slot's context does not end")
	}
	return time.Time{}, nil
}
