package lua_test

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"berth/lua"
)

// holders reads which leases hold a slot of each model.
func (m *modelRoom) holders() map[string][]string {
	cmds := map[string]*redis.StringSliceCmd{}
	_, err := m.s.Redis().Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for _, model := range roomModels {
			cmds[model] = p.ZRangeByScore(context.Background(), m.s.Keys().ModelHolders(model), &redis.ZRangeBy{
				Min: "(" + strconv.FormatInt(m.now.UnixMilli(), 10), Max: "+inf",
			})
		}
		return nil
	})
	m.ok(err)
	held := map[string][]string{}
	for model, cmd := range cmds {
		held[model] = cmd.Val()
	}
	return held
}

func (m *modelRoom) room(model string) lua.Room {
	room, err := m.s.ReadRoom(context.Background(), model, m.limits[model], 0)
	m.ok(err)
	return room
}

// used counts the slots of a user, and those of the provider.
func (m *modelRoom) used(held map[string][]string) (users map[string]int, provider int) {
	users = map[string]int{}
	for model, leases := range held {
		for _, l := range leases {
			users[userOf(l)]++
		}
		if m.limits[model].Provider != "" {
			provider += len(leases)
		}
	}
	return users, provider
}

// checkCaps verifies that the last action has granted nothing beyond a limit. Lower limits than before revoke nothing, and holders restore
// their slots after a loss.
func (m *modelRoom) checkCaps() {
	held := m.holders()
	users, provider := m.used(held)
	for model, leases := range held {
		limits := m.limits[model]
		for _, l := range leases {
			if m.holding[l] || slices.Contains(m.held[model], l) {
				continue
			}
			user := userOf(l)
			if room := m.room(model); len(leases) > room.Cap {
				m.failf("%s was granted: %s has %d of %d slots", l, model, len(leases), room.Cap)
			}
			if limits.UserCap > 0 && users[user] > limits.UserCap {
				m.failf("%s was granted: its user has %d of %d slots", l, users[user], limits.UserCap)
			}
			if team := users["a"] + users["b"]; user != "c" && m.team > 0 && team > m.team {
				m.failf("%s was granted: its team has %d of %d slots", l, team, m.team)
			}
			if limits.ProviderCap > 0 && provider > limits.ProviderCap {
				m.failf("%s was granted: its provider has %d of %d slots", l, provider, limits.ProviderCap)
			}
		}
	}
	m.held, m.holding = held, map[string]bool{}
	for _, w := range m.in(holds) {
		m.holding[w.lease] = true
	}
}

// idle returns for each model that could grant a slot a task that waits for it and whose user is below the limit.
func (m *modelRoom) idle() map[string]*work {
	found := map[string]*work{}
	users, provider := m.used(m.held)
	for _, model := range roomModels {
		room, limits := m.room(model), m.limits[model]
		if room.Paused || room.Stopped > 0 || len(m.held[model]) >= room.Cap || limits.ProviderCap > 0 && provider >= limits.ProviderCap {
			continue
		}
		for _, w := range m.in(waits, promoted, calls) {
			full := w.Task.UserID != "c" && m.team > 0 && users["a"]+users["b"] >= m.team
			if w.Model == model && !full && (limits.UserCap == 0 || users[w.Task.UserID] < limits.UserCap) {
				found[model] = w
			}
		}
	}
	return found
}

// round is a second with one sweep, in which each workflow is signalled and makes its call.
func (m *modelRoom) round() {
	m.pass(time.Second)
	m.current = m.callers[0]
	m.sweep()
	for more := true; more; {
		for _, c := range m.callers {
			m.deliver(c, false)
		}
		m.current = m.callers[0]
		for _, w := range m.in(promoted) {
			m.call(w)
		}
		m.checkCaps()
		m.claim()
		more = len(m.in(promoted)) > 0 || slices.ContainsFunc(m.callers, func(c *caller) bool { return len(c.inbox) > 0 })
	}
}

// drain verifies that no model that could grant a slot is idle for longer than one sweep, while calls end one after the other, until all
// have ended.
func (m *modelRoom) drain() {
	for _, c := range m.callers {
		c.stopped = false
	}
	m.current = m.callers[0]
	for _, model := range roomModels {
		if rapid.Bool().Draw(m.t, "resumed") {
			l := m.set[model]
			l.Paused, l.Cap = false, nil
			l.Resumed++
			m.setLimits(model, l)
		}
	}
	for range 13 { // until the calls that did not come are no longer expected, and a grace has ended
		m.round()
	}
	for m.wrong == "" {
		before, held := m.idle(), m.held
		m.round()
		for model, w := range m.idle() {
			fresh := slices.ContainsFunc(m.held[model], func(l string) bool { return !slices.Contains(held[model], l) })
			if before[model] != nil && !fresh {
				m.failf("%s is idle while %s waits (%d): %v", model, w.ID(), w.step, m.held)
			}
		}
		holding := m.in(holds)
		if len(holding) == 0 {
			return
		}
		m.release(holding[rapid.IntRange(0, len(holding)-1).Draw(m.t, "ends")])
	}
}
