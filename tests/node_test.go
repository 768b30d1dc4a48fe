package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"berth"
	"berth/client"
)

// fleetStack is Temporal, Redis and the API without berth's workers. The test's own workflows start the jobs of nodes, with
// the timeouts of turns.
type fleetStack struct {
	*stack
	probes temporalclient.Client
	fleet  *client.Client
}

func newFleetStack(t *testing.T, opts ...option) *fleetStack {
	t.Helper()
	s := &stack{tb: t, dir: t.TempDir(), httpAddr: freeAddr(t)}
	t.Cleanup(s.killAll)
	temporalAddr, redisAddr := freeAddr(t), freeAddr(t)
	s.infraSettings = []string{
		"BERTH_DATA_DIR=" + filepath.Join(s.dir, "data"), "BERTH_DEV_ONLY=redis,temporal",
		"BERTH_TEMPORAL_ADDR=" + temporalAddr, "BERTH_REDIS_ADDR=" + redisAddr,
	}
	s.settings = []string{
		"BERTH_TEMPORAL_ADDR=" + temporalAddr, "BERTH_REDIS_ADDR=" + redisAddr, "BERTH_HTTP_ADDR=" + s.httpAddr,
		"BERTH_DATABASE=sqlite:" + filepath.Join(s.dir, "berth.db"), "BERTH_AUTH_SECRET=" + secret,
	}
	for _, o := range opts {
		o(s)
	}
	s.startInfra()
	s.startAPI()
	f := &fleetStack{stack: s, probes: s.temporal(), fleet: s.user("op", "operator", "node")}
	w := worker.New(f.probes, "probes", worker.Options{})
	w.RegisterWorkflow(translateOn)
	w.RegisterWorkflow(executeOn)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return f
}

func onNode(ctx workflow.Context, queue string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: queue, ScheduleToStartTimeout: maxWait, StartToCloseTimeout: maxWait,
		HeartbeatTimeout: 10 * time.Second, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

func translateOn(ctx workflow.Context, queue string, in berth.JobInput) (out berth.JobOutput, err error) {
	err = workflow.ExecuteActivity(onNode(ctx, queue), berth.ActivityTranslate, in).Get(ctx, &out)
	return out, err
}

func executeOn(ctx workflow.Context, queue string, in berth.ExecuteInput) (out berth.ExecuteOutput, err error) {
	err = workflow.ExecuteActivity(onNode(ctx, queue), berth.ActivityExecute, in).Get(ctx, &out)
	return out, err
}

// send starts a job on the queue.
func (f *fleetStack) send(t *testing.T, queue, text string) temporalclient.WorkflowRun {
	t.Helper()
	run, err := f.probes.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "probes"}, translateOn, queue,
		berth.JobInput{Job: berth.Job{SessionID: "s", TurnID: "t", JobID: "t-0", Dispatch: 1, SrcLang: "en", TgtLang: "es"}, Text: text})
	require.NoError(t, err)
	return run
}

func translated(t *testing.T, run temporalclient.WorkflowRun) string {
	t.Helper()
	var out berth.JobOutput
	require.NoError(t, run.Get(t.Context(), &out))
	return out.Text
}

// startNode runs `berth node run` for the pair en-es, or without a driver a simulated node.
func (f *fleetStack) startNode(id string, args ...string) *process {
	f.tb.Helper()
	return f.startNodeOf("translate", id, append([]string{"--capabilities", "translate:en-es"}, args...)...)
}

func (f *fleetStack) startNodeOf(kind, id string, args ...string) *process {
	f.tb.Helper()
	program := "berth"
	if !slices.Contains(args, "--driver") {
		program = "berth-sim"
	}
	return f.start(program, append([]string{"node", "--id", id, "--kind", kind}, args...), f.nodeSettings())
}

func (f *fleetStack) nodeSettings() []string {
	return append([]string{"BERTH_URL=http://" + f.httpAddr, "BERTH_TOKEN=" + f.token("nodes", "node"), "BERTH_LOG_LEVEL=debug"}, f.settings...)
}

// registered waits until the node is registered and has sent a heartbeat, and returns it.
func (f *fleetStack) registered(t *testing.T, id string) (n berth.Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		n, err = f.fleet.Node(t.Context(), id)
		return err == nil && n.State == berth.NodeReady && n.Load.MemoryUsage > 0
	}, maxWait, 20*time.Millisecond, "node %s", id)
	return n
}

func (f *fleetStack) queueOf(t *testing.T, id string) string {
	t.Helper()
	return berth.NodeTaskQueue(id, f.registered(t, id).Generation)
}

// gate is a file that gated commands wait for.
type gate string

func (f *fleetStack) gate(name string) gate { return gate(filepath.Join(f.dir, "gate-"+name)) }

// command returns a shell command that writes its process id and that of a child to a file, waits for the gate and returns
// its input.
func (g gate) command() string {
	return fmt.Sprintf(`sleep 600 & echo $! $$ >>'%[1]s.pids'; while [ ! -e '%[1]s' ]; do sleep 0.05; done; kill $!; tr a-z A-Z`, string(g))
}

func (g gate) open(t *testing.T) { require.NoError(t, os.WriteFile(string(g), nil, 0o600)) }

// running waits until the given number of commands run, and returns their process ids.
func (g gate) running(t *testing.T, commands int) (pids []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(string(g) + ".pids")
		fields := strings.Fields(string(b))
		pids = pids[:0]
		for _, f := range fields {
			pid, err := strconv.Atoi(f)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		return err == nil && len(pids) == 2*commands
	}, maxWait, 10*time.Millisecond)
	return pids
}

func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			_, state, _ := strings.Cut(string(b), ") ")
			return err != nil || strings.HasPrefix(state, "Z")
		}, maxWait, 10*time.Millisecond, "process %d", pid)
	}
}

func TestNode_DriversAndShutdowns_JobsEndAsDocumented(t *testing.T) {
	t.Parallel()
	f := newFleetStack(t)
	gates := map[string]gate{}
	for _, id := range []string{"moved", "drained", "cut", "killed", "cancelled"} {
		gates[id] = f.gate(id)
	}
	f.startNode("apertium", "--driver", "exec", "--exec", "apertium -u eng-spa", "--zone", "z1")
	f.startNode("faulty", "--driver", "exec", "--exec", `read line; echo "cannot do $line" >&2; if [ "$line" = nonsense ]; then exit 65; fi; exit 1`)
	f.startNode("moved", "--driver", "exec", "--exec", gates["moved"].command(), "--slots", "1")
	drained := f.startNode("drained", "--driver", "exec", "--exec", gates["drained"].command())
	cut := f.startNode("cut", "--driver", "exec", "--exec", gates["cut"].command(), "--drain", "1500ms")
	killed := f.startNode("killed", "--driver", "exec", "--exec", `exec `+`sh -c 'echo $$ $$ >>`+string(gates["killed"])+`.pids; exec sleep 600'`)
	f.startNode("cancelled", "--driver", "exec", "--exec", gates["cancelled"].command())
	earlier := f.startNode("contested")
	f.startNodeOf("engine", "engine", "--capabilities", "report")
	f.registered(t, "contested")
	f.startNode("contested")

	t.Run("translates with a command", func(t *testing.T) {
		t.Parallel()
		n := f.registered(t, "apertium")
		require.Equal(t, "z1", n.Zone)
		require.Equal(t, 4, n.MaxConcurrentJobs)
		require.Contains(t, n.Pools, "translate:en-es")
		queue := berth.NodeTaskQueue(n.ID, n.Generation)
		var runs []temporalclient.WorkflowRun
		for range 6 {
			runs = append(runs, f.send(t, queue, "The ship is in the harbour.\nThank you, Zoë ☕."))
		}
		for _, run := range runs {
			text := translated(t, run)
			require.Contains(t, text, "puerto")
			require.Contains(t, text, "Zoë ☕")
			require.Len(t, strings.Split(text, "\n"), 2)
		}
	})
	t.Run("reports errors", func(t *testing.T) {
		t.Parallel()
		queue := f.queueOf(t, "faulty")
		for text, want := range map[string]struct {
			kind  string
			final bool
		}{"this": {"node_failed", false}, "nonsense": {"invalid", true}} {
			var failed *temporal.ApplicationError
			require.ErrorAs(t, f.send(t, queue, text).Get(t.Context(), nil), &failed)
			require.Equal(t, want.kind, failed.Type())
			require.Equal(t, want.final, failed.NonRetryable())
			require.Equal(t, "cannot do "+text, failed.Message())
		}
	})
	t.Run("moves to its next generation and finishes what it has", func(t *testing.T) {
		t.Parallel()
		first := f.registered(t, "moved")
		begun := f.send(t, berth.NodeTaskQueue("moved", first.Generation), "one")
		gates["moved"].running(t, 1)
		require.NoError(t, f.fleet.WithdrawNode(t.Context(), "moved", 0))
		var second berth.Node
		require.Eventually(t, func() bool {
			second = f.registered(t, "moved")
			return second.Generation > first.Generation
		}, maxWait, 20*time.Millisecond)
		require.Equal(t, first.Incarnation, second.Incarnation)
		next := f.send(t, berth.NodeTaskQueue("moved", second.Generation), "two")
		gates["moved"].open(t)
		require.Equal(t, "ONE", translated(t, begun))
		require.Equal(t, "TWO", translated(t, next))
	})
	t.Run("withdraws and drains on SIGTERM", func(t *testing.T) {
		t.Parallel()
		queue := f.queueOf(t, "drained")
		run := f.send(t, queue, "slow")
		gates["drained"].running(t, 1)
		require.NoError(t, drained.cmd.Process.Signal(syscall.SIGTERM))
		require.Eventually(t, func() bool {
			n, err := f.fleet.Node(t.Context(), "drained")
			return notFound(err) || (err == nil && n.State == berth.NodeDead)
		}, maxWait, 10*time.Millisecond)
		late := f.send(t, queue, "late") // dispatched before any process knew
		gates["drained"].open(t)
		require.Equal(t, "SLOW", translated(t, run))
		require.Equal(t, "LATE", translated(t, late))
		<-drained.done
		require.Equal(t, 0, drained.cmd.ProcessState.ExitCode(), drained.tail())
	})
	t.Run("releases jobs that outlast the drain", func(t *testing.T) {
		t.Parallel()
		run := f.send(t, f.queueOf(t, "cut"), "endless")
		pids := gates["cut"].running(t, 1)
		require.NoError(t, cut.cmd.Process.Signal(syscall.SIGTERM))
		var failed *temporal.ApplicationError
		require.ErrorAs(t, run.Get(t.Context(), nil), &failed)
		require.Equal(t, "node_failed", failed.Type())
		require.False(t, failed.NonRetryable())
		gone(t, pids)
		<-cut.done
		require.Equal(t, 0, cut.cmd.ProcessState.ExitCode(), cut.tail())
	})
	t.Run("is found dead when it is killed, and leaves no command", func(t *testing.T) {
		t.Parallel()
		run := f.send(t, f.queueOf(t, "killed"), "lost")
		pids := gates["killed"].running(t, 1)
		killed.kill()
		at := time.Now()
		var late *temporal.TimeoutError
		require.ErrorAs(t, run.Get(t.Context(), nil), &late)
		require.Equal(t, enums.TIMEOUT_TYPE_HEARTBEAT, late.TimeoutType())
		t.Logf("found dead after %s", time.Since(at))
		gone(t, pids)
	})
	t.Run("kills the command of a cancelled job", func(t *testing.T) {
		t.Parallel()
		run := f.send(t, f.queueOf(t, "cancelled"), "unwanted")
		pids := gates["cancelled"].running(t, 1)
		require.NoError(t, f.probes.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
		var cancelled *temporal.CanceledError
		require.ErrorAs(t, run.Get(t.Context(), nil), &cancelled)
		gone(t, pids)
	})
	t.Run("stops when another process has its id", func(t *testing.T) {
		t.Parallel()
		<-earlier.done
		require.Equal(t, 1, earlier.cmd.ProcessState.ExitCode())
		require.Contains(t, earlier.tail(), "another process has registered under this node id: node contested")
		require.Equal(t, "hola [sim]", translated(t, f.send(t, f.queueOf(t, "contested"), "hello")))
	})
	t.Run("runs executors", func(t *testing.T) {
		t.Parallel()
		run, err := f.probes.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "probes"}, executeOn, f.queueOf(t, "engine"),
			berth.ExecuteInput{ExecutionID: "e1", Executor: "report", Attempt: 1, Input: []byte(`{"month":5}`)})
		require.NoError(t, err)
		var out berth.ExecuteOutput
		require.NoError(t, run.Get(t.Context(), &out))
		require.JSONEq(t, `{"executor":"report","input":{"month":5},"node":"engine"}`, string(out.Output))
	})
}

func TestNode_APIUnavailable_ContinuesAndReregisters(t *testing.T) {
	t.Parallel()
	f := newFleetStack(t)
	f.api.kill()
	node := f.startNode("n1")
	require.Eventually(t, func() bool { return strings.Contains(string(node.output()), "call=register") }, maxWait, 10*time.Millisecond)
	f.startAPI()
	before := f.registered(t, "n1")
	queue := berth.NodeTaskQueue("n1", before.Generation)
	require.Equal(t, "hola [sim]", translated(t, f.send(t, queue, "hello")))

	f.api.kill()
	require.Eventually(t, func() bool { return strings.Contains(string(node.output()), "call=heartbeat") }, maxWait, 10*time.Millisecond)
	require.Equal(t, "hola [sim]", translated(t, f.send(t, queue, "hello")))
	f.startAPI()
	require.Eventually(t, func() bool {
		n, err := f.fleet.Node(t.Context(), "n1")
		return err == nil && n.HeartbeatAt.After(before.HeartbeatAt) && n.Generation == before.Generation
	}, maxWait, 20*time.Millisecond, "it continues with its generation")

	require.NoError(t, f.redis().FlushAll(t.Context()).Err())
	require.Eventually(t, func() bool {
		n, err := f.fleet.Node(t.Context(), "n1")
		return err == nil && n.State == berth.NodeReady && n.Generation > before.Generation
	}, maxWait, 20*time.Millisecond, "a wiped Redis knows it again, under a higher generation")
}

// A node that registers again finishes its jobs, also those that take longer than it would drain.
func TestNode_RegistersAgain_LongJobFinishes(t *testing.T) {
	t.Parallel()
	f := newFleetStack(t)
	began := filepath.Join(t.TempDir(), "began")
	f.startNode("n1", "--driver", "exec", "--exec", "touch "+began+"; sleep 9; echo hola", "--drain", "100ms")
	before := f.registered(t, "n1")
	job := f.send(t, berth.NodeTaskQueue("n1", before.Generation), "hello")
	f.eventually("the job to run", func() bool {
		_, err := os.Stat(began)
		return err == nil
	})
	require.NoError(t, f.redis().FlushAll(t.Context()).Err())
	f.eventually("the node to register again", func() bool {
		n, err := f.fleet.Node(t.Context(), "n1")
		return err == nil && n.Generation > before.Generation
	})
	require.Equal(t, "hola", translated(t, job))
}

func TestNode_InvalidSettings_AreNamed(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--exec: the exec driver needs a command":        {"--driver", "exec"},
		`--http-url: invalid http or https URL (hidden)`: {"--driver", "http", "--http-url", "nowhere"},
		"--model: required with --http-openai":           {"--driver", "http", "--http-url", "http://x", "--http-openai"},
		"a chat model cannot run executors":              {"--driver", "http", "--http-url", "http://x", "--http-openai", "--model", "m", "--kind", "engine"},
		"--slots must be 1 or more":                      {"--driver", "exec", "--exec", "cat", "--slots", "0"},
		"--drain must be above 0":                        {"--driver", "exec", "--exec", "cat", "--drain", "0s"},
		"capabilities":                                   {"--driver", "exec", "--exec", "cat", "--capabilities", "translate:en"},
		"nodeId":                                         {"--driver", "exec", "--exec", "cat", "--capabilities", "translate:en-es", "--id", "n 1"},
		"--capabilities: at least one is required":       {"--driver", "exec", "--exec", "cat"},
		`--api (BERTH_URL): invalid URL (hidden)`:        {"--driver", "exec", "--exec", "cat", "--capabilities", "translate:en-es", "--api", "not-a-url"},
		`--api (BERTH_URL): invalid URL localhost:8080`:  {"--driver", "exec", "--exec", "cat", "--capabilities", "translate:en-es", "--api", "localhost:8080"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		cmd := exec.CommandContext(ctx, filepath.Join("..", "bin", "berth"), append([]string{"node", "--token", "x", "--id", "n1"}, args...)...)
		out, err := cmd.CombinedOutput()
		cancel()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Contains(t, string(out), want)
	}
}

// TestNode_TypeScriptExample_KeepsTheContract installs, builds and runs the example, as its README says.
func TestNode_TypeScriptExample_KeepsTheContract(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Fatal("the example needs Node 20.3 or newer with npm")
	}
	dir := t.TempDir()
	example := filepath.Join("..", "examples", "node-typescript")
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "src"} {
		from := filepath.Join(example, name)
		info, err := os.Stat(from)
		require.NoError(t, err)
		if info.IsDir() {
			require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(from)))
			continue
		}
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	for _, args := range [][]string{{"ci", "--no-audit", "--no-fund"}, {"run", "build"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, "npm", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		cancel()
		require.NoError(t, err, "npm %v\n%s", args, out)
	}

	f := newFleetStack(t)
	node := f.run("node", []string{filepath.Join(dir, "dist", "main.js")}, append(f.nodeSettings(), "BERTH_NODE_ID=ts-1", "BERTH_NODE_SLOTS=2"))
	first := f.registered(t, "ts-1")
	require.Equal(t, 2, first.MaxConcurrentJobs)
	require.Equal(t, []string{"translate:en-es"}, first.Capabilities)
	queue := berth.NodeTaskQueue("ts-1", first.Generation)
	require.Equal(t, "hola mundo, el barco está en el puerto ☕", translated(t, f.send(t, queue, "Hello world, the ship is in the harbour ☕")))

	run, err := f.probes.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "probes"}, translateOn, queue,
		berth.JobInput{Job: berth.Job{SrcLang: "zh", TgtLang: "en"}, Text: "你好"})
	require.NoError(t, err)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, run.Get(t.Context(), nil), &failed)
	require.Equal(t, "node_failed", failed.Type())

	require.NoError(t, f.fleet.WithdrawNode(t.Context(), "ts-1", 0))
	var second berth.Node
	require.Eventually(t, func() bool {
		second = f.registered(t, "ts-1")
		return second.Generation > first.Generation
	}, maxWait, 20*time.Millisecond, "it registers again when requested")
	require.Equal(t, "hola", translated(t, f.send(t, berth.NodeTaskQueue("ts-1", second.Generation), "hello")))

	require.True(t, node.stop(maxWait), node.tail())
	require.Equal(t, 0, node.cmd.ProcessState.ExitCode(), node.tail())
	require.Contains(t, string(node.output()), "node stopped")
	n, err := f.fleet.Node(t.Context(), "ts-1")
	require.True(t, notFound(err) || n.State == berth.NodeDead, "it withdrew")

	t.Run("with TLS and encrypted payloads", func(t *testing.T) { // B7
		f := newFleetStack(t, withMutualTLS(t), withKeys(t, "k1:"+payloadKey("1")))
		f.run("node", []string{filepath.Join(dir, "dist", "main.js")}, append(f.nodeSettings(), "BERTH_NODE_ID=ts-2"))
		queue := f.queueOf(t, "ts-2")
		good := f.send(t, queue, "Hello world")
		require.Equal(t, "hola mundo", translated(t, good))
		bad, err := f.probes.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: "probes"}, translateOn, queue,
			berth.JobInput{Job: berth.Job{SrcLang: "zh", TgtLang: "en"}, Text: "你好"})
		require.NoError(t, err)
		require.ErrorContains(t, bad.Get(t.Context(), nil), "this node cannot translate zh to en")
		for _, run := range []temporalclient.WorkflowRun{good, bad} {
			h := f.history(t.Context(), f.probes, run.GetID(), run.GetRunID())
			b, err := protojson.Marshal(h)
			require.NoError(t, err)
			require.NotContains(t, string(b), "this node cannot")
			for _, p := range payloadsOf(t, h) {
				require.Equal(t, "binary/encrypted", string(p.GetMetadata()["encoding"]))
				require.Equal(t, run.GetID(), string(p.GetMetadata()["encryption-workflow-id"]))
			}
		}
	})
}

func notFound(err error) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Status == http.StatusNotFound
}
