//go:build faults

package tests

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// givesUp is how long LiveKit's client for Go takes to report that it is refused, 61 s by its pauses, if its participant
// is removed after it was sent to the next unit.
const givesUp = 2 * time.Minute

// B9: servers are suspended at random while participants join, for times below and above those after which their conferences move.
// All participants are connected in the end, and none that was connected is sent away: a connection that was given up must not be
// made later. A participant whose first connection fails tries again, as an application does: the client does not. Those who are
// removed notice it and do not return, also while their conference moves.
func TestParticipants_ServerSuspendedDuringJoin_NoneIsEvicted(t *testing.T) {
	t.Parallel()
	const rounds, each, number = 12, 4, "8639000001"
	random := rand.New(rand.NewPCG(streamSeed(t), 1))
	s := newStack(t, withParticipants())
	c := &call{participants: s.participants(), m: s.conferences(), number: number, units: s.mediaUnits(5)}
	c.m.open(number)
	joined, again := 0, 0
	for i := range rounds {
		owner := c.units[c.m.current(number).Owner.NodeID]
		if owner == nil { // it is being recovered
			pause(t.Context(), 100*time.Millisecond)
			continue
		}
		names := make([]string, each)
		joinOne := func(name string) {
			a := c.m.admit(number, name)
			c.join(name, a.URL, a.Token, false)
		}
		join := func() {
			for n := range names {
				names[n] = fmt.Sprintf("p%d-%d", i, n)
				joinOne(names[n])
				pause(t.Context(), time.Duration(random.IntN(100))*time.Millisecond)
			}
		}
		if random.IntN(2) == 0 {
			owner.Pause()
			join()
		} else {
			join()
			owner.Pause()
		}
		pause(t.Context(), time.Duration(random.IntN(9000))*time.Millisecond)
		owner.Resume()
		for _, name := range names {
			failed := 0
			s.eventually(name+" to be connected", func() bool {
				if n := len(c.of(name, "refused")); n > failed {
					failed = n
					joinOne(name)
				}
				return len(c.of(name, "joined")) > 0
			})
			again += failed
		}
		joined += each
		present := func(n int) func() bool {
			return func() bool {
				u := c.units[c.m.current(number).Owner.NodeID]
				return u != nil && u.present(number) == n
			}
		}
		s.eventually("all to be on the owner", present(each))
		for _, name := range names {
			require.Empty(t, c.of(name, "disconnected"), "round %d", i)
		}
		for _, name := range names { // only a few at the same time
			s.eventually(name+" to be removed", func() bool { return c.m.RemoveParticipant(t.Context(), number, name) == nil })
		}
		for _, name := range names {
			require.Eventually(t, func() bool { return len(c.of(name, "disconnected")) > 0 }, givesUp, 20*time.Millisecond, "%s to be disconnected", name)
		}
		s.eventually("the owner to have no participants", present(0))
		c.forget()
	}
	t.Logf("%d participants joined during %d suspensions; %d first connections failed and were repeated", joined, rounds, again)
}
