//go:build faults

package tests

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

// deployment is a Redis whose master can be replaced.
type deployment struct {
	settings []string
	keys     lua.Keys
	client   redis.UniversalClient
	master   func() *testredis.Server
}

func deployments() map[string]func(t *testing.T) deployment {
	return map[string]func(t *testing.T) deployment{
		"cluster": func(t *testing.T) deployment {
			c, keys := testredis.StartCluster(t, true), lua.Keys{Cell: "one"}
			return deployment{
				[]string{"BERTH_REDIS_ADDR=" + c.Addr(), "BERTH_CELL=one"},
				keys, c.Client(t),
				func() *testredis.Server { return c.Master(t, keys.Guard()) },
			}
		},
		"sentinel": func(t *testing.T) deployment {
			s := testredis.StartSentinel(t)
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: strings.Split(s.Addr(), ","), MasterName: testredis.MasterName})
			t.Cleanup(func() { _ = rdb.Close() })
			return deployment{
				[]string{"BERTH_REDIS_ADDR=" + s.Addr(), "BERTH_REDIS_SENTINEL_MASTER=" + testredis.MasterName}, lua.Keys{}, rdb, s.Master,
			}
		},
	}
}

// P5, L12, B7: the master is killed, or replaced for a time and then returns without what the other granted meanwhile, while
// jobs, a chain and a conference run. No slot is granted twice, as counted by the nodes and the model; no node is declared
// dead; everything completes, and ten seconds after a master serves again work is decided as before.
func TestRedisFailover_WorkRunning_NothingIsGrantedTwice(t *testing.T) {
	for kind, start := range deployments() {
		for name, meanwhile := range map[string]bool{"master killed": false, "failback without the last leases": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				d := start(t)
				s := newStack(t, withModel(sim.Options{TokensPerSecond: 60}), with(d.settings...),
					with("TURN_TIMEOUT_MS=300000", "BERTH_JOB_TIMEOUT=200s", "BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-reasoner": 1})))
				f := &failover{deployment: d, s: s, scripts: lua.New(d.client, d.keys)}
				f.begin(t)
				old := d.master()
				if meanwhile {
					old.Pause()
				} else {
					f.fill(4)
					old.Kill()
				}
				next := d.master()
				for next == old {
					next = d.master()
				}
				back := time.Now()
				if meanwhile {
					f.fill(4) // two of these leases are unknown to the first master
					next.Kill()
					old.Resume()
					require.Same(t, old, d.master())
					back = time.Now()
				}
				f.normal(t, back)
				f.end(t)
			})
		}
	}
}

// demotions are the ways in which a master becomes a replica while it runs, and its clients stay connected to it. The function demotes it and
// returns once a master serves; demoted is called while there is none.
func demotions() map[string]func(t *testing.T) (d deployment, demote func(demoted func())) {
	return map[string]func(t *testing.T) (deployment, func(func())){
		"without Sentinels, promoted again": func(t *testing.T) (deployment, func(func())) {
			server := testredis.Start(t)
			return deployment{[]string{"BERTH_REDIS_ADDR=" + server.Addr()}, lua.Keys{}, server.Client(), func() *testredis.Server { return server }},
				func(demoted func()) {
					server.Do("REPLICAOF", "127.0.0.1", "1")
					demoted()
					server.Do("REPLICAOF", "NO", "ONE")
				}
		},
		"by Sentinels": func(t *testing.T) (deployment, func(func())) {
			s := testredis.StartSentinel(t)
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: strings.Split(s.Addr(), ","), MasterName: testredis.MasterName})
			t.Cleanup(func() { _ = rdb.Close() })
			return deployment{
				[]string{"BERTH_REDIS_ADDR=" + s.Addr(), "BERTH_REDIS_SENTINEL_MASTER=" + testredis.MasterName}, lua.Keys{}, rdb, s.Master,
			}, func(func()) { s.Failover() }
		},
	}
}

// FI3: the master is demoted while jobs, a chain and a conference run, and all clients stay connected to it. While there is no master,
// workers stop within 2 s of it, /readyz has the reason, and writes are refused with 503 only. Then everything continues without a restart,
// and nothing was granted twice.
func TestRedisFailover_MasterDemoted_WorkContinuesOnceOneServes(t *testing.T) { // L11
	for name, start := range demotions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, demote := start(t)
			s := newStack(t, withModel(sim.Options{TokensPerSecond: 60}), with(d.settings...),
				with("TURN_TIMEOUT_MS=300000", "BERTH_JOB_TIMEOUT=200s", "BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-reasoner": 1})))
			f := &failover{deployment: d, s: s, scripts: lua.New(d.client, d.keys)}
			f.begin(t)
			writes := s.write(t)
			fault := time.Now()
			demote(func() {
				s.eventually("the workers to stop", func() bool {
					return regexp.MustCompile(`msg="workers stopping".*READONLY`).Match(s.worker.output())
				})
				t.Logf("workers stopped %s after the demotion", time.Since(fault).Round(10*time.Millisecond))
				require.Less(t, time.Since(fault), 10*time.Second)
				s.eventually("readiness to have the reason", func() bool {
					code, body := s.get(t, "/readyz")
					return code == http.StatusOK && strings.Contains(body, `"code":"read_only","setting":"BERTH_REDIS_ADDR"`)
				})
			})
			back := time.Now()
			writes.await(back)
			t.Logf("a write succeeded %s after a master served, %s after the demotion",
				time.Since(back).Round(10*time.Millisecond), time.Since(fault).Round(10*time.Millisecond))
			f.fill(4)
			t.Logf("a job was granted %s after a master served", time.Since(back).Round(10*time.Millisecond))
			f.normal(t, back)
			refused := writes.stop()
			t.Logf("refused writes by code: %v", refused)
			for code := range refused {
				require.Equal(t, berth.CodeUnavailable, code)
			}
			f.end(t)
		})
	}
}

// writes are requests that write to Redis, one after the other.
type writes struct {
	s       *stack
	last    atomic.Int64 // when the last one succeeded, in nanoseconds
	refused map[berth.Code]int
	end     context.CancelFunc
	running sync.WaitGroup
}

// write sends requests until stop is called.
func (s *stack) write(t *testing.T) *writes {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &writes{s: s, refused: map[berth.Code]int{}, end: cancel}
	user := s.user("writer")
	w.running.Go(func() {
		for ; ctx.Err() == nil; <-time.After(20 * time.Millisecond) {
			_, err := user.PutSession(ctx, "writes", client.SessionSpec{SrcLang: "en", TgtLang: s.language})
			var p *client.Problem
			switch {
			case err == nil:
				w.last.Store(time.Now().UnixNano())
			case ctx.Err() != nil:
			case errors.As(err, &p):
				w.refused[p.Code]++
				assert.Positive(t, p.RetryAfter, "%+v", p)
			default:
				assert.NoError(t, err)
			}
		}
	})
	t.Cleanup(func() { w.stop() })
	return w
}

// await waits until a request succeeds that was sent after a time.
func (w *writes) await(after time.Time) {
	w.s.tb.Helper()
	w.s.eventually("a write to succeed", func() bool { return w.last.Load() > after.UnixNano() })
}

// stop returns how many were refused, by code.
func (w *writes) stop() map[berth.Code]int {
	w.end()
	w.running.Wait()
	return w.refused
}

// get returns the response of the API to a request without a token.
func (s *stack) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	res, err := http.Get("http://" + s.httpAddr + path) //nolint:noctx // a test's own server
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

// failover is the work that runs while the master is replaced.
type failover struct {
	deployment
	s          *stack
	scripts    *lua.Scripts
	nodes      map[string]*counter
	before     map[string]berth.Node
	session    *session
	turns      []client.Dispatch
	tasks      map[string]chan *seen
	conference berth.Conference
	meetings   *conferences
}

func (f *failover) running() (n int64) {
	for _, c := range f.nodes {
		n += c.running.Load()
	}
	return n
}

// begin starts two jobs on nodes with four slots, two chains for one slot of a model, and a conference.
func (f *failover) begin(t *testing.T) {
	t.Helper()
	f.nodes = map[string]*counter{"a": f.s.counts("a", 2), "b": f.s.counts("b", 2)}
	f.before = map[string]berth.Node{}
	for id := range f.nodes {
		n, err := f.s.user("op", "operator").Node(t.Context(), id)
		require.NoError(t, err)
		f.before[id] = n
	}
	f.s.media("u1", 1)
	f.s.afterGrace(f.scripts)
	f.meetings = f.s.conferences()
	f.conference = f.meetings.open("8600000001").Conference
	f.session = f.s.session("alice", "s1")
	f.fill(2)
	f.tasks = map[string]chan *seen{}
	for _, id := range []string{"task-1", "task-2"} {
		acc := submitMatch(t, f.session.Client, berth.LocaleEN, id)
		f.tasks[acc.TaskID] = make(chan *seen, 1)
	}
	called := make(chan struct{}, 2)
	for id, ended := range maps.All(f.tasks) {
		go func() {
			defer close(ended)
			got, calls := &seen{}, false
			for ev, err := range f.session.Follow(t.Context(), id, "") {
				if err != nil {
					t.Error(err)
					return
				}
				if got.add(ev); streaming(got) && !calls {
					calls = true
					called <- struct{}{}
				}
			}
			ended <- got
		}()
	}
	select {
	case <-called:
	case <-time.After(maxWait):
		require.Fail(t, "no model call streams")
	}
}

// fill dispatches jobs until so many run. Refusals because of the failover are retried.
func (f *failover) fill(jobs int) {
	f.s.tb.Helper()
	for len(f.turns) < jobs {
		spec := jobSpec("r"+string(rune('0'+len(f.turns))), berth.FinalizeNone)
		f.s.eventually("a job to be accepted", func() bool {
			d, err := f.session.Dispatch(f.s.tb.Context(), f.session.id, spec)
			if err == nil {
				f.turns = append(f.turns, d)
			}
			return err == nil
		})
	}
	f.s.eventually("the jobs to run", func() bool { return f.running() == int64(jobs) })
}

// normal waits until a segment is refused because all slots are in use, which is a decision again.
func (f *failover) normal(t *testing.T, back time.Time) {
	t.Helper()
	f.s.eventually("it to be decided again", func() bool {
		_, err := f.session.Dispatch(t.Context(), f.session.id, jobSpec("more", berth.FinalizeManual))
		return problem(t, err).Code == berth.CodeNodeFull
	})
	t.Logf("decided again %s after a master served", time.Since(back).Round(10*time.Millisecond))
	require.Less(t, time.Since(back), 10*time.Second)
	require.EqualValues(t, 4, f.running(), "all jobs still run")
}

func (f *failover) end(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		close(n.gone)
	}
	for _, d := range f.turns {
		require.NoError(t, f.session.FinalizeTurn(t.Context(), d.TurnID))
		// The last entries of a stream may be lost: if that was the first event, it is published again unless it was confirmed, and a gap
		// says that it is lost.
		require.Regexp(t, `^(gap(, turn)?|turn(, gap)?(, turn)?), 0:hello, done\(manual 0/1\)$`, f.session.await(d.TurnID, berth.EventDone))
		require.Equal(t, 1, f.session.turn(d.TurnID).Jobs[0].Dispatches, "no job was dispatched twice")
		f.s.awaitEnd(workflows.TurnWorkflowID(d.TurnID))
	}
	for id, ended := range f.tasks {
		got, ok := <-ended
		require.True(t, ok, "%s: the stream failed", id)
		require.Equal(t, berth.EventDone, got.last.Type, "%s: %s", id, got.last.Message)
		require.Equal(t, got.last.Text, trim(got.text))
		require.Equal(t, 1, got.count(berth.EventDone))
	}
	require.Equal(t, 1, f.s.stats().Models["deepseek-reasoner"].PeakInFlight, "the model's slot was granted once")
	for id, n := range f.nodes {
		require.LessOrEqual(t, n.peak.Load(), int64(2), "%s got more concurrent jobs than it has slots", id)
		f.s.awaitNode(id)
		now, err := f.s.user("op", "operator").Node(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, f.before[id].Generation, now.Generation, "no node had to register again")
	}
	c, err := f.meetings.Conference(t.Context(), f.conference.E164, "")
	require.NoError(t, err)
	require.Equal(t, f.conference.Owner, c.Conference.Owner, "the conference did not move")
	require.NotContains(t, string(f.s.worker.output()), "nodes declared dead")
	f.meetings.end(f.conference.E164, "conference-failover")
	f.s.released(f.scripts, "a", "b", "u1")
}
