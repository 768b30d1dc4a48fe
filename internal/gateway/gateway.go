// Package gateway makes calls of OpenAI's protocol. A direct call is made in the process that has the client's connection: it takes its slot in the
// same waiting room as every other one, is forwarded, and is settled in the ledger. It ends with the connection; no workflow runs. A durable call is a
// task: this process starts it and follows its stream.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth"
	"berth/internal/breaker"
	"berth/internal/failover"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/internal/pause"
	"berth/internal/waiting"
	"berth/lua"
)

const (
	// keepFor is how long the admission of a call lasts, and keepEvery how often it is kept. The reconciliation looks for the tasks of those that last
	// longer than lua.AdmissionHold.
	keepFor   = lua.AdmissionHold - 5*time.Second
	keepEvery = 8 * time.Second
	// keepAtOnce bounds the admissions that are kept with one request.
	keepAtOnce = 250
	// markEvery is how often the process tells the reconciliation that it has its calls.
	markEvery = 5 * time.Second
	// maxRounds is how often a call is made that nothing of the answer was passed on of: each time on every upstream that may serve it.
	maxRounds = 3
	// firstPause and longestPause bound the time between two rounds. What a provider asks for is a pause of its upstream, for which the call
	// waits in the waiting room.
	firstPause   = 500 * time.Millisecond
	longestPause = 5 * time.Second
	// maxAnswer bounds the time from the first slot of a call to its end.
	maxAnswer = time.Hour
	// endTimeout bounds one attempt to record the end of a call, and endWithin all of them.
	endTimeout = 5 * time.Second
	endWithin  = time.Minute
)

// ErrWaitedTooLong is the error of a call that had no slot within Call.Wait.
var ErrWaitedTooLong = errors.New("no slot of the model was free in time")

// Ledger is what calls need of *ledger.Ledger, which documents the methods.
type Ledger interface {
	ReserveCall(ctx context.Context, c ledger.DirectCall) error
	EndCall(ctx context.Context, c ledger.DirectCall, outcomes []ledger.ModelCall, charged berth.Credits) error
	MarkProcess(ctx context.Context, id string) error
	ForgetProcess(ctx context.Context, id string) error
}

// Options are the dependencies of a gateway. All are required.
type Options struct {
	Process string // unique to this run of the process
	Ledger  Ledger
	Scripts *lua.Scripts
	Slots   *lease.Slots
	Models  *llm.Client
	Catalog func(model string) *llm.Catalog
	// ModelLimits returns the configured limits of a model.
	ModelLimits func(model string) lua.ModelLimits
	Breaker     *breaker.Breaker
	Logger      *slog.Logger

	// Of durable calls. Grace is how long a call continues without a client.
	Starter   Starter
	Streams   Hub
	Positions *waiting.Board
	Tasks     *ledger.Ledger
	Grace     time.Duration
}

// Gateway makes the calls of a process. It is safe for concurrent use.
type Gateway struct {
	Options

	kept sync.Map // lua.Admissions by the id of the call
	// ending are the ends of calls that could not be recorded yet, which are given up when stopped ends.
	ending  sync.WaitGroup
	stopped context.Context
	stop    context.CancelFunc
}

// New returns a gateway. Its calls are found by the reconciliation if the process dies while Run runs.
func New(o Options) *Gateway {
	g := &Gateway{Options: o}
	g.stopped, g.stop = context.WithCancel(context.Background())
	return g
}

// Run keeps the admissions of the calls, and tells the reconciliation that this process runs, until ctx ends. No call may be made afterwards. It may be called once.
func (g *Gateway) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	keeping.Go(func() { g.keepAdmissions(ctx) })
	for failing := false; ; {
		err := g.Ledger.MarkProcess(ctx, g.Process)
		if err != nil && !failing && ctx.Err() == nil {
			g.Logger.WarnContext(ctx, "process not marked in the database; retrying", "error", err)
		}
		failing = err != nil
		if !pause.For(ctx, markEvery) {
			break
		}
	}
	keeping.Wait()
	g.stop()
	g.ending.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := g.Ledger.ForgetProcess(ctx, g.Process); err != nil {
		g.Logger.WarnContext(ctx, "process not removed from the database", "error", err)
	}
	return nil
}

// Call is a call to make.
type Call struct {
	ID    string
	KeyID string // of the API key, empty for a user, whose account pays
	// UserID is the id under which the call is counted and logged; of a key its id.
	UserID string
	Group  berth.Group
	Queue  berth.Queue
	// ServiceID names the calls of a user among which Limits.Service counts.
	ServiceID string
	Limits    lua.AdmissionLimits
	// LLM is the raw call, and Excluded the upstreams that do not accept it.
	LLM      llm.Call
	Excluded []string
	// Conversation: calls of the same one prefer the same upstream.
	Conversation string
	// Wait bounds the time until the answer begins.
	Wait time.Duration
}

// ref returns what Redis has in place of a task.
func (c Call) ref() berth.TaskRef { return berth.TaskRef{UserID: c.UserID, TaskID: c.ID} }

// Client is who gets the answer. Its functions are called one after another, from the goroutine of Make.
type Client struct {
	// Admitted has what is left of the limits.
	Admitted func(lua.AdmitReply)
	// Accepted is called once for a response, with its task, before anything of its answer. Other calls do not need it.
	Accepted func(berth.TaskPlan)
	// Position is called when the call begins to wait for a slot and when its position changes, with the number of calls ahead.
	Position func(ahead int)
	// Object gets each object of the answer, see llm.Client.Forward. An error of it ends the call.
	Object func([]byte) error
}

// Refusal is the error of a call that was not admitted.
type Refusal struct {
	lua.AdmitReply
	Limits lua.AdmissionLimits
	Queue  berth.Queue
	Group  berth.Group
}

func (r *Refusal) Error() string { return "not admitted: " + r.Code }

// making is the state of a call that is made.
type making struct {
	*Gateway
	Call
	client   Client
	row      ledger.DirectCall
	tried    failover.Call
	attempts []ledger.ModelCall
	failed   *llm.CallError // the fault that decides what follows, so far
	// charged is what the client pays, and begun is set once something of the answer was passed on.
	charged berth.Credits
	begun   bool
	ticket  string
	until   time.Time // by which it must have a slot
}

// Make makes a call and returns once it has ended: nil if the client has the whole answer. If nothing was passed on, the error says why; its kinds
// are *Refusal, *llm.CallError, *berth.Error and ErrWaitedTooLong. If ctx ends, the provider's answer is ended, too, and what was used until then is
// charged.
func (g *Gateway) Make(ctx context.Context, c Call, client Client) (err error) {
	m := &making{Gateway: g, Call: c, client: client, until: time.Now().Add(c.Wait)}
	if m.LLM, err = g.Models.Prepare(c.LLM); err != nil {
		return err
	}
	leave, err := m.admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	defer m.end(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait+maxAnswer, berth.Errorf(berth.CodeDeadlineExceeded, "the model did not answer in time"))
	defer cancel()
	for backoff := pause.NewBackoff(firstPause, longestPause); ; {
		failed, err := m.round(ctx)
		if failed == nil {
			if errors.Is(err, ErrWaitedTooLong) && m.failed != nil {
				return m.failed // it says more
			}
			return err
		}
		if m.begun || !failed.Retryable || len(m.attempts) == 0 || m.rounds() >= maxRounds || time.Now().Add(failed.RetryAfter).After(m.until) ||
			m.allPaused(ctx, failed) {
			return failed
		}
		if !backoff.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// rounds returns how often the upstream that was called most was called.
func (m *making) rounds() (most int) {
	times := map[string]int{}
	for _, a := range m.attempts {
		times[a.Upstream]++
		most = max(most, times[a.Upstream])
	}
	return most
}

// admit reserves what the call may cost, and its admissions. A refused call uses nothing of any limit.
func (m *making) admit(ctx context.Context) (leave func(), err error) {
	reply, err := m.admitted(ctx, m.Call)
	if err != nil {
		return nil, err
	}
	if err := m.reserve(ctx); err != nil {
		m.withdraw(ctx, m.Call)
		return nil, err
	}
	m.client.Admitted(reply)
	return m.keep(ctx), nil
}

// submission returns the call as it is admitted.
func (c Call) submission() lua.Submission {
	return lua.Submission{
		Task: c.ref(), ServiceID: c.ServiceID, Group: c.Group, Queue: c.Queue, Limits: c.Limits, Tokens: int64(c.LLM.Raw.Cost() * 1000),
	}
}

// admitted admits a call. Its error is a *Refusal if a limit is reached.
func (g *Gateway) admitted(ctx context.Context, c Call) (lua.AdmitReply, error) {
	reply, err := g.Scripts.AdmitTask(ctx, c.submission())
	switch {
	case err != nil:
		return reply, redisUnavailable(err)
	case reply.Code == lua.TaskAdmitted:
		return reply, nil
	case reply.Code == lua.TaskQueueFull:
		if wait, err := g.Scripts.PlanRetry(ctx, c.Queue, c.UserID); err == nil {
			reply.Retry = wait
		}
	}
	metrics.Refusals.Add(ctx, 1, metrics.With(metrics.Code.String(string(codeOf(reply.Code))), metrics.Queue.String(string(c.Queue))))
	return reply, &Refusal{AdmitReply: reply, Limits: c.Limits, Queue: c.Queue, Group: c.Group}
}

// withdraw undoes the admission of a call that is refused.
func (g *Gateway) withdraw(ctx context.Context, c Call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := g.Scripts.WithdrawSubmission(ctx, c.submission()); err != nil {
		g.Logger.WarnContext(ctx, "admission of a refused call not withdrawn", "call", c.ID, "error", err)
	}
}

// codeOf returns the code of a refusal of admit_task.
func codeOf(refusal string) berth.Code {
	if refusal == lua.TaskRateLimited || refusal == lua.TaskTokensLimited {
		return berth.CodeRateLimited
	}
	return berth.CodeQueueFull
}

// reserve reserves what the call may cost. If the database has failed, it may have done so.
func (m *making) reserve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	m.row = ledger.DirectCall{
		ID: m.ID, UserID: m.UserID, KeyID: m.KeyID, ServiceID: m.ServiceID, TeamID: m.Group.Team, AppID: m.Group.App, Model: m.LLM.Model, Queue: m.Queue,
		Operation: berth.StepName(m.LLM.Raw.Operation), Process: m.Process, Timeout: m.Wait + maxAnswer + endWithin,
		Reserved: m.Catalog(m.LLM.Model).ReserveCall(m.LLM), Account: m.KeyID == "",
	}
	err := m.Ledger.ReserveCall(ctx, m.row)
	if code := berth.CodeOf(err); code == berth.CodeUnavailable || code == berth.CodeInternal {
		m.end(ctx)
	}
	return err
}

// keep keeps the admissions of the call until the function that it returns is called.
func (m *making) keep(ctx context.Context) (leave func()) {
	held := lua.Admissions{
		Task: m.ref(), ServiceID: m.ServiceID, Group: m.Group, Queues: []berth.Queue{m.Queue},
	}
	m.kept.Store(m.ID, held)
	return func() {
		m.kept.Delete(m.ID)
		m.removeAdmissions(context.WithoutCancel(ctx), held)
	}
}

func (g *Gateway) removeAdmissions(ctx context.Context, held lua.Admissions) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := g.Scripts.RemoveAdmissions(ctx, held); err != nil { // it expires
		g.Logger.DebugContext(ctx, "admission of a call not removed", "call", held.Task.TaskID, "error", err)
	}
}

// keepAdmissions keeps those of all calls until ctx ends.
func (g *Gateway) keepAdmissions(ctx context.Context) {
	for pause.For(ctx, keepEvery) {
		var all []lua.Admissions
		g.kept.Range(func(_, held any) bool {
			all = append(all, held.(lua.Admissions)) //nolint:errcheck,forcetypeassert // nothing else is stored
			return true
		})
		for part := range slices.Chunk(all, keepAtOnce) {
			if err := g.keepSome(ctx, part); err != nil {
				g.Logger.DebugContext(ctx, "admissions of calls not kept", "calls", len(part), "error", err)
			}
		}
	}
}

func (g *Gateway) keepSome(ctx context.Context, part []lua.Admissions) error {
	kept, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := g.Scripts.KeepAllAdmissions(kept, part, keepFor)
	for _, held := range part {
		if _, ok := g.kept.Load(held.Task.TaskID); !ok { // it has ended meanwhile, and may have been admitted again
			g.removeAdmissions(ctx, held)
		}
	}
	return err //nolint:wrapcheck // logged by the caller only
}

// end records the end of the call. It is repeated while the database is unavailable, for a time; then the reconciliation settles the call.
func (m *making) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	err := m.record(ctx)
	if err == nil {
		return
	}
	m.Logger.WarnContext(ctx, "end of a call not recorded; retrying", "call", m.ID, "error", err)
	m.ending.Go(func() {
		stopped, cancel := context.WithTimeout(m.stopped, endWithin)
		defer cancel()
		for backoff := pause.NewBackoff(firstPause, longestPause); backoff.Wait(stopped); {
			if m.record(ctx) == nil {
				return
			}
		}
		m.Logger.ErrorContext(ctx, "end of a call not recorded; the reconciliation settles it without what it used", "call", m.ID)
	})
}

func (m *making) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := m.Ledger.EndCall(ctx, m.row, m.attempts, m.charged); err != nil {
		return fmt.Errorf("record the end of call %s: %w", m.ID, err)
	}
	return nil
}

// unusable returns the upstreams that the call may not use.
func (m *making) unusable() []string {
	return append(m.Catalog(m.LLM.Model).Unkeyed(m.LLM.Model), m.Excluded...)
}

func (m *making) allPaused(ctx context.Context, failed *llm.CallError) bool {
	return failover.AllPaused(ctx, m.Scripts, m.ModelLimits(m.LLM.Model), failed, m.LLM.Model, m.unusable())
}

// round makes the call on one upstream after another, until one has served it or none is left. failed is set if it may be made again.
func (m *making) round(ctx context.Context) (failed *llm.CallError, err error) {
	m.tried = failover.Call{Model: m.LLM.Model, Excluded: m.unusable()}
	for {
		slot, free, err := m.acquire(ctx)
		if err != nil {
			return nil, err
		}
		if m.tried.Excludes(slot.Upstream()) { // the others are paused
			slot.Release()
			free()
			if len(m.attempts) == 0 || slices.Contains(m.Excluded, slot.Upstream()) {
				return nil, berth.Errorf(berth.CodeUnavailable, "no upstream that accepts the call works at present; retry later")
			}
			return m.tried.Paused(ctx, m.Scripts, m.ModelLimits(m.LLM.Model)), nil
		}
		failed, err := m.callInSlot(slot)
		free()
		if failed == nil || m.begun {
			return nil, err
		}
		m.tried.Failed(m.Catalog(m.LLM.Model), slot.Upstream(), failed)
		m.failed = m.tried.Decisive()
		switch {
		case failed.Scope == llm.ScopeRequest:
			return nil, failed
		case !m.tried.Untried(m.Catalog(m.LLM.Model)), m.allPaused(ctx, failed):
			return m.failed, nil
		}
	}
}

// acquire waits for a slot, in the position of the last one of the call. free ends what belongs to the slot.
func (m *making) acquire(ctx context.Context) (slot *lease.Slot, free func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	free = func() { cancel(nil) }
	late := time.AfterFunc(time.Until(m.until), func() { cancel(ErrWaitedTooLong) })
	slot, err = m.Slots.Acquire(ctx, lease.Request{
		Model: m.LLM.Model, Queue: m.Queue, Group: m.Group, UserID: m.UserID, Cost: m.LLM.Raw.Cost(),
		Needs: lua.Needs{
			Tokens: m.Catalog(m.LLM.Model).Size(m.LLM), Excluded: m.tried.Excluded, Conversation: m.Conversation,
		},
		Ticket: m.ticket, LeaseID: m.ID, OnPosition: m.client.Position,
	})
	if err == nil && !late.Stop() { // the context of the slot has ended
		slot.Release()
		err = ErrWaitedTooLong
	}
	if err != nil {
		late.Stop()
		free()
		if errors.Is(err, lease.ErrClosed) {
			err = berth.Errorf(berth.CodeUnavailable, "the server is stopping; retry").With(err)
		}
		return nil, nil, err
	}
	m.ticket = slot.Ticket()
	return slot, free, nil
}

// callInSlot calls the upstream of the slot. failed is set if the error is that of the call.
func (m *making) callInSlot(slot *lease.Slot) (failed *llm.CallError, err error) {
	defer slot.Release()
	call, start, model := m.LLM, time.Now(), m.LLM.Model
	call.Upstream = slot.Upstream()
	call.Labels = []any{"call", m.ID}
	spec, _ := m.Catalog(model).Model(model)
	upstream, ok := spec.Upstream(call.Upstream)
	if !ok {
		upstream.Name = call.Upstream
	}
	reported := breaker.Call{Model: model, Upstream: upstream, Task: m.ref()}
	ctx := slot.Context()
	res, err := m.Models.Forward(ctx, call, func(object []byte) error {
		if !m.begun {
			m.begun = true
			reported.Took = time.Since(start)
			m.Breaker.Begun(ctx, reported)
		}
		return m.client.Object(object)
	})
	reported.Took = time.Since(start)
	m.Breaker.Report(ctx, reported, err)
	if err != nil && context.Cause(ctx) != nil {
		err = ended(context.Cause(ctx))
	}
	failed, _ = errors.AsType[*llm.CallError](err)
	m.log(res, upstream, failed, err)
	// A slot that was lost is a fault of berth. As long as the client has nothing, the call is made again.
	if failed == nil && !m.begun && errors.Is(err, lease.ErrLost) {
		failed = &llm.CallError{
			Code: berth.CodeUnavailable, Scope: llm.ScopeUpstream, Retryable: true, Model: model, Message: "the model's slot was lost; retry later", Err: err,
		}
	}
	return failed, err
}

// ended returns the error of a call whose context has ended.
func ended(cause error) error {
	if errors.Is(cause, lease.ErrLost) || errors.Is(cause, lease.ErrClosed) {
		return berth.Errorf(berth.CodeInterrupted, "the answer was interrupted: the slot of the model was lost").With(cause)
	}
	return cause
}

// log adds an attempt to what the end of the call records. The client pays for the attempt whose answer it got, and for one that it ended.
func (m *making) log(res llm.Result, upstream llm.Upstream, failed *llm.CallError, err error) {
	spec, _ := m.Catalog(m.LLM.Model).Model(m.LLM.Model)
	a := ledger.ModelCall{
		Provider: res.Provider, Upstream: upstream.Name, Usage: res.Usage,
		LatencyMs: res.Took.Milliseconds(), FirstTokenMs: res.FirstToken.Milliseconds(), FinishReason: res.FinishReason,
		PromptTruncated: res.PromptTruncated, Success: err == nil, Simulated: res.Provider == llm.LocalProvider,
	}
	if !a.Simulated {
		a.CostMicros = upstream.CostMicros(res.Usage)
	}
	switch {
	case err == nil:
	case failed != nil:
		a.Code, a.Cause = failed.Code, string(failed.Cause)
	default:
		if a.Code = berth.CodeOf(err); a.Code == berth.CodeInternal { // the client has left, or does not read
			a.Code = berth.CodeCancelled
		}
	}
	if err == nil || m.begun || failed == nil && !errors.Is(err, lease.ErrLost) {
		m.charged = spec.Credits.Of(res.Usage)
	}
	m.attempts = append(m.attempts, a)
}
