package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // test randomness
}

// hostile are texts that a model may return.
var hostile = []string{
	"a", "word ", "\n\n", "event: done\n", "data: {}\n\n", "<script>alert(1)</script>", "\x1b[31m", "\u2028", "漢字", "🙂", `"`, `\`, "\x00",
}

func randomTokens(rnd *rand.Rand, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%d%s", i, hostile[rnd.IntN(len(hostile))])
	}
	return out
}

// writeAll writes the tokens, a stage_progress after every 37th, and ends the stream.
func (h fixture) writeAll(ctx context.Context, ch lua.Channel, texts []string, between func(i int)) error {
	w := h.pub.Writer(ctx, ch, 1, testBase, func(context.Context) (bool, error) { return true, nil })
	for i, text := range texts {
		if between != nil {
			between(i)
		}
		if err := w.Token(text); err != nil {
			return err
		}
		if i%37 == 36 {
			if err := w.Event(progress); err != nil {
				return err
			}
		}
	}
	if err := w.Close(ctx); err != nil {
		return err
	}
	_, err := h.pub.End(ctx, ch, berth.Event{Type: berth.EventDone})
	return err
}

// P11: streams cut at random points and resumed with Last-Event-ID.
func TestStream_CutAtRandomPoints_ResumesComplete(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		resumeStreams(t, testredis.Start(t).Client(), 200)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		resumeStreams(t, rdb, 20)
	})
}

func resumeStreams(t *testing.T, rdb *redis.Client, streams int) {
	t.Helper()
	rnd := seeded(t)
	h := newFixture(t, rdb, HubOptions{ReaderBuffer: 4, ReplayChunk: 8})
	h.pub.opt.FlushInterval = 2 * time.Millisecond // many small events
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	results := make(chan error, 2*streams)
	for i := range streams {
		ch := h.open(fmt.Sprintf("t%d", i))
		texts := randomTokens(rnd, 50+rnd.IntN(200))
		dice := rand.New(rand.NewPCG(rnd.Uint64(), 1)) //nolint:gosec // test randomness
		go func() { results <- h.writeAll(ctx, ch, texts, nil) }()
		go func() {
			tr, cuts, err := h.cutAndResume(ctx, ch, dice)
			want := strings.Join(texts, "")
			switch {
			case err != nil:
				err = fmt.Errorf("stream %d after %d cuts: %w", i, cuts, err)
			case tr.text.String() != want:
				err = fmt.Errorf("stream %d after %d cuts: %d bytes of text, want %d", i, cuts, tr.text.Len(), len(want))
			case tr.gaps+tr.resets > 0:
				err = fmt.Errorf("stream %d: %d gaps, %d resets", i, tr.gaps, tr.resets)
			}
			results <- err
		}()
	}
	for range 2 * streams {
		require.NoError(t, <-results)
	}
}

// cutAndResume reads a stream as a client whose connection breaks repeatedly, between events and while it waits. It returns
// the number of breaks.
func (h fixture) cutAndResume(ctx context.Context, ch lua.Channel, dice *rand.Rand) (*transcript, int, error) {
	tr := &transcript{}
	for cuts := 0; ; cuts++ {
		r, err := h.hub.Subscribe(ctx, ch, tr.after(), dice.IntN(2) == 0 && tr.events > 0)
		if err != nil {
			return tr, cuts, err
		}
		conn, cut := context.WithCancel(ctx)
		if dice.IntN(3) == 0 {
			time.AfterFunc(time.Duration(dice.IntN(3000))*time.Microsecond, cut)
		}
		ended, err := tr.follow(conn, r, dice.IntN(12))
		broken := conn.Err() != nil
		cut()
		r.Close()
		if ended || err != nil && !broken || ctx.Err() != nil {
			return tr, cuts, err
		}
	}
}

// This test checks the checker: a transcript with a lost, repeated or reordered event is rejected.
func TestTranscript_WrongEvents_AreDetected(t *testing.T) {
	t.Parallel()
	for ids, ok := range map[string]bool{
		"5-1 5-2 5-3": true, "5-1 5-3": false, "5-1 5-2 5-2": false, "5-2": false, "5-1 5-3 5-2": false, "5-1 6-1": false,
	} {
		tr, err := &transcript{}, error(nil)
		for _, id := range strings.Fields(ids) {
			if err == nil {
				err = tr.add(newItem(id, []byte(`{"type":"token","text":"a"}`)))
			}
		}
		require.Equal(t, ok, err == nil, ids)
	}
}

// P13: readers that do not read do not delay the others, and catch up without loss.
func TestReaders_SomeDoNotRead_OthersAreNotDelayed(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	h := newFixture(t, testredis.Start(t).Client(), HubOptions{ReaderBuffer: 4, ReplayChunk: 16})
	h.pub.opt.FlushSize = 1
	ch := h.open("t1")
	texts := randomTokens(rnd, 1000)
	want := strings.Join(texts, "")
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	const quick, stalled = 20, 20
	results := make(chan error, quick)
	var slow []*Reader
	for range stalled {
		slow = append(slow, h.subscribe(ch, ""))
	}
	for range quick {
		r := h.subscribe(ch, "")
		go func() {
			tr := &transcript{}
			_, err := tr.follow(ctx, r, toTheEnd)
			if err == nil && tr.text.String() != want {
				err = fmt.Errorf("%d bytes of text, want %d", tr.text.Len(), len(want))
			}
			results <- err
		}()
	}
	require.NoError(t, h.writeAll(ctx, ch, texts, nil))
	for range quick { // these finish before the stalled ones have read anything
		require.NoError(t, <-results)
	}
	for i, r := range slow {
		tr := &transcript{}
		if i%2 == 0 { // disconnects and resumes
			_, err := tr.follow(ctx, r, 100)
			require.NoError(t, err)
			r.Close()
			r = h.subscribe(ch, tr.after())
		}
		ended, err := tr.follow(ctx, r, toTheEnd)
		require.NoError(t, err)
		require.True(t, ended)
		require.Equal(t, want, tr.text.String())
		require.Zero(t, tr.gaps)
	}
}

// midway starts readers and a writer, calls fault when half the tokens are written, and returns what the readers got.
func (h fixture) midway(rnd *rand.Rand, fault func()) (want string, got []*transcript) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), testLimit)
	defer cancel()
	ch := h.open("t1")
	texts := randomTokens(rnd, 2000)
	const readers = 10
	results := make(chan error, readers)
	for range readers {
		r, tr := h.subscribe(ch, ""), &transcript{}
		got = append(got, tr)
		go func() {
			_, err := tr.follow(ctx, r, toTheEnd)
			results <- err
		}()
	}
	require.NoError(h.t, h.writeAll(ctx, ch, texts, func(i int) {
		if i == len(texts)/2 {
			stream := h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)
			require.Eventually(h.t, func() bool { return h.rdb.XLen(ctx, stream).Val() > 20 }, 20*time.Second, time.Millisecond)
			fault()
		}
	}))
	for range readers {
		require.NoError(h.t, <-results)
	}
	return strings.Join(texts, ""), got
}

func TestStream_RedisRestartsWithItsData_NoEventIsLost(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	h := newFixture(t, srv.Client(), HubOptions{})
	want, got := h.midway(seeded(t), srv.Restart)
	for _, tr := range got {
		require.Equal(t, want, tr.text.String())
		require.Zero(t, tr.resets+tr.gaps)
	}
}

func TestStream_RedisRestartsEmpty_IsRestored(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t)
	h := newFixture(t, srv.Client(), HubOptions{})
	want, got := h.midway(seeded(t), srv.Restart)
	for _, tr := range got {
		require.Equal(t, want, tr.text.String())
		require.Equal(t, 1, tr.resets)
		require.LessOrEqual(t, tr.gaps, 1) // no gap for a reader that had read nothing
	}
}

func TestStream_KeysDeleted_IsRestored(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	want, got := h.midway(seeded(t), func() { require.NoError(t, rdb.FlushAll(t.Context()).Err()) })
	for _, tr := range got {
		require.Equal(t, want, tr.text.String())
		require.Equal(t, 1, tr.resets)
	}
}

// Redis returns with older data than it had confirmed, as after a lost append-only tail or a failover.
func TestStream_RedisReturnsWithOlderData_IsRestored(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	want, got := h.midway(seeded(t), func() {
		ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: "t1"}
		at := position{gen: h.gen(ch), seq: 5}
		stream := h.scripts.Keys().Stream("alice", "web", "t1")
		meta := h.scripts.Keys().StreamMeta("alice", "web", "t1")
		newer, err := rdb.XRange(t.Context(), stream, "("+at.String(), "+").Result()
		require.NoError(t, err)
		var ids []string
		for _, e := range newer {
			ids = append(ids, e.ID)
		}
		_, err = rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.XDel(t.Context(), stream, ids...)
			p.HSet(t.Context(), meta, "seq", at.seq)
			return nil
		})
		require.NoError(t, err)
	})
	for _, tr := range got {
		require.Equal(t, want, tr.text.String())
		require.Equal(t, 1, tr.resets)
		require.GreaterOrEqual(t, tr.gaps, 1)
	}
}

func TestHub_ConnectionCut_ReadersReplay(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	want, got := h.midway(seeded(t), func() {
		for range 5 {
			require.NoError(t, rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		}
	})
	for _, tr := range got {
		require.Equal(t, want, tr.text.String())
		require.Zero(t, tr.resets+tr.gaps)
	}
}

// A ping detects an open connection without replies, which is then replaced.
func TestHub_ConnectionWithoutReplies_IsReplaced(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t)
	p, rdb := newProxy(t, srv.Addr())
	h := newFixture(t, rdb, HubOptions{Tick: 20 * time.Millisecond})
	direct := newFixture(t, srv.Client(), HubOptions{})
	direct.scripts = h.scripts
	direct.pub = NewPublisher(lua.New(direct.rdb, h.scripts.Keys()), Options{})
	ch := direct.open("t1")
	r := h.subscribe(ch, "")
	direct.publish(ch, "a")
	require.Equal(t, []string{"1:a"}, read(t, r, 1))
	p.frozen.Store(true)
	direct.publish(ch, "b")
	_, err := r.Next(t.Context(), 100*time.Millisecond)
	require.ErrorIs(t, err, ErrQuiet)
	p.frozen.Store(false)
	require.Equal(t, []string{"2:b"}, read(t, r, 1))
}

// An unavailable Redis is logged once, whatever the number of attempts, and once when the connection is restored.
func TestHub_RedisUnavailable_IsLoggedOnce(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t)
	var dials atomic.Int64
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	h := newFixture(t, rdb, HubOptions{})
	logged := make(chan string, 100)
	hub := NewHub(h.scripts, HubOptions{Logger: slog.New(slog.NewTextHandler(lines(logged), nil))})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- hub.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-stopped) })
	h.hub = hub
	ch := h.open("t1")
	r := h.subscribe(ch, "")
	h.publish(ch, "a")
	require.Equal(t, []string{"1:a"}, read(t, r, 1))
	for range 2 {
		srv.Kill()
		before := dials.Load()
		require.Eventually(t, func() bool { return dials.Load() > before+5 }, 20*time.Second, 10*time.Millisecond)
		srv.Restart()
		require.Contains(t, <-logged, "redis subscription lost")
		require.Contains(t, <-logged, "redis subscription restored")
	}
	require.Empty(t, logged)
}

// lines is a writer that sends each line of a log to the channel.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// P6: the reply of an append is lost after Redis has run it.
func TestAppend_ReplyLost_EventsAreAppendedOnce(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t)
	p, rdb := newProxy(t, srv.Addr())
	h := newFixture(t, srv.Client(), HubOptions{})
	pub := NewPublisher(lua.New(rdb, h.scripts.Keys()), Options{})
	ch := h.open("t1")
	require.NoError(t, pub.Publish(t.Context(), ch, 1, progress)) // connected, script loaded
	w := pub.Writer(t.Context(), ch, 1, testBase, nil)
	var want strings.Builder
	for i := range 10 {
		p.cut.Store(1)
		text := fmt.Sprintf("%d ", i)
		want.WriteString(text)
		require.NoError(t, w.Token(text))
		require.NoError(t, w.Flush(t.Context()))
	}
	require.NoError(t, w.Close(t.Context()))
	h.end(ch)
	require.Greater(t, w.Stats().RoundTrips, int64(10))
	tr := &transcript{}
	ended, err := tr.follow(t.Context(), h.subscribe(ch, ""), toTheEnd)
	require.NoError(t, err)
	require.True(t, ended)
	require.Equal(t, want.String(), tr.text.String())
	require.Equal(t, 12, tr.events)
}
