//go:build faults

package tests

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// B9, FC1: a server is killed twenty times and starts again at random, and is suspended five times. Its participants continue on
// the other one every time, none is on the server that returned, and none is disconnected.
func TestParticipants_ServerLostRepeatedly_FollowEveryTime(t *testing.T) {
	t.Parallel()
	const kills, pauses, number = 20, 5, "8634000001"
	random := rand.New(rand.NewPCG(streamSeed(t), 1))
	s := newStack(t, withParticipants())
	c := s.call(number, s.mediaUnits(5), "l1", "l2", "l3")
	token := c.m.admit(number, "l1").Token
	var killed, paused []int64
	for i := range kills {
		lost, silences := c.round(func(u *mediaUnit) {
			u.Kill()
			pause(t.Context(), time.Duration(random.IntN(3000))*time.Millisecond) // before or after its clients have moved
			u.boot()
		})
		killed = append(killed, silences...)
		s.awaitNode(lost.id)
		require.LessOrEqual(t, lost.present(number), 0, "round %d: no participant is on the server that returned", i)
		require.Equal(t, http.StatusUnauthorized, s.validate(lost.url("http"), token))
	}
	for range pauses {
		lost, silences := c.round(func(u *mediaUnit) { u.Pause() })
		paused = append(paused, silences...)
		back := map[string]int{}
		for _, name := range c.listeners {
			back[name] = len(c.of(name, "subscribed")) + 1
		}
		lost.Resume()
		c.m.await(number, "the earlier copy again", on(lost.id))
		for _, name := range c.listeners {
			c.await(name, "subscribed", back[name])
		}
	}
	c.reportSilence("kill -9", killed)
	c.reportSilence("SIGSTOP", paused)
	c.connected()
}

// B10: a conference is moved on request 24 times, and 6 times because its unit is drained. All participants follow, and this prints
// for how long the listeners received nothing.
func TestParticipants_PlannedMovesAndDrains_ShortSilence(t *testing.T) {
	t.Parallel()
	const moves, drains, number = 24, 6, "8635000001"
	s := newStack(t, withParticipants())
	c := s.call(number, s.mediaUnits(5), "l1", "l2", "l3")
	operator := s.user("op", "operator")
	var moved, drained []int64
	for range moves {
		_, silences := c.round(func(*mediaUnit) {
			_, err := operator.MoveConference(t.Context(), number, "")
			require.NoError(t, err)
		})
		moved = append(moved, silences...)
	}
	command := func(unit, what string) {
		status, out := s.send(http.MethodPost, "/v1/nodes/"+unit+"/"+what, s.token("op", "operator"), map[string]any{"withinMs": 0})
		require.Equal(t, http.StatusOK, status, "%v", out)
	}
	for range drains {
		former, silences := c.round(func(owner *mediaUnit) { command(owner.id, "drain") })
		drained = append(drained, silences...)
		command(former.id, "undrain")
	}
	c.reportSilence("planned move", moved)
	c.reportSilence("drain", drained)
	c.connected()
}
