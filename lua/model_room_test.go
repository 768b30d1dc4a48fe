package lua_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/lua"
)

// step is where a call of a task is.
type step int

const (
	waits    step = iota // in its workflow
	promoted             // its workflow has been signalled, or need not wait: its call will be made
	calls                // in a process, without a slot
	holds                // in a process, with a slot
	ended
)

// work is a task with one call.
type work struct {
	lua.ModelWaiter
	step     step
	created  int64
	deadline time.Time
	needs    lua.Needs
	by       *caller
	lease    string // of the call
	upstream string // whose slot it has
	ticket   string
	until    time.Time // of the slot
	attempts int64
}

// caller is a process: it calls models and signals workflows.
type caller struct {
	id      string
	stopped bool // neither renews nor calls
	inbox   []lua.Promotion
}

var (
	roomModels = []string{"m0", "m1", "m2"} // the first upstreams of the first two share a provider; m2 has three upstreams, m0 one
	roomUsers  = []string{"a", "b", "c"}
	roomQueues = []berth.Queue{paidStream, freeBatch}
	roomGroups = map[string]lua.Group{"a": {Team: "t"}, "b": {Team: "t", App: "x", EndUser: "e"}}
)

// modelRoom is a few models, whose users have more tasks than they may call at the same time, and a few processes, any of which dies.
type modelRoom struct {
	*ownTime
	t       *rapid.T
	limits  map[string]lua.ModelLimits
	set     map[[2]string]lua.OperatorLimits // of model and upstream
	works   []*work
	callers []*caller
	number  int
	// Whether users and the provider have limits does not change: slots that were granted without a limit are not counted before their
	// renewal.
	users, provider bool
	team            int                    // its limit of slots
	current         *caller                // whose call it is
	held            map[string][]string    // by model, at the last check
	by              map[[2]string][]string // by model and upstream
	holding         map[string]bool        // the leases of calls that had slots then
	wrong           string
	log             []string
}

func newModelRoom(t *rapid.T, o *ownTime) *modelRoom {
	m := &modelRoom{ownTime: o, t: t, limits: map[string]lua.ModelLimits{}, set: map[[2]string]lua.OperatorLimits{}}
	o.now = time.Unix(2_000_000_000, 0)
	m.flush(t)
	m.team = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "slots of the team")
	m.ok(m.s.SetLevel(context.Background(), lua.Level{Team: "t"}, 2, m.team))
	m.users, m.provider = rapid.IntRange(0, 5).Draw(t, "users limited") > 0, rapid.Bool().Draw(t, "provider limited")
	o.s.OnPromotion(func(p []lua.Promotion) { m.current.inbox = append(m.current.inbox, p...) })
	m.configure()
	for range 3 {
		m.start()
	}
	m.renew(m.callers[0])
	m.pass(2 * lua.NodeGrace)
	return m
}

func (m *modelRoom) logf(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// failf records what is wrong, once.
func (m *modelRoom) failf(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = strings.Join(m.log, "\n") + "\n" + fmt.Sprintf(format, args...)
	}
}

func (m *modelRoom) ok(err error) {
	m.t.Helper()
	require.NoError(m.t, err)
}

func (m *modelRoom) model() string { return rapid.SampledFrom(roomModels).Draw(m.t, "model") }

func (m *modelRoom) live() (live []*caller) {
	for _, c := range m.callers {
		if !c.stopped {
			live = append(live, c)
		}
	}
	return live
}

// act makes a process that runs the current one.
func (m *modelRoom) act() *caller {
	m.current = pickOne(m.t, "process", m.live())
	return m.current
}

func (m *modelRoom) in(steps ...step) (found []*work) {
	for _, w := range m.works {
		if slices.Contains(steps, w.step) {
			found = append(found, w)
		}
	}
	return found
}

func (m *modelRoom) of(c *caller, steps ...step) (found []*work) {
	for _, w := range m.in(steps...) {
		if w.by == c {
			found = append(found, w)
		}
	}
	return found
}

func (m *modelRoom) times() lua.SlotTimes {
	return lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant}
}

func (m *modelRoom) waiterCall(w *work) lua.ModelWaiterCall {
	return lua.ModelWaiterCall{ModelWaiter: w.ModelWaiter, Limits: m.limits[w.Model], Times: m.times()}
}

func (m *modelRoom) configure() {
	user := rapid.IntRange(1, 3).Draw(m.t, "slots of a user")
	provider := rapid.IntRange(1, 3).Draw(m.t, "slots of the provider")
	for i, name := range roomModels {
		l := lua.ModelLimits{Queues: sixQueues, Revision: int64(m.number)}
		if m.users {
			l.UserCap = user
		}
		for j := range i + 1 {
			u := lua.UpstreamLimits{
				Name: "u" + strconv.Itoa(j), Rank: rapid.IntRange(1, 2).Draw(m.t, "rank"), Cap: rapid.IntRange(0, 3).Draw(m.t, "cap"),
				RPM: rapid.SampledFrom([]int{0, 0, 0, 60}).Draw(m.t, "requests per minute"), Context: rapid.SampledFrom([]int{0, 0, 1000}).Draw(m.t, "context"),
			}
			if rapid.IntRange(0, 3).Draw(m.t, "automatic") == 0 {
				u.Auto, u.Min, u.Cap = true, 1, u.Cap+1
			}
			if i < 2 && j == 0 && m.provider {
				u.Provider, u.ProviderCap = "p", provider
			}
			l.Upstreams = append(l.Upstreams, u)
		}
		slices.SortStableFunc(l.Upstreams, func(a, b lua.UpstreamLimits) int { return a.Rank - b.Rank })
		m.limits[name] = l
	}
	m.logf("configured: %v", m.limits)
}

func (m *modelRoom) start() {
	m.number++
	m.callers = append(m.callers, &caller{id: "p" + strconv.Itoa(m.number)})
}

func (m *modelRoom) enter() {
	m.act()
	model, user, queue := m.model(), rapid.SampledFrom(roomUsers).Draw(m.t, "user"), rapid.SampledFrom(roomQueues).Draw(m.t, "queue")
	left := rapid.SampledFrom([]time.Duration{time.Hour, time.Hour, 3 * time.Second}).Draw(m.t, "left")
	needs := lua.Needs{
		Tokens:       rapid.SampledFrom([]int{0, 0, 500, 5000}).Draw(m.t, "tokens"),
		Conversation: rapid.SampledFrom([]string{"", "one", "another"}).Draw(m.t, "conversation"),
		Excluded:     rapid.SampledFrom([][]string{nil, nil, {"u0"}, {"u1"}, {"u0", "u1", "u2"}}).Draw(m.t, "excluded"),
	}
	for range rapid.IntRange(1, 6).Draw(m.t, "tasks") {
		m.number++
		w := &work{
			ModelWaiter: lua.ModelWaiter{Task: berth.TaskRef{UserID: user, TaskID: strconv.Itoa(m.number)}, Step: 1, Queue: queue, Model: model, Group: roomGroups[user]},
			created:     m.now.UnixMicro() + int64(m.number), deadline: m.now.Add(left), needs: needs,
		}
		m.works = append(m.works, w)
		m.enterOne(w, 0)
	}
	m.logf("%s enters: %s %s %s until %s", m.current.id, model, user, queue, left)
}

func (m *modelRoom) enterOne(w *work, order int64) {
	now, err := m.s.EnterTask(context.Background(), m.waiterCall(w), w.deadline.Sub(m.now), order)
	m.ok(err)
	if w.step = waits; now {
		w.step = promoted
	}
}

// deliver lets a process signal the workflows of the promotions that it got. Where it fails, another one does later.
func (m *modelRoom) deliver(c *caller, fails bool) {
	m.current = c
	type outcome struct{ signalled, gone []string }
	outcomes := map[string]outcome{}
	inbox := c.inbox
	c.inbox = nil
	for _, p := range inbox {
		i := slices.IndexFunc(m.works, func(w *work) bool { return w.Model == p.Model && w.ID() == p.Waiter })
		o, w := outcomes[p.Model], m.works[i]
		if w.step == waits {
			w.step = promoted
		}
		if w.step == ended {
			o.gone = append(o.gone, p.Waiter)
		} else {
			o.signalled = append(o.signalled, p.Waiter)
		}
		outcomes[p.Model] = o
	}
	if fails {
		return
	}
	for _, model := range slices.Sorted(maps.Keys(outcomes)) {
		o := outcomes[model]
		m.ok(m.s.ConfirmPromotions(context.Background(), model, m.limits[model], m.times(), o.signalled, o.gone))
	}
}

// call makes the call of a promoted task.
func (m *modelRoom) call(w *work) {
	w.by, w.ticket = m.current, ""
	w.attempts++
	w.lease = lua.Lease{Process: w.by.id, Path: lua.Path{Queue: w.Queue, UserID: w.Task.UserID, Group: w.Group}, Needs: w.needs, Rest: fmt.Sprintf("%s#%d", w.CallID(w.attempts), m.number)}.ID()
	w.step = calls
	m.acquire(w)
}

func (m *modelRoom) acquire(w *work) {
	m.current = w.by
	r, err := m.s.AcquireSlot(context.Background(), lua.SlotCall{
		Model: w.Model, Limits: m.limits[w.Model], Lease: w.lease, Ticket: w.ticket, Waiter: w.ID(), Times: m.times(),
	})
	m.ok(err)
	m.replied(w, r)
}

func (m *modelRoom) replied(w *work, r lua.SlotReply) {
	if w.ticket = r.Ticket; r.Code != lua.SlotWaiting {
		w.step, w.upstream, w.until = holds, r.Upstream, m.now.Add(lua.ModelLease)
		if r.Upstream == "" {
			m.failf("%s has a slot of no upstream", w.lease)
		}
	}
}

// claim claims what was granted to the calls of processes that run.
func (m *modelRoom) claim() {
	for _, w := range m.in(calls) {
		if !w.by.stopped && slices.Contains(m.held[w.Model], w.lease) {
			m.acquire(w)
		}
	}
}

// renew renews all leases of a process.
func (m *modelRoom) renew(c *caller) {
	m.current = c
	var models []lua.ModelLeases
	var waiters [][]*work
	for _, model := range roomModels {
		l, all := lua.ModelLeases{Model: model, Limits: m.limits[model]}, []*work{}
		for _, w := range m.of(c, holds) {
			if !m.now.Before(w.until) {
				w.step = promoted // the process was stopped for too long
			} else if w.Model == model {
				l.Holders, all = append(l.Holders, lua.HeldLease{Lease: w.lease, Upstream: w.upstream}), append(all, w)
			}
		}
		for _, w := range m.of(c, calls) {
			if w.Model == model {
				l.Waiters, all = append(l.Waiters, lua.WaitingLease{Lease: w.lease, Ticket: w.ticket}), append(all, w)
			}
		}
		if len(all) > 0 {
			models, waiters = append(models, l), append(waiters, all)
		}
	}
	_, out, err := m.s.RenewSlots(context.Background(), m.times(), models)
	m.ok(err)
	for i, o := range out {
		for j, code := range o.Holders {
			w := waiters[i][j]
			if w.until = m.now.Add(lua.ModelLease); code == lua.SlotLost {
				w.step = promoted // its call is made again
			}
		}
		for j, r := range o.Waiters {
			m.replied(waiters[i][len(o.Holders)+j], r)
		}
	}
}

func (m *modelRoom) release(w *work) {
	m.current = w.by
	w.step = ended
	_, _, err := m.s.ReleaseSlot(context.Background(), w.Model, m.limits[w.Model], m.times(), w.lease)
	m.ok(err)
}

// end ends a task without a result.
func (m *modelRoom) end(w *work) {
	switch w.step {
	case waits, promoted:
		w.step = ended
		m.ok(m.s.LeaveTask(context.Background(), m.waiterCall(w)))
	case calls, holds:
		if w.by.stopped { // it has to end it first
			w.step = ended
			return
		}
		m.release(w)
	case ended:
	}
}

// pass lets time pass, in which processes renew their leases and deadlines are reached.
func (m *modelRoom) pass(d time.Duration) {
	for d > 0 {
		one := min(d, time.Second)
		d -= one
		m.ownTime.pass(m.t, one)
		for _, c := range m.live() {
			m.renew(c)
		}
		for _, w := range m.in(waits, promoted, calls, holds) {
			if !m.now.Before(w.deadline) {
				m.current = m.callers[0]
				m.end(w)
			}
		}
	}
}

// setLimits sets the limits of a model, or of one of its upstreams.
func (m *modelRoom) setLimits(of [2]string, l lua.OperatorLimits) {
	m.set[of] = l
	_, err := m.s.SetModelLimits(context.Background(), of[0], of[1], m.times(), l)
	m.ok(err)
}

// settings returns which models and upstreams have limits that were set, in order.
func (m *modelRoom) settings() [][2]string {
	return slices.SortedFunc(maps.Keys(m.set), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
}

// upstream returns a model and one of its upstreams.
func (m *modelRoom) upstream() [2]string {
	model := m.model()
	return [2]string{model, pickOne(m.t, "upstream", m.limits[model].Upstreams).Name}
}

func (m *modelRoom) sweep() {
	m.ok(m.s.SweepModels(context.Background(), roomModels, func(model string) lua.ModelLimits { return m.limits[model] }, m.times()))
}

// kill ends a process. Its calls are made again by others.
func (m *modelRoom) kill(c *caller) {
	for _, w := range m.of(c, calls, holds) {
		w.step = promoted
	}
	m.callers = slices.DeleteFunc(m.callers, func(other *caller) bool { return c == other })
	m.start()
}

func (m *modelRoom) lose() {
	m.flush(m.t)
	m.ok(m.s.SetLevel(context.Background(), lua.Level{Team: "t"}, 2, m.team))
	for _, of := range m.settings() {
		m.setLimits(of, m.set[of])
	}
	for _, w := range m.in(waits, promoted) {
		m.enterOne(w, w.created)
	}
}
