package stream

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

func TestReader_StreamHasEvents_ReplaysThenFollows(t *testing.T) {
	t.Parallel()
	h := newFixture(t, testredis.Start(t).Client(), HubOptions{ReplayChunk: 2})
	ch := h.open("t1")
	h.publish(ch, "a", "b", "c", "d", "e")
	r := h.subscribe(ch, "")
	late := h.subscribe(ch, fmt.Sprintf("%d-3", h.gen(ch)))
	require.Equal(t, []string{"1:a", "2:b", "3:c", "4:d", "5:e"}, read(t, r, 5))
	h.publish(ch, "f", "g")
	h.end(ch)
	require.Equal(t, []string{"6:f", "7:g", "8:bye"}, read(t, r, 3))
	require.Equal(t, []string{"4:d", "5:e", "6:f", "7:g", "8:bye"}, read(t, late, 5))
	requireEOF(t, r)
	requireEOF(t, late)
	require.Error(t, r.Check(t.Context()))

	again := h.subscribe(ch, fmt.Sprintf("%d-8", h.gen(ch)))
	requireEOF(t, again)
}

func TestSubscribe_FromLatest_SkipsStoredEvents(t *testing.T) {
	t.Parallel()
	h := newFixture(t, testredis.Start(t).Client(), HubOptions{})
	ch := h.open("t1")
	h.publish(ch, "a", "b")
	r, err := h.hub.Subscribe(t.Context(), ch, "", true)
	require.NoError(t, err)
	defer r.Close()
	resumed, err := h.hub.Subscribe(t.Context(), ch, fmt.Sprintf("%d-1", h.gen(ch)), true)
	require.NoError(t, err)
	defer resumed.Close()
	h.publish(ch, "c")
	h.end(ch)
	require.Equal(t, []string{"3:c", "4:bye"}, read(t, r, 2))
	require.Equal(t, []string{"2:b", "3:c"}, read(t, resumed, 2))

	ended, err := h.hub.Subscribe(t.Context(), ch, "", true)
	require.NoError(t, err)
	defer ended.Close()
	require.Equal(t, []string{"4:bye"}, read(t, ended, 1))
	requireEOF(t, ended)
}

// P11: ids that do not match the stored entries.
func TestSubscribe_UnknownID_ReturnsGapAndAllEvents(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	ch := h.open("t1")
	h.publish(ch, "a", "b", "c", "d", "e")
	stream := h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)
	require.NoError(t, rdb.XTrimMaxLen(t.Context(), stream, 3).Err()) // keeps c, d, e
	gen := h.gen(ch)

	t.Run("readable", func(t *testing.T) {
		for name, tt := range map[string]struct {
			after string
			want  []string
		}{
			"none":                   {"", []string{"gap@2", "3:c", "4:d", "5:e"}},
			"trimmed":                {fmt.Sprintf("%d-1", gen), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"just before the trim":   {fmt.Sprintf("%d-2", gen), []string{"3:c", "4:d", "5:e"}},
			"inside":                 {fmt.Sprintf("%d-4", gen), []string{"5:e"}},
			"future":                 {fmt.Sprintf("%d-6", gen), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"far future":             {fmt.Sprintf("%d-%d", gen, uint64(math.MaxUint64)), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"a later generation":     {fmt.Sprintf("%d-1", gen+1), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"an earlier generation":  {fmt.Sprintf("%d-4", gen-1), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"the beginning":          {fmt.Sprintf("%d-0", gen), []string{"gap@2", "3:c", "4:d", "5:e"}},
			"what the gap was given": {fmt.Sprintf("%d-2", gen), []string{"3:c", "4:d", "5:e"}},
		} {
			t.Run(name, func(t *testing.T) {
				r := h.subscribe(ch, tt.after)
				require.Equal(t, tt.want, read(t, r, len(tt.want)))
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := r.Next(ctx, readWithin)
				require.ErrorIs(t, err, context.Canceled)
				r.Close()
			})
		}
	})
	t.Run("garbage", func(t *testing.T) {
		for _, id := range []string{"x", "-", "1", "1-", "-1", "1-2-3", "1-x", "+1-2", "1- 2", "0x1-1", "99999999999999999999-1", "１-1"} {
			_, err := h.hub.Subscribe(t.Context(), ch, id, false)
			require.Equal(t, berth.CodeInvalid, berth.CodeOf(err), id)
		}
	})
}

// A future id on an empty stream: the gap is returned with the first event.
func TestSubscribe_FutureIDOnEmptyStream_GapComesWithFirstEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t, testredis.Start(t).Client(), HubOptions{})
	ch := h.open("t1")
	r := h.subscribe(ch, fmt.Sprintf("%d-6", h.gen(ch)))
	h.publish(ch, "a", "b")
	require.Equal(t, []string{"gap@0", "1:a", "2:b"}, read(t, r, 3))
}

func TestSubscribe_NoStream_Fails(t *testing.T) {
	t.Parallel()
	srv := testredis.Start(t)
	h := newFixture(t, srv.Client(), HubOptions{})
	_, err := h.hub.Subscribe(t.Context(), lua.Channel{UserID: "alice", ServiceID: "web", TaskID: "t1"}, "", false)
	require.ErrorIs(t, err, ErrAbsent)

	ch := h.open("t1")
	h.publish(ch, "a")
	h.end(ch)
	stream := h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)
	require.NoError(t, h.rdb.Del(t.Context(), stream).Err()) // expired a moment before its metadata
	_, err = h.hub.Subscribe(t.Context(), ch, "", false)
	require.ErrorIs(t, err, ErrAbsent)

	srv.Kill()
	h = newFixture(t, srv.Client(), HubOptions{SubscribeTimeout: 100 * time.Millisecond})
	_, err = h.hub.Subscribe(t.Context(), ch, "", false)
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
}

func TestHub_ManyReaders_UsesOneConnection(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	const streams, each = 100, 20
	var readers []*Reader
	for i := range streams {
		ch := h.open(fmt.Sprintf("t%d", i))
		for range each {
			readers = append(readers, h.subscribe(ch, ""))
		}
	}
	require.Equal(t, []string{"subscriptions: 100", "connections: 1"}, pubsub(t, rdb))
	for i := range streams {
		h.publish(lua.Channel{UserID: "alice", ServiceID: "web", TaskID: fmt.Sprintf("t%d", i)}, "x")
	}
	for _, r := range readers {
		require.Equal(t, []string{"1:x"}, read(t, r, 1))
	}
	for _, r := range readers {
		r.Close()
		r.Close()
	}
	require.Eventually(t, func() bool { return pubsub(t, rdb)[0] == "subscriptions: 0" }, 10*time.Second, time.Millisecond)

	// Subscribing and closing repeatedly leaves a working subscription.
	ch := h.open("again")
	for range 200 {
		h.subscribe(ch, "").Close()
	}
	r := h.subscribe(ch, "")
	h.publish(ch, "a")
	require.Equal(t, []string{"1:a"}, read(t, r, 1))
	require.Equal(t, []string{"subscriptions: 1", "connections: 1"}, pubsub(t, rdb))
}

func pubsub(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	channels, err := rdb.PubSubChannels(t.Context(), "*cs:events:*").Result() // without the channel of its ticks
	require.NoError(t, err)
	clients, err := rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	return []string{fmt.Sprintf("subscriptions: %d", len(channels)), fmt.Sprintf("connections: %d", strings.Count(clients, "\n"))}
}

func TestCheck_StreamStates_AreReported(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	h := newFixture(t, rdb, HubOptions{})
	ch := h.open("t1")
	h.publish(ch, "a")
	r := h.subscribe(ch, "")
	require.NoError(t, r.Check(t.Context()))
	require.Equal(t, []string{"1:a"}, read(t, r, 1))
	require.NoError(t, r.Check(t.Context()))

	// Check finds an event whose message was lost.
	meta := h.scripts.Keys().StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID)
	stream := h.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID)
	require.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{
		Stream: stream, ID: fmt.Sprintf("%d-2", h.gen(ch)), Values: []string{"e", `{"type":"stage_progress","message":"silent"}`},
	}).Err())
	require.NoError(t, rdb.HSet(t.Context(), meta, "seq", 2).Err())
	require.NoError(t, r.Check(t.Context()))
	require.Equal(t, []string{"2:silent"}, read(t, r, 1))

	require.NoError(t, rdb.Del(t.Context(), meta, stream).Err())
	require.ErrorIs(t, r.Check(t.Context()), ErrAbsent)
	require.ErrorIs(t, r.Check(t.Context()), ErrAbsent)
	ch = h.open("t1")
	h.publish(ch, "restored")
	require.Equal(t, []string{"gap@0", "1:restored"}, read(t, r, 2))
	h.end(ch)
	require.Equal(t, []string{"2:bye"}, read(t, r, 1))
	require.ErrorContains(t, r.Check(t.Context()), "EOF")
}

func TestHub_Stops_ReadersGetErrClosed(t *testing.T) {
	t.Parallel()
	scripts := lua.New(testredis.Start(t).Client(), lua.Keys{Cell: testredis.Cell(t)})
	hub := NewHub(scripts, HubOptions{})
	pub := NewPublisher(scripts, Options{})
	require.NoError(t, pub.Open(t.Context(), testChannel, 1, time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- hub.Run(ctx) }()
	r, err := hub.Subscribe(t.Context(), testChannel, "", false)
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-stopped)
	_, err = r.Next(t.Context(), readWithin)
	require.ErrorIs(t, err, ErrClosed)
	r.Close()
	_, err = hub.Subscribe(t.Context(), testChannel, "", false)
	require.ErrorIs(t, err, ErrClosed)
}

func TestPublisher_StreamStates_ReturnsErrors(t *testing.T) {
	t.Parallel()
	h := newFixture(t, testredis.Start(t).Client(), HubOptions{})
	ctx := t.Context()
	absent := lua.Channel{UserID: "a", ServiceID: "b", TaskID: "c"}
	progress := berth.Event{Type: berth.EventStageProgress}
	done := berth.Event{Type: berth.EventDone}
	require.ErrorIs(t, h.pub.Publish(ctx, absent, 1, progress), ErrAbsent)
	_, err := h.pub.End(ctx, absent, done)
	require.ErrorIs(t, err, ErrAbsent)

	ch := h.open("t1")
	start := berth.Event{Type: berth.EventStart, Model: "m"}
	require.NoError(t, h.pub.Publish(ctx, ch, 1, start, progress))
	require.NoError(t, h.pub.Open(ctx, ch, 5, time.Now().Add(time.Hour)))
	require.ErrorIs(t, h.pub.Publish(ctx, ch, 4, progress), ErrFenced)
	require.NoError(t, h.pub.Publish(ctx, ch, 5, start, progress))
	require.Error(t, h.pub.Publish(ctx, ch, 5, done))
	_, err = h.pub.End(ctx, ch, progress)
	require.Error(t, err)
	already, err := h.pub.End(ctx, ch, done)
	require.NoError(t, err)
	require.False(t, already)
	already, err = h.pub.End(ctx, ch, berth.Event{Type: berth.EventError})
	require.NoError(t, err)
	require.True(t, already)
	require.ErrorIs(t, h.pub.Publish(ctx, ch, 9, progress), ErrEnded)
	require.ErrorIs(t, h.pub.Open(ctx, ch, 9, time.Now()), ErrEnded)

	state, events, err := h.scripts.ReadStream(ctx, ch, "", 100)
	require.NoError(t, err)
	require.True(t, state.Ended)
	var types []berth.EventType
	for _, e := range events {
		types = append(types, eventType([]byte(e.Data)))
	}
	require.Equal(t, []berth.EventType{berth.EventStart, berth.EventStageProgress, berth.EventStageProgress, berth.EventDone}, types)
}
