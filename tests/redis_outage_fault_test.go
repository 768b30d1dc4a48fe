//go:build faults

package tests

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/node"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

// counter is a driver that counts concurrent jobs; jobs end when they are released.
type counter struct {
	running, peak atomic.Int64
	gone          chan struct{}
}

func (c *counter) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	n := c.running.Add(1)
	defer c.running.Add(-1)
	for most := c.peak.Load(); n > most && !c.peak.CompareAndSwap(most, n); most = c.peak.Load() {
	}
	select {
	case <-c.gone:
		return berth.JobOutput{Text: in.Text}, nil
	case <-ctx.Done():
		return berth.JobOutput{}, ctx.Err()
	}
}

func (c *counter) Execute(context.Context, berth.ExecuteInput) (berth.ExecuteOutput, error) {
	return berth.ExecuteOutput{}, errors.New("it translates")
}

// counts starts a node that accepts any number of jobs and registers with the given number of slots.
func (s *stack) counts(id string, slots int) *counter {
	s.tb.Helper()
	incarnation, err := node.NewIncarnation()
	require.NoError(s.tb, err)
	ctx, stop := context.WithCancel(context.Background())
	c := &counter{gone: make(chan struct{})}
	options := node.Options{
		Spec: berth.NodeSpec{
			ID: id, Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: []string{enES}, MaxConcurrentJobs: slots,
		},
		API: s.user("nodes", "node"), Temporal: s.temporal(), Driver: c, MaxActivities: 100, Drain: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = node.Run(ctx, options) }) // its effects show how it ended
	s.tb.Cleanup(func() { stop(); running.Wait() })
	s.awaitNode(id)
	return c
}

// P5: Redis is unavailable for twenty-one times the detection time (that is seven minutes with the default times of
// translating nodes). Work is refused immediately, no node is declared dead, running jobs continue, and when Redis is
// available again, everything is as before: no slot is granted twice, as counted by the nodes.
func TestTurn_LongRedisOutage_NothingIsLost(t *testing.T) { // L11, L12
	const away = 42 * time.Second
	redis := testredis.Start(t, "--appendonly", "yes")
	s := newStack(t, with("TURN_TIMEOUT_MS=300000", "BERTH_JOB_TIMEOUT=100s", "BERTH_REDIS_ADDR="+redis.Addr()))
	s.setTimes(berth.NodeTranslate, 500, 1000, 2000)
	nodes := map[string]*counter{"a": s.counts("a", 2), "b": s.counts("b", 2)}
	running := func() (n int64) { return nodes["a"].running.Load() + nodes["b"].running.Load() }
	operator := s.user("op", "operator")
	before := map[string]berth.Node{}
	for id := range nodes {
		n, err := operator.Node(t.Context(), id)
		require.NoError(t, err)
		before[id] = n
	}
	s.afterGrace(lua.New(redis.Client(), lua.Keys{}))
	c := s.session("alice", "s1")
	var turns []client.Dispatch
	for i := range 4 { // the last job's slot is not confirmed yet when Redis becomes unavailable
		if i == 3 {
			<-time.After(3 * time.Second)
		}
		d, err := c.Dispatch(t.Context(), c.id, jobSpec("r"+string(rune('0'+i)), berth.FinalizeNone))
		require.NoError(t, err)
		turns = append(turns, d)
	}
	s.eventually("four jobs to run", func() bool { return running() == 4 })

	redis.Kill()
	gone := time.Now()
	more := jobSpec("more", berth.FinalizeManual)
	slowest, asked := time.Duration(0), 0
	for time.Since(gone) < away {
		began := time.Now()
		_, err := c.Dispatch(t.Context(), c.id, more)
		slowest, asked = max(slowest, time.Since(began)), asked+1
		p := problem(t, err)
		require.Equal(t, http.StatusServiceUnavailable, p.Status, "%v", err)
		require.Positive(t, p.RetryAfter)
		n, err := operator.Node(t.Context(), "a")
		require.NoError(t, err, "reads return the local copy")
		require.Equal(t, berth.NodeReady, n.State)
		require.EqualValues(t, 4, running())
		<-time.After(time.Second)
	}
	t.Logf("away for %s: %d segments were refused, the slowest after %s", time.Since(gone).Round(time.Second), asked, slowest.Round(time.Millisecond))
	redis.Restart()
	back := time.Now()
	s.eventually("it to be decided again", func() bool {
		_, err := c.Dispatch(t.Context(), c.id, more)
		p := problem(t, err)
		require.Equal(t, http.StatusServiceUnavailable, p.Status, "%v", err)
		return p.Code == berth.CodeNodeFull
	})
	full := time.Since(back)
	require.EqualValues(t, 4, running(), "all slots are still held")
	for _, n := range nodes {
		close(n.gone)
	}
	var last client.Dispatch
	s.eventually("the next segment to be taken", func() (ok bool) {
		var err error
		last, err = c.Dispatch(t.Context(), c.id, more)
		return err == nil
	})
	t.Logf("decided again %s after Redis was back, the next segment taken after %s", full.Round(10*time.Millisecond), time.Since(back).Round(10*time.Millisecond))
	for _, d := range turns {
		require.NoError(t, c.FinalizeTurn(t.Context(), d.TurnID))
		require.Equal(t, "turn, 0:hello, done(manual 0/1)", c.await(d.TurnID, berth.EventDone))
		require.Equal(t, 1, c.turn(d.TurnID).Jobs[0].Dispatches, "no job was dispatched twice")
		s.awaitEnd(workflows.TurnWorkflowID(d.TurnID))
	}
	require.Equal(t, "turn, 0:hello, done(manual 0/1)", c.await(last.TurnID, berth.EventDone))
	for id, n := range nodes {
		require.LessOrEqual(t, n.peak.Load(), int64(2), "%s got more concurrent jobs than it has slots", id)
		now, err := operator.Node(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, before[id].Generation, now.Generation, "no node had to register again")
	}
	require.False(t, bytes.Contains(s.worker.output(), []byte("nodes declared dead")))
	require.False(t, bytes.Contains(s.worker.output(), []byte("node notice")))
	s.noSlotsIn(redis, "a", "b")
}
