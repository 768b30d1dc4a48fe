package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"berth"
	"berth/client"
	"berth/internal/pause"
)

// work is one kind of work whose cost is measured: n units, at most limit at the same time.
type work struct {
	name     string
	n, limit int
	one      func(ctx context.Context, i int) error
}

// The kinds of work.
const (
	workNone       = "one second without work"
	workTask       = "task with one model call of one token"
	workLong       = "task with one model call of 500 tokens"
	workChain      = "chain of three model calls"
	workDirect     = "direct call of OpenAI's protocol, of one token"
	workDurable    = "durable call of OpenAI's protocol, of one token"
	workTurn       = "turn of six jobs"
	workExecution  = "execution"
	workConference = "conference opened and ended"
	workHeartbeat  = "heartbeat of a node"
	workPoll       = "poll of a node's task queue without work"
)

// The processes of sizing.md. Temporal is one of Options.Processes.
const (
	processAPI      = "the API"
	processWorker   = "the worker"
	processRedis    = "Redis"
	processTemporal = "Temporal"
)

func processNames() []string {
	return []string{processAPI, processWorker, processRedis, processTemporal}
}

// works returns the kinds of work of the tables in sizing.md.
func works() []string {
	return []string{workTask, workLong, workChain, workDirect, workDurable, workTurn, workExecution, workConference, workHeartbeat, workPoll}
}

const (
	// executor is the executor of measured executions.
	executor = "bench"
	// longAnswer is the number of tokens of workLong.
	longAnswer = 500
	// idleFor is how long the processes are measured without work.
	idleFor = 5 * time.Second
)

// cost measures the processor time that each process uses for each kind of work.
func cost(ctx context.Context, r *Run) error {
	if err := r.longAnswers(ctx); err != nil {
		return err
	}
	return r.shortWork(ctx)
}

// longAnswers measures tasks with many tokens.
func (r *Run) longAnswers(ctx context.Context) (err error) {
	h, err := r.open(ctx, provider{tokens: longAnswer, pause: 2 * time.Millisecond})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	return r.measure(ctx, h, nil, work{workLong, r.times(100), parallel, h.task})
}

// shortWork measures all other kinds of work.
func (r *Run) shortWork(ctx context.Context) (err error) {
	h, err := r.open(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	engine := benchNode("bench-engine", 1, manySlots)
	engine.Kind, engine.Capabilities = berth.NodeEngine, []string{executor}
	for _, spec := range []berth.NodeSpec{benchNode("bench-node", 0, manySlots), engine} {
		stop, err := h.node(ctx, spec)
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := h.session(ctx); err != nil {
		return err
	}
	numbers := h.numbers(r.times(100))
	u, err := h.unit(ctx, "bench-unit-1", len(numbers))
	if err != nil {
		return err
	}
	defer u.kill()
	chain, err := h.chains(ctx)
	if err != nil {
		return err
	}
	direct, err := h.way(ctx, berth.DurabilityDirect, slotModel)
	if err != nil {
		return err
	}
	durable, err := h.way(ctx, berth.DurabilityDurable, slotModel)
	if err != nil {
		return err
	}
	polls := r.times(500)
	poll, closePolls, err := r.poll(ctx, polls)
	if err != nil {
		return err
	}
	defer closePolls()
	idle, err := r.idle(ctx, h)
	if err != nil {
		return err
	}
	for _, w := range []work{
		{workTask, r.times(200), parallel, h.task},
		{workChain, r.times(100), parallel, chain},
		{workDirect, r.times(500), parallel, direct.one},
		{workDurable, r.times(200), parallel, durable.one},
		{workTurn, r.times(100), parallel, func(ctx context.Context, i int) error {
			dispatch := h.turn(ctx, "cost-"+strconv.Itoa(i))
			for job := range segments {
				if err := dispatch(job); err != nil {
					return err
				}
			}
			return nil
		}},
		{workExecution, r.times(200), parallel, h.execute},
		{workConference, len(numbers), creators, func(ctx context.Context, i int) error {
			if err := h.openConference(ctx, numbers[i]); err != nil {
				return err
			}
			_, err := h.client.EndConference(ctx, numbers[i])
			return err
		}},
		{workPoll, polls, polls, poll},
	} {
		if err := r.measure(ctx, h, idle, w); err != nil {
			return err
		}
	}
	// The last work, because these nodes do no jobs.
	nodes := make([]registeredNode, r.times(1000))
	for i := range nodes {
		if nodes[i], err = h.register(ctx, i); err != nil {
			return err
		}
	}
	return r.measure(ctx, h, idle, work{workHeartbeat, r.times(10_000), dispatchers, func(ctx context.Context, i int) error {
		return h.heartbeat(ctx, nodes[i%len(nodes)], i)
	}})
}

// one makes a call.
func (w *way) one(ctx context.Context, _ int) error { return w.call(ctx, func(string) {}) }

// task runs a task.
func (h *stack) task(ctx context.Context, _ int) error {
	return h.run(ctx, streamTask(), func(berth.Event) {})
}

// measure adds the throughput of the work and the processor time of each process per unit of work, beyond what it uses without
// work in a second.
func (r *Run) measure(ctx context.Context, h *stack, idle processorTimes, w work) error {
	r.step("%d x %s", w.n, w.name)
	before, err := r.processorTimes(ctx, h)
	if err != nil {
		return err
	}
	done, err := concurrently(ctx, w.n, w.limit, w.one)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	after, err := r.processorTimes(ctx, h)
	if err != nil {
		return err
	}
	if w.limit < w.n {
		r.add(Figure{Name: fmt.Sprintf("%s, %d concurrent", w.name, w.limit), Unit: "/s", Value: done.rate()})
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		used := after[name] - before[name] - time.Duration(done.wall.Seconds()*float64(idle[name]))
		r.add(Figure{Name: costName(w.name, name), Unit: "ms", Value: max(0, milliseconds(used)/float64(w.n))})
	}
	return nil
}

func costName(work, process string) string { return work + ": processor time of " + process }

// processorTimes is the processor time that each process has used.
type processorTimes map[string]time.Duration

// idle adds the processor time that each process uses in a second without work, and returns it.
func (r *Run) idle(ctx context.Context, h *stack) (processorTimes, error) {
	r.step("no work for %s", idleFor)
	before, err := r.processorTimes(ctx, h)
	if err != nil {
		return nil, err
	}
	if !pause.For(ctx, idleFor) {
		return nil, context.Cause(ctx)
	}
	after, err := r.processorTimes(ctx, h)
	if err != nil {
		return nil, err
	}
	idle := processorTimes{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		idle[name] = (after[name] - before[name]) / (idleFor / time.Second)
		r.add(Figure{Name: costName(workNone, name), Unit: "ms", Value: milliseconds(idle[name])})
	}
	return idle, nil
}

// processorTimes returns the processor time that each process has used so far.
func (r *Run) processorTimes(ctx context.Context, h *stack) (processorTimes, error) {
	pids := map[string]int{processAPI: h.api.cmd.Process.Pid, processWorker: h.worker.cmd.Process.Pid}
	maps.Copy(pids, r.Processes)
	times := processorTimes{}
	for name, pid := range pids {
		p, err := process.NewProcessWithContext(ctx, int32(pid)) //nolint:gosec // a process id
		if err != nil {
			return nil, fmt.Errorf("process %d (%s): %w", pid, name, err)
		}
		t, err := p.TimesWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("processor time of process %d (%s): %w", pid, name, err)
		}
		times[name] = seconds(t.User + t.System)
	}
	rdb := redisClient(r.Config)
	info, err := rdb.InfoMap(ctx, "cpu").Result()
	if err := errors.Join(err, rdb.Close()); err != nil {
		return nil, fmt.Errorf("processor time of Redis: %w", err)
	}
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		s, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return nil, fmt.Errorf("processor time of Redis: %w", err)
		}
		times[processRedis] += seconds(s)
	}
	return times, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// execute runs an execution to its end.
func (h *stack) execute(ctx context.Context, _ int) error {
	id := berth.NewID("")
	if _, err := h.client.Execute(ctx, client.ExecutionSpec{ExecutionID: id, Executor: executor, Input: json.RawMessage(`{}`)}); err != nil {
		return err
	}
	return pause.Until(ctx, opened, 100*time.Millisecond, func(ctx context.Context) error {
		e, err := h.client.Execution(ctx, id)
		if err == nil && e.Status != berth.ExecutionCompleted {
			err = fmt.Errorf("execution %s is %s: %s", id, e.Status, e.Message)
		}
		return err
	})
}

// poll returns a function that polls one of n task queues of nodes for which there is no work. Each has been polled before.
func (r *Run) poll(ctx context.Context, n int) (one func(ctx context.Context, i int) error, stop func(), err error) {
	const wait = 3 * time.Second // Temporal returns an empty poll shortly before
	c, err := dial(ctx, r.Config)
	if err != nil {
		return nil, nil, err
	}
	tag := berth.NewID("")
	one = func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := c.WorkflowService().PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
			Namespace: r.Config.Temporal.Namespace,
			TaskQueue: &taskqueue.TaskQueue{Name: fmt.Sprintf("bench.%s.%d", tag, i), Kind: enums.TASK_QUEUE_KIND_NORMAL},
		})
		if ctx.Err() != nil {
			return nil // no response in time is also an empty poll
		}
		return err
	}
	if _, err := concurrently(ctx, n, n, one); err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("poll: %w", err)
	}
	return one, c.Close, nil
}
