package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/lua"
)

// waitingExecution is an execution, or a job. It is in one of the steps waits, holds and ended.
type waitingExecution struct {
	lua.Waiting
	step     step
	attempt  int
	pool     string
	job      bool // of a turn, which is refused if its first dispatch gets no node; else an execution
	services []string
	excluded []string
	slot     berth.Assignment
	lost     bool // Redis has lost the slot, which has to be restored
	deadline time.Time
}

// machine is a node.
type machine struct {
	berth.NodeSpec
	generation int64
	running    bool
	hold       lua.Cordon
	beaten     time.Time
}

func (m *machine) canServe(pool string) bool {
	for capability := range strings.SplitSeq(pool, "+") {
		if !slices.Contains(m.Capabilities, capability) {
			return false
		}
	}
	return true
}

// roomPools are the pools: the last one has no indexes.
var roomPools = []string{"a", "b", "a+b"}

// poolRoomTimes are those of the nodes.
var poolRoomTimes = berth.NodeTimes{Heartbeat: 10 * time.Second, Suspect: 25 * time.Second, Death: 40 * time.Second}

// poolRoom is a few nodes in pools that share them, with more executions than slots, and a process that hands over nodes.
type poolRoom struct {
	*ownTime
	t          *rapid.T
	machines   []*machine
	executions []*waitingExecution
	inbox      []string
	number     int
	held       map[string][]string // by node, at the last check
	holding    map[string]bool     // leases that executions had then
	wrong      string
	log        []string
}

func newPoolRoom(t *rapid.T, o *ownTime) *poolRoom {
	d := &poolRoom{ownTime: o, t: t}
	o.now = time.Unix(2_000_000_000, 0)
	d.flush(t)
	o.s.OnHandover(func(waiters []string) { d.inbox = append(d.inbox, waiters...) })
	_, _, err := o.s.RenewSlots(context.Background(), lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant}, nil) // opens the grace
	d.ok(err)
	d.ownTime.pass(t, 2*lua.NodeGrace)
	for i, capabilities := range [][]string{{"a"}, {"a", "b"}, {"b"}} {
		m := &machine{NodeSpec: spec("n"+strconv.Itoa(i), can(capabilities...), slots(rapid.IntRange(1, 2).Draw(t, "slots"))), running: true}
		d.machines = append(d.machines, m)
		d.register(m)
	}
	d.pass(10 * time.Second) // a node that registers after a grace is unsure
	return d
}

func (d *poolRoom) logf(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// failf records what is wrong, once.
func (d *poolRoom) failf(format string, args ...any) {
	if d.wrong == "" {
		d.wrong = strings.Join(d.log, "\n") + "\n" + fmt.Sprintf(format, args...)
	}
}

func (d *poolRoom) ok(err error) {
	d.t.Helper()
	require.NoError(d.t, err)
}

func (d *poolRoom) in(steps ...step) (found []*waitingExecution) {
	for _, e := range d.executions {
		if slices.Contains(steps, e.step) {
			found = append(found, e)
		}
	}
	return found
}

func (d *poolRoom) register(m *machine) {
	r, err := d.s.RegisterNode(context.Background(), m.NodeSpec, lua.Registration{Previous: m.generation})
	d.ok(err)
	m.generation, m.beaten = r.Generation, d.now
}

// restart starts the process of a node again, without the work that it had.
func (d *poolRoom) restart(m *machine) {
	m.running = true
	m.Incarnation.PID++
	d.register(m)
	for _, e := range d.in(holds) {
		if e.slot.NodeID == m.ID {
			d.again(e)
		}
	}
}

// beat sends a heartbeat, or registers again where Redis does not know the node.
func (d *poolRoom) beat(m *machine) {
	m.beaten = d.now
	r, err := d.s.HeartbeatNode(context.Background(), m.ID, m.generation, berth.NodeLoad{}, lua.Weights{Memory: 0.5})
	d.ok(err)
	if r.Code == lua.NodeReregister {
		d.register(m)
	}
}

func (d *poolRoom) choice(e *waitingExecution) lua.Choice {
	c := lua.Choice{PoolID: e.pool, Services: e.services, Excluded: e.excluded, Random: 1 + int64(d.number)}
	if e.Listed {
		c.Required = strings.Split(e.pool, "+")
		for _, m := range d.machines {
			if m.canServe(e.pool) {
				c.Listed = append(c.Listed, m.ID)
			}
		}
	}
	return c
}

// place reserves a node for an execution, or lets it wait.
func (d *poolRoom) place(e *waitingExecution) {
	e.Left = max(e.deadline.Sub(d.now), time.Millisecond)
	try := func() (lua.Decision, error) { return d.s.TryAssign(context.Background(), d.choice(e), e.Waiting) }
	if e.job {
		try = func() (lua.Decision, error) { return d.dispatch(e) }
	}
	r, err := try()
	d.ok(err)
	if e.job && e.attempt == 1 && r.Code != lua.AssignOK {
		e.step = ended
		return
	}
	if r.Code != lua.AssignOK && r.Code != lua.AssignExists {
		r, err = d.s.JoinWaiting(context.Background(), d.choice(e), e.Waiting)
		d.ok(err)
		if e.Listed && r.Code == lua.AssignWaiting || e.job && r.Code != lua.AssignWaiting {
			r, err = try()
			d.ok(err)
		}
	}
	e.step = waits
	if r.Code == lua.AssignOK || r.Code == lua.AssignExists {
		e.step, e.slot, e.lost = holds, r.Assignment, false
		d.confirm(e)
	}
}

// dispatch dispatches a job.
func (d *poolRoom) dispatch(e *waitingExecution) (lua.Decision, error) {
	j, c := berth.JobRequest{UserID: e.UserID, RequestID: e.WorkflowID}, d.choice(e)
	j.SessionID, j.TurnID, j.JobID, j.Dispatch = e.UserID, e.WorkflowID, e.WorkflowID, e.attempt
	if e.attempt > 1 {
		c.Waiter = &e.NodeWaiter
	}
	return d.s.DispatchJob(context.Background(), j, c)
}

// confirm holds the slot of an execution for as long as it takes, or restores it.
func (d *poolRoom) confirm(e *waitingExecution) {
	code, generation, err := d.s.ConfirmNodeSlot(context.Background(), e.slot, time.Hour)
	d.ok(err)
	switch {
	case code == lua.NodeSlotHeld:
		e.slot.Generation, e.lost = generation, false
	case !e.lost:
		d.again(e)
	}
}

// again lets the next attempt of an execution, whose slot was lost or whose node failed, reserve a node.
func (d *poolRoom) again(e *waitingExecution) {
	d.releaseSlot(e)
	e.attempt++
	e.LeaseID, e.Again = e.WorkflowID+":"+strconv.Itoa(e.attempt), true
	e.lost = false
	d.place(e)
}

func (d *poolRoom) releaseSlot(e *waitingExecution) {
	_, err := d.s.ReleaseNodeSlot(context.Background(), e.slot.NodeID, e.slot.LeaseID)
	d.ok(err)
}

// end ends an execution.
func (d *poolRoom) end(e *waitingExecution) {
	if e.step == holds {
		d.releaseSlot(e)
	} else {
		d.ok(d.s.LeaveWaiting(context.Background(), e.pool, e.NodeWaiter))
	}
	e.step = ended
}

func (d *poolRoom) submit() {
	pool, user := rapid.SampledFrom(roomPools).Draw(d.t, "pool"), rapid.SampledFrom(roomUsers).Draw(d.t, "user")
	left := rapid.SampledFrom([]time.Duration{time.Hour, time.Hour, 3 * time.Second}).Draw(d.t, "left")
	needs := rapid.IntRange(0, 3).Draw(d.t, "needs a service") == 0
	n := rapid.IntRange(1, 4).Draw(d.t, "executions")
	d.logf("%d of %s for %s, service %t, until %s", n, user, pool, needs, left)
	for range n {
		d.number++
		e := &waitingExecution{attempt: 1, pool: pool, deadline: d.now.Add(left), Waiting: lua.Waiting{
			NodeWaiter: executionWaiter(user, "e"+strconv.Itoa(d.number)),
			Since:      d.now.Add(time.Duration(d.number)), Listed: strings.Contains(pool, "+"),
		}}
		if e.job = !e.Listed && rapid.Bool().Draw(d.t, "job"); e.job {
			e.WorkflowID = "turn:" + strconv.Itoa(d.number)
			e.LeaseID = e.WorkflowID + ":1"
		}
		if needs {
			e.services = []string{"gpu"}
		}
		d.executions = append(d.executions, e)
		d.place(e)
	}
}

// deliver signals the workflows of the waiters that were handed a node.
func (d *poolRoom) deliver() {
	var signalled, gone []string
	inbox := d.inbox
	d.inbox = nil
	var woken []*waitingExecution
	for _, id := range inbox {
		i := slices.IndexFunc(d.executions, func(e *waitingExecution) bool { return e.ID() == id && e.step != ended })
		if i < 0 {
			gone = append(gone, id)
			continue
		}
		signalled = append(signalled, id)
		if d.executions[i].step == waits {
			woken = append(woken, d.executions[i])
		}
	}
	d.ok(d.s.ConfirmHandovers(context.Background(), signalled, gone))
	for _, e := range woken {
		if e.step == waits {
			d.place(e)
		}
	}
}

// pass lets time pass: nodes send heartbeats, deadlines are reached, lost slots are restored.
func (d *poolRoom) pass(time_ time.Duration) {
	for time_ > 0 {
		one := min(time_, time.Second)
		time_ -= one
		d.ownTime.pass(d.t, one)
		d.ok(d.s.MarkListening(context.Background()))
		d.sweepNodes()
		for _, m := range d.machines {
			if m.running && d.now.Sub(m.beaten) >= poolRoomTimes.Heartbeat {
				d.beat(m)
			}
		}
		for _, e := range d.in(waits, holds) {
			if !d.now.Before(e.deadline) {
				d.end(e)
			} else if e.lost {
				d.confirm(e)
			}
		}
	}
}

func (d *poolRoom) sweepNodes() {
	_, err := d.s.SweepNodes(context.Background(), lua.SweepLimits{}, lua.SweepRule{Kind: berth.NodeTranslate, Times: poolRoomTimes})
	d.ok(err)
}

func (d *poolRoom) lose() {
	d.flush(d.t)
	for _, m := range d.machines {
		d.ok(d.s.CordonNode(context.Background(), m.ID, m.hold))
	}
	for _, e := range d.in(waits) {
		d.place(e)
	}
	for _, e := range d.in(holds) {
		e.lost = true
	}
}

// leases reads which leases hold a slot of each node.
func (d *poolRoom) leases() map[string][]string {
	held := map[string][]string{}
	for _, m := range d.machines {
		leases, err := d.s.Redis().ZRangeByScore(context.Background(), d.s.Keys().NodeSlots(m.ID), &redis.ZRangeBy{
			Min: "(" + strconv.FormatInt(d.now.UnixMilli(), 10), Max: "+inf",
		}).Result()
		d.ok(err)
		held[m.ID] = leases
	}
	return held
}

// checkCaps verifies that the last action has given no node more work than it has slots.
func (d *poolRoom) checkCaps() {
	held := d.leases()
	for _, m := range d.machines {
		for _, l := range held[m.ID] {
			if len(held[m.ID]) > m.MaxConcurrentJobs && !d.holding[l] && !slices.Contains(d.held[m.ID], l) {
				d.failf("%s was granted: %s has %d of %d slots", l, m.ID, len(held[m.ID]), m.MaxConcurrentJobs)
			}
		}
	}
	d.held, d.holding = held, map[string]bool{}
	for _, e := range d.in(holds) {
		d.holding[e.slot.LeaseID] = true
	}
}

// grace reports whether nothing may be granted.
func (d *poolRoom) grace() bool {
	ends, err := d.s.Redis().HMGet(context.Background(), d.s.Keys().Guard(), "grace", "nodes").Result()
	d.ok(err)
	for _, end := range ends {
		text, ok := end.(string)
		ms, err := strconv.ParseInt(text, 10, 64)
		if ok && err == nil && ms > d.now.UnixMilli() {
			return true
		}
	}
	return false
}

// idle returns for each pool an execution that waits although a node could serve it, and the node. Pools without indexes are served by
// releases and heartbeats only.
func (d *poolRoom) idle(listed bool) map[string]string {
	found := map[string]string{}
	if d.grace() {
		return found
	}
	for _, m := range d.machines {
		v, err := d.s.Redis().HMGet(context.Background(), d.s.Keys().Node(m.ID), "state", "cordon", "unsure_until").Result()
		d.ok(err)
		unsure, _ := v[2].(string)
		until, _ := strconv.ParseInt(unsure, 10, 64)
		if v[0] != "ready" || v[1] != "" || until > d.now.UnixMilli() || len(d.held[m.ID]) >= m.MaxConcurrentJobs {
			continue
		}
		marks, err := d.s.Redis().HGet(context.Background(), d.s.Keys().NodeUnavailable(m.ID), "gpu").Int64()
		marked := err == nil && marks > d.now.UnixMilli()
		for _, e := range d.in(waits) {
			if e.Listed == listed && m.canServe(e.pool) && !slices.Contains(e.excluded, m.ID) && (!marked || len(e.services) == 0) {
				found[e.pool] = fmt.Sprintf("%s waits while %s is free", e.ID(), m.ID)
			}
		}
	}
	return found
}

// round is a second with one sweep, in which each workflow is signalled.
func (d *poolRoom) round() {
	d.pass(time.Second)
	d.ok(d.s.SweepWaiting(context.Background()))
	d.settle()
}

func (d *poolRoom) settle() {
	for d.checkCaps(); len(d.inbox) > 0; d.checkCaps() {
		d.deliver()
	}
}

// granted reports whether a node that can serve a pool has a lease that it did not have.
func (d *poolRoom) granted(pool string, before map[string][]string) bool {
	return slices.ContainsFunc(d.machines, func(m *machine) bool {
		return m.canServe(pool) && slices.ContainsFunc(d.held[m.ID], func(l string) bool { return !slices.Contains(before[m.ID], l) })
	})
}

// drain verifies that no node that could serve an execution is free for longer than one sweep, while executions end one after the other.
func (d *poolRoom) drain() {
	for _, m := range d.machines {
		if !m.running {
			d.restart(m)
		}
		if rapid.Bool().Draw(d.t, "uncordoned") {
			m.hold = lua.Cordon{}
			d.ok(d.s.CordonNode(context.Background(), m.ID, m.hold))
		}
	}
	for _, e := range d.in(waits) {
		if len(e.excluded) > 0 && rapid.Bool().Draw(d.t, "exclusion ends") {
			e.excluded = nil
			d.place(e)
		}
	}
	for range 13 { // until reservations without a workflow have expired, and a grace has ended
		d.round()
	}
	for d.wrong == "" {
		before, held := d.idle(false), d.held
		d.round()
		for pool, what := range d.idle(false) {
			if before[pool] != "" && !d.granted(pool, held) {
				d.failf("%s: %v", what, d.held)
			}
		}
		for _, m := range d.machines {
			d.beat(m)
		}
		d.settle()
		for _, what := range d.idle(true) {
			if !d.granted("a", held) {
				d.failf("after heartbeats, %s: %v", what, d.held)
			}
		}
		holding := d.in(holds)
		if len(holding) == 0 {
			return
		}
		d.end(holding[rapid.IntRange(0, len(holding)-1).Draw(d.t, "ends")])
	}
}
