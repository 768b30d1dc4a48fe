package unit

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/node"
)

// membership is one run of the unit as a node.
type membership struct {
	node.Options
	ctx context.Context
	end chan error // error with which it ends, unless its context ends first
}

// life is a running unit whose node a test controls.
type life struct {
	t       *testing.T
	stop    context.CancelFunc
	members chan *membership
	ended   chan error
}

// patient is for tests that are not about a server that responds late.
func patient(o *Options) { o.UnreachableAfter = time.Minute }

func alive(t *testing.T, d Driver, change ...func(*Options)) *life {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &life{t: t, stop: stop, members: make(chan *membership), ended: make(chan error, 1)}
	o := Options{
		Spec:   berth.NodeSpec{ID: "u1", Kind: berth.NodeMedia, Capabilities: []string{berth.CapabilityConference}, MaxConcurrentJobs: 5},
		Driver: d, Check: 5 * time.Millisecond, UnreachableAfter: 400 * time.Millisecond, Logger: quietLog,
	}
	for _, c := range change {
		c(&o)
	}
	u := &unit{Options: o}
	u.be = func(ctx context.Context, o node.Options) error {
		m := &membership{o, ctx, make(chan error, 1)}
		select {
		case l.members <- m:
		case <-ctx.Done():
			return nil
		}
		select {
		case err := <-m.end:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	go func() { l.ended <- u.run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = l.end() // tests that expect an error check it themselves
	})
	return l
}

func (l *life) end() error {
	l.t.Helper()
	select {
	case err := <-l.ended:
		l.ended <- err
		return err
	case <-time.After(20 * time.Second):
		l.t.Fatal("the unit did not end")
		return nil
	}
}

// member waits for the next run of the unit as a node.
func (l *life) member() *membership {
	l.t.Helper()
	select {
	case m := <-l.members:
		return m
	case <-time.After(30 * time.Second):
		l.t.Fatal("the unit did not register")
		return nil
	}
}

// linkEnd waits for the end of the link and returns its cause.
func (m *membership) linkEnd(t *testing.T) error {
	t.Helper()
	select {
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	case <-time.After(20 * time.Second):
		t.Fatal("the link is still up")
		return nil
	}
}

func TestUnit_ServerAnswers_RegistersItsIncarnation(t *testing.T) {
	t.Parallel()
	sim := simulated()
	m := alive(t, sim).member()
	require.NoError(t, m.Spec.Normalize())
	require.Equal(t, berth.NodeMedia, m.Spec.Kind)
	require.Equal(t, berth.Incarnation{Host: "here", PID: 1, StartedAt: 1000}, m.Spec.Incarnation)
	require.Equal(t, 8, m.MaxActivities, "C3")
	require.Equal(t, 5, m.Spec.MaxConcurrentJobs)
}

func TestUnit_ServerRestartsQuickly_LinkIsLost(t *testing.T) { // C14
	t.Parallel()
	sim := simulated()
	l := alive(t, sim)
	first := l.member()
	sim.Restart()
	require.ErrorIs(t, first.linkEnd(t), errRestarted)
	require.ErrorIs(t, context.Cause(first.ctx), node.ErrServiceLost, "operators see why it withdraws")
	second := l.member()
	require.NotEqual(t, first.Spec.Incarnation, second.Spec.Incarnation)
	require.Greater(t, second.Spec.Incarnation.StartedAt, first.Spec.Incarnation.StartedAt)
}

func TestUnit_UnresponsiveFault_ReturnsWithItsConferences(t *testing.T) {
	t.Parallel()
	sim := simulated()
	l := alive(t, sim)
	first := l.member()
	sim.Put(runs(1, 0))
	sim.Fail(FaultUnresponsive)
	require.ErrorIs(t, first.linkEnd(t), node.ErrKeepRegistration, "it does not withdraw")
	sim.Fail(FaultNone)
	require.Equal(t, first.Spec.Incarnation, l.member().Spec.Incarnation)
	require.Len(t, sim.Copies(), 1)
}

func TestUnit_HalfDeadFault_StaysRegistered(t *testing.T) {
	t.Parallel()
	sim := simulated()
	m := alive(t, sim).member()
	sim.Fail(FaultHalfDead)
	require.Never(t, func() bool { return m.ctx.Err() != nil }, 300*time.Millisecond, 10*time.Millisecond)
}

func TestUnit_Stopped_WithdrawsOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, leave := range []bool{false, true} {
		l := alive(t, simulated(), func(o *Options) { o.WithdrawOnStop = leave })
		m := l.member()
		l.stop()
		require.Equal(t, !leave, errors.Is(m.linkEnd(t), node.ErrKeepRegistration))
		require.NoError(t, l.end())
	}
}

// switchable is a media server whose probes return an error that the test sets.
type switchable struct {
	*Sim
	err chan error // always holds one value, nil while the server is reachable
}

func (a *switchable) Incarnation(ctx context.Context) (berth.Incarnation, error) {
	err := <-a.err
	a.err <- err
	if err != nil {
		return berth.Incarnation{}, err
	}
	return a.Sim.Incarnation(ctx)
}

func (a *switchable) set(err error) {
	<-a.err
	a.err <- err
}

func TestUnit_ServerUnreachable_LinkIsLostAfterTheLimit(t *testing.T) {
	t.Parallel()
	server := &switchable{simulated(), make(chan error, 1)}
	server.err <- errors.New("refused")
	l := alive(t, server)
	server.set(nil)
	m := l.member()
	server.set(errors.New("refused"))
	begun := time.Now()
	require.ErrorIs(t, m.linkEnd(t), errUnreachable)
	require.GreaterOrEqual(t, time.Since(begun), 350*time.Millisecond)
	server.set(nil)
	require.Equal(t, m.Spec.Incarnation, l.member().Spec.Incarnation, "the same run of the media server")
}

func TestUnit_WrongSettingsAtStart_Fails(t *testing.T) {
	t.Parallel()
	server := &switchable{simulated(), make(chan error, 1)}
	server.err <- &Misconfigured{"wrong key"}
	require.ErrorContains(t, alive(t, server).end(), "wrong key")

	l := alive(t, simulated())
	l.member().end <- &client.Problem{Status: http.StatusForbidden}
	var refused *client.Problem
	require.ErrorAs(t, l.end(), &refused)
}

func TestUnit_Superseded_Fails(t *testing.T) {
	t.Parallel()
	l := alive(t, simulated())
	l.member().end <- node.ErrSuperseded
	require.ErrorIs(t, l.end(), node.ErrSuperseded)
}
