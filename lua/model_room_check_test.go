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

// holders reads which leases hold a slot of each model, and of each upstream.
func (m *modelRoom) holders() (held map[string][]string, by map[[2]string][]string) {
	cmds := map[[2]string]*redis.StringSliceCmd{}
	_, err := m.s.Redis().Pipelined(context.Background(), func(p redis.Pipeliner) error {
		live := &redis.ZRangeBy{Min: "(" + strconv.FormatInt(m.now.UnixMilli(), 10), Max: "+inf"}
		for _, model := range roomModels {
			cmds[[2]string{model, ""}] = p.ZRangeByScore(context.Background(), m.s.Keys().ModelHolders(model), live)
			for _, u := range m.limits[model].Upstreams {
				cmds[[2]string{model, u.Name}] = p.ZRangeByScore(context.Background(), m.s.Keys().UpstreamHolders(model, u.Name), live)
			}
		}
		return nil
	})
	m.ok(err)
	held, by = map[string][]string{}, map[[2]string][]string{}
	n := map[string]int{}
	for of, cmd := range cmds {
		if of[1] == "" {
			held[of[0]] = cmd.Val()
		} else {
			by[of] = cmd.Val()
			n[of[0]] += len(cmd.Val())
		}
	}
	for model, leases := range held {
		if len(leases) != n[model] {
			m.failf("%s has %d slots in use, its upstreams %d: %v %v", model, len(leases), n[model], leases, by)
		}
	}
	return held, by
}

func (m *modelRoom) room(model string) lua.Room {
	room, err := m.s.ReadRoom(context.Background(), model, m.limits[model], 0)
	m.ok(err)
	return room
}

// used counts the slots of users, and those of the provider.
func (m *modelRoom) used() (users map[string]int, provider int) {
	users = map[string]int{}
	for _, leases := range m.held {
		for _, l := range leases {
			users[userOf(l)]++
		}
	}
	for model, limits := range m.limits {
		for _, u := range limits.Upstreams {
			if u.ProviderCap > 0 {
				provider += len(m.by[[2]string{model, u.Name}])
			}
		}
	}
	return users, provider
}

// capOf returns how many slots an upstream may have in use.
func capOf(u lua.UpstreamUse) int {
	if u.Probing {
		return min(u.Cap, 1)
	}
	return u.Cap
}

// checkCaps verifies that the last action has granted nothing beyond a limit. Lower limits than before revoke nothing, and holders restore
// their slots after a loss.
func (m *modelRoom) checkCaps() {
	before := m.held
	m.held, m.by = m.holders()
	users, provider := m.used()
	for model, limits := range m.limits {
		room := m.room(model)
		for i, u := range limits.Upstreams {
			leases := m.by[[2]string{model, u.Name}]
			for _, l := range leases {
				if m.holding[l] || slices.Contains(before[model], l) {
					continue
				}
				user := userOf(l)
				if slots := capOf(room.Upstreams[i]); len(leases) > slots {
					m.failf("%s was granted: %s of %s has %d of %d slots", l, u.Name, model, len(leases), slots)
				}
				if limits.UserCap > 0 && users[user] > limits.UserCap {
					m.failf("%s was granted: its user has %d of %d slots", l, users[user], limits.UserCap)
				}
				if team := users["a"] + users["b"]; user != "c" && m.team > 0 && team > m.team {
					m.failf("%s was granted: its team has %d of %d slots", l, team, m.team)
				}
				if u.ProviderCap > 0 && provider > u.ProviderCap {
					m.failf("%s was granted: its provider has %d of %d slots", l, provider, u.ProviderCap)
				}
			}
		}
	}
	m.holding = map[string]bool{}
	for _, w := range m.in(holds) {
		m.holding[w.lease] = true
	}
}

// canCall reports whether an upstream could take a call with these needs now.
func (m *modelRoom) canCall(room lua.Room, model string, n lua.Needs, provider int) bool {
	all := m.limits[model].Upstreams
	pick := func(from []int, keep func(i int) bool) (kept []int) {
		for _, i := range from {
			if keep(i) {
				kept = append(kept, i)
			}
		}
		return kept
	}
	usable := pick([]int{0, 1, 2}[:len(all)], func(i int) bool { return all[i].Context == 0 || n.Tokens <= all[i].Context })
	if usable == nil {
		usable = []int{0, 1, 2}[:len(all)]
	}
	others := pick(usable, func(i int) bool { return !slices.Contains(n.Excluded, all[i].Name) })
	if slices.ContainsFunc(others, func(i int) bool { return !room.Upstreams[i].Paused && room.Upstreams[i].PausedUntil.IsZero() }) {
		usable = others
	}
	return slices.ContainsFunc(usable, func(i int) bool {
		u := room.Upstreams[i]
		return !u.Paused && u.Stopped == 0 && len(m.by[[2]string{model, u.Name}]) < capOf(u) && (all[i].ProviderCap == 0 || provider < all[i].ProviderCap)
	})
}

// idle returns for each model that could grant a slot a task that waits for it and whose user is below the limit.
func (m *modelRoom) idle() map[string]*work {
	found := map[string]*work{}
	users, provider := m.used()
	for _, model := range roomModels {
		room, limits := m.room(model), m.limits[model]
		if room.Paused {
			continue
		}
		waiting := map[string]int{} // calls of each flow, of which a limited number is looked at
		// A call in the room that waits for one of the upstreams keeps tasks of its user and team in their workflows.
		picky := slices.ContainsFunc(m.in(calls), func(w *work) bool { return w.Model == model && (w.needs.Tokens > 0 || w.needs.Excluded != nil) })
		for _, w := range m.in(waits, promoted, calls) {
			if w.Model != model || w.step != calls && picky {
				continue
			}
			full := w.Task.UserID != "c" && m.team > 0 && users["a"]+users["b"] >= m.team
			flow := w.Task.UserID + string(w.Queue)
			waiting[flow]++
			if !full && (limits.UserCap == 0 || users[w.Task.UserID] < limits.UserCap) && m.canCall(room, model, w.needs, provider) && waiting[flow] < 16 {
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
			for _, of := range m.settings() {
				if l := m.set[of]; of[0] == model {
					l.Paused, l.Cap = false, nil
					m.setLimits(of, l)
				}
			}
			l := m.set[[2]string{model, ""}]
			l.Resumed++
			m.setLimits([2]string{model, ""}, l)
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
