package unit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// fakeProxy is a data proxy that a test controls.
type fakeProxy struct {
	t     *testing.T
	mu    sync.Mutex
	state proxyState
}

type proxyState struct {
	reports []report
	answer  error
	recover int // number of the first call that is accepted again; 0 for none
	calls   int
	reads   int
	former  client.FormerState
}

type report struct {
	e164 string
	berth.ConferenceInfo
}

func newProxy(t *testing.T) *fakeProxy {
	t.Helper()
	return &fakeProxy{t: t}
}

func (p *fakeProxy) do(f func(*proxyState)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
}

func (p *fakeProxy) ReportConference(_ context.Context, e164 string, in berth.ConferenceInfo) (err error) {
	p.do(func(s *proxyState) {
		s.calls++
		if s.calls == s.recover {
			s.answer = nil
		}
		if err = s.answer; err == nil {
			s.reports = append(s.reports, report{e164, in})
		}
	})
	return err
}

func (p *fakeProxy) FormerState(context.Context, string, berth.ConferenceInfo) (former client.FormerState, err error) {
	p.do(func(s *proxyState) { s.reads++; former = s.former })
	return former, nil
}

func (p *fakeProxy) reply(err error) { p.do(func(s *proxyState) { s.answer = err }) }

// take waits for n reports and removes them.
func (p *fakeProxy) take(n int) (out []report) {
	p.t.Helper()
	require.Eventually(p.t, func() (enough bool) {
		p.do(func(s *proxyState) {
			if enough = len(s.reports) >= n; enough {
				out, s.reports = s.reports, nil
			}
		})
		return enough
	}, 20*time.Second, time.Millisecond)
	require.Len(p.t, out, n)
	return out
}

// quiet requires that nothing is reported in 20 rounds.
func (p *fakeProxy) quiet(r *reporter) {
	p.t.Helper()
	require.Never(p.t, func() (some bool) {
		p.do(func(s *proxyState) { some = len(s.reports) > 0 })
		return some
	}, 20*r.every, r.every)
}

// reporting runs a reporter with short rounds.
func reporting(t *testing.T, sim *Sim) (*reporter, *fakeProxy) {
	t.Helper()
	p := newProxy(t)
	inc, err := sim.Incarnation(t.Context())
	require.NoError(t, err)
	r := newReporter("u1", sim, inc, p, quietLog)
	r.every = 10 * time.Millisecond
	r.generation.Store(7)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return r, p
}

func runs(epoch int64, participants int) Copy {
	return Copy{UnitCopy: berth.UnitCopy{E164: number, ConferenceID: "c1", Epoch: epoch, StartedAt: time.Now()}, Participants: participants}
}

func isLive(t *testing.T, r report, full bool, want string) {
	t.Helper()
	require.Equal(t, number, r.e164)
	require.Equal(t, "u1", r.NodeID)
	require.Equal(t, full, r.Full)
	require.False(t, r.Ended)
	require.JSONEq(t, want, string(r.Live))
}

func TestReporter_NewCopies_ReportsAllThenChanges(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 0))
	r, p := reporting(t, sim)
	first := p.take(1)[0]
	isLive(t, first, true, `{"participantCount":0,"simulated":true}`)
	require.Equal(t, int64(3), first.Epoch)
	require.Equal(t, int64(7), first.Generation)
	p.quiet(r)
	sim.Put(runs(3, 2))
	isLive(t, p.take(1)[0], false, `{"participantCount":2}`)
	p.quiet(r)
	sim.Put(runs(3, 0))
	isLive(t, p.take(1)[0], false, `{"participantCount":0}`)
	require.Equal(t, int64(1), r.running.Load())
}

func TestReporter_NewEpoch_ReportsAllAgain(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	sim.Put(runs(4, 1)) // adopted
	again := p.take(1)[0]
	isLive(t, again, true, `{"participantCount":1,"simulated":true}`)
	require.Equal(t, int64(4), again.Epoch)
	r.generation.Store(8) // registered again
	again = p.take(1)[0]
	require.True(t, again.Full)
	require.Equal(t, int64(8), again.Generation)
}

func TestReporter_NotRegistered_ReportsNothing(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	r.generation.Store(0)
	other := runs(1, 1)
	other.E164 = "4930123456"
	sim.Put(other)
	require.Eventually(t, func() bool { return r.running.Load() == 2 }, 20*time.Second, r.every, "the round before has ended")
	sim.Put(runs(3, 2))
	p.quiet(r)
}

func TestReporter_Requested_ReportsAllAgain(t *testing.T) { // C18
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	other := runs(1, 1)
	other.E164 = "4930123456"
	sim.Put(other)
	r, p := reporting(t, sim)
	p.take(2)
	r.repeat(berth.UnitReport{E164: []string{number}})
	isLive(t, p.take(1)[0], true, `{"participantCount":1,"simulated":true}`)
	r.repeat(berth.UnitReport{})
	for _, one := range p.take(2) {
		require.True(t, one.Full)
	}
	r.repeat(berth.UnitReport{E164: []string{"49301"}}) // the unit has no copy of it
	p.quiet(r)
}

func TestReporter_ProxyWasUnavailable_ReportsAllAgain(t *testing.T) { // C19
	t.Parallel()
	for name, away := range map[string]error{
		"no response": errors.New("connection refused"),
		"an error":    &client.Problem{Status: http.StatusServiceUnavailable},
		"too many":    &client.Problem{Status: http.StatusTooManyRequests},
		"no token":    &client.Problem{Status: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := simulated()
			sim.Put(runs(3, 1))
			other := runs(1, 0)
			other.E164 = "4930123456"
			sim.Put(other)
			_, p := reporting(t, sim)
			p.take(2)
			p.reply(away)
			sim.Put(runs(3, 2))
			var before int
			p.do(func(s *proxyState) { before = s.calls })
			require.Eventually(t, func() (tried bool) {
				p.do(func(s *proxyState) { tried = s.calls > before+2 })
				return tried
			}, 20*time.Second, time.Millisecond)
			sim.End(other.E164) // it ends during the outage, and the unit removes it
			p.reply(nil)
			seen := map[string]report{}
			require.Eventually(t, func() bool {
				p.do(func(s *proxyState) {
					for _, one := range s.reports {
						seen[one.e164] = one
					}
				})
				return seen[number].Full && seen[other.E164].Ended
			}, 20*time.Second, time.Millisecond)
			require.JSONEq(t, `{"participantCount":2,"simulated":true}`, string(seen[number].Live))
		})
	}
}

func TestReporter_StaleCopy_StopsReporting(t *testing.T) { // C20
	t.Parallel()
	for _, status := range []int{http.StatusConflict, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			sim := simulated()
			sim.Put(runs(3, 1))
			r, p := reporting(t, sim)
			p.take(1)
			p.reply(&client.Problem{Status: status})
			sim.Put(runs(3, 2))
			const calls = 1 + 1 + maxRefusals
			require.Eventually(t, func() (tried bool) {
				p.do(func(s *proxyState) { tried = s.calls == calls })
				return tried
			}, 20*time.Second, time.Millisecond)
			p.reply(nil)
			sim.Put(runs(3, 3))
			require.Never(t, func() (more bool) {
				p.do(func(s *proxyState) { more = s.calls > calls })
				return more
			}, r.every<<(maxRefusals+2), r.every)
			r.begun(number, 3)
			isLive(t, p.take(1)[0], true, `{"participantCount":3,"simulated":true}`)
		})
	}
}

// The report of an adopted copy may arrive before the conference's new state.
func TestReporter_RefusedBriefly_RepeatsTheReport(t *testing.T) {
	t.Parallel()
	sim := simulated()
	_, p := reporting(t, sim)
	p.do(func(s *proxyState) { s.answer, s.recover = &client.Problem{Status: http.StatusConflict}, 3 })
	sim.Put(runs(3, 2))
	isLive(t, p.take(1)[0], true, `{"participantCount":2,"simulated":true}`)
}

func TestReporter_ReportInvalid_IsNotRepeated(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	p.reply(&client.Problem{Status: http.StatusUnprocessableEntity})
	sim.Put(runs(3, 2))
	require.Eventually(t, func() (tried bool) {
		p.do(func(s *proxyState) { tried = s.calls == 2 })
		return tried
	}, 20*time.Second, time.Millisecond)
	p.reply(nil)
	p.quiet(r)
	sim.Put(runs(3, 3))
	isLive(t, p.take(1)[0], false, `{"participantCount":3}`)
}

func TestReporter_CopyEndedOnPurpose_ReportsTheEnd(t *testing.T) { // C15
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	sim.End(number)
	end := p.take(1)[0]
	require.True(t, end.Ended)
	require.Equal(t, int64(3), end.Epoch)
	require.JSONEq(t, `{}`, string(end.Live))
	p.quiet(r)
}

// C15: a copy may have ended before the conference's new state shows that it was the owner's. Its workflow requests a report then,
// maybe after an outage, or of an agent that does not know the copy.
func TestReporter_EndRefused_IsReportedAgain(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]struct {
		before, after int  // how many reports are refused before and after its end
		requested     bool // it is reported on request only
	}{
		"briefly": {0, 3, false}, "for long": {0, 1 + maxRefusals, true}, "before its end": {1 + maxRefusals, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := simulated()
			sim.Put(runs(3, 1))
			r, p := reporting(t, sim)
			p.take(1)
			p.reply(&client.Problem{Status: http.StatusConflict})
			if !later.requested {
				p.do(func(s *proxyState) { s.recover = 1 + later.after + 1 })
			}
			if later.before > 0 {
				sim.Put(runs(3, 2))
			}
			refused := 0
			for _, more := range []int{later.before, later.after} {
				refused += more
				require.Eventually(t, func() (tried bool) {
					p.do(func(s *proxyState) { tried = s.calls >= 1+refused })
					return tried
				}, 20*time.Second, time.Millisecond)
				sim.End(number)
			}
			if later.requested {
				p.reply(nil)
				p.quiet(r)
				r.repeat(berth.UnitReport{E164: []string{number}, Epoch: 3})
			}
			end := p.take(1)[0]
			require.True(t, end.Ended)
			require.Equal(t, int64(3), end.Epoch)
			p.quiet(r)
		})
	}
}

// C15: a report of one copy is requested with the epoch that its conference expects.
func TestReporter_RequestedCopy_IsReportedWithItsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs, asked int64
		ended       bool // it is reported as ended; otherwise its live information
		none        bool
	}{
		"runs": {3, 3, false, false}, "runs, any epoch": {3, 0, false, false}, "runs for a later owner": {4, 3, false, false},
		"is unknown": {0, 3, true, false}, "is unknown, any epoch": {0, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := simulated()
			r, p := reporting(t, sim)
			if c.runs > 0 {
				sim.Put(runs(c.runs, 1))
				p.take(1)
			}
			r.repeat(berth.UnitReport{E164: []string{number}, Epoch: c.asked})
			if c.none {
				p.quiet(r)
				return
			}
			report := p.take(1)[0]
			require.Equal(t, c.ended, report.Ended)
			require.Equal(t, max(c.runs, c.asked), report.Epoch)
			p.quiet(r)
		})
	}
}

// A list that still has a copy is older than its end, which is not a change of its participants.
func TestSim_LiveInformationOfEndedCopy_Fails(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	_, copies, err := sim.List(t.Context())
	require.NoError(t, err)
	require.Len(t, copies, 1)
	sim.End(number)
	_, err = sim.Live(t.Context(), number)
	require.Error(t, err)
}

func TestReporter_ReleaseOrLostServer_ReportsNoEnd(t *testing.T) {
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	sim.do(func(st *simState) { // no list is read between the two changes
		delete(st.copies, number)
		r.released(number)
	})
	p.quiet(r)
	sim.Put(runs(4, 1))
	p.take(1)
	sim.Restart()
	p.quiet(r)
}

func TestReporter_ChannelFull_DoesNotBlockCommands(t *testing.T) {
	t.Parallel()
	r := newReporter("u1", simulated(), berth.Incarnation{}, nil, quietLog)
	for range 2 * cap(r.notices) {
		r.begun(number, 1)
	}
	require.True(t, r.everything.Load())
}

func TestDifference_Fields_OnlyChanged(t *testing.T) {
	t.Parallel()
	a := Live{"x": json.RawMessage(`1`), "y": json.RawMessage(`2`)}
	change, full := difference(nil, a)
	require.True(t, full)
	require.JSONEq(t, `{"x":1,"y":2}`, string(change))
	change, full = difference(a, Live{"x": json.RawMessage(`1`), "y": json.RawMessage(`3`)})
	require.False(t, full)
	require.JSONEq(t, `{"y":3}`, string(change))
	change, _ = difference(a, a)
	require.Nil(t, change)
	change, full = difference(nil, Live{})
	require.True(t, full)
	require.JSONEq(t, `{}`, string(change))
}
