//go:build faults

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testredis"
	"berth/lua"
)

// stays has conferences on healthy units, where they must stay.
type stays struct {
	*conferences
	units []*media
	held  []berth.Conference // before the outage
}

// moved returns an error if a copy is on another unit or has another epoch than before, or is missing, without a reason.
func (a *stays) moved() error {
	var wrong []error
	seen := map[string]bool{}
	for _, u := range a.units {
		runs, err := simulated{u.id, u.control}.ask(http.MethodGet, "/", nil)
		if err != nil {
			wrong = append(wrong, err)
		}
		for _, current := range runs {
			seen[current.E164+" on "+u.id] = true
			for _, c := range a.held {
				if c.E164 == current.E164 && (c.Owner.NodeID != u.id || c.Owner.Epoch != current.Epoch) {
					wrong = append(wrong, fmt.Errorf("%s has %s under epoch %d, and %s had it under %d", u.id, c.E164, current.Epoch, c.Owner.NodeID, c.Owner.Epoch))
				}
			}
		}
	}
	for _, c := range a.held {
		if !seen[c.E164+" on "+c.Owner.NodeID] {
			wrong = append(wrong, fmt.Errorf("%s has no %s any more", c.Owner.NodeID, c.E164))
		}
	}
	return errors.Join(wrong...)
}

// normal returns an error unless everything is as before: each conference is open on its unit, the unit's reports are
// accepted, and the conference that waits for capacity still waits.
func (a *stays) normal(waits string, users int) error {
	for _, c := range a.held {
		current, err := a.Conference(context.Background(), c.E164, "")
		if err != nil {
			return err
		}
		if current.Status != berth.ConferenceOpen || current.Owner.NodeID != c.Owner.NodeID || current.Owner.Epoch != c.Owner.Epoch || current.Stale || current.Info == nil {
			return fmt.Errorf("%s: %s on %v, not %v, stale %t, has info: %t", c.E164, current.Status, current.Owner, c.Owner, current.Stale, current.Info != nil)
		}
		var live struct{ ParticipantCount int }
		if err := json.Unmarshal(current.Info.Live, &live); err != nil || live.ParticipantCount != users {
			return fmt.Errorf("%s: live data %s, not %d participants", c.E164, current.Info.Live, users)
		}
	}
	current, err := a.Conference(context.Background(), waits, "")
	if err != nil {
		return err
	}
	if current.Status != berth.ConferenceAwaitingRecovery || current.Stale {
		return fmt.Errorf("%s: %s on %v", waits, current.Status, current.Owner)
	}
	return nil
}

// attend sets the number of participants of each conference, so that its unit has something to report.
func (a *stays) attend(users int) {
	for _, u := range a.units {
		for _, c := range a.held {
			if c.Owner.NodeID == u.id {
				u.setParticipants(c, users)
			}
		}
	}
}

// P5 for conferences. Redis loses all data while running, in a restart, or in an outage of twenty-one times the detection
// time (that is 84 s with the default times of units); or the outage is that long and loses nothing. Conferences on healthy
// units stay there with their epochs; no unit runs a second copy; conferences that wait for capacity still get it; and
// after the outage everything is reported and accepted as before.
func TestConference_RedisUnavailableOrEmpty_StaysOrRecovers(t *testing.T) { // C4, C20, L11, L12
	for name, c := range map[string]struct {
		away    time.Duration
		keeps   string // whether Redis keeps its data in a restart
		flushed bool
	}{
		"flushed":           {flushed: true, keeps: "no"},
		"restarted empty":   {keeps: "no"},
		"away for long":     {away: 42 * time.Second, keeps: "yes"},
		"away, back empty":  {away: 42 * time.Second, keeps: "no"},
		"away for a moment": {away: time.Second, keeps: "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testredis.Start(t, "--appendonly", c.keeps)
			s := newStack(t, with("BERTH_REDIS_ADDR="+redis.Addr()))
			s.ready.RedisAddr = redis.Addr()
			s.setTimes(berth.NodeMedia, 300, 1000, 2000)
			a := &stays{conferences: s.conferences()}
			u1, u2, lost := s.media("u1", 2), s.media("u2", 1), s.media("u3", 1)
			a.units = []*media{u1, u2}
			s.afterGrace(lua.New(redis.Client(), lua.Keys{}))
			waits := ""
			for i := range 4 {
				current := a.open(fmt.Sprint(8660000001 + i)).Conference
				if current.Owner.NodeID == "u3" {
					waits = current.E164
					continue
				}
				a.held = append(a.held, current)
			}
			require.Len(t, a.held, 3)
			lost.kill()
			a.await(waits, "waiting for room", func(c berth.Conference) bool {
				return c.Status == berth.ConferenceAwaitingRecovery && c.Waiting != ""
			})
			a.attend(2)
			var why error
			s.eventually("all to be reported", func() bool {
				why = a.normal(waits, 2)
				return why == nil
			})
			require.NoError(t, a.moved())
			ended := make(chan error)
			observedUnit, done := context.WithCancel(t.Context())
			defer done()
			go func() { // checks continuously that no conference moves
				for {
					err := a.moved()
					select {
					case <-time.After(50 * time.Millisecond):
					case <-observedUnit.Done():
						ended <- err
						return
					}
					if err != nil {
						ended <- err
						return
					}
				}
			}()

			logged := len(s.worker.output())
			switch {
			case c.flushed:
				require.NoError(t, redis.Client().FlushAll(t.Context()).Err())
			case c.away == 0:
				redis.Restart()
			default:
				redis.Kill()
				a.whileAway(t, waits, c.away)
				redis.Restart()
			}
			back := time.Now()
			a.attend(3)
			s.eventually("all to be as before", func() bool {
				why = a.normal(waits, 3)
				return why == nil
			})
			require.NoError(t, why)
			t.Logf("all as before %s after Redis was back", time.Since(back).Round(10*time.Millisecond))

			late := s.media("u4", 1)
			current := a.await(waits, "on the unit with capacity", on("u4"))
			require.Equal(t, map[string]int64{waits: current.Owner.Epoch}, late.runs())
			t.Logf("the one that waited had room %s after that", time.Since(back).Round(10*time.Millisecond))
			done()
			require.NoError(t, <-ended)
			require.NotRegexp(t, `declared dead.*\b(u1|u2)\b`, string(s.worker.output()[logged:]))
			require.Regexp(t, `declared dead.*\bu3\b`, string(s.worker.output()), "the log names the dead unit")
			for _, c := range a.held {
				require.Len(t, a.current(c.E164).Segments, 1, "it stayed on one unit")
			}
			a.everyMoveIsSeen(t, waits)
			for _, c := range a.held[1:] {
				a.end(c.E164, "conference-redis-lost")
			}
			a.end(waits, "conference-waited-redis-lost")
			_, err := a.EndConference(t.Context(), a.held[0].E164)
			require.NoError(t, err)
			s.noSlots("u1", "u2", "u4")
		})
	}
}

// whileAway checks responses while Redis is unavailable: writes are refused immediately, and reads return the ledger's data.
func (a *stays) whileAway(t *testing.T, waits string, away time.Duration) {
	t.Helper()
	gone, slowest, refused := time.Now(), time.Duration(0), 0
	units := a.s.user("units", "node")
	for time.Since(gone) < away {
		for _, c := range append([]berth.Conference{{ConferenceSpec: berth.ConferenceSpec{E164: waits}}}, a.held...) {
			current, err := a.Conference(t.Context(), c.E164, "")
			require.NoError(t, err)
			require.True(t, current.Stale)
			require.Equal(t, c.Owner, current.Owner)
		}
		c := a.held[0]
		began := time.Now()
		for _, err := range []error{
			units.ReportConference(t.Context(), c.E164, berth.ConferenceInfo{
				NodeID: c.Owner.NodeID, Generation: c.Owner.Generation, Epoch: c.Owner.Epoch, Live: json.RawMessage(`{}`),
			}),
			func() error {
				_, err := a.CreateConference(t.Context(), client.ConferenceSpec{E164: "8660000009", DurationMs: time.Hour.Milliseconds()})
				return err
			}(),
		} {
			p := problem(t, err)
			require.Equal(t, http.StatusServiceUnavailable, p.Status, "%v", err)
			require.Positive(t, p.RetryAfter)
		}
		slowest, refused = max(slowest, time.Since(began)), refused+2
		<-time.After(time.Second)
	}
	t.Logf("unavailable for %s: %d writes were refused, the slowest two after %s", time.Since(gone).Round(time.Second), refused, slowest.Round(time.Millisecond))
}

// everyMoveIsSeen checks the checks: they detect a conference that moves and one that is ended.
func (a *stays) everyMoveIsSeen(t *testing.T, waits string) {
	t.Helper()
	c := a.held[0]
	require.NoError(t, a.moved())
	require.Error(t, a.normal(waits, 3), "the waiting conference has a unit")
	other := a.units[0]
	if other.id == c.Owner.NodeID {
		other = a.units[1]
	}
	runs := maps.Clone(other.runs())
	second := c
	second.Owner.Epoch++
	other.setParticipants(second, 1)
	require.Error(t, a.moved(), "a second copy")
	other.ask(http.MethodDelete, "/conferences/"+c.E164, nil)
	require.Equal(t, runs, other.runs())
	require.NoError(t, a.moved())
	for _, u := range a.units {
		if u.id == c.Owner.NodeID {
			u.setParticipants(second, 3)
			require.Error(t, a.moved(), "another epoch")
			u.ask(http.MethodDelete, "/conferences/"+c.E164, nil)
			require.Error(t, a.moved(), "none")
			u.setParticipants(c, 3)
		}
	}
}
