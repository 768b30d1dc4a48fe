package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/internal/pause"
)

// modelName is the model that all programs call.
const modelName = "large"

// The phases of a run. Topics are "phase/program".
const (
	// phaseCalm: the programs of one team alone.
	phaseCalm = "calm"
	// phaseStorm: all programs of both teams, one of which floods the model, and the faults.
	phaseStorm = "storm"
	// phaseBudget: calls of one key whose budget has room for budgetRoom of them, which begin at one time.
	phaseBudget = "budget"
)

const (
	budgetCalls = 8
	budgetRoom  = 3
)

// The teams of the programs.
const (
	support  = "support"  // chat, agent, summary
	research = "research" // batch, notes
)

func teamOf(p program) string {
	switch p.name {
	case "chat", "agent", "summary":
		if !strings.HasPrefix(p.topic, phaseBudget) {
			return support
		}
	}
	return research
}

// size is how much is done.
type size struct {
	flood, atOnce, calls, calmCalls, loseEvery int
}

var (
	full  = size{flood: 160, atOnce: 40, calls: 16, calmCalls: 8, loseEvery: 16}
	quick = size{flood: 60, atOnce: 30, calls: 8, calmCalls: 4, loseEvery: 12}
)

// accounts of the model. The order has no meaning.
var accounts = []account{
	{name: "acme", cap: 3},
	{name: "zeta", cap: 3},
	{name: "nova", cap: 3, pauseAfter: 15, retryAfter: 3 * time.Second},
	{name: "void", cap: 3, empty: true},
}

// programs returns the programs of a phase.
func (s size) programs(phase string) (all []program) {
	switch phase {
	case phaseCalm:
		all = []program{{name: "chat", calls: s.calmCalls}, {name: "agent", calls: s.calmCalls}, {name: "summary", calls: s.calmCalls}}
	case phaseStorm:
		all = []program{
			{name: "batch", calls: s.flood, atOnce: s.atOnce},
			{name: "notes", calls: s.calls},
			{name: "chat", calls: s.calls},
			{name: "agent", calls: s.calls},
			{name: "summary", calls: s.calls},
		}
	case phaseBudget:
		for i := range budgetCalls {
			all = append(all, program{name: []string{"chat", "notes", "summary", "batch"}[i%4], calls: 1, topic: fmt.Sprintf("%s/%d", phase, i+1)})
		}
	}
	for i := range all {
		all[i].atOnce = max(all[i].atOnce, 1)
		if all[i].topic == "" {
			all[i].topic = phase + "/" + all[i].name
		}
	}
	return all
}

// wanted returns the number of calls that the programs of the calm and the storm make.
func (s size) wanted() (calls int) {
	for _, phase := range []string{phaseCalm, phaseStorm} {
		for _, p := range s.programs(phase) {
			calls += p.calls
		}
	}
	return calls
}

// run is what was observed in a run with one gateway.
type run struct {
	size     size
	durable  bool // the gateway makes durable calls
	provider *provider
	front    *front
	// complete is the number of answers that the programs counted.
	complete int
	// killed is the process that was killed, between killedAt and deadAt.
	killed           string
	killedAt, deadAt time.Time
	// workerKilledAt and workerDeadAt are those of the worker.
	workerKilledAt, workerDeadAt time.Time
	// floodEnded is when the flood had all its answers.
	floodEnded time.Time
	// charged is what the gateway has recorded, and returned whether that was compared after the end of all calls.
	charged charged
	settled bool
}

// bench runs the programs.
type bench struct {
	processes     *processes
	bin, examples string
	size          size
}

// berth runs the programs with berth, which runs until stop is called.
func (b bench) berth(ctx context.Context, r *run, durability string) (g *berthGateway, stop func(), err error) {
	addr, stop, err := r.serveProvider()
	if err != nil {
		return nil, stop, err
	}
	fmt.Println("berth: starting Redis, Temporal, two API processes and two workers")
	if g, err = startBerth(ctx, b.processes, b.bin, accounts, addr); err != nil {
		return nil, stop, err
	}
	first, err := g.startAll(ctx)
	if err != nil {
		return nil, stop, err
	}
	var worker *running // the second one
	for i := range 2 {
		if worker, err = g.worker(i); err == nil {
			err = worker.await(ctx, logged(worker, "workers started"))
		}
		if err != nil {
			return nil, stop, err
		}
	}
	var all []program
	for _, phase := range []string{phaseCalm, phaseStorm, phaseBudget} {
		all = append(all, b.size.programs(phase)...)
	}
	if err := g.setUp(ctx, all, durability); err != nil {
		return nil, stop, err
	}
	return g, stop, b.runAll(ctx, &g.gateway, r, first, worker)
}

// portkey runs the programs with portkey's gateway.
func (b bench) portkey(ctx context.Context, r *run) error {
	addr, stop, err := r.serveProvider()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Println("portkey: starting two processes")
	g, err := startPortkey(b.processes, b.examples, accounts, addr)
	if err != nil {
		return err
	}
	first, err := g.startAll(ctx)
	if err != nil {
		return err
	}
	return b.runAll(ctx, g, r, first, nil)
}

func logged(r *running, text string) func(context.Context) error {
	return func(context.Context) error {
		if !strings.Contains(r.output(), text) {
			return errors.New("its log does not have: " + text)
		}
		return nil
	}
}

func (r *run) serveProvider() (addr string, stop func(), err error) {
	r.provider = newProvider(accounts)
	mux := http.NewServeMux()
	mux.Handle("POST /{account}/v1/chat/completions", r.provider)
	return serve(mux)
}

// startAll starts both processes and returns the first.
func (g *gateway) startAll(ctx context.Context) (first *running, err error) {
	if first, err = g.start(ctx, 0); err != nil {
		return nil, err
	}
	_, err = g.start(ctx, 1)
	return first, err
}

// runAll runs all phases with a gateway.
func (b bench) runAll(ctx context.Context, g *gateway, r *run, first, worker *running) error {
	r.front = newFront(g.addrs, g.header, b.size.loseEvery, budgetCalls)
	addr, stop, err := serve(r.front)
	if err != nil {
		return err
	}
	defer stop()
	url := "http://" + addr + g.path
	fmt.Printf("%s: three programs of one team\n", g.name)
	r.complete += b.phase(ctx, g, r, url, phaseCalm)
	fmt.Printf("%s: five programs of two teams, a flood and the faults\n", g.name)
	var faults sync.WaitGroup
	var failed error
	faults.Go(func() { failed = b.faults(ctx, g, r, first, worker) })
	r.complete += b.phase(ctx, g, r, url, phaseStorm)
	faults.Wait()
	if failed != nil {
		return failed
	}
	fmt.Printf("%s: %d programs with a budget for %d calls\n", g.name, budgetCalls, budgetRoom)
	free := r.provider.hold(phaseBudget)
	defer free()
	var held sync.WaitGroup
	held.Go(func() { // the answers wait until all calls were admitted or refused
		r.await(ctx, 20*time.Second, func() bool { return r.budgetDecided() >= budgetCalls })
		free()
	})
	b.phase(ctx, g, r, url, phaseBudget)
	held.Wait()
	return r.log(filepath.Join(b.processes.dir, g.name+"-provider.log"))
}

// log writes what the provider got into a file, by which a line that is false is explained.
func (r *run) log(file string) error {
	var out strings.Builder
	fmt.Fprintln(&out, "killed:", r.killedAt.Format(time.StampMilli), "worker killed:", r.workerKilledAt.Format(time.StampMilli))
	for _, a := range r.provider.all() {
		fmt.Fprintln(&out, a.at.Format(time.StampMilli), a.ended.Format(time.StampMilli), a.account, a.call, a.outcome, a.input, a.output)
	}
	return os.WriteFile(file, []byte(out.String()), 0o600)
}

// await waits for a condition, for a time at most, because a gateway may not reach it.
func (r *run) await(ctx context.Context, within time.Duration, ok func() bool) {
	_ = pause.Until(ctx, within, 20*time.Millisecond, func(context.Context) error {
		if ok() {
			return nil
		}
		return errors.New("not yet")
	})
}

// budgetDecided returns how many calls of the phase budget were admitted or refused.
func (r *run) budgetDecided() int {
	decided := map[call]bool{}
	for _, a := range r.provider.all() {
		if a.call.phase() == phaseBudget && a.outcome == answered {
			decided[a.call] = true
		}
	}
	r.front.count(func(x *exchange) bool {
		if x.call.phase() == phaseBudget && !x.ended.IsZero() {
			decided[x.call] = true
		}
		return false
	})
	return len(decided)
}

// phaseTimeout bounds a phase: a gateway may make clients wait for long.
const phaseTimeout = 75 * time.Second

// phase runs the programs of a phase concurrently and returns how many complete answers they counted.
func (b bench) phase(ctx context.Context, g *gateway, r *run, url, phase string) (complete int) {
	ctx, cancel := context.WithTimeout(ctx, phaseTimeout)
	defer cancel()
	var programs sync.WaitGroup
	counts := make(chan int, budgetCalls)
	for _, p := range b.size.programs(phase) {
		p.key = g.key
		for _, name := range []string{phase, phase + "/" + p.name} {
			if key, ok := g.keys[name]; ok {
				p.key = key
			}
		}
		programs.Go(func() {
			n, err := b.processes.run(ctx, b.examples, filepath.Join(b.bin, "berth-demo-batch"), url, g.name+"/"+p.topic, p)
			if err != nil {
				fmt.Printf("%s: %v\n", g.name, err)
			}
			if p.name == "batch" && phase == phaseStorm {
				r.floodEnded = time.Now()
			}
			counts <- n
		})
	}
	programs.Wait()
	close(counts)
	for n := range counts {
		complete += n
	}
	return complete
}

// had returns the calls that the killed process had.
func (r *run) had() map[call]bool { return r.front.at(r.killed, r.killedAt, r.deadAt) }

// settling is how long before it is killed a process may not have recorded the end of a call.
const settling = time.Second

// unsettled reports whether an attempt may have been made by what was killed: of direct calls the process that had them, of durable ones the worker.
func (r *run) unsettled(a attempt, had map[call]bool) bool {
	if !r.durable {
		return a.bought() && had[a.call] && a.at.Before(r.deadAt)
	}
	return a.bought() && a.at.Before(r.workerDeadAt) && a.ended.After(r.workerKilledAt.Add(-settling))
}

// faults kills and restarts processes as the storm proceeds.
func (b bench) faults(ctx context.Context, g *gateway, r *run, first, worker *running) error {
	calls := 0
	for _, p := range b.size.programs(phaseStorm) {
		calls += p.calls
	}
	served := func(percent int) {
		r.await(ctx, phaseTimeout/2, func() bool { return r.front.served(phaseStorm) >= calls*percent/100 })
	}
	served(25)
	r.killed, r.killedAt = g.addrs[0], time.Now()
	first.kill()
	r.deadAt = time.Now()
	fmt.Printf("%s: killed a process that had %d calls\n", g.name, len(r.had()))
	served(40)
	if worker != nil {
		r.workerKilledAt = time.Now()
		worker.kill()
		r.workerDeadAt = time.Now()
		fmt.Printf("%s: killed a worker\n", g.name)
	}
	served(60)
	if _, err := g.start(ctx, 0); err != nil {
		return err
	}
	if worker != nil {
		if _, err := g.worker(1); err != nil {
			return err
		}
	}
	fmt.Printf("%s: started again what was killed\n", g.name)
	return nil
}

// charges reads what berth has recorded, with wait after it has returned what was reserved for the calls of the killed process.
func (b bench) charges(ctx context.Context, g *berthGateway, r *run, wait bool) (err error) {
	if r.settled = wait; wait {
		fmt.Println("berth: waiting for the reconciliation of the calls that the killed process had")
		r.charged, err = g.settled(ctx)
	} else {
		r.charged, err = g.charged(ctx)
	}
	return err
}
