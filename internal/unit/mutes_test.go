package unit

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// muting is a driver that records which tracks it muted.
type muting struct {
	*Sim
	muted []string
	err   error
}

func (d *muting) Mute(_ context.Context, e164, identity, track string) error {
	d.muted = append(d.muted, e164+" "+identity+" "+track)
	return d.err
}

func TestMutes_ParticipantsReturn_AreMutedOnceAgain(t *testing.T) { // B9
	t.Parallel()
	var m mutes
	m.take(json.RawMessage(`[{"identity":"anna","tracks":[{"sid":"T1","source":"microphone","muted":true},{"sid":"T2","source":"camera"}]},
		{"identity":"ben","tracks":[{"sid":"T3","source":"microphone"}]},{"identity":"eve","tracks":[{"sid":"T4","source":"camera","muted":true}]}]`))
	d := &muting{Sim: simulated(), err: errors.New("unreachable")}
	lists := func(participants string) bool {
		restored, err := m.restore(t.Context(), d, number, json.RawMessage(participants))
		require.Equal(t, d.err, err)
		return restored
	}
	returned := `[{"identity":"anna","tracks":[{"sid":"N1","source":"microphone"},{"sid":"N2","source":"camera"}]},
		{"identity":"ben","tracks":[{"sid":"N3","source":"microphone"}]}]`
	require.False(t, lists(returned))
	d.err, d.muted = nil, nil
	require.True(t, lists(returned), "it is retried")
	require.Equal(t, []string{number + " anna N1"}, d.muted)
	require.False(t, lists(returned), "anna has unmuted it since")
	require.False(t, lists(`[{"identity":"eve","tracks":[{"sid":"N4","source":"camera","muted":true}]}]`), "her client has kept it")
	require.Empty(t, m.sources)
	require.Len(t, d.muted, 1)

	m.take(nil)
	require.True(t, m.read)
}

// The reporter reads who was muted once it is the owner, before the first participants return.
func TestReporter_NewOwner_RestoresMutes(t *testing.T) { // B9
	t.Parallel()
	sim := simulated()
	sim.Put(runs(3, 1))
	r, p := reporting(t, sim)
	p.take(1)
	p.do(func(s *proxyState) { require.Zero(t, s.reads, "it began before this agent") })
	sim.do(func(st *simState) { // no list is read between the two changes
		st.copies[number] = runs(4, 1)
		r.begun(number, 4)
	})
	p.take(1)
	require.Eventually(t, func() (read bool) {
		p.do(func(s *proxyState) { read = s.reads > 0 })
		return read
	}, 20*time.Second, r.every)
	p.quiet(r)
	p.do(func(s *proxyState) { require.Equal(t, 1, s.reads) })
}

// A list may have a copy before the command that creates it has ended.
func TestReporter_NewCopyListedBeforeItsCommandEnds_RestoresMutes(t *testing.T) { // B9
	t.Parallel()
	sim := simulated()
	r, p := reporting(t, sim)
	sim.Put(runs(4, 1))
	require.True(t, p.take(1)[0].Full)
	r.begun(number, 4)
	require.True(t, p.take(1)[0].Full)
	require.Eventually(t, func() (read bool) {
		p.do(func(s *proxyState) { read = s.reads > 0 })
		return read
	}, 20*time.Second, r.every)
	r.again(number, 4) // another delivery
	require.True(t, p.take(1)[0].Full)
	p.quiet(r)
	p.do(func(s *proxyState) { require.Equal(t, 1, s.reads) })
}
