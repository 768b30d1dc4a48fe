package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/identity"
	"berth/internal/pause"
)

// The scenario: the tasks of one user wait already when those of the others arrive.
const (
	slotCap    = 5
	bigCalls   = 210
	smallCalls = 10
	smallUsers = 9
	allCalls   = bigCalls + smallUsers*smallCalls
	bigUser    = "big"
)

// settled bounds the wait until submitted tasks wait for a slot, and until they have finished.
const settled = 5 * time.Minute

// slots measures how the calls of a model share its slots, with the real API and worker processes: the calls at the provider
// that exceed the cap, the use of the cap, the time from the end of one call to the beginning of the next, and the mean
// positions in which the calls of one big and of nine small users finish. At the end it kills a worker that holds all slots.
func slots(ctx context.Context, r *Run) error {
	if err := shareSlots(ctx, r); err != nil {
		return err
	}
	return r.waiters(ctx) // at the end, because so many waiters slow the Redis of what follows
}

func shareSlots(ctx context.Context, r *Run) (err error) {
	p := &slotProvider{calls: make(chan call, 4*allCalls), begins: make(chan time.Time, 4*allCalls)}
	p.length.Store(int64(time.Millisecond))
	h, err := r.open(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	b := &slotBench{stack: h, provider: p}
	if _, err := h.client.PatchModel(ctx, slotModel, map[string]any{"cap": slotCap}); err != nil {
		return err
	}
	lengths := []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}
	bare := map[time.Duration]slotResult{}
	for _, length := range lengths {
		bare[length], err = repeat(r, fmt.Sprintf("of the baseline with calls of %s", length), func() ([]call, error) { return b.bare(ctx, r, length) })
		if err != nil {
			return err
		}
	}
	var second child
	for workers := 1; workers <= 2; workers++ {
		if workers == 2 {
			if second, err = h.startWorker(ctx); err != nil {
				return err
			}
			defer second.kill()
		}
		for _, length := range lengths {
			total, err := repeat(r, fmt.Sprintf("with calls of %s and %d workers", length, workers), func() ([]call, error) { return b.run(ctx, length) })
			if err != nil {
				return err
			}
			total.addTo(r, fmt.Sprintf("cap %d, %d calls of %s, %d x worker", slotCap, allCalls, length, workers), length, bare[length])
		}
	}
	second.end()
	r.step("kill -9 of a worker")
	return b.killed(ctx, r, h.worker)
}

// repeat returns the result of several runs.
func repeat(r *Run, what string, run func() ([]call, error)) (total slotResult, err error) {
	runs := r.times(3)
	for i := range runs {
		r.step("run %d of %d %s", i+1, runs, what)
		calls, err := run()
		if err != nil {
			return total, err
		}
		total.add(measureSlots(calls))
	}
	return total, nil
}

// slotModel serves streamTask.
const slotModel = "deepseek-chat"

// call is one call as the provider saw it.
type call struct {
	user       string
	begin, end time.Time
	over       bool // it exceeded the cap
}

// slotProvider responds to each call after a fixed time, and records it.
type slotProvider struct {
	length  atomic.Int64 // ns
	running atomic.Int64
	calls   chan call
	begins  chan time.Time
}

var userInPrompt = regexp.MustCompile(`I am (\w+)`)

func (p *slotProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{begin: time.Now(), over: p.running.Add(1) > slotCap}
	p.begins <- c.begin
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		p.running.Add(-1)
		return
	}
	if m := userInPrompt.FindSubmatch(body); m != nil {
		c.user = string(m[1])
	}
	w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(text, finish string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"bench\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\","+
			"\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":%s}]}\n\n", text, finish)
	}
	chunk("An answer.", "null")
	_ = http.NewResponseController(w).Flush()
	finished := pause.For(r.Context(), time.Until(c.begin.Add(time.Duration(p.length.Load()))))
	p.running.Add(-1)
	if !finished {
		return
	}
	// Before the last bytes, so that the hand-over includes the time that they take.
	c.end = time.Now()
	chunk("", `"stop"`)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
	p.calls <- c
}

// drain forgets what was recorded.
func (p *slotProvider) drain() {
	for len(p.calls) > 0 {
		<-p.calls
	}
	for len(p.begins) > 0 {
		<-p.begins
	}
}

type slotBench struct {
	*stack
	provider *slotProvider
	runs     int
}

// run submits all tasks while the model is paused, resumes it, and returns the calls.
func (b *slotBench) run(ctx context.Context, length time.Duration) ([]call, error) {
	b.provider.length.Store(int64(length))
	if err := b.submitPaused(ctx); err != nil {
		return nil, err
	}
	if err := b.resume(ctx); err != nil {
		return nil, err
	}
	calls, err := b.ended(ctx)
	if err != nil {
		return nil, err
	}
	return calls, b.until(ctx, func(m client.Model) bool { return m.InUse+m.Waiting == 0 })
}

// bare is run for the baseline.
func (b *slotBench) bare(ctx context.Context, r *Run, length time.Duration) ([]call, error) {
	b.provider.length.Store(int64(length))
	b.provider.drain()
	if err := bareSlots(ctx, r, b.modelURL); err != nil {
		return nil, err
	}
	return b.ended(ctx)
}

// ended returns the calls of a run when all have ended.
func (b *slotBench) ended(ctx context.Context) ([]call, error) {
	calls := make([]call, 0, allCalls)
	limit := time.After(settled)
	for len(calls) < allCalls {
		select {
		case c := <-b.provider.calls:
			calls = append(calls, c)
		case <-limit:
			return nil, fmt.Errorf("only %d of %d calls ended within %s", len(calls), allCalls, settled)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return calls, nil
}

// submitPaused pauses the model and returns when the tasks of all users wait for it.
func (b *slotBench) submitPaused(ctx context.Context) error {
	if _, err := b.client.PatchModel(ctx, slotModel, map[string]any{"paused": true, "reason": "bench"}); err != nil {
		return err
	}
	b.provider.drain()
	b.runs++
	if err := b.submit(ctx, bigUser, bigCalls); err != nil {
		return err
	}
	if err := b.until(ctx, func(m client.Model) bool { return m.Waiting == bigCalls }); err != nil {
		return err
	}
	for i := range smallUsers {
		if err := b.submit(ctx, "small"+strconv.Itoa(i), smallCalls); err != nil {
			return err
		}
	}
	return b.until(ctx, func(m client.Model) bool { return m.Waiting == allCalls })
}

func (b *slotBench) resume(ctx context.Context) error {
	_, err := b.client.PatchModel(ctx, slotModel, map[string]any{"paused": false})
	return err
}

// submit submits n tasks of a user of this run.
func (b *slotBench) submit(ctx context.Context, user string, n int) error {
	id := fmt.Sprintf("%s-%s-%d", user, b.tag, b.runs)
	if _, err := b.client.AddCredits(ctx, id, 1_000*berth.Credit, "bench", "bench"); err != nil {
		return err
	}
	token, err := identity.Issue(benchSecret, identity.Grant{UserID: id, Scopes: []string{identity.ScopeUser}, TTL: time.Hour})
	if err != nil {
		return err
	}
	c := client.New(b.url, token)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			sub := streamTask()
			sub.Variables["text"] = "I am " + user + "."
			_, err := c.Submit(ctx, sub, strconv.Itoa(i))
			return err
		})
	}
	return g.Wait()
}

// until returns when the model's state satisfies is.
func (b *slotBench) until(ctx context.Context, is func(client.Model) bool) error {
	return pause.Until(ctx, settled, 50*time.Millisecond, func(ctx context.Context) error {
		models, err := b.client.Models(ctx)
		if err != nil {
			return err
		}
		for _, m := range models {
			if m.Name == slotModel && !is(m) {
				return fmt.Errorf("%d slots in use, %d waiting calls", m.InUse, m.Waiting)
			}
		}
		return nil
	})
}

// killed kills the only worker that has calls while it holds all slots, and measures when all slots are in use again.
func (b *slotBench) killed(ctx context.Context, r *Run, lost child) error {
	b.provider.length.Store(int64(time.Minute))
	b.provider.drain()
	b.runs++
	if err := b.submit(ctx, bigUser, slotCap); err != nil {
		return err
	}
	if err := b.until(ctx, func(m client.Model) bool { return m.InUse == slotCap && b.provider.running.Load() == slotCap }); err != nil {
		return err
	}
	other, err := b.startWorker(ctx)
	if err != nil {
		return err
	}
	defer other.kill()
	// Temporal distributes them over both workers.
	const waiting = 60
	if err := b.submit(ctx, "waiting", waiting); err != nil {
		return err
	}
	if err := b.until(ctx, func(m client.Model) bool { return m.Waiting == waiting }); err != nil {
		return err
	}
	b.provider.drain()
	at := time.Now()
	lost.kill()
	var last time.Time
	for range slotCap {
		select {
		case last = <-b.provider.begins:
		case <-time.After(settled):
			return errors.New("the slots of the killed worker were not used again")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.add(Figure{Name: "kill -9 of a worker that holds all slots: all in use by another one", Unit: "ms", Value: milliseconds(last.Sub(at))}.within(maximum(6000)))
	return nil
}

// slotResult is the result of runs.
type slotResult struct {
	over       int
	busy, wall time.Duration // busy: the time of all calls; wall: from the first begin to the last end
	handOver   latencies
	small, big latencies // positions, not times
}

func (r *slotResult) add(o slotResult) {
	r.over, r.busy, r.wall = r.over+o.over, r.busy+o.busy, r.wall+o.wall
	r.handOver = append(r.handOver, o.handOver...)
	r.small, r.big = append(r.small, o.small...), append(r.big, o.big...)
}

// use returns which part of the cap was in use, in percent.
func (r slotResult) use() float64 { return 100 * r.busy.Seconds() / (slotCap * r.wall.Seconds()) }

// addTo adds the figures of calls of the given length, beside the ideal schedule and the baseline.
func (r slotResult) addTo(to *Run, name string, length time.Duration, bare slotResult) {
	const ideal = "ideal schedule"
	use := 98.0
	if length > 100*time.Millisecond {
		use = 99
	}
	small, big := idealPositions()
	to.add(Figure{Name: name + ": calls beyond the cap at the provider", Value: float64(r.over)}.within(maximum(0)))
	to.add(Figure{Name: name + ": use of the cap", Unit: "%", Value: r.use()}.beside(bareName, bare.use()).within(minimum(use)))
	to.quantiles(name+": hand-over at the provider", r.handOver, bareName, bare.handOver, maximum(1), maximum(3))
	to.add(Figure{Name: name + ": mean position of small users", Value: mean(r.small)}.beside(ideal, small).within(maxRatio(1.1)))
	to.add(Figure{Name: name + ": mean position of the big user", Value: mean(r.big)}.beside(ideal, big).within(minRatio(0.9)))
}

func mean(positions latencies) float64 {
	var sum float64
	for _, p := range positions {
		sum += float64(p)
	}
	return sum / float64(max(1, len(positions)))
}

// measureSlots evaluates the calls of one run. All of them waited before the first began, so that call n + cap begins in the slot
// that the n-th end freed.
func measureSlots(calls []call) (r slotResult) {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Or(a.end.Compare(b.end), a.begin.Compare(b.begin)) })
	var begins []time.Time
	for i, c := range calls {
		if c.over {
			r.over++
		}
		r.busy += c.end.Sub(c.begin)
		begins = append(begins, c.begin)
		if c.user == bigUser {
			r.big = append(r.big, time.Duration(i+1))
		} else {
			r.small = append(r.small, time.Duration(i+1))
		}
	}
	slices.SortFunc(begins, time.Time.Compare)
	for i := slotCap; i < len(begins); i++ {
		r.handOver = append(r.handOver, begins[i].Sub(calls[i-slotCap].end))
	}
	r.wall = calls[len(calls)-1].end.Sub(begins[0])
	return r
}

// idealPositions returns the mean positions if the users alternate and nothing takes time but the calls.
func idealPositions() (small, big float64) {
	left := [1 + smallUsers]int{bigCalls}
	for i := range smallUsers {
		left[1+i] = smallCalls
	}
	for position := 1; position <= allCalls; {
		for user := range left {
			if left[user] == 0 {
				continue
			}
			left[user]--
			if user == 0 {
				big += float64(position) / bigCalls
			} else {
				small += float64(position) / (smallUsers * smallCalls)
			}
			position++
		}
	}
	return small, big
}
