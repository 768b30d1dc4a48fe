package ledger

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

// durableCall is a durable call of the model: a task, whose workflow runs one worker after another.
type durableCall struct {
	berth.Task
	payment
	status  berth.TaskStatus
	fence   int64 // of the newest attempt
	workers []*forwarder
	held    *ModelCall        // the answer that a worker could not store
	known   map[upstream]bool // the calls of upstreams, and whether their outcome was recorded
	used    berth.Credits     // by those that were recorded, as long as it is not settled
	old     bool              // it ended longer than JoinWithin ago
	erased  bool
	gone    bool // withdrawn, or deleted by the retention, when no worker of it is left
}

// upstream identifies a call of an upstream.
type upstream struct {
	fence int64
	call  int
}

// forwarder is a worker that makes an attempt at a durable call. It does not know whether it has been replaced.
type forwarder struct {
	fence   int64
	call    int
	started bool // the call of the upstream
	shown   bool // something was passed on
	begun   bool // by an earlier attempt
}

func (w *forwarder) upstream() upstream { return upstream{w.fence, w.call} }

// owned returns why a write of a worker is refused.
func (d *durableCall) owned(w *forwarder) error {
	switch {
	case d.status.Final():
		return ErrFinal
	case d.fence != w.fence:
		return ErrStale
	}
	return nil
}

func (d *durableCall) requireOwned(t *rapid.T, w *forwarder, err error) bool {
	want := d.owned(w)
	require.ErrorIs(t, err, want)
	return want == nil
}

func (d *durableCall) leaves(w *forwarder) {
	d.workers = slices.DeleteFunc(d.workers, func(o *forwarder) bool { return o == w })
}

// joinable reports whether a retry of the request by its count of attempts joins the call.
func (d *durableCall) joinable(hash string) bool {
	return !d.gone && !d.erased && d.RequestHash == hash && (!d.status.Final() || d.status == berth.TaskCompleted && !d.old)
}

// record adds what a call of an upstream has used, once.
func (d *durableCall) record(u upstream, used berth.Credits) {
	if !d.known[u] && d.open {
		d.used += min(used, d.reserved-d.used)
	}
	d.known[u] = true
}

// end settles the call, unless the outcome of an upstream's call of the newest attempt is still to be recorded.
func (d *durableCall) end(status berth.TaskStatus) {
	d.status = status
	for u, known := range d.known {
		if !known && u.fence == d.fence && d.reserved > 0 {
			return
		}
	}
	d.settle(d.used)
}

func (s *spending) pick(t *rapid.T, fits func(*durableCall) bool) *durableCall {
	var found []*durableCall
	for _, d := range s.durable {
		if fits(d) {
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(found).Draw(t, "call")
}

// Submit is a request of a client: a new one, or a retry by its Idempotency-Key or its count of attempts, which may join a call.
func (s *spending) Submit(t *rapid.T) {
	plan := forwarded(s.user)
	plan.Team, plan.Forwarded.KeyID, plan.Forwarded.Stream = s.team, s.key, rapid.Bool().Draw(t, "stream")
	plan.Price = berth.Credits(rapid.Int64Range(0, 200).Draw(t, "reserved"))
	plan.RequestHash = rapid.SampledFrom([]string{"hash", "another hash"}).Draw(t, "request")
	ctx := context.Background()
	if key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key"); key != "" {
		newest, found, err := berth.Found(s.l.FindSubmission(ctx, s.user, key))
		require.NoError(t, err)
		if found && newest.RequestHash != plan.RequestHash {
			return // it is refused
		}
		plan.Key = key
		number, joins := newest.Next(false)
		plan.Number = number
		plan.ID = berth.DerivedID("chatcmpl-", s.user, key, strconv.FormatInt(number, 10))
		if joins && rapid.Bool().Draw(t, "follows") {
			return // a request that came together with the first one submits it, too
		}
	} else if rapid.Bool().Draw(t, "retry") {
		found, err := s.l.ForwardedTasks(ctx, s.user, plan.RequestHash)
		require.NoError(t, err)
		var want []berth.TaskRef
		for _, d := range s.durable {
			if d.joinable(plan.RequestHash) {
				want = append(want, d.Ref())
			}
		}
		require.ElementsMatch(t, want, found)
		if len(found) > 0 {
			return
		}
	}
	s.accept(t, plan)
}

func (s *spending) accept(t *rapid.T, plan berth.Task) {
	var row berth.Task
	err := repeat(t, func(ctx context.Context) (err error) { row, _, err = s.l.CreateTask(ctx, plan); return err })
	if i := slices.IndexFunc(s.durable, func(d *durableCall) bool { return d.ID == plan.ID && !d.gone }); i >= 0 {
		require.NoError(t, err)
		require.Equal(t, s.durable[i].status, row.Status)
		return
	}
	d := &durableCall{Task: plan, payment: payment{reserved: plan.Price}, status: berth.TaskPending, known: map[upstream]bool{}}
	if !s.pay(&d.payment) {
		require.Equal(t, berth.CodeBudgetExceeded, berth.CodeOf(err), err)
		return
	}
	require.NoError(t, err)
	s.durable = append(s.durable, d)
	if rapid.IntRange(0, 3).Draw(t, "begins") > 0 {
		s.begin(t, d)
		s.workOn(t, d)
	}
}

// Withdraw is of an acceptance that failed after its row was stored.
func (s *spending) Withdraw(t *rapid.T) {
	d := s.pick(t, func(d *durableCall) bool { return !d.gone })
	require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.WithdrawTask(ctx, d.Ref(), d.RequestHash) }))
	if d.fence == 0 && !d.status.Final() {
		d.gone = true
		d.end(berth.TaskCancelled)
	}
}

// Begin starts an attempt, also while a worker that was thought to be dead makes an earlier one.
func (s *spending) Begin(t *rapid.T) {
	s.begin(t, s.pick(t, func(d *durableCall) bool { return !d.gone }))
}

func (s *spending) begin(t *rapid.T, d *durableCall) {
	var a Attempt
	require.NoError(t, repeat(t, func(ctx context.Context) (err error) {
		a, err = s.l.BeginAttempt(ctx, d.Ref(), 0, berth.TaskPending)
		return err
	}))
	require.Equal(t, d.status.Final(), a.Final || a.Done)
	require.Equal(t, d.status == berth.TaskStreaming, a.Begun)
	if !d.status.Final() {
		d.fence = a.Fence
		d.workers = append(d.workers, &forwarder{fence: a.Fence, begun: a.Begun})
	}
}

// Work is what the workers of a call do next.
func (s *spending) Work(t *rapid.T) {
	s.workOn(t, s.pick(t, func(d *durableCall) bool { return len(d.workers) > 0 }))
}

func (s *spending) workOn(t *rapid.T, d *durableCall) {
	for range rapid.IntRange(1, 4).Draw(t, "actions") {
		if len(d.workers) > 0 {
			s.work(t, d)
		}
	}
}

// work is what a worker does next, as activities.RunStep does it. It may die instead.
func (s *spending) work(t *rapid.T, d *durableCall) {
	w := rapid.SampledFrom(d.workers).Draw(t, "worker")
	happens := rapid.SampledFrom([]string{"continues", "continues", "continues", "continues", "fails", "dies", "cannot store"}).Draw(t, "happens")
	used := berth.Credits(rapid.Int64Range(0, 250).Draw(t, "used"))
	switch {
	case happens == "dies":
		d.leaves(w)
	case !w.started && w.call == 0 && d.held != nil:
		s.adopt(t, d, w)
	case w.begun:
		s.interrupted(t, d, w, used)
	case !w.started:
		s.start(t, d, w, "")
	case happens == "fails":
		s.fail(t, d, w, used)
	case d.Forwarded.Stream && !w.shown:
		s.start(t, d, w, berth.TaskStreaming)
	case happens == "cannot store":
		c := s.outcome(d, w.upstream(), used)
		d.held = &c
		d.leaves(w)
	default:
		s.answer(t, d, w, s.outcome(d, w.upstream(), used))
	}
}

func (s *spending) outcome(d *durableCall, u upstream, used berth.Credits) ModelCall {
	return ModelCall{
		UserID: s.user, TaskID: d.ID, Name: berth.StepChat, Fence: u.fence, Call: u.call, Provider: "p", Upstream: "u", Credits: used,
		Usage: berth.Usage{InputTokens: 1},
	}
}

// report records a call of an upstream whose answer is not used.
func (s *spending) report(t *rapid.T, d *durableCall, u upstream, used berth.Credits) {
	c := s.outcome(d, u, used)
	c.Code = berth.CodeUnavailable
	require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.FailedCall(ctx, c) }))
	first := !d.known[u]
	if d.record(u, used); first && d.open && d.status.Final() && u.fence == d.fence {
		d.settle(d.used)
	}
}

// start records that a worker calls an upstream, or passes on the first chunk of its answer.
func (s *spending) start(t *rapid.T, d *durableCall, w *forwarder, status berth.TaskStatus) {
	err := repeat(t, func(ctx context.Context) error {
		return s.l.StartCall(ctx, CallStart{TaskRef: d.Ref(), Fence: w.fence, Call: w.call, Status: status, Provider: "p", Upstream: "u"})
	})
	switch {
	case d.requireOwned(t, w, err):
		if !w.started {
			d.known[w.upstream()] = false
		}
		w.started, w.shown = true, status == berth.TaskStreaming
		d.status = max(d.status, status) // PENDING, STREAMING
	case w.started || rapid.Bool().Draw(t, "called"): // an upstream is called meanwhile
		s.report(t, d, w.upstream(), 0)
		d.leaves(w)
	default:
		if w.call == 0 {
			require.NoError(t, s.l.ReleaseAttempt(context.Background(), d.Ref(), 0, w.fence))
		}
		d.leaves(w)
	}
}

// fail is the failure of an upstream. Another one is called, unless something was passed on. The record of the failure may be lost.
func (s *spending) fail(t *rapid.T, d *durableCall, w *forwarder, used berth.Credits) {
	if !w.shown {
		used = 0
	}
	if !rapid.Bool().Draw(t, "record lost") {
		s.report(t, d, w.upstream(), used)
	}
	if w.shown || rapid.Bool().Draw(t, "gives up") {
		d.leaves(w)
		return
	}
	w.started = false
	w.call++
}

// answer records the answer, and with it the end.
func (s *spending) answer(t *rapid.T, d *durableCall, w *forwarder, c ModelCall) {
	c.FinishReason = rapid.SampledFrom([]string{berth.FinishStop, berth.FinishLength}).Draw(t, "finish")
	r := StepResult{ModelCall: c, RecordedBy: w.fence, Completes: true, Output: berth.Asset{Kind: berth.AssetResult, Content: []byte(d.ID)}}
	err := repeat(t, func(ctx context.Context) error { _, err := s.l.FinishStep(ctx, r); return err })
	d.leaves(w)
	u := upstream{c.Fence, c.Call}
	if d.requireOwned(t, w, err) {
		d.record(u, c.Credits)
		d.end(berth.TaskCompleted)
		return
	}
	if !w.shown {
		c.Credits = 0
	}
	if w.call > 0 || w.started || d.status.Final() {
		s.report(t, d, u, c.Credits)
	}
}

// adopt stores the answer that an earlier worker could not store.
func (s *spending) adopt(t *rapid.T, d *durableCall, w *forwarder) {
	err := repeat(t, func(ctx context.Context) error {
		return s.l.StartCall(ctx, CallStart{TaskRef: d.Ref(), Fence: w.fence, Status: berth.TaskPending})
	})
	if !d.requireOwned(t, w, err) {
		require.NoError(t, s.l.ReleaseAttempt(context.Background(), d.Ref(), 0, w.fence))
		d.leaves(w)
		return
	}
	s.answer(t, d, w, *d.held)
}

// interrupted records what had arrived of an answer whose worker was lost.
func (s *spending) interrupted(t *rapid.T, d *durableCall, w *forwarder, used berth.Credits) {
	calls, err := s.l.ModelCalls(context.Background(), d.Ref())
	require.NoError(t, err)
	for _, c := range slices.Backward(calls) {
		if c.Fence != w.fence && c.Provider != "" {
			if c.Code == berth.CodeInterrupted {
				s.report(t, d, upstream{c.Fence, c.Call}, used)
			}
			break
		}
	}
	require.NoError(t, s.l.ReleaseAttempt(context.Background(), d.Ref(), 0, w.fence))
	d.leaves(w)
}

// EndDurable is the end by a failure, the deadline or a cancellation. Later ends change nothing.
func (s *spending) EndDurable(t *rapid.T) {
	every := rapid.Bool().Draw(t, "every")
	d := s.pick(t, func(d *durableCall) bool { return !d.gone && (every || d.status == berth.TaskStreaming) })
	s.finish(t, d, rapid.SampledFrom([]berth.TaskStatus{berth.TaskFailed, berth.TaskCancelled}).Draw(t, "status"))
	if rapid.Bool().Draw(t, "settled") {
		s.Settle(t)
	}
	s.workOn(t, d) // the workers do not know yet
}

func (s *spending) finish(t *rapid.T, d *durableCall, status berth.TaskStatus) {
	e := End{TaskRef: d.Ref(), Status: status, KeepStreamed: rapid.Bool().Draw(t, "keep")}
	var row berth.Task
	require.NoError(t, repeat(t, func(ctx context.Context) (err error) { row, _, err = s.l.FinishTask(ctx, e); return err }))
	switch d.status {
	case berth.TaskPending:
		d.status = status
		d.settle(0)
	case berth.TaskStreaming:
		d.end(status)
	}
	require.Equal(t, d.status, row.Status)
}

// Settle is the reconciliation of calls that ended without the outcome of their last call of an upstream.
func (s *spending) Settle(t *rapid.T) {
	found, err := s.l.UnsettledTasks(context.Background(), time.Now().Add(time.Hour), berth.TaskRef{UserID: s.user}, 1000)
	require.NoError(t, err)
	var want []berth.TaskRef
	for _, d := range s.durable {
		if d.open && d.status.Final() {
			want = append(want, d.Ref())
			d.settle(d.used)
		}
	}
	found = slices.DeleteFunc(found, func(r berth.TaskRef) bool { return r.UserID != s.user })
	require.ElementsMatch(t, want, found)
	for _, task := range found {
		require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.SettleTask(ctx, task) }))
	}
}

// TimePasses is the time in which a retry can join a call that has ended.
func (s *spending) TimePasses(t *rapid.T) {
	d := s.pick(t, func(d *durableCall) bool { return !d.gone && d.status.Final() })
	_, err := s.l.exec(context.Background(), "age", `UPDATE tasks SET ended_at = ended_at - $3 WHERE user_id = $1 AND id = $2`,
		d.UserID, d.ID, JoinWithin.Milliseconds())
	require.NoError(t, err)
	d.old = true
}

// Retention removes what has ended, as if it had all ended long ago. The pass may be interrupted. All has been settled long before rows are
// removed.
func (s *spending) Retention(t *rapid.T) {
	all := s.l.Expiries()
	settled := !slices.ContainsFunc(s.payments, func(p *payment) bool { return p.open })
	for _, e := range all[:rapid.IntRange(1, len(all)).Draw(t, "parts")] {
		if e.Name == "usage rows" && !settled {
			return
		}
		for more := true; more; {
			var err error
			_, more, err = e.Remove(context.Background(), time.Now().Add(time.Hour), 1000)
			require.NoError(t, err)
		}
		for _, d := range s.durable {
			switch ended := d.status.Final(); e.Name {
			case "texts of tasks":
				d.erased = d.erased || ended
			case "tasks":
				if ended && d.erased && !d.open {
					d.gone, d.workers = true, nil
				}
			}
		}
		if e.Name == "usage rows" {
			for _, p := range s.payments {
				p.unlogged = true
			}
			for _, c := range s.calls {
				c.usage = nil
			}
		}
	}
}

// checkDurable returns what the usage log states for durable calls.
func (s *spending) checkDurable(t *rapid.T) (logged berth.Credits) {
	for _, d := range s.durable {
		if d.unlogged {
			continue
		}
		used := d.settled
		if d.open {
			used = d.used
		}
		logged += used
		if d.gone {
			continue
		}
		row, err := s.l.GetTask(context.Background(), d.Ref())
		require.NoError(t, err)
		require.Equal(t, d.status, row.Status)
		require.Equal(t, d.costs(), row.Price)
		require.Equal(t, d.open && d.reserved > 0, row.Unsettled)
		calls, err := s.l.ModelCalls(context.Background(), d.Ref())
		require.NoError(t, err)
		charged := 0
		for _, c := range calls {
			require.False(t, d.status.Final() && c.FinishedAt.IsZero(), "%+v", c)
			if c.Credits > 0 {
				charged++
			}
		}
		require.LessOrEqual(t, charged, 1, "only one answer is charged")
	}
	return logged
}
