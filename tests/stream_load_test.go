//go:build faults

package tests

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/stream"
)

func TestStream_ThousandReadersCut_ResumeWithoutLoss(t *testing.T) { // T15; P11
	s := newStack(t)
	s.worker.kill() // its reconciliation would end tasks that have no runs
	f := newFeeder(s, stream.Options{FlushInterval: time.Millisecond, FlushSize: 4})
	cutStreams(t, s, f, 1000, 300, streamSeed(t))
}

// crowd is many open event streams. None needs a goroutine: events stay in the socket buffer until they are read.
type crowd []net.Conn

// crowdNetwork is the source network of the connections of a crowd.
const crowdNetwork = "127.0.1.0/24"

// gather opens n streams from many loopback addresses, so that no address runs out of ports. It returns when each has
// received its header and the first bytes of its body.
func gather(ctx context.Context, addr string, n int, request func(i int) []byte) (crowd, error) {
	c := make(crowd, n)
	err := c.each(func(i int) (err error) {
		if c[i], err = dial(ctx, fmt.Sprintf("127.0.1.%d", 1+i%50), addr); err != nil {
			return err
		}
		_, err = c[i].Write(request(i))
		return err
	})
	if err != nil {
		c.leave()
		return nil, err
	}
	return c, c.await(time.Minute, "retry: ")
}

// each calls do for every stream, from a few goroutines.
func (c crowd) each(do func(i int) error) error {
	const workers = 16
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error {
			for i := w; i < len(c); i += workers {
				if err := do(i); err != nil {
					return fmt.Errorf("reader %d: %w", i, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// await reads every stream until it has received a text.
func (c crowd) await(within time.Duration, text string) error {
	until := time.Now().Add(within)
	return c.each(func(i int) error {
		if err := c[i].SetReadDeadline(until); err != nil {
			return err
		}
		buf, seen := make([]byte, 4096), []byte(nil)
		for {
			n, err := c[i].Read(buf)
			if seen = append(seen, buf[:n]...); bytes.Contains(seen, []byte(text)) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("no %q in %q: %w", text, seen, err)
			}
		}
	})
}

func (c crowd) leave() {
	for _, conn := range c {
		if conn != nil {
			_ = conn.Close() // closing is intended
		}
	}
}

// status reads a value in KiB of a process from /proc and returns it in bytes.
func status(t *testing.T, pid int, name string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(b)
	require.NotNil(t, m, name)
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	require.NoError(t, err)
	return kib << 10
}

// peakOf returns the peak memory of a process while do runs.
func peakOf(t *testing.T, pid int, what func()) int64 {
	t.Helper()
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0), "begin a new peak")
	what()
	return status(t, pid, "VmHWM")
}

// standing counts the connections from a loopback network that a server has not closed, even if its clients have.
func standing(t *testing.T, server, from string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	const established, closeWait = "01", "08"
	local, clients := procAddr(netip.MustParseAddrPort(server)), netip.MustParsePrefix(from)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[1] != local || f[3] != established && f[3] != closeWait {
			continue
		}
		var ip [4]byte
		var port uint16
		_, err := fmt.Sscanf(f[2], "%02X%02X%02X%02X:%04X", &ip[3], &ip[2], &ip[1], &ip[0], &port)
		require.NoError(t, err, line)
		if clients.Contains(netip.AddrFrom4(ip)) {
			n++
		}
	}
	return n
}

// procAddr returns an address in the form of /proc/net/tcp: 127.0.0.1:80 is 0100007F:0050 there.
func procAddr(a netip.AddrPort) string {
	ip := a.Addr().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port())
}

// allowFiles raises the limit of open files for this process and its children. It returns how many readers are possible, and
// logs if these are fewer than requested.
func allowFiles(t *testing.T, readers int) int {
	t.Helper()
	const others = 500
	need := uint64(readers + others)
	var lim syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	if lim.Cur >= need && lim.Max >= need {
		return readers
	}
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: max(lim.Max, need)})
	if err == nil {
		return readers
	}
	if fewer := int(min(lim.Max, 1<<20)) - others; fewer < readers {
		require.Greater(t, fewer, 100, "too few open files: raise ulimit -n")
		t.Logf("NOT THE WHOLE CLAIM: %d readers instead of %d, the limit of open files is %d (%v)", fewer, readers, lim.Max, err)
		return fewer
	}
	return readers
}

// memory is the memory that open readers cost a process, in bytes of resident memory.
type memory struct{ rest, open, idle, busy int64 }

func (m memory) String() string {
	mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
	return fmt.Sprintf("at rest %s, all open %s, peak while idle %s, peak while all get events %s", mib(m.rest), mib(m.open), mib(m.idle), mib(m.busy))
}

// measure opens readers, lets them idle until idle returns, then sends them rounds of events.
func measure(t *testing.T, pid int, addr string, n int, request func(i int) []byte, idle func(crowd), send func(text string)) (m memory, c crowd) {
	t.Helper()
	m.rest = status(t, pid, "VmRSS")
	began := time.Now()
	c, err := gather(t.Context(), addr, n, request)
	require.NoError(t, err)
	t.Cleanup(c.leave)
	t.Logf("%d readers opened in %s", n, time.Since(began).Round(time.Millisecond))
	m.open = status(t, pid, "VmRSS")
	m.idle = peakOf(t, pid, func() { idle(c) })
	m.busy = peakOf(t, pid, func() {
		for round := range 5 {
			text := fmt.Sprintf("round %d of events", round)
			began := time.Now()
			send(text)
			require.NoError(t, c.await(time.Minute, text))
			t.Logf("%s reached all after %s", text, time.Since(began).Round(time.Millisecond))
		}
	})
	return m, c
}

// bareEcho measures an echo handler in its own process that only holds open streams.
func bareEcho(t *testing.T, n int) memory {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bare")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./testdata/bare").CombinedOutput()
	require.NoError(t, err, string(out))
	addr := freeAddr(t)
	cmd := exec.CommandContext(t.Context(), bin, addr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill() // it runs until it is killed
		_ = cmd.Wait()
	}()
	waitFor(t, "the bare server to answer", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	request := func(int) []byte { return []byte("GET /events HTTP/1.1\r\nHost: bare\r\n\r\n") }
	m, c := measure(t, cmd.Process.Pid, addr, n, request, func(crowd) {}, func(text string) {
		res, err := http.PostForm("http://"+addr+"/event", url.Values{"event": {
			"id: 1763700000000-1\nevent: token\ndata: {\"type\":\"token\",\"taskId\":\"crowd-1234\",\"serviceId\":\"career\",\"stage\":\"answer\",\"ts\":1763700000000,\"text\":\"" + text + "\"}\n\n",
		}})
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	})
	c.leave()
	return m
}

// waitFor waits for a condition of a process outside a stack.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	(&stack{tb: t}).eventually(what, ok)
}

// idleStreams creates tasks whose streams are open and idle.
func (f *feeder) idleStreams(t *testing.T, n int) []berth.Task {
	t.Helper()
	tasks := make([]berth.Task, n)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range tasks {
		g.Go(func() (err error) {
			if tasks[i], err = f.create(t.Context(), "reader", fmt.Sprintf("crowd-%d", i)); err != nil {
				return err
			}
			return f.pub.Open(t.Context(), channel(tasks[i]), 1, tasks[i].DeadlineAt)
		})
	}
	require.NoError(t, g.Wait())
	return tasks
}

// publish sends one token to every task.
func (f *feeder) publish(ctx context.Context, tasks []berth.Task, text string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, task := range tasks {
		g.Go(func() error {
			return f.pub.Publish(ctx, channel(task), 1, berth.Event{Type: berth.EventToken, Stage: berth.StageAnswer, Text: text})
		})
	}
	return g.Wait()
}

// connections counts the stack's connections to Redis, and those of them that are subscribed.
func (f *feeder) connections(t *testing.T) (all, subscribed int) {
	t.Helper()
	list, err := f.redis.ClientList(t.Context()).Result()
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+feederName+" ") {
			continue
		}
		all++
		if !strings.Contains(line, " sub=0 ") {
			subscribed++
		}
	}
	return all, subscribed
}

// subscriptions counts the channels that have a subscriber.
func (f *feeder) subscriptions(t *testing.T) int {
	t.Helper()
	names, err := f.redis.PubSubChannels(t.Context(), "cs:events:*").Result()
	require.NoError(t, err)
	return len(names)
}

// subscriptionConnections is how many connections of an API to Redis subscribe: for the fleet, conferences, slots of models and all readers.
const subscriptionConnections = 4

func TestStream_TenThousandReaders_MemoryIsBounded(t *testing.T) { // T15; P12
	n := allowFiles(t, 10_000)
	bare := bareEcho(t, n)
	t.Logf("bare echo:  %s", bare)

	s := newStack(t, with("BERTH_LOG_LEVEL=info", "BERTH_SSE_HEARTBEAT=5s"))
	s.worker.kill() // as above; and its connections would be counted
	f := newFeeder(s, stream.Options{})
	pid := s.api.cmd.Process.Pid
	tasks := f.idleStreams(t, n)
	token := s.token("reader")
	request := func(i int) []byte { return (&listener{token: token, task: tasks[i].ID}).request() }

	// Start with a few readers, so that one-time allocations and all connections to Redis exist before the measurement.
	few, err := gather(t.Context(), s.httpAddr, 200, request)
	require.NoError(t, err)
	var connections int
	s.eventually("one connection each for fleet, conferences, slots and readers, once those of the worker are closed", func() bool {
		all, subscribed := f.connections(t)
		connections = all
		return subscribed == subscriptionConnections
	})
	few.leave()
	s.eventually("the first readers to be gone", func() bool { return f.subscriptions(t) == 0 })

	m, c := measure(t, pid, s.httpAddr, n, request,
		func(c crowd) {
			for range 12 { // a minute, to include the cost of heartbeats and their garbage collection
				require.NoError(t, c.await(time.Minute, ": heartbeat"))
			}
		},
		func(text string) { require.NoError(t, f.publish(t.Context(), tasks, text)) })
	all, subscribed := f.connections(t)
	t.Logf("berth api:  %s", m)
	t.Logf("ratio:      all open %.2f, idle %.2f, events %.2f; per reader idle %.1f KiB, bare %.1f KiB",
		float64(m.open)/float64(bare.open), float64(m.idle)/float64(bare.idle), float64(m.busy)/float64(bare.busy),
		float64(m.idle-m.rest)/float64(n)/1024, float64(bare.idle-bare.rest)/float64(n)/1024)
	t.Logf("connections to Redis: %d with 200 readers, %d with %d; %d of them subscribed", connections, all, n, subscribed)
	require.Equal(t, subscriptionConnections, subscribed)
	require.LessOrEqual(t, all, connections+2)
	require.Equal(t, n, f.subscriptions(t))

	began := time.Now()
	c.leave()
	s.eventually("every connection to be closed", func() bool { return standing(t, s.httpAddr, crowdNetwork) == 0 })
	s.eventually("every subscription to be gone", func() bool { return f.subscriptions(t) == 0 })
	t.Logf("all freed %s after they left", time.Since(began).Round(time.Millisecond))

	again, err := gather(t.Context(), s.httpAddr, n, request)
	require.NoError(t, err)
	second := status(t, pid, "VmRSS")
	again.leave()
	s.eventually("every subscription to be gone again", func() bool { return f.subscriptions(t) == 0 })
	s.eventually("every connection to be closed again", func() bool { return standing(t, s.httpAddr, crowdNetwork) == 0 })
	t.Logf("as many readers again: %.1f MiB", float64(second)/(1<<20))

	require.NoError(t, s.api.cmd.Process.Signal(syscall.SIGQUIT)) // makes a Go program print the stacks of all goroutines
	<-s.api.done
	dump := s.api.output()
	goroutines := bytes.Count(dump, []byte("\ngoroutine "))
	t.Logf("goroutines left: %d", goroutines)
	require.Positive(t, goroutines)
	require.Less(t, goroutines, 150)
	require.NotContains(t, string(dump), "taskEvents")
	require.Less(t, second, m.busy*5/4, "memory of the first readers is released")
	require.LessOrEqual(t, m.rest, int64(128<<20), "memory without readers")
	require.LessOrEqual(t, m.idle-m.rest, 2*(bare.idle-bare.rest), "memory of open readers beside the bare handler")
	require.LessOrEqual(t, m.busy-m.rest, 2*(bare.busy-bare.rest), "memory of readers who get events beside the bare handler")
}
