package lua_test

import (
	"context"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"berth/lua"
)

// actions are what happens, in any order. Each one that happens more often has another line.
func (m *modelRoom) actions() map[string]func(*rapid.T) {
	flip := func(name string) bool { return rapid.Bool().Draw(m.t, name) }
	callOne := func(*rapid.T) {
		w := pickOne(m.t, "task", m.in(promoted))
		m.act()
		m.logf("%s calls for %s of %s", m.current.id, w.ID(), w.Model)
		m.call(w)
	}
	callAll := func(*rapid.T) {
		m.act()
		m.logf("%s makes all calls", m.current.id)
		for _, w := range m.in(promoted) {
			m.call(w)
		}
	}
	release := func(*rapid.T) {
		w := pickOne(m.t, "task", m.in(holds))
		if !w.by.stopped {
			m.logf("%s of %s ends", w.lease, w.Model)
			m.release(w)
		}
	}
	deliver := func(*rapid.T) {
		c := m.act()
		m.logf("%s signals", c.id)
		m.deliver(c, flip("fails"))
	}
	cancelAll := func(*rapid.T) { // of a user
		m.act()
		model, user := m.model(), rapid.SampledFrom(roomUsers).Draw(m.t, "user")
		only := rapid.SampledFrom([]step{waits, promoted, calls, calls, calls, holds}).Draw(m.t, "step")
		m.logf("cancelled: those of %s in %s, %d", user, model, only)
		for _, w := range m.in(only) {
			if w.Model == model && w.Task.UserID == user {
				m.end(w)
			}
		}
	}
	return map[string]func(*rapid.T){
		"enter":          func(*rapid.T) { m.enter() },
		"enter more":     func(*rapid.T) { m.enter() },
		"enter many":     func(*rapid.T) { m.enter(); m.enter() },
		"call":           callOne,
		"call all":       callAll,
		"call all again": callAll,
		"release":        release,
		"release more":   release,
		"signal":         deliver,
		"signal more":    deliver,
		"claim":          func(*rapid.T) { m.logf("claims"); m.claim() },
		"cancel": func(*rapid.T) {
			w := pickOne(m.t, "task", m.in(waits, promoted, calls, holds))
			m.act()
			m.logf("cancelled: %s of %s, %d", w.ID(), w.Model, w.step)
			m.end(w)
		},
		"cancel all":      cancelAll,
		"cancel all more": cancelAll,
		"forget": func(*rapid.T) { // its workflow is terminated
			w := pickOne(m.t, "task", m.in(waits, promoted))
			m.logf("forgotten: %s of %s", w.ID(), w.Model)
			w.step = ended
		},
		"pass": func(*rapid.T) {
			if flip("claims") {
				m.claim()
			}
			d := rapid.SampledFrom([]time.Duration{50 * time.Millisecond, time.Second, 3 * time.Second, 11 * time.Second}).Draw(m.t, "time")
			m.logf("time: %s", d)
			m.pass(d)
		},
		"sweep": func(*rapid.T) { m.logf("%s sweeps", m.act().id); m.sweep() },
		"pause": func(*rapid.T) {
			m.act()
			of := m.upstream()
			if flip("the model") {
				of[1] = ""
			}
			l := m.set[of]
			l.Paused = !l.Paused
			m.logf("%s paused: %t", of, l.Paused)
			m.setLimits(of, l)
		},
		"cap": func(*rapid.T) {
			m.act()
			of := m.upstream()
			if len(m.limits[of[0]].Upstreams) == 1 && flip("the model") {
				of[1] = ""
			}
			l := m.set[of]
			if l.Cap = nil; flip("set") {
				l.Cap = new(rapid.IntRange(0, 4).Draw(m.t, "cap"))
			}
			m.logf("cap of %s is set", of)
			m.setLimits(of, l)
		},
		"configure": func(*rapid.T) { // processes restart with it
			m.act()
			m.configure()
			m.sweep()
			for _, c := range m.live() {
				m.renew(c)
			}
		},
		"report": func(*rapid.T) {
			of, outcomes := m.upstream(), []lua.CallOutcome{lua.CallLimited, lua.CallFailed, lua.CallOK, lua.CallBroken}
			r := lua.CallReport{Model: of[0], Upstream: of[1], Outcome: rapid.SampledFrom(outcomes).Draw(m.t, "outcome"), Took: time.Second}
			m.logf("calls of %s: %s", of, r.Outcome)
			for i := range lua.BreakerFailures {
				r.Task, r.RetryAfter = strconv.Itoa(i), time.Second
				_, _, err := m.s.ReportCall(context.Background(), r)
				m.ok(err)
			}
		},
		"stop": func(*rapid.T) {
			if c := m.act(); len(m.live()) > 1 {
				m.logf("%s stops", c.id)
				c.stopped = true
			}
		},
		"continue": func(*rapid.T) {
			for _, c := range m.callers {
				c.stopped = false
			}
			m.logf("all continue")
		},
		"kill": func(*rapid.T) { c := m.act(); m.logf("%s dies", c.id); m.kill(c) },
		"lose": func(*rapid.T) { m.act(); m.logf("Redis loses its data"); m.lose() },
		"guard": func(*rapid.T) { // another server takes over
			m.logf("Redis is replaced")
			m.ok(m.s.Redis().HSet(context.Background(), m.s.Keys().Guard(), "server", "another", "format", "1").Err())
		},
		"aside": func(*rapid.T) { // what is remembered of users at their limits expires
			m.logf("set-aside models forgotten")
			for _, u := range roomUsers {
				m.ok(m.s.Redis().Del(context.Background(), m.s.Keys().UserSlots(u)+":aside").Err())
			}
			m.ok(m.s.Redis().Del(context.Background(), m.s.Keys().TeamSlots("t")+":aside").Err())
		},
		"": func(*rapid.T) { m.checkCaps() },
	}
}
