//go:build faults

package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// liveKitUnits are the units of a test.
type liveKitUnits []*liveKitUnit

// rooms returns the units that have a room of each conference; false if a LiveKit server did not respond.
func (all liveKitUnits) rooms() (where map[string][]string, ok bool) {
	where = map[string][]string{}
	for _, h := range all {
		epochs := h.epochs()
		if epochs == nil {
			return nil, false
		}
		for e164 := range epochs {
			where[e164] = append(where[e164], h.id)
		}
	}
	return where, true
}

// apart reports whether each conference has exactly one room.
func (all liveKitUnits) apart(conferences int) bool {
	where, ok := all.rooms()
	for _, ids := range where {
		ok = ok && len(ids) == 1
	}
	return ok && len(where) == conferences
}

// C1, C2, C6, C7, C23 with three LiveKit servers and 30 conferences. The rooms are read from LiveKit itself.
func TestLiveKit_ServerKilled_ThirtyConferencesMove(t *testing.T) {
	t.Parallel()
	const conferences, slots = 30, 15
	s := newStack(t)
	m := s.conferences()
	all := liveKitUnits{s.liveKitUnit("u1", slots), s.liveKitUnit("u2", slots), s.liveKitUnit("u3", slots)}
	ends := map[string]time.Time{}
	for i := range conferences {
		c := m.open(fmt.Sprint(8640000001 + i))
		ends[c.E164] = c.EndAt
	}
	s.eventually("one room per conference", func() bool { return all.apart(conferences) })

	// A server is stopped and its conferences move. When it continues with its old rooms, the conferences stay where they
	// are.
	old := all[0].listed()
	require.NotEmpty(t, old)
	all[0].Pause()
	s.eventually("all rooms to be on two servers", func() bool { return all[1:].apart(conferences) })
	all[0].Resume()
	s.eventually("one room per conference to be left, the earlier one", func() bool {
		return all.apart(conferences) && len(all[0].epochs()) == len(old)
	})
	for e164 := range old {
		m.await(e164, "on u1", on("u1"))
	}
	for e164, epoch := range all[0].listed() {
		require.Greater(t, epoch, old[e164], "C7: the conference gets a later epoch")
	}

	// A server is killed. Its conferences move to the others as soon as that is detected.
	lost := all[1].listed()
	require.NotEmpty(t, lost)
	all[1].Server.Kill()
	killed := time.Now()
	left := liveKitUnits{all[0], all[2]}
	s.eventually("all rooms to be on the other two", func() bool { return left.apart(conferences) })
	there := time.Now()
	known, last := there, killed
	for e164 := range lost {
		c := m.await(e164, "open", ofStatus(berth.ConferenceOpen))
		require.Equal(t, ends[e164], c.EndAt, "C6")
		segments := c.Segments[len(c.Segments)-2:]
		require.Equal(t, "u2", segments[0].NodeID)
		if at := segments[0].EndedAt; at.Before(known) {
			known = at
		}
		if at := segments[1].StartedAt; at.After(last) {
			last = at
		}
	}
	t.Logf("kill -9 of a LiveKit server with %d of %d rooms: known after %s, the last was acknowledged %s after that, and seen in LiveKit after %s",
		len(lost), conferences, known.Sub(killed), last.Sub(known), there.Sub(known))

	// Another server is killed: half of its conferences have no unit, and recover one by one as others end, or together on
	// a new server.
	all[2].Server.Kill()
	waits := func() (out []string) {
		for e164 := range ends {
			if c := m.current(e164); c.Status == berth.ConferenceAwaitingRecovery && c.Waiting != "" {
				out = append(out, e164)
			}
		}
		return out
	}
	s.eventually("half of them to wait", func() bool { return len(waits()) == conferences-slots })
	s.eventually("the others to be on the first one", func() bool { return all[:1].apart(slots) })
	for range 2 {
		for e164 := range all[0].listed() {
			m.end(e164, "conference-made-room")
			delete(ends, e164)
			break
		}
		s.eventually("one that waited to come", func() bool { return all[:1].apart(slots) && len(waits()) == len(ends)-slots })
	}
	all[1].Restart()
	back := liveKitUnits{all[0], all[1]}
	s.eventually("all to have a room", func() bool { return back.apart(len(ends)) })
	all[2].Restart()
	for e164 := range ends {
		current := m.await(e164, "open", ofStatus(berth.ConferenceOpen))
		require.NotEqual(t, "u3", current.Owner.NodeID)
		m.end(e164, "conference-moved")
	}
	s.eventually("no room to be left", func() bool { return back.apart(0) })
	s.noSlots("u1", "u2", "u3")
}
