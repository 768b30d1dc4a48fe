package tests

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// partitioned runs the rounds, which are pairs of a fault of the link and one of a unit, and checks the record.
func partitioned(t *testing.T, rounds func(p *partition), opts ...option) {
	p := newPartition(t, opts...)
	r := p.record()
	ctx, quiet := context.WithCancel(t.Context())
	defer p.reporting.Wait()
	defer quiet()
	p.reportAll(ctx)
	rounds(p)
	const ended = "8650009999"
	p.m.open(ended)
	p.eventually("its unit to report it", func() bool { return len(ofConference(ended, p.claimsOf(""))) > 0 })
	p.finish(ended)

	// Every row that was ever written is delivered again, as if the link had delayed it.
	r.stop()
	late := p.record()
	put := redis.NewScript(lua.Sources()["put_conference"])
	rows := func() (out []lua.ConferenceRow) {
		for _, e164 := range p.names {
			row, ok, err := lua.New(p.rdb, lua.Keys{}).ConferenceRow(t.Context(), e164)
			require.NoError(t, err)
			require.True(t, ok)
			out = append(out, row)
		}
		return out
	}
	before := rows()
	codes := map[string]int{}
	for _, row := range r.rows {
		codes[p.writeRow(put, row)]++
	}
	require.Equal(t, before, rows(), "repeated rows change nothing, and older ones are refused")
	_, there, err := lua.New(p.rdb, lua.Keys{}).ConferenceRow(t.Context(), ended)
	require.NoError(t, err)
	require.False(t, there, "an ended conference is not restored")
	received := late.count.Load()
	p.eventually("reports of owners to be accepted after that", func() bool { return late.count.Load() > received+20 })
	quiet()
	p.reporting.Wait()
	late.stop()
	require.Empty(t, ofConference(ended, late.taken))

	taken := append(slices.Clone(r.taken), late.taken...)
	require.NoError(t, oneOwner(taken))
	epochs, owners := map[claim]bool{}, map[string]int{}
	for _, c := range taken {
		if c.generation = 0; !epochs[c] {
			epochs[c] = true
			owners[c.e164]++
		}
	}
	t.Logf("accepted %d reports of %d owners (by number %v), refused %d, failed %d; %d rows were written; results of writing them again: %v",
		len(taken), len(epochs), owners, p.refused.Load(), p.failed.Load(), len(r.rows), codes)
	// How many conferences a lost unit had depends on the seed.
	require.Greater(t, len(epochs), partitionConferences+3, "owners have changed")
	require.Greater(t, len(taken), 200)
	require.Greater(t, p.refused.Load(), int64(200))
	p.known(t, epochs)
	p.brokenVariants(t, r)
}

// known checks that every unit whose report was accepted had been made the owner.
func (p *partition) known(t *testing.T, received map[claim]bool) {
	t.Helper()
	sent := map[claim]bool{}
	for c, err := range p.m.Conferences(t.Context(), "", "") {
		require.NoError(t, err)
		for _, o := range c.Orders {
			if o.Command != berth.ActivityReleaseConference {
				sent[claim{c.E164, o.NodeID, 0, o.Epoch}] = true
			}
		}
	}
	for c := range received {
		require.True(t, sent[c], "%+v was accepted without being the owner", c)
	}
}

// brokenVariants removes checks from the scripts: the reports of two owners are then accepted alternately, and detected.
func (p *partition) brokenVariants(t *testing.T, r *recorder) {
	t.Helper()
	fenced := redis.NewScript(lua.Sources()["put_conference_info"])
	two, most := "", 1 // the conference whose recorded rows had the most owners
	for _, e164 := range p.names {
		owners := map[string]bool{}
		for _, row := range r.rows {
			if unit, epoch := row[rowKeys+2], row[rowKeys+4]; unit != "" && row[0] == (lua.Keys{}).Conference(e164) {
				owners[unit+" "+epoch] = true
			}
		}
		if len(owners) > most {
			two, most = e164, len(owners)
		}
	}
	require.NotEmpty(t, two, "a conference that had two owners")
	claims := ofConference(two, p.claimsOf(""))
	for _, c := range claims { // also as the previous generation, and with the previous epoch
		claims = append(claims, claim{c.e164, c.unit, c.generation - 1, c.epoch}, claim{c.e164, c.unit, c.generation, c.epoch - 1})
	}
	for what, script := range map[string]*redis.Script{
		"the owner":      p.altered("put_conference_info", " or current[1] ~= unit or current[2] ~= ARGV[2] or current[3] ~= ARGV[3]"),
		"the epoch":      p.altered("put_conference_info", " or current[3] ~= ARGV[3]"),
		"the generation": p.altered("put_conference_info", " or current[2] ~= ARGV[2]"),
	} {
		broken := p.record()
		for _, c := range slices.Concat(claims, claims) {
			p.say(script, c)
		}
		p.readAll(broken)
		require.Error(t, oneOwner(broken.taken), "without a check of %s", what)
	}
	put := p.altered("put_conference", `  elseif last > revision or last == revision and before > epoch then
    return { 'STALE' }
`)
	require.NotEmpty(t, r.rows, "the arguments of put_conference have changed")
	broken := p.record()
	for _, row := range r.rows {
		if row[0] == (lua.Keys{}).Conference(two) {
			p.writeRow(put, row)
			for _, c := range claims {
				p.say(fenced, c)
			}
		}
	}
	p.readAll(broken)
	taken := slices.Concat(ofConference(two, r.taken), broken.taken)
	require.Error(t, oneOwner(taken), "when rows are written in any order")
}

// readAll waits until the recorder has read everything up to now, and stops it.
func (p *partition) readAll(r *recorder) {
	p.tb.Helper()
	last := claim{"last", "none", 1, 1}
	require.NoError(p.tb, p.rdb.HSet(context.Background(), lua.Keys{}.Conference(last.e164), "owner", last.unit, "generation", 1, "epoch", 1).Err())
	p.say(redis.NewScript(lua.Sources()["put_conference_info"]), last)
	p.eventually("the recorder to read the last report", func() bool { current := r.last.Load(); return current != nil && *current == last })
	r.stop()
}

// C20, P4: one of two controllers is partitioned from Redis while units die, miss heartbeats, and return with old copies
// (TestPartition_EveryLinkAndFault_OneOwnerIsAccepted covers all combinations). Only the one owner's reports are accepted,
// and never again after another owner's.
func TestPartition_LinksCut_OneOwnerIsAccepted(t *testing.T) {
	t.Parallel()
	partitioned(t, func(p *partition) {
		p.again()
		p.round("cut", "silent")
		p.round("replies lost", "stopped")
		p.restart("commands late")
	})
}
