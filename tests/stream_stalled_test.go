//go:build faults

package tests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/stream"
)

// quickReader records the delay of events that were sent at known times.
type quickReader struct {
	*listener
	took []time.Duration
}

// crew is one stream with its readers and the times at which its events were sent.
type crew struct {
	task    berth.Task
	fence   int64
	sent    []atomic.Int64 // by number
	quick   []*quickReader
	stalled []*listener
}

// send publishes event number seq.
func (c *crew) send(ctx context.Context, f *feeder, seq int, filler string) error {
	c.sent[seq].Store(time.Now().UnixNano())
	return f.pub.Publish(ctx, channel(c.task), c.fence, berth.Event{Type: berth.EventStageProgress, Stage: berth.StageAnswer, Message: filler})
}

// read follows the stream to its end.
func (c *crew) read(r *quickReader) error {
	for {
		fr, err := r.next()
		if err != nil {
			return fmt.Errorf("quick reader of %s after %q: %w", c.task.ID, r.last, err)
		}
		if fr.event.Terminal() {
			return r.check()
		}
		_, number, _ := strings.Cut(fr.id, "-")
		seq, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return err
		}
		r.took = append(r.took, time.Duration(time.Now().UnixNano()-c.sent[seq].Load()))
	}
}

func TestStream_StalledReaders_OthersAreNotDelayed(t *testing.T) { // P13
	const (
		streams, quickPer, stalledPer = 10, 20, 5
		alone, together               = 60, 120 // events of the two phases, 10 a second
		stalledFrom                   = "127.0.0.9"
		stalledNetwork                = stalledFrom + "/32"
	)
	s := newStack(t)
	f := newFeeder(s, stream.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	token, filler := s.token("reader"), strings.Repeat("x", 4<<10)
	var g errgroup.Group
	crews := make([]*crew, streams)
	for i := range crews {
		task, err := f.create(ctx, "reader", fmt.Sprintf("crew-%d", i))
		require.NoError(t, err)
		c := &crew{task: task, sent: make([]atomic.Int64, alone+together+1)}
		c.fence, err = f.begin(ctx, task)
		require.NoError(t, err)
		for range quickPer {
			r := &quickReader{listener: &listener{addr: s.httpAddr, token: token, task: task.ID, from: "127.0.0.2"}}
			code, _, err := r.open(ctx, unlimited)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code)
			c.quick = append(c.quick, r)
			g.Go(func() error { return c.read(r) })
		}
		crews[i] = c
	}
	send := func(from, to int) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for seq := from; seq <= to; seq++ {
			<-tick.C
			var all errgroup.Group
			for _, c := range crews {
				all.Go(func() error { return c.send(ctx, f, seq, filler) })
			}
			require.NoError(t, all.Wait())
		}
	}
	send(1, alone)

	for _, c := range crews {
		for range stalledPer {
			l := &listener{addr: s.httpAddr, token: token, task: c.task.ID, from: stalledFrom, buffer: 16 << 10}
			_, _, err := l.open(ctx, unlimited) // reads only the header
			require.NoError(t, err)
			c.stalled = append(c.stalled, l)
		}
	}
	require.Equal(t, streams*stalledPer, standing(t, s.httpAddr, stalledNetwork))
	began := time.Now()
	gone := make(chan time.Duration, 1)
	g.Go(func() error {
		for standing(t, s.httpAddr, stalledNetwork) > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("stalled readers still there: %w", ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
		gone <- time.Since(began)
		return nil
	})
	send(alone+1, alone+together)
	for _, c := range crews {
		require.NoError(t, f.finish(ctx, c.task, c.fence, ""))
	}
	require.NoError(t, g.Wait())
	took := <-gone

	var before, with []time.Duration
	for _, c := range crews {
		for _, r := range c.quick {
			require.Len(t, r.took, alone+together)
			before, with = append(before, r.took[:alone]...), append(with, r.took[alone:]...)
		}
	}
	slices.Sort(before)
	slices.Sort(with)
	quantile := func(d []time.Duration, percent int) time.Duration {
		return d[len(d)*percent/100].Round(10 * time.Microsecond)
	}
	t.Logf("%d quick readers: p50 %s, p99 %s alone; p50 %s, p99 %s with %d stalled readers; the last of those was cut off after %s",
		streams*quickPer, quantile(before, 50), quantile(before, 99), quantile(with, 50), quantile(with, 99),
		streams*stalledPer, took.Round(10*time.Millisecond))
	require.Less(t, took, maxWait)
	// The bounds allow for a busy machine: waiting for a stalled reader would take seconds.
	require.Less(t, quantile(with, 50), 2*quantile(before, 50)+200*time.Millisecond)
	require.Less(t, quantile(with, 99), 2*quantile(before, 99)+2*time.Second)

	var late errgroup.Group
	for _, c := range crews {
		for _, l := range c.stalled {
			late.Go(func() error { return l.wakeUp(ctx, alone+together) })
		}
	}
	require.NoError(t, late.Wait())
}

// wakeUp reads the buffered bytes of a stalled reader, whose connection the server has closed, and resumes after them. The
// stream has at least the given number of events.
func (l *listener) wakeUp(ctx context.Context, events int) error {
	for {
		if _, err := l.next(); err != nil {
			break
		}
	}
	if len(l.got) >= events {
		return fmt.Errorf("task %s: the stalled reader was not cut off", l.task)
	}
	if _, err := l.follow(ctx, unlimited); err != nil {
		return err
	}
	return l.check()
}
