package tests

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	temporalclient "go.temporal.io/sdk/client"

	"berth/client"
	"berth/internal/freeport"
	"berth/internal/identity"
	"berth/internal/ocr"
	"berth/internal/sim"
	"berth/internal/temporalconn"
	"berth/internal/testredis"
	"berth/lua"
	"berth/workflows"
)

const secret = "a-secret-of-tests-that-is-long-enough-for-hs256"

// stack is a complete berth with real processes: Temporal and Redis from bin/berth-dev, API and workers from bin/berth.
// The model server runs in the test's own process, so that tests can look at it and make it fail.
type stack struct {
	tb    testing.TB
	dir   string
	ready struct {
		TemporalAddr string `json:"temporalAddr"`
		RedisAddr    string `json:"redisAddr"`
	}
	httpAddr string
	model    *httptest.Server
	infra    *process
	api      *process
	worker   *process
	started  []*process
	// settings are set for API and workers; infraSettings for Temporal and Redis.
	settings, infraSettings []string
	// readyPath responds with 200 when the API has started; empty: /readyz.
	readyPath string
	// programs are run in place of those in bin.
	programs map[string]string
	// connection has what clients of Temporal need besides its address.
	connection temporalconn.Options
	// language is the one that the test's nodes translate to, and zone that of its media units and conferences; a zone is
	// only set where stacks are shared.
	language, zone string
}

// option changes a stack before it starts.
type option func(*stack)

// with sets environment variables of API and workers, as "NAME=value".
func with(settings ...string) option {
	return func(s *stack) { s.settings = append(s.settings, settings...) }
}

// withModel replaces the options of the simulated model.
func withModel(o sim.Options) option {
	return func(s *stack) {
		s.model.Config.Handler = modelHandler(o)
	}
}

func modelHandler(o sim.Options) http.Handler {
	o.Logger = slog.New(slog.DiscardHandler)
	if o.OCR == nil {
		o.OCR = readOnce
	}
	return sim.ModelServer(o)
}

// texts has what Tesseract read, by image: tests use the same few, each of which takes seconds to read.
var texts sync.Map

// readOnce reads an image with Tesseract, unless another test has.
func readOnce(ctx context.Context, image []byte) (string, error) {
	if text, ok := texts.Load(string(image)); ok {
		return text.(string), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	text, err := tesseract(ctx, image)
	if err == nil {
		texts.Store(string(image), text)
	}
	return text, err
}

var tesseract = ocr.Tesseract("tesseract", time.Minute, 2)

// newStack starts a stack for one test and stops it when the test ends.
func newStack(tb testing.TB, opts ...option) *stack {
	tb.Helper()
	s := prepareStack(tb, tb.TempDir(), opts...)
	tb.Cleanup(s.close)
	s.boot()
	return s
}

// prepareStack returns a stack with its settings and model server. Nothing else runs yet.
func prepareStack(tb testing.TB, dir string, opts ...option) *stack {
	tb.Helper()
	s := &stack{tb: tb, dir: dir, httpAddr: freeAddr(tb), language: "es"}
	s.model = httptest.NewServer(modelHandler(sim.Options{}))
	for _, o := range opts {
		o(s)
	}
	temporal, redisAddr := freeAddr(tb), freeAddr(tb)
	s.infraSettings = append(s.infraSettings,
		"BERTH_DATA_DIR="+filepath.Join(s.dir, "data"), "BERTH_DEV_ONLY=redis,temporal",
		"BERTH_TEMPORAL_ADDR="+temporal, "BERTH_REDIS_ADDR="+redisAddr, "BERTH_METRICS_ADDR=off")
	s.settings = append([]string{
		"BERTH_TEMPORAL_ADDR=" + temporal, "BERTH_REDIS_ADDR=" + redisAddr, "BERTH_HTTP_ADDR=" + s.httpAddr,
		"BERTH_DATABASE=sqlite:" + filepath.Join(s.dir, "berth.db"), "BERTH_AUTH_SECRET=" + secret,
		"BERTH_LOCAL_MODEL_URL=" + s.model.URL + "/v1", "BERTH_LOG_LEVEL=debug", "BERTH_METRICS_ADDR=off",
	}, s.settings...)
	return s
}

// boot starts Temporal, Redis, the API and a worker, and waits until they serve.
func (s *stack) boot() {
	s.tb.Helper()
	s.startInfra()
	s.startAPI()
	s.worker = s.startWorker()
}

// close replays all histories unless the test failed, and stops every process.
func (s *stack) close() {
	defer s.model.Close()
	defer s.killAll()
	if !s.tb.Failed() {
		s.replayAll()
	}
}

// killAll kills every process that was started, and logs the last output of each if the test failed.
func (s *stack) killAll() {
	for _, p := range s.started {
		p.kill()
	}
	if s.tb.Failed() {
		s.logTails(s.tb)
	}
}

// logTails logs the last output of every process that was started.
func (s *stack) logTails(tb testing.TB) {
	for _, p := range s.started {
		tb.Logf("--- %s\n%s", p.name, p.tail())
	}
}

func (s *stack) startInfra() {
	s.tb.Helper()
	file := filepath.Join(s.dir, "data", "ready.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.tb.Fatalf("remove ready.json: %v", err)
	}
	s.infra = s.start("berth-dev", nil, s.infraSettings)
	s.eventually("Temporal and Redis to be ready", func() bool {
		b, err := os.ReadFile(file) //nolint:gosec // the test's own directory
		return err == nil && json.Unmarshal(b, &s.ready) == nil
	})
}

// replaceInfra kills Temporal and Redis and starts them again after meanwhile. It reports whether leases outlast that: on a busy machine it may take too
// long for them, and berth ends the calls that have one.
func (s *stack) replaceInfra(meanwhile func()) (outlasted bool) {
	s.tb.Helper()
	began := time.Now()
	s.infra.kill()
	meanwhile()
	s.startInfra()
	return time.Since(began) < lua.ModelLease*3/5
}

func (s *stack) startAPI() {
	s.tb.Helper()
	s.api = s.start("berth", []string{"api"}, s.settings)
	s.eventually("the API to be ready", func() bool {
		res, err := http.Get("http://" + s.httpAddr + cmp.Or(s.readyPath, "/readyz")) //nolint:noctx,gosec // a test's own server
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		return res.StatusCode == http.StatusOK
	})
}

func (s *stack) startWorker(args ...string) *process {
	s.tb.Helper()
	p := s.start("berth", append([]string{"worker"}, args...), s.settings)
	s.eventually("the worker to poll", func() bool { return bytes.Contains(p.output(), []byte("workers started")) })
	return p
}

// user is a client of one user, who has enough credits for every test unless the API is not running.
func (s *stack) user(name string, scopes ...string) *client.Client {
	s.tb.Helper()
	op := client.New("http://"+s.httpAddr, s.token("op", "operator"))
	if _, err := op.AddCredits(context.Background(), name, 1_000_000*berth.Credit, "test", "test"); err != nil {
		s.tb.Logf("%s has no credits: %v", name, err)
	}
	return client.New("http://"+s.httpAddr, s.token(name, scopes...))
}

// redis is a client of the stack's Redis.
func (s *stack) redis() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.ready.RedisAddr})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// temporal is a client of the stack's Temporal.
func (s *stack) temporal() temporalclient.Client {
	s.tb.Helper()
	c := s.openTemporal()
	s.tb.Cleanup(c.Close)
	return c
}

// openTemporal is temporal for a client that the caller closes.
func (s *stack) openTemporal() temporalclient.Client {
	s.tb.Helper()
	o := s.connection
	o.Addr = s.ready.TemporalAddr
	c, err := temporalconn.Open(o)
	require.NoError(s.tb, err)
	return c
}

// stats returns the statistics of the model server.
func (s *stack) stats() (st sim.Stats) {
	s.tb.Helper()
	res, err := http.Get(s.model.URL + "/sim/stats") //nolint:noctx // a test's own server
	require.NoError(s.tb, err)
	defer func() { _ = res.Body.Close() }()
	require.NoError(s.tb, json.NewDecoder(res.Body).Decode(&st))
	return st
}

// fault makes the model server fail.
func (s *stack) fault(f sim.Fault) {
	s.tb.Helper()
	b, err := json.Marshal(f)
	require.NoError(s.tb, err)
	res, err := http.Post(s.model.URL+"/sim/faults", "application/json", bytes.NewReader(b)) //nolint:noctx // a test's own server
	require.NoError(s.tb, err)
	defer func() { _ = res.Body.Close() }()
	require.Less(s.tb, res.StatusCode, 300)
}

const maxWait = 60 * time.Second

// eventually waits for a condition. After a timeout the test fails and logs the output of the processes.
func (s *stack) eventually(what string, ok func() bool) {
	s.tb.Helper()
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			s.tb.Fatalf("waited %s for %s", maxWait, what)
		}
	}
}

// process is one program with its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func (s *stack) start(bin string, args, env []string) *process {
	s.tb.Helper()
	path, err := filepath.Abs(filepath.Join("..", "bin", bin))
	require.NoError(s.tb, err)
	if other, ok := s.programs[bin]; ok {
		path = other
	}
	if _, err := os.Stat(path); err != nil {
		s.tb.Fatalf("%s is not built: run `make build`", path)
	}
	return s.run(path, args, env)
}

// run starts any program.
func (s *stack) run(path string, args, env []string) *process {
	s.tb.Helper()
	out, err := os.CreateTemp(s.dir, filepath.Base(path)+"-*.log")
	require.NoError(s.tb, err)
	p := &process{name: fmt.Sprint(filepath.Base(path), args), log: out.Name(), done: make(chan struct{})}
	p.cmd = exec.Command(path, args...) //nolint:gosec,noctx // a test's own program; it is ended by kill or stop
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = s.dir, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.tb, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its effects show how it ended
		_ = out.Close()
		close(p.done)
	}()
	s.started = append(s.started, p)
	return p
}

// kill is SIGKILL; it returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	<-p.done
}

// stop is SIGTERM; it returns when the process is gone, false when that took longer than allowed.
func (p *process) stop(within time.Duration) bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		return false
	}
}

func (p *process) output() []byte {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	return b
}

func (p *process) tail() string {
	b := p.output()
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return string(b)
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	port, release, err := freeport.Reserve()
	require.NoError(tb, err)
	tb.Cleanup(release)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// send makes a call that package client lacks, and returns status and body.
func (s *stack) send(method, path, token string, body any) (int, map[string]any) {
	s.tb.Helper()
	b, err := json.Marshal(body)
	require.NoError(s.tb, err)
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.httpAddr+path, bytes.NewReader(b))
	require.NoError(s.tb, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(s.tb, err)
	defer func() { _ = res.Body.Close() }()
	var out map[string]any
	_ = json.NewDecoder(res.Body).Decode(&out) // some responses have no body
	return res.StatusCode, out
}

// setTimes sets the detection times of a kind of nodes, in ms.
func (s *stack) setTimes(kind berth.NodeKind, heartbeat, suspect, death int) {
	s.tb.Helper()
	status, out := s.send(http.MethodPut, "/v1/config/strategy", s.token("op", "operator"), map[string]any{
		"times": map[string]any{string(kind): map[string]any{
			"heartbeatIntervalMs": heartbeat, "suspectAfterMs": suspect, "failureDetectionTimeoutMs": death,
		}},
	})
	require.Equal(s.tb, http.StatusOK, status, "%v", out)
}

// token returns a user's bearer token, of scope user by default.
func (s *stack) token(user string, scopes ...string) string {
	s.tb.Helper()
	if len(scopes) == 0 {
		scopes = []string{"user"}
	}
	token, err := identity.Issue(secret, identity.Grant{UserID: user, Scopes: scopes, Nodes: []string{"*"}, TTL: 24 * time.Hour})
	require.NoError(s.tb, err)
	return token
}

func problem(t *testing.T, err error) *client.Problem {
	t.Helper()
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	return p
}

// startCLI starts a command with alice's token.
func (s *stack) startCLI(args ...string) *process {
	s.tb.Helper()
	return s.start("berth", args, []string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("alice")})
}

// runCLI runs a command that must succeed or must fail, and returns its output.
func (s *stack) runCLI(succeeds bool, args ...string) string {
	s.tb.Helper()
	p := s.startCLI(args...)
	s.eventually(strings.Join(args, " ")+" to end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	require.Equal(s.tb, succeeds, p.cmd.ProcessState.Success(), "%v: %s", args, p.output())
	return string(p.output())
}

// awaitOutput waits until the output of a running command matches the pattern.
func (s *stack) awaitOutput(p *process, pattern string) {
	s.tb.Helper()
	re := regexp.MustCompile(pattern)
	s.eventually(pattern+" to be shown", func() bool { return re.Match(p.output()) })
}

// closed reports whether the last run of a workflow has ended.
func (s *stack) closed(workflowID string) bool {
	c := s.openTemporal()
	defer c.Close()
	d, err := c.DescribeWorkflowExecution(context.Background(), workflowID, "")
	return err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}

func (s *stack) awaitEnd(workflowID string) {
	s.tb.Helper()
	s.eventually(workflowID+" to end", func() bool { return s.closed(workflowID) })
}

// succeeds waits until a workflow's run has ended, which must not have failed.
func (s *stack) succeeds(workflowID string) {
	s.tb.Helper()
	s.awaitEnd(workflowID)
	d, err := s.temporal().DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(s.tb, err)
	require.Equal(s.tb, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, d.GetWorkflowExecutionInfo().GetStatus(), workflowID)
}

// runOf returns the workflow's current run.
func (s *stack) runOf(c temporalclient.Client, workflowID string) string {
	s.tb.Helper()
	current, err := c.DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(s.tb, err)
	return current.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// link waits until the link of a unit's generation has ended, and saves its history.
func (s *stack) link(name, id string, generation int64) {
	s.tb.Helper()
	s.awaitEnd(workflows.LinkWorkflowID(id, generation))
	s.saveHistory(name, workflows.LinkWorkflowID(id, generation))
}

// afterGrace waits until slots are granted.
func (s *stack) afterGrace(scripts *lua.Scripts) {
	s.tb.Helper()
	s.eventually("the grace to be over", func() bool {
		g, err := scripts.CheckGuard(context.Background())
		return err == nil && g.Left <= 0
	})
}

// noSlots waits until no slot of the nodes is held.
func (s *stack) noSlots(ids ...string) {
	s.tb.Helper()
	s.released(lua.New(s.redis(), lua.Keys{}), ids...)
}

// released is noSlots for any Redis.
func (s *stack) released(scripts *lua.Scripts, ids ...string) {
	s.tb.Helper()
	s.eventually("all slots to be released", func() bool {
		nodes, err := scripts.ReadNodes(context.Background(), ids...)
		if err != nil {
			return false
		}
		for _, n := range nodes {
			if n.Leases > 0 {
				return false
			}
		}
		return true
	})
}

// noSlotsIn is noSlots for another Redis.
func (s *stack) noSlotsIn(redis *testredis.Server, ids ...string) {
	s.tb.Helper()
	own := *s
	own.ready.RedisAddr = redis.Addr()
	own.noSlots(ids...)
}

// noSlotHeld waits until no model's lease is held.
func (s *stack) noSlotHeld() {
	s.tb.Helper()
	rdb := s.redis()
	s.eventually("all slots to be free", func() bool {
		keys, err := rdb.Keys(context.Background(), "model:*:holders").Result()
		if err != nil {
			return false
		}
		for _, k := range keys {
			if n, err := rdb.ZCard(context.Background(), k).Result(); err != nil || n > 0 {
				return false
			}
		}
		return true
	})
}
