//go:build faults

package tests

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/node"
	"berth/lua"
	"berth/workflows"
)

// wrongClock builds berth and its simulators with a standard library whose time.Now is wrong by BERTH_TEST_CLOCK. The monotonic clock, and so
// every timer, is correct, as on a machine whose wall clock is set wrong.
func wrongClock(t *testing.T) (programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go")) //nolint:gosec // the Go standard library
	require.NoError(t, err)
	const read = "sec, nsec, mono := runtimeNow()\n\tif mono == 0"
	require.Equal(t, 1, strings.Count(string(source), read), "the source of time.Now has changed in this version of Go")
	now := strings.Replace(string(source), read, "sec, nsec, mono := runtimeNow()\n\tsec = shifted(sec, mono)\n\tif mono == 0", 1)
	const shift = `package time

import "syscall"

var wrong, _ = syscall.Getenv("BERTH_TEST_CLOCK")

func shifted(sec, mono int64) int64 {
	switch wrong {
	case "ahead":
		return sec + 300
	case "behind":
		return sec - 300
	case "jumping":
		return sec + 300 - 600*(mono/3e9%2)
	}
	return sec
}
`
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": now, "shifted.go": shift} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		replace[filepath.Join(library, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	began := time.Now()
	programs = map[string]string{}
	for name, source := range map[string][2]string{"berth": {"..", "./cmd/berth"}, "berth-sim": {"../dev", "./sim"}} {
		programs[name] = filepath.Join(dir, name)
		out, err := exec.CommandContext(t.Context(), "go", "build", "-C", source[0], "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", programs[name], source[1]).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	t.Logf("built in %s", time.Since(began).Round(time.Second))
	return programs
}

// P9: API, worker and node with clocks five minutes off, or jumping by ten. Slots are held by Redis's clock,
// only the unresponsive node is declared dead, and turns, executions and leases end.
func TestStack_WrongClocks_TimesFollowRedis(t *testing.T) { // L7, L11
	programs := wrongClock(t)
	for _, clock := range []string{"ahead", "behind", "jumping"} {
		t.Run(clock, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, with("TURN_TIMEOUT_MS=3000", "BERTH_TEST_CLOCK="+clock), func(s *stack) { s.programs = programs })
			s.setTimes(berth.NodeTranslate, 500, 3000, 6000)
			translator := s.translator("shifted", "--delay", "6s", "--slots", "1")
			scripts := lua.New(s.redis(), lua.Keys{})
			s.afterGrace(scripts)

			c := s.session("alice", "s1")
			first := c.submit("", 0, "")
			slot := func() time.Duration { // remaining time of the slot
				until, err := s.redis().ZScore(t.Context(), scripts.Keys().NodeSlots("shifted"), first.JobID+":1").Result()
				if errors.Is(err, redis.Nil) {
					return 0
				}
				require.NoError(t, err)
				return time.UnixMilli(int64(until)).Sub(s.clock(t))
			}
			held := slot()
			require.Positive(t, held)
			if held > lua.Unconfirmed+time.Second { // on a busy machine it may be confirmed already
				require.InDelta(t, 40, held.Seconds(), 20)
			}
			s.eventually("the slot to be confirmed", func() bool { held = slot(); return held > 10*time.Second })
			require.InDelta(t, 40, held.Seconds(), 20, "the job's timeout with its margin")
			require.Equal(t, "turn, 0:text 0 [sim], done(timeout 0/1)", c.await(first.TurnID, berth.EventDone))
			require.Equal(t, 1, c.turn(first.TurnID).Jobs[0].Dispatches)
			s.awaitEnd(workflows.TurnWorkflowID(first.TurnID))
			s.noSlots("shifted")

			token := s.token("nodes", "node")
			take := func(lease string) int {
				status, _ := s.send(http.MethodPost, "/v1/assignments", token, map[string]any{"leaseId": lease, "poolId": enES, "holdMs": 2000})
				return status
			}
			began := time.Now()
			require.Equal(t, http.StatusOK, take("one"))
			s.eventually("the lease to expire", func() bool { return take("two") == http.StatusOK })
			require.Greater(t, time.Since(began), time.Second, "the lease lasts 2 s")

			operator, nodes := s.user("op", "operator"), s.user("nodes", "node")
			incarnation, err := node.NewIncarnation()
			require.NoError(t, err)
			_, err = nodes.RegisterNode(t.Context(), client.Registration{NodeSpec: berth.NodeSpec{
				ID: "silent", Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: []string{"translate:en-fr"}, MaxConcurrentJobs: 1,
			}})
			require.NoError(t, err)
			began = time.Now()
			s.eventually("the silent node to be dead", func() bool {
				n, err := operator.Node(t.Context(), "silent")
				return err == nil && n.State == berth.NodeDead
			})
			require.Greater(t, time.Since(began), 5*time.Second, "the detection time is 6 s")
			s.awaitNode("shifted")
			n, err := operator.Node(t.Context(), "shifted")
			require.NoError(t, err)
			require.InDelta(t, 0, s.clock(t).Sub(n.HeartbeatAt).Seconds(), 10, "by Redis's clock")
			notices := strings.Count(string(s.worker.output()), "nodes declared dead")
			require.Equal(t, 1, notices)
			last, err := c.Dispatch(t.Context(), c.id, jobSpec("last", berth.FinalizeManual))
			require.NoError(t, err)
			require.Equal(t, "turn, 0:hola [sim], done(manual 0/1)", c.await(last.TurnID, berth.EventDone))
			for _, p := range []*process{s.api, s.worker, translator} {
				require.Greater(t, p.wrongBy(t).Abs(), 4*time.Minute, "this checks the test: the clock must be wrong")
			}
		})
	}
}

// clock returns the time of Redis.
func (s *stack) clock(t *testing.T) time.Time {
	t.Helper()
	now, err := s.redis().Time(t.Context()).Result()
	require.NoError(t, err)
	return now
}

// wrongBy returns the clock error of the process, from the time of its last log line.
func (p *process) wrongBy(t *testing.T) time.Duration {
	t.Helper()
	info, err := os.Stat(p.log)
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^time=(\S+) `).FindAllSubmatch(p.output(), -1)
	require.NotEmpty(t, lines)
	at, err := time.Parse(time.RFC3339Nano, string(lines[len(lines)-1][1]))
	require.NoError(t, err)
	return at.Sub(info.ModTime())
}
