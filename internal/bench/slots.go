package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/internal/client"
	"berth/internal/config"
	"berth/internal/freeport"
	"berth/internal/identity"
	"berth/internal/pause"
	"berth/internal/process"
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

// Slots measures how the calls of a model share its slots, with the real API and worker processes: the calls at the provider
// that exceed the cap, the use of the cap, the time from the end of one call to the beginning of the next, and the mean
// positions in which the calls of one big and of nine small users finish. At the end it kills a worker that holds all slots.
func Slots(ctx context.Context, w io.Writer, cfg config.Config, runs int) (err error) {
	p := &slotProvider{calls: make(chan call, 4*allCalls), begins: make(chan time.Time, 4*allCalls)}
	h, err := start(ctx, cfg, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	first, err := h.worker(ctx)
	if err != nil {
		return err
	}
	defer first.kill()
	p.length.Store(int64(time.Millisecond))
	if err := h.wait(ctx); err != nil {
		return err
	}
	b := &slotBench{stack: h, provider: p}
	if _, err := h.client.PatchModel(ctx, slotModel, map[string]any{"cap": slotCap}); err != nil {
		return err
	}
	small, big := idealPositions()
	_, _ = fmt.Fprintf(w, "model slots: cap %d, %d calls; one user submits %d, then %d users %d each; %d runs pooled\n"+
		"                      over  use of cap  hand-over at the provider  mean position small / big\n"+
		"  ideal                  0    100.0 %%  p50 0s  p99 0s             %5.1f / %5.1f\n"+
		"  goal                   0    >= 96 %% with 50 ms, >= 99 %% with 200 ms; p50 <= 1ms, p99 <= 3ms; <= 58 / >= 190\n",
		slotCap, allCalls, bigCalls, smallUsers, smallCalls, runs, small, big)
	var second workerProcess
	for workers := 1; workers <= 2; workers++ {
		if workers == 2 {
			if second, err = h.worker(ctx); err != nil {
				return err
			}
			defer second.kill()
		}
		for _, length := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond} {
			var total slotResult
			for range runs {
				calls, err := b.run(ctx, length)
				if err != nil {
					return err
				}
				total.add(measureSlots(calls))
			}
			_, _ = fmt.Fprintf(w, "  %d x worker, %5s  %s\n", workers, length, total)
		}
	}
	second.end()
	return b.killed(ctx, w, first)
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
	return calls, b.until(ctx, func(m client.Model) bool { return m.InUse+m.Waiting == 0 })
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
	id := fmt.Sprintf("%s-%d", user, b.runs)
	if _, err := b.client.AddCredits(ctx, id, 1_000_000, "bench", "bench"); err != nil {
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
			sub.Variables["resume"] = "I am " + user + "."
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

// killed kills the only worker that has calls while it holds all slots, and prints when all slots were in use again.
func (b *slotBench) killed(ctx context.Context, w io.Writer, lost workerProcess) error {
	b.provider.length.Store(int64(time.Minute))
	b.provider.drain()
	b.runs++
	if err := b.submit(ctx, bigUser, slotCap); err != nil {
		return err
	}
	if err := b.until(ctx, func(m client.Model) bool { return m.InUse == slotCap && b.provider.running.Load() == slotCap }); err != nil {
		return err
	}
	other, err := b.worker(ctx)
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
	_, _ = fmt.Fprintf(w, "  kill -9 of a worker that holds all slots: all in use by another one after %s   goal <= 6s\n\n", round(last.Sub(at)))
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

func (r slotResult) String() string {
	return fmt.Sprintf("%4d    %5.1f %%  p50 %s  p99 %s  %5.1f / %5.1f", r.over, 100*r.busy.Seconds()/(slotCap*r.wall.Seconds()),
		round(r.handOver.at(0.5)), round(r.handOver.at(0.99)), mean(r.small), mean(r.big))
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

// workerProcess is a process of `berth worker`.
type workerProcess struct{ cmd *exec.Cmd }

// kill sends SIGKILL. It has no effect on a process that has already ended.
func (p workerProcess) kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	_ = p.cmd.Wait()         // always an error after SIGKILL
}

// end lets the process stop.
func (p workerProcess) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
	_ = p.cmd.Wait()                          // the exit code has no meaning here
}

// worker starts a worker process and returns when it is ready.
func (h *stack) worker(ctx context.Context) (p workerProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, fmt.Errorf("find the path of this program: %w", err)
	}
	ports, err := freeport.Find(1)
	if err != nil {
		return p, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	p.cmd = exec.CommandContext(ctx, self, "worker", "--log-level", "error") //nolint:gosec // this program itself
	p.cmd.Env = append(append(p.cmd.Environ(), h.cfg.Temporal.Environ()...),
		"BERTH_REDIS_ADDR="+h.cfg.Redis.Addr, "BERTH_DATABASE="+h.cfg.Database, "BERTH_LOCAL_MODEL_URL="+h.cfg.Model.LocalURL,
		"BERTH_USER_CONCURRENCY=0", "BERTH_METRICS_ADDR="+addr, "DEEPSEEK_API_KEY=", "ZHIPUAI_API_KEY=")
	p.cmd.Stderr, p.cmd.SysProcAttr = os.Stderr, process.EndWithParent(&syscall.SysProcAttr{})
	if err := p.cmd.Start(); err != nil {
		return p, fmt.Errorf("start worker: %w", err)
	}
	err = pause.Until(ctx, 30*time.Second, 50*time.Millisecond, func(ctx context.Context) error { return ready(ctx, addr) })
	if err != nil {
		p.kill()
		return p, fmt.Errorf("worker not ready: %w", err)
	}
	return p, nil
}

func ready(ctx context.Context, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("the worker's /readyz responds %s", res.Status))
	}
	return nil
}
