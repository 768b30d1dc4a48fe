package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// fixture is a publisher and a running hub on a real Redis.
type fixture struct {
	t       *testing.T
	rdb     *redis.Client
	scripts *lua.Scripts
	pub     *Publisher
	hub     *Hub
}

func newFixture(t *testing.T, rdb *redis.Client, hub HubOptions) fixture {
	t.Helper()
	scripts := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	quiet := slog.New(slog.DiscardHandler)
	hub.Logger = quiet
	h := fixture{t: t, rdb: rdb, scripts: scripts, pub: NewPublisher(scripts, Options{Logger: quiet}), hub: NewHub(scripts, hub)}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- h.hub.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-stopped)
	})
	return h
}

// open creates the stream of a task.
func (h fixture) open(task string) lua.Channel {
	h.t.Helper()
	ch := lua.Channel{UserID: "alice", ServiceID: "web", TaskID: task}
	require.NoError(h.t, h.pub.Open(h.t.Context(), ch, 1, time.Now().Add(time.Hour)))
	return ch
}

// publish appends one stage_progress for each message.
func (h fixture) publish(ch lua.Channel, messages ...string) {
	h.t.Helper()
	for _, m := range messages {
		ev := berth.Event{Type: berth.EventStageProgress, Stage: "score", Message: m}
		require.NoError(h.t, h.pub.Publish(h.t.Context(), ch, 1, ev))
	}
}

func (h fixture) end(ch lua.Channel) {
	h.t.Helper()
	already, err := h.pub.End(h.t.Context(), ch, berth.Event{Type: berth.EventDone, Message: "bye"})
	require.NoError(h.t, err)
	require.False(h.t, already)
}

func (h fixture) subscribe(ch lua.Channel, after string) *Reader {
	h.t.Helper()
	r, err := h.hub.Subscribe(h.t.Context(), ch, after, false)
	require.NoError(h.t, err)
	h.t.Cleanup(r.Close)
	return r
}

func (h fixture) gen(ch lua.Channel) uint64 {
	h.t.Helper()
	state, err := h.scripts.StreamState(h.t.Context(), ch)
	require.NoError(h.t, err)
	at, ok := parsePosition(state.LastID)
	require.True(h.t, ok)
	return at.gen
}

// readWithin bounds the wait for an event that comes.
const readWithin = 20 * time.Second

// testLimit bounds a test that reads all of many streams.
const testLimit = 5 * time.Minute

// read reads n events and returns each as "seq:message", a gap as "gap@seq".
func read(t *testing.T, r *Reader, n int) []string {
	t.Helper()
	var out []string
	for range n {
		item, err := r.Next(t.Context(), readWithin)
		require.NoError(t, err, "after %v", out)
		var ev berth.Event
		require.NoError(t, json.Unmarshal(item.Data, &ev))
		require.Equal(t, item.Event, ev.Type)
		_, seq, _ := strings.Cut(item.ID, "-")
		if ev.Type == berth.EventGap {
			out = append(out, "gap@"+seq)
			require.Equal(t, berth.Stage("score"), ev.Stage)
			require.Equal(t, "t1", ev.TaskID)
			continue
		}
		out = append(out, seq+":"+ev.Message)
	}
	return out
}

func requireEOF(t *testing.T, r *Reader) {
	t.Helper()
	_, err := r.Next(t.Context(), readWithin)
	require.ErrorIs(t, err, io.EOF)
}

// transcript has what one client received over all its connections.
type transcript struct {
	at                   position
	text                 strings.Builder
	resets, gaps, events int
}

// add adds the next event, and returns an error if it is wrong.
func (tr *transcript) add(item Item) error {
	at, ok := parsePosition(item.ID)
	if !ok {
		return fmt.Errorf("bad id %q", item.ID)
	}
	var ev berth.Event
	if err := json.Unmarshal(item.Data, &ev); err != nil {
		return err
	}
	if strings.ContainsAny(string(item.Data), "\r\n") {
		return errors.New("data of more than one line")
	}
	if ev.Type == berth.EventGap {
		tr.gaps++
		tr.at = at
		return nil
	}
	if !tr.at.next(at) {
		return fmt.Errorf("event %s came after %s", at, tr.at)
	}
	tr.at = at
	tr.events++
	switch ev.Type {
	case berth.EventReset:
		tr.resets++
		tr.text.Reset()
	case berth.EventToken, berth.EventTokenBatch:
		tr.text.WriteString(ev.Text)
	}
	return nil
}

func (tr *transcript) after() string {
	if tr.at == (position{}) {
		return ""
	}
	return tr.at.String()
}

// follow reads up to stop events. ended reports whether it reached the end of the stream.
func (tr *transcript) follow(ctx context.Context, r *Reader, stop int) (ended bool, err error) {
	for range stop {
		item, err := r.Next(ctx, readWithin)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := tr.add(item); err != nil {
			return false, err
		}
	}
	return false, nil
}

const toTheEnd = 1 << 40

// proxy is a faulty connection between clients and Redis.
type proxy struct {
	l      net.Listener
	frozen atomic.Bool  // replies are dropped, connections stay open
	cut    atomic.Int64 // number of replies to drop, each by closing its connection
}

func newProxy(t *testing.T, to string) (*proxy, *redis.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(ctx, c, to)
		}
	}()
	t.Cleanup(func() { cancel(); _ = l.Close(); <-gone })
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return p, rdb
}

func (p *proxy) serve(ctx context.Context, client net.Conn, to string) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	shut := func() { _ = client.Close(); _ = server.Close() }
	defer context.AfterFunc(ctx, shut)()
	defer shut()
	go func() {
		_, _ = io.Copy(server, client)
		shut()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || p.cut.Add(-1) >= 0 {
			return
		}
		if p.frozen.Load() {
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
