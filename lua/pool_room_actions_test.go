package lua_test

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"berth"
)

// actions are what happens, in any order. Each one that happens more often has another line.
func (d *poolRoom) actions() map[string]func(*rapid.T) {
	release := func(t *rapid.T) {
		e := pickOne(t, "execution", d.in(holds))
		d.logf("%s ends on %s", e.ID(), e.slot.NodeID)
		d.end(e)
	}
	deliver := func(*rapid.T) { d.logf("signals"); d.deliver() }
	mark := func(t *rapid.T) {
		m := pickOne(t, "node", d.machines)
		left := rapid.SampledFrom([]time.Duration{0, 2 * time.Second, time.Hour, time.Hour}).Draw(t, "time")
		d.logf("%s has no service for %s", m.ID, left)
		_, err := d.s.MarkUnavailable(context.Background(), m.ID, "gpu", left)
		d.ok(err)
	}
	return map[string]func(*rapid.T){
		"submit":       func(*rapid.T) { d.submit() },
		"submit more":  func(*rapid.T) { d.submit() },
		"submit many":  func(*rapid.T) { d.submit(); d.submit() },
		"release":      release,
		"release more": release,
		"signal":       deliver,
		"signal more":  deliver,
		"cancel": func(t *rapid.T) {
			e := pickOne(t, "execution", d.in(waits, holds))
			d.logf("%s is cancelled", e.ID())
			d.end(e)
		},
		"forget": func(t *rapid.T) { // its workflow is terminated
			e := pickOne(t, "execution", d.in(waits, holds))
			d.logf("%s is forgotten", e.ID())
			e.step = ended
		},
		"fail": func(t *rapid.T) { // on its node
			e := pickOne(t, "execution", d.in(holds))
			d.logf("%s fails on %s", e.ID(), e.slot.NodeID)
			e.excluded = append(e.excluded, e.slot.NodeID)
			d.again(e)
		},
		"pass": func(t *rapid.T) {
			one := rapid.SampledFrom([]time.Duration{50 * time.Millisecond, time.Second, 4 * time.Second, 12 * time.Second}).Draw(t, "time")
			d.logf("time: %s", one)
			d.pass(one)
		},
		"sweep": func(*rapid.T) { d.logf("sweep"); d.ok(d.s.SweepWaiting(context.Background())) },
		"cordon": func(t *rapid.T) {
			m := pickOne(t, "node", d.machines)
			m.hold.Cordoned = !m.hold.Cordoned
			d.logf("%s: %v", m.ID, m.hold)
			d.ok(d.s.CordonNode(context.Background(), m.ID, m.hold))
		},
		"mark":      mark,
		"mark more": mark,
		"die": func(t *rapid.T) {
			m := pickOne(t, "node", d.machines)
			if m.running = false; rapid.Bool().Draw(t, "withdrawn") {
				_, err := d.s.WithdrawNode(context.Background(), m.ID, m.generation, berth.DepartureWithdrawn)
				d.ok(err)
			}
			d.logf("%s dies", m.ID)
			for _, e := range d.in(holds) {
				if e.slot.NodeID == m.ID {
					d.again(e)
				}
			}
		},
		"start": func(t *rapid.T) { // a node again
			m := pickOne(t, "node", d.machines)
			if !m.running {
				d.logf("%s starts", m.ID)
				d.restart(m)
			}
		},
		"slots": func(t *rapid.T) { // of a node, which registers again
			m := pickOne(t, "node", d.machines)
			if m.running {
				m.MaxConcurrentJobs = rapid.IntRange(1, 2).Draw(t, "slots")
				d.logf("%s has %d slots", m.ID, m.MaxConcurrentJobs)
				d.register(m)
			}
		},
		"kill": func(*rapid.T) { d.logf("a process dies"); d.inbox = nil },
		"lose": func(*rapid.T) { d.logf("Redis loses its data"); d.lose() },
		"guard": func(*rapid.T) { // another server takes over
			d.logf("Redis is replaced")
			d.ok(d.s.Redis().HSet(context.Background(), d.s.Keys().Guard(), "server", "another", "format", "1").Err())
		},
		"": func(*rapid.T) { d.checkCaps() },
	}
}
