package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/sim"
	"berth/internal/stream"
)

// cutStreams writes n streams concurrently and reads each over connections that break at random bytes. Some readers connect
// before the stream is open, others after its end.
func cutStreams(t *testing.T, s *stack, f *feeder, n, tokens int, seed uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	tasks := make([]berth.Task, n)
	for i := range tasks {
		var err error
		tasks[i], err = f.create(ctx, "reader", fmt.Sprintf("cut-%d-%d", n, i))
		require.NoError(t, err)
	}
	created := time.Now()
	token := s.token("reader")
	var cuts, events atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i, task := range tasks {
		sent := make(chan struct{})
		g.Go(func() error {
			defer close(sent)
			return f.stream(ctx, task, rand.New(rand.NewPCG(seed, uint64(i))), tokens)
		})
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, uint64(n+i)))
			if rng.IntN(5) == 0 {
				<-sent
			}
			l := &listener{addr: s.httpAddr, token: token, task: task.ID, from: fmt.Sprintf("127.0.0.%d", 2+i%200)}
			c, err := l.followCut(ctx, rng)
			if err != nil {
				return fmt.Errorf("task %s: %w", task.ID, err)
			}
			cuts.Add(int64(c))
			events.Add(int64(len(l.got)))
			return l.check()
		})
	}
	require.NoError(t, g.Wait())
	t.Logf("%d streams, %d events, %d cuts: 0 lost, 0 repeated; rows made in %s, read in %s", n, events.Load(), cuts.Load(),
		created.Sub(began).Round(time.Millisecond), time.Since(created).Round(time.Millisecond))
	require.Greater(t, cuts.Load(), int64(n), "connections were cut")
	c := s.user("reader")
	for _, task := range tasks[:min(n, 50)] {
		stored, err := c.Get(t.Context(), task.ID)
		require.NoError(t, err)
		late := s.listener("reader", task.ID)
		over, err := late.follow(soon(t), unlimited)
		require.NoError(t, err)
		require.True(t, over)
		require.NoError(t, late.check())
		done, err := late.got[len(late.got)-1].parse()
		require.NoError(t, err)
		require.Equal(t, stored.Text, done.Text, "the stream's answer is the stored one")
	}
}

// soon returns a context for reads that must not wait.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStream_ConnectionCut_ResumesAtAnyPoint(t *testing.T) { // T15, T16; P11
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 400}))
	f := newFeeder(s, stream.Options{FlushInterval: time.Millisecond, FlushSize: 4})
	seed := streamSeed(t)
	t.Run("cut at random bytes", func(t *testing.T) { cutStreams(t, s, f, 100, 300, seed) })
	t.Run("real tasks cut at random bytes", func(t *testing.T) { realTasksCut(t, s, seed) })
	t.Run("resume points", func(t *testing.T) { resumePoints(t, s, f) })
	t.Run("from latest", func(t *testing.T) { fromLatest(t, s, f) })
	t.Run("trimmed", func(t *testing.T) { trimmed(t, s, f) })
	t.Run("expired", func(t *testing.T) { expired(t, s, f) })
}

func realTasksCut(t *testing.T, s *stack, seed uint64) {
	c := s.user("alice")
	g, ctx := errgroup.WithContext(t.Context())
	for i := range 3 {
		id := submitMatch(t, c, berth.LocaleEN, "").TaskID
		l := s.listener("alice", id)
		g.Go(func() error {
			_, err := l.followCut(ctx, rand.New(rand.NewPCG(seed, uint64(1<<32+i))))
			if err != nil {
				return err
			}
			return l.check()
		})
	}
	require.NoError(t, g.Wait())
}

// streamTask returns a task with a complete stream.
func (f *feeder) streamTask(t *testing.T, id string, tokens int) berth.Task {
	t.Helper()
	task, err := f.create(t.Context(), "alice", id)
	require.NoError(t, err)
	require.NoError(t, f.stream(t.Context(), task, rand.New(rand.NewPCG(1, 2)), tokens))
	return task
}

// read returns the events that a client receives when it resumes after an id.
func (s *stack) read(t *testing.T, task berth.Task, after, query string) []frame {
	t.Helper()
	l := s.listener("alice", task.ID)
	l.last, l.query = after, query
	over, err := l.follow(soon(t), unlimited)
	require.NoError(t, err)
	require.True(t, over)
	return l.got
}

// refused returns the response to a client that gets no stream.
func (s *stack) refused(t *testing.T, user string, task berth.Task, after, query string, status int) (code berth.Code, field string) {
	t.Helper()
	l := s.listener(user, task.ID)
	l.last, l.query = after, query
	got, p, err := l.open(soon(t), unlimited)
	require.NoError(t, err)
	require.Equal(t, status, got, "%q %q", after, query)
	return p.Code, p.Field
}

func resumePoints(t *testing.T, s *stack, f *feeder) {
	task := f.streamTask(t, "points", 60)
	all := s.read(t, task, "", "")
	for i, ev := range all[:len(all)-1] {
		require.Equal(t, all[i+1:], s.read(t, task, ev.id, ""))
	}
	l := s.listener("alice", task.ID)
	l.last = all[len(all)-1].id
	status, _, err := l.open(soon(t), unlimited)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, status, "no event follows the end")

	for _, id := range []string{"garbage", "1", "1-2-3", "-1", "99999999999999999999-1", "1-x", "end-1"} {
		code, field := s.refused(t, "alice", task, id, "", http.StatusBadRequest)
		require.Equal(t, berth.CodeInvalid, code)
		require.Equal(t, "Last-Event-ID", field)
		_, field = s.refused(t, "alice", task, "", "?lastEventId="+id, http.StatusBadRequest)
		require.Equal(t, "lastEventId", field)
	}
	_, field := s.refused(t, "alice", task, "", "?fromLatest=maybe", http.StatusBadRequest)
	require.Equal(t, "fromLatest", field)
	for _, after := range []string{"", all[0].id, "garbage"} {
		code, _ := s.refused(t, "mallory", task, after, "", http.StatusNotFound)
		require.Equal(t, berth.CodeNotFound, code, "ownership is checked before the request")
	}

	gen, _, _ := strings.Cut(all[0].id, "-")
	for _, id := range []string{gen + "-1000000", "99999999999999-1", "1-1"} {
		got := s.read(t, task, id, "")
		require.Equal(t, berth.EventGap, got[0].event, id)
		require.Equal(t, all, got[1:], "%s: a gap, then all there is", id)
	}
}

func fromLatest(t *testing.T, s *stack, f *feeder) {
	task, err := f.create(t.Context(), "alice", "latest")
	require.NoError(t, err)
	fence, err := f.begin(t.Context(), task)
	require.NoError(t, err)
	say := func(text string) {
		require.NoError(t, f.pub.Publish(t.Context(), channel(task), fence, berth.Event{Type: berth.EventToken, Stage: berth.StageAnswer, Text: text}))
	}
	say("old")
	l := s.listener("alice", task.ID)
	l.query = "?fromLatest=1"
	status, _, err := l.open(soon(t), unlimited) // the header is sent when the subscription is active
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	say("new")
	got, err := l.next()
	require.NoError(t, err)
	require.Contains(t, string(got.data), `"new"`)
	require.NoError(t, f.finish(t.Context(), task, fence, "oldnew"))
	got, err = l.next()
	require.NoError(t, err)
	require.Equal(t, berth.EventDone, got.event)

	late := s.read(t, task, "", "?fromLatest=1")
	require.Len(t, late, 1)
	require.Equal(t, berth.EventDone, late[0].event)
}

func trimmed(t *testing.T, s *stack, f *feeder) {
	task := f.streamTask(t, "trimmed", 200)
	all := s.read(t, task, "", "")
	ch := channel(task)
	require.NoError(t, f.redis.XTrimMaxLen(t.Context(), f.scripts.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), 10).Err())
	for _, after := range []string{"", all[0].id, all[len(all)-12].id} {
		got := s.read(t, task, after, "")
		require.Equal(t, berth.EventGap, got[0].event)
		require.Equal(t, all[len(all)-10:], got[1:])
		require.Equal(t, got[1:], s.read(t, task, got[0].id, ""), "nothing is lost after the gap")
	}
	require.Equal(t, all[len(all)-10:], s.read(t, task, all[len(all)-11].id, ""), "no event is missing after this one")
}

func expired(t *testing.T, s *stack, f *feeder) {
	task := f.streamTask(t, "expired", 60)
	all := s.read(t, task, "", "")
	ch, keys := channel(task), f.scripts.Keys()
	require.EqualValues(t, 2, f.redis.Del(t.Context(),
		keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID), keys.StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID)).Val())
	for _, after := range []string{"", all[3].id} {
		got := s.read(t, task, after, "")
		require.Len(t, got, 1)
		stored, err := got[0].parse()
		require.NoError(t, err)
		done, err := all[len(all)-1].parse()
		require.NoError(t, err)
		require.Equal(t, done, stored, "the stored event is the one that was published")
		l := s.listener("alice", task.ID)
		l.last = got[0].id
		status, _, err := l.open(soon(t), unlimited)
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, status)
	}
}
