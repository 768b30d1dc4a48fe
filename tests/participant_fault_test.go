//go:build faults

package tests

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// B9, FC1: a server is killed twenty times and starts again at random, and five times it is only suspended. Its participants are
// heard again on the other one every time, none is on the server that returned, and nobody is disconnected.
func TestParticipants_ServerLostRepeatedly_FollowEveryTime(t *testing.T) {
	t.Parallel()
	const kills, pauses, number = 20, 5, "8634000001"
	random := rand.New(rand.NewPCG(streamSeed(t), 1))
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := map[string]*mediaUnit{"u1": s.mediaUnit("u1", 5), "u2": s.mediaUnit("u2", 5)}
	m.open(number)
	p := s.participants()
	listeners := []string{"l1", "l2", "l3"}
	for _, name := range append([]string{"speaker"}, listeners...) {
		a := m.admit(number, name)
		p.join(name, a.URL, a.Token, name == "speaker")
	}
	for _, name := range listeners {
		p.await(name, "heard", 1)
	}
	token := m.admit(number, "l1").Token
	// round loses the owner and returns how long each listener heard nothing.
	round := func(lose func(*mediaUnit)) (lost *mediaUnit, silences []int64) {
		c := m.one(number)
		owner := units[c.Owner.NodeID]
		s.eventually("all to be on the owner", func() bool { return owner.present(number) == 1+len(listeners) })
		before := map[string]int{}
		for _, name := range listeners {
			before[name] = len(p.of(name, "silence"))
		}
		lose(owner)
		for _, name := range listeners {
			for _, e := range p.await(name, "silence", before[name]+1)[before[name]:] {
				silences = append(silences, e.SilenceMs)
			}
		}
		return owner, silences
	}
	var killed, paused []int64
	for i := range kills {
		lost, silences := round(func(u *mediaUnit) {
			u.Kill()
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond) // before or after its clients have moved
			u.boot()
		})
		killed = append(killed, silences...)
		s.awaitNode(lost.id)
		require.LessOrEqual(t, lost.present(number), 0, "round %d: nobody is on the server that returned", i)
		require.Equal(t, http.StatusUnauthorized, s.validate(lost.url("http"), token))
	}
	for range pauses {
		lost, silences := round(func(u *mediaUnit) { u.Pause() })
		paused = append(paused, silences...)
		lost.Resume()
		s.awaitNode(lost.id)
		m.await(number, "one owner", ofStatus(berth.ConferenceOpen))
	}
	report := func(what string, all []int64) {
		slices.Sort(all)
		t.Logf("%s: silence p50 %d ms, p99 %d ms, of %d", what, all[len(all)/2], all[len(all)*99/100], len(all))
	}
	report("kill -9", killed)
	report("SIGSTOP", paused)
	for _, name := range listeners {
		require.Empty(t, p.of(name, "disconnected"))
		require.Empty(t, p.of(name, "refused"))
	}
}
