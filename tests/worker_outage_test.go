package tests

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/testdb"
	"berth/workflows"
)

// outage is a stack whose first worker reaches one dependency through a link that can be cut.
type outage struct {
	*stack
	link *toxiproxy.Proxy
	far  *process
}

// startOutage starts everything but a worker. addr is the address of the dependency, and setting returns the worker's setting
// for the address of the link.
func startOutage(t *testing.T, s *stack, addr func() string, setting func(link string) string) *outage {
	t.Helper()
	t.Cleanup(s.close)
	s.startInfra()
	s.startAPI()
	return s.startFar(t, addr(), setting)
}

// startFar starts a worker that reaches the dependency with an address through a link.
func (s *stack) startFar(t *testing.T, addr string, setting func(link string) string) *outage {
	t.Helper()
	o := &outage{stack: s}
	o.link = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "link", "127.0.0.1:0", addr)
	require.NoError(t, o.link.Start())
	t.Cleanup(o.link.Stop)
	direct := s.settings
	s.settings = append(direct[:len(direct):len(direct)], setting(o.link.Listen))
	o.far = s.startWorker()
	s.settings = direct
	return o
}

func (o *outage) hang() {
	o.tb.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		_, err := o.link.Toxics.AddToxicJson(strings.NewReader(`{"type":"timeout","stream":"` + stream + `","attributes":{"timeout":0}}`))
		require.NoError(o.tb, err)
	}
}

func (o *outage) heal() {
	o.tb.Helper()
	o.link.Toxics.ResetToxics(context.Background())
	if !o.link.Enabled {
		require.NoError(o.tb, o.link.Start())
	}
}

// logged returns how often the far worker has logged a message.
func (o *outage) logged(message string) int {
	return bytes.Count(o.far.output(), []byte(`"`+message+`"`))
}

// forward accepts TCP connections for a server on a Unix socket, because a link needs an address.
func forward(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return l.Addr().String()
}

// submitSoon submits a segment until it is accepted: the worker that the turn is cached on may have lost Redis a moment ago.
func (o *outage) submitSoon(c *session, turn string, index int, f berth.Finalize) {
	o.tb.Helper()
	o.eventually("the segment to be accepted", func() bool {
		_, err := c.trySubmit(turn, index, f)
		var p *client.Problem
		if err != nil {
			require.ErrorAs(o.tb, err, &p)
			require.Equal(o.tb, http.StatusServiceUnavailable, p.Status, "%v", err)
		}
		return err == nil
	})
}

// FC3: one of two workers loses Redis, the database or Temporal, and all runs are cached on it. Everything continues on the
// other one meanwhile. When it has reconnected, it takes work again: the other one is then killed.
func TestWorker_LosesDependency_WorkContinuesElsewhere(t *testing.T) { // B5
	t.Parallel()
	redis := func(s *stack) (func() string, func(string) string) {
		return func() string { return s.ready.RedisAddr }, func(link string) string { return "BERTH_REDIS_ADDR=" + link }
	}
	for name, c := range map[string]struct {
		through func(*stack) (func() string, func(string) string)
		cut     func(*outage)
	}{
		"redis refuses connections": {redis, func(o *outage) { o.link.Stop() }},
		"redis hangs":               {redis, (*outage).hang},
		"database unreachable": {func(s *stack) (func() string, func(string) string) {
			dsn, err := url.Parse(testdb.Postgres(t))
			require.NoError(s.tb, err)
			s.settings = append(s.settings, "BERTH_DATABASE="+dsn.String(), "BERTH_DRAIN=1s")
			q := dsn.Query()
			socket := filepath.Join(q.Get("host"), ".s.PGSQL."+cmp.Or(q.Get("port"), "5432"))
			q.Del("host")
			q.Del("port")
			return func() string { return forward(t, socket) }, func(link string) string {
				far := url.URL{Scheme: dsn.Scheme, Host: link, Path: dsn.Path, RawQuery: q.Encode()}
				return "BERTH_DATABASE=" + far.String()
			}
		}, func(o *outage) { o.link.Stop() }},
		"temporal unreachable": {func(s *stack) (func() string, func(string) string) {
			return func() string { return s.ready.TemporalAddr }, func(link string) string { return "BERTH_TEMPORAL_ADDR=" + link }
		}, func(o *outage) { o.link.Stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepareStack(t, t.TempDir(), withModel(sim.Options{TokensPerSecond: 300}), with("TURN_TIMEOUT_MS=60000"))
			addr, setting := c.through(s)
			o := startOutage(t, s, addr, setting)
			d, e := s.testNode("a", 8), s.engine("n1", 1, false)
			s.media("u1", 4)
			m, user, executions := s.conferences(), s.user("alice"), s.temporal()
			talk := s.session("bob", "s1")
			s.afterGrace(e.scripts)

			turn := talk.submit("", 0, "")
			talk.await(turn.TurnID, berth.EventTranslation)
			d.held.Store(true)
			talk.submit(turn.TurnID, 1, "")
			job := d.next(s)
			_, err := submit(t, executions, "long", "wait")
			require.NoError(t, err)
			<-e.started
			m.open("8650000001")
			m.open("8650000002")
			task := submitMatch(t, user, berth.LocaleEN, "")
			s.eventually("the model to answer", func() bool {
				now, err := user.Get(t.Context(), task.TaskID)
				return err == nil && now.Status == berth.TaskStreaming
			})
			near, started := s.startWorker(), o.logged("workers started")
			began := time.Now()
			c.cut(o)
			// The far worker may not be able to write this end.
			go func() { _, _ = m.EndConference(context.Background(), "8650000001") }()

			job.answer <- nil
			d.held.Store(false)
			o.submitSoon(talk, turn.TurnID, 2, berth.FinalizeManual)
			require.Equal(t, "turn, 0:text 0, 1:text 1, 2:text 2, done(manual 0/3)", talk.await(turn.TurnID, berth.EventDone))
			t.Logf("the turn was done %s after the cut", time.Since(began).Round(10*time.Millisecond))
			e.finish <- struct{}{}
			require.Equal(t, berth.ExecutionCompleted, ended(t, executions, "long").Status)
			o.eventually("both conferences to end", func() bool {
				var over *client.Problem
				_, err := m.EndConference(t.Context(), "8650000002")
				return (err == nil || errors.As(err, &over) && over.Code == berth.CodeConflict) &&
					s.closed(workflows.ConferenceWorkflowID("8650000001")) && s.closed(workflows.ConferenceWorkflowID("8650000002"))
			})
			t.Logf("the execution and the conferences were done %s after the cut", time.Since(began).Round(10*time.Millisecond))
			got := watch(t, user, task.TaskID, nil)
			require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
			require.Equal(t, got.last.Text, trim(got.text))
			t.Logf("the task was done %s after the cut", time.Since(began).Round(10*time.Millisecond))
			require.Positive(t, o.logged("workers stopping"))

			o.heal()
			healed := time.Now()
			o.eventually("the worker to take work again", func() bool { return o.logged("workers started") > started })
			t.Logf("the worker polled again %s after it was connected", time.Since(healed).Round(10*time.Millisecond))
			near.kill()
			later := s.session("carol", "s2")
			next := later.submit("", 0, berth.FinalizeManual)
			require.Equal(t, "turn, 0:text 0, done(manual 0/1)", later.await(next.TurnID, berth.EventDone))
			_, err = submit(t, executions, "again", "echo")
			require.NoError(t, err)
			require.Equal(t, berth.ExecutionCompleted, ended(t, executions, "again").Status)
			m.open("8650000003")
			done := watch(t, user, submitMatch(t, user, berth.LocaleEN, "").TaskID, nil)
			require.Equal(t, berth.EventDone, done.last.Type, done.last.Message)
			s.noSlotHeld()
		})
	}
}
