//go:build faults

package tests

import (
	"math/rand/v2"
	"net/http"
	"slices"
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
		p.await(name, "received", 1)
	}
	token := m.admit(number, "l1").Token
	// round loses the owner and returns how long each listener received nothing.
	round := func(lose func(*mediaUnit)) (lost *mediaUnit, silences []int64) {
		var owner *mediaUnit
		s.eventually("all to be on the owner", func() bool {
			owner = units[m.one(number).Owner.NodeID]
			return owner != nil && owner.present(number) == 1+len(listeners)
		})
		before := map[string]int{}
		for _, name := range listeners {
			before[name] = len(p.of(name, "subscribed"))
		}
		lose(owner)
		for _, name := range listeners {
			p.await(name, "subscribed", before[name]+1)
			var last participantEvent
			s.eventually("packets after the move", func() bool {
				since := p.of(name, "subscribed")[before[name]].At
				after := slices.DeleteFunc(p.of(name, "silence"), func(e participantEvent) bool { return e.At < since })
				if len(after) > 0 {
					last = after[0]
				}
				return len(after) > 0
			})
			silences = append(silences, last.SilenceMs)
		}
		return owner, silences
	}
	var killed, paused []int64
	for i := range kills {
		lost, silences := round(func(u *mediaUnit) {
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
		lost, silences := round(func(u *mediaUnit) { u.Pause() })
		paused = append(paused, silences...)
		back := map[string]int{}
		for _, name := range listeners {
			back[name] = len(p.of(name, "subscribed")) + 1
		}
		lost.Resume()
		m.await(number, "the earlier copy again", on(lost.id))
		for _, name := range listeners {
			p.await(name, "subscribed", back[name])
		}
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
