package unit

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/node"
)

const number = "861012345678"

var quietLog = slog.New(slog.DiscardHandler)

// console sends commands to a unit as its worker would.
type console struct {
	t        *testing.T
	commands *commands
	gate     *node.Gate
	cut      context.CancelFunc // ends the link
}

func newConsole(t *testing.T, d Driver) *console {
	t.Helper()
	inc, err := d.Incarnation(t.Context())
	require.NoError(t, err)
	link, cut := context.WithCancel(context.Background())
	t.Cleanup(cut)
	report := newReporter("u1", d, inc, nil, quietLog)
	return &console{t: t, commands: newCommands(link, d, inc, report), gate: node.NewGate(context.Background(), MaxCommands, quietLog), cut: cut}
}

func (c *console) give(command string, in ...any) (*berth.UnitList, error) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quietLog)
	env := suite.NewTestActivityEnvironment()
	c.commands.Register(env, c.gate, 7)
	value, err := env.ExecuteActivity(command, in...)
	if err != nil || !value.HasValue() {
		return nil, err
	}
	var out berth.UnitList
	return &out, value.Get(&out)
}

// does runs a command that must be acknowledged.
func (c *console) does(command string, in any) {
	c.t.Helper()
	_, err := c.give(command, in)
	require.NoError(c.t, err)
}

// refuses runs a command that must be refused for this reason.
func (c *console) refuses(command string, in any, why string) {
	c.t.Helper()
	_, err := c.give(command, in)
	var no *temporal.ApplicationError
	require.ErrorAs(c.t, err, &no)
	require.Equal(c.t, berth.ErrorRefused, no.Type())
	require.True(c.t, no.NonRetryable())
	require.Contains(c.t, no.Message(), why)
}

// copies returns the conferences that the unit lists.
func (c *console) copies() []berth.UnitCopy {
	c.t.Helper()
	list, err := c.give(berth.ActivityListConferences)
	require.NoError(c.t, err)
	require.Equal(c.t, c.commands.incarnation, list.Incarnation)
	return list.Conferences
}

func requested(conference string, epoch int64, startedAt time.Time) berth.UnitConference {
	return berth.UnitConference{
		ConferenceSpec: berth.ConferenceSpec{E164: number, EndAt: time.Now().Add(time.Hour), MaxParticipants: 5},
		ConferenceID:   conference, Epoch: epoch, StartedAt: startedAt,
	}
}

func listed(conference string, epoch int64, startedAt time.Time) []berth.UnitCopy {
	return []berth.UnitCopy{{E164: number, ConferenceID: conference, Epoch: epoch, StartedAt: startedAt}}
}

func release(epoch int64) berth.UnitRelease { return berth.UnitRelease{E164: number, Epoch: epoch} }

// testCommands tests the contract of docs/units.md; every driver must pass it.
func testCommands(t *testing.T, driver func(*testing.T) Driver) {
	t.Helper()
	early := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	late := early.Add(30 * time.Second)

	t.Run("creation and recovery are idempotent", func(t *testing.T) {
		t.Parallel()
		for _, command := range []string{berth.ActivityCreateConference, berth.ActivityRecoverConference} {
			c := newConsole(t, driver(t))
			require.Empty(t, c.copies())
			c.does(command, requested("c1", 3, early))
			c.does(command, requested("c1", 3, early))
			require.Equal(t, listed("c1", 3, early), c.copies())
		}
	})
	t.Run("an earlier epoch is refused", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.refuses(berth.ActivityCreateConference, requested("c1", 2, late), "later epoch 3")
		c.refuses(berth.ActivityRecoverConference, requested("c0", 2, late), "later epoch 3")
		c.refuses(berth.ActivityAdoptConference, requested("c1", 2, late), "later epoch 3")
		require.Equal(t, listed("c1", 3, early), c.copies())
	})
	t.Run("a later epoch takes over a stale copy", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.does(berth.ActivityRecoverConference, requested("c1", 5, late))
		require.Equal(t, listed("c1", 5, late), c.copies())
	})
	t.Run("a new conference replaces the copy of another one", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.does(berth.ActivityCreateConference, requested("c2", 4, late))
		require.Equal(t, listed("c2", 4, late), c.copies())
	})
	t.Run("an adopted copy keeps its start", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.does(berth.ActivityAdoptConference, requested("c1", 6, late))
		c.does(berth.ActivityAdoptConference, requested("c1", 6, late))
		require.Equal(t, listed("c1", 6, early), c.copies())
	})
	t.Run("commands of one epoch out of order leave the latest end time", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		first := requested("c1", 3, early)
		extended := first
		extended.EndAt = first.EndAt.Add(time.Hour)
		c.does(berth.ActivityCreateConference, first)
		c.does(berth.ActivityAdoptConference, extended)
		for _, late := range []string{berth.ActivityAdoptConference, berth.ActivityCreateConference, berth.ActivityRecoverConference} {
			c.does(late, first)
			found, ok, err := c.commands.driver.Find(t.Context(), number)
			require.NoError(t, err)
			require.True(t, ok)
			require.WithinDuration(t, extended.EndAt, found.EndAt, time.Second, late)
		}
	})
	t.Run("a missing copy is not adopted", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.refuses(berth.ActivityAdoptConference, requested("c1", 6, late), "no copy of it")
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.refuses(berth.ActivityAdoptConference, requested("c2", 6, late), "no copy of it")
		require.Equal(t, listed("c1", 3, early), c.copies())
	})
	t.Run("a release ends only copies of the given or an earlier epoch", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		c.does(berth.ActivityReleaseConference, release(9))
		c.does(berth.ActivityCreateConference, requested("c1", 3, early))
		c.does(berth.ActivityReleaseConference, release(2))
		require.Len(t, c.copies(), 1)
		c.does(berth.ActivityReleaseConference, release(3))
		require.Empty(t, c.copies())
		c.does(berth.ActivityReleaseConference, release(3))
	})
	t.Run("invalid input is refused", func(t *testing.T) {
		t.Parallel()
		c := newConsole(t, driver(t))
		for why, change := range map[string]func(*berth.UnitConference){
			"e164":            func(in *berth.UnitConference) { in.E164 = "+49" },
			"conferenceId":    func(in *berth.UnitConference) { in.ConferenceID = "" },
			"epoch":           func(in *berth.UnitConference) { in.Epoch = 0 },
			"startedAt":       func(in *berth.UnitConference) { in.StartedAt = time.Time{} },
			"maxParticipants": func(in *berth.UnitConference) { in.MaxParticipants = -1 },
			"end time":        func(in *berth.UnitConference) { in.EndAt = time.Now() },
		} {
			in := requested("c1", 1, early)
			change(&in)
			c.refuses(berth.ActivityCreateConference, in, why)
			c.refuses(berth.ActivityRecoverConference, in, why)
		}
		c.refuses(berth.ActivityReleaseConference, berth.UnitRelease{E164: "x", Epoch: 1}, "e164")
		require.Empty(t, c.copies())
	})
}

func simulated() *Sim {
	return NewSim(SimOptions{Incarnation: berth.Incarnation{Host: "here", PID: 1, StartedAt: 1000}})
}

func TestCommands_SimulatedUnit_FollowTheEpochs(t *testing.T) {
	t.Parallel()
	testCommands(t, func(*testing.T) Driver { return simulated() })
}

func TestCommands_UnitRefuses_ReturnARefusal(t *testing.T) {
	t.Parallel()
	sim := simulated()
	c := newConsole(t, sim)
	sim.Fail(FaultRefuse)
	c.refuses(berth.ActivityCreateConference, requested("c1", 1, time.Now()), "refused by a simulated fault")
	require.Empty(t, sim.Copies())
	sim.Fail(FaultNone)
	c.does(berth.ActivityCreateConference, requested("c1", 1, time.Now()))
	sim.Fail(FaultRefuse)
	c.does(berth.ActivityReleaseConference, release(1))
}

// A hanging command ends with the link, but not as a refusal: a copy may exist.
func TestCommands_LinkLost_EndWithoutARefusal(t *testing.T) {
	t.Parallel()
	sim := simulated()
	c := newConsole(t, sim)
	sim.Fail(FaultHalfDead)
	ended := make(chan error, 2)
	go func() {
		_, err := c.give(berth.ActivityCreateConference, requested("c1", 1, time.Now()))
		ended <- err
	}()
	go func() {
		_, err := c.give(berth.ActivityListConferences)
		ended <- err
	}()
	require.Eventually(t, func() bool { return c.gate.Running() == 2 }, 20*time.Second, time.Millisecond)
	c.cut()
	for range 2 {
		var lost *temporal.ApplicationError
		require.ErrorAs(t, <-ended, &lost)
		require.Equal(t, string(berth.CodeNodeFailed), lost.Type())
		require.Equal(t, errLinkDown.Error(), lost.Message())
	}
}

func TestCommands_SameNumber_RunInOrder(t *testing.T) {
	t.Parallel()
	sim := simulated()
	c := newConsole(t, sim)
	sim.Fail(FaultHalfDead)
	ended := make(chan error, 2)
	go func() {
		_, err := c.give(berth.ActivityCreateConference, requested("c1", 1, time.Now()))
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(c.commands.locks[stripe(number, len(c.commands.locks))]) == 1 }, 20*time.Second, time.Millisecond)
	go func() {
		_, err := c.give(berth.ActivityReleaseConference, release(1))
		ended <- err
	}()
	require.Eventually(t, func() bool { return c.gate.Running() == 2 }, 20*time.Second, time.Millisecond)
	sim.Fail(FaultNone)
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.Empty(t, sim.Copies(), "the release ran after the creation")
}

func TestList_AnotherRunOfTheServer_Fails(t *testing.T) {
	t.Parallel()
	sim := simulated()
	c := newConsole(t, sim)
	sim.Restart()
	_, err := c.give(berth.ActivityListConferences)
	require.ErrorContains(t, err, errLinkDown.Error())
}
