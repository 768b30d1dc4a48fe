//go:build faults

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/internal/sim"
	"berth/internal/starter"
	"berth/workflows"
)

// buildNextVersion builds a berth whose Task and Conference workflows have another command than those of this version: neither version
// can continue a run of the other.
func buildNextVersion(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir, replaced := t.TempDir(), map[string]string{}
	for file, run := range map[string]string{"task.go": "\treturn t.run(ctx)\n", "conference.go": "\treturn c.run(detached)\n"} {
		source := filepath.Join(root, "workflows", file)
		b, err := os.ReadFile(source) //nolint:gosec // of this project
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(b), run), file)
		other := strings.Replace(string(b), run, "\t_ = workflow.Sleep(ctx, time.Millisecond)\n"+run, 1)
		replaced[source] = filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(replaced[source], []byte(other), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program = filepath.Join(dir, "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/berth") //nolint:gosec // see above
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// observeVersions logs the open runs per version every three seconds until ctx ends.
func (w *cluster) observeVersions(ctx context.Context, s *starter.Starter) (done chan struct{}) {
	done = make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if r, err := s.Rollout(ctx, "berth"); err == nil {
				line := fmt.Sprintf("%3.0f s: none %s", time.Since(began).Seconds(), counts(r.Unversioned))
				for i := len(r.Versions) - 1; i >= 0; i-- {
					v := r.Versions[i]
					line += fmt.Sprintf(" | %s %-8s %s", v.BuildID, v.Status, counts(v.Runs))
				}
				w.tb.Log(line)
			}
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
		}
	}()
	return done
}

// counts formats open tasks, turns, executions and conferences.
func counts(runs map[string]int64) string {
	var out []string
	for _, name := range starter.PinnedWorkflows() {
		out = append(out, fmt.Sprintf("%2d", runs[name]))
	}
	return strings.Join(out, " ")
}

// replayVersions replays the histories that this version has written, and requires that those of the next one cannot be replayed.
func (w *cluster) replayVersions(next string) {
	w.tb.Helper()
	replays := func(h *history.History, e workflow.Execution) error {
		r := worker.NewWorkflowReplayer()
		for name, fn := range map[string]any{
			workflows.TaskWorkflow: workflows.Task, workflows.TurnWorkflow: workflows.Turn, workflows.ExecutionWorkflow: workflows.Execution,
			workflows.ConferenceWorkflow: workflows.Conference, workflows.LinkWorkflow: workflows.Link, workflows.ProbeWorkflow: workflows.Probe,
			workflows.ReportWorkflow: workflows.Report, workflows.ReconcileWorkflow: workflows.Reconcile,
			workflows.RetentionWorkflow: workflows.Retention,
		} {
			r.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
		}
		return r.ReplayWorkflowHistoryWithOptions(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), h, worker.ReplayWorkflowHistoryOptions{OriginalExecution: e})
	}
	replayed := map[string]int{}
	for more, page := true, []byte(nil); more; more = len(page) > 0 {
		list, err := w.frontend.ListWorkflow(w.tb.Context(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 100, NextPageToken: page})
		require.NoError(w.tb, err)
		page = list.GetNextPageToken()
		for _, e := range list.GetExecutions() {
			run := workflow.Execution{ID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId()}
			h, name := w.history(w.tb.Context(), w.frontend, run.ID, run.RunID), e.GetType().GetName()
			versions := map[string]bool{}
			for _, ev := range h.GetEvents() {
				if c := ev.GetWorkflowTaskCompletedEventAttributes(); c != nil {
					versions[c.GetDeploymentVersion().GetBuildId()] = true
				}
			}
			err := replays(h, run)
			switch name {
			case workflows.TaskWorkflow, workflows.ConferenceWorkflow:
				require.False(w.tb, versions[next] && len(versions) > 1, "%s was continued by another version: %v", run.ID, versions)
				if versions[next] {
					require.Error(w.tb, err, "%s does not differ between the versions", run.ID)
					name += " of the next version"
					break
				}
				fallthrough
			default:
				require.NoError(w.tb, err, run.ID)
			}
			replayed[name]++
		}
	}
	w.tb.Logf("histories: %v", replayed)
	for _, name := range []string{workflows.TaskWorkflow, workflows.ConferenceWorkflow} {
		require.NotZero(w.tb, replayed[name+" of the next version"])
	}
}

// B6: under load, a berth without versions is upgraded to version n, and that to version n+1, whose Task and Conference workflows
// differ; a unit dies meanwhile. The log has the open runs per version over time. Nothing that was accepted is lost, each piece of work
// ends once, open conferences stay open, and the workers of a version are stopped as soon as it is drained.
func TestRollout_DifferingVersionsUnderLoad_NothingIsLost(t *testing.T) {
	seed := streamSeed(t)
	next := buildNextVersion(t)
	model := httptest.NewServer(sim.ModelServer(sim.Options{
		FirstTokenDelay: 200 * time.Millisecond, TokensPerSecond: 100, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(model.Close)
	w := newCluster(t, "BERTH_LOCAL_MODEL_URL="+model.URL+"/v1", "BERTH_CONFERENCE_LICENCES=30")
	l := beginMixedLoad(t, w, seed)
	defer l.cancel()
	versions := &starter.Starter{Client: w.frontend, Namespace: "default"}
	observing, stop := context.WithCancel(t.Context())
	defer stop()
	observed := w.observeVersions(observing, versions)
	steady := func() { <-time.After(20 * time.Second) }

	steady()
	old := []*process{w.startVersion("1"), w.startVersion("1")}
	t.Log(w.rollout("set", "1", "--deployment=berth"))
	for _, p := range w.parts {
		if strings.HasPrefix(p.name, "worker-") {
			p.signal(syscall.SIGTERM)
		}
	}
	steady()
	w.programs = map[string]string{"berth": next}
	w.startVersion("2")
	w.startVersion("2")
	w.programs = nil
	rows, err := w.rows(t.Context())
	require.NoError(t, err)
	owners := map[string]int{}
	for _, row := range rows {
		if row.NodeID != "" {
			owners[row.NodeID]++
		}
	}
	t.Logf("conferences of units: %v", owners)
	busiest := slices.MaxFunc(slices.Collect(maps.Keys(owners)), func(a, b string) int { return owners[a] - owners[b] })
	unit := w.parts[slices.IndexFunc(w.parts, func(p *part) bool { return p.name == busiest })]
	unit.kill()
	t.Log(w.rollout("set", "2", "--deployment=berth"))
	drained := w.within("version 1 to be drained", func() bool {
		r, err := versions.Rollout(t.Context(), "berth")
		if err != nil {
			return false
		}
		for _, v := range r.Versions {
			if v.BuildID == "1" {
				return v.Stoppable()
			}
		}
		return false
	})
	unit.start()
	t.Logf("version 1 was drained %s after the conferences had left it", drained.Round(time.Second))
	for _, p := range old {
		require.True(t, p.stop(maxWait))
	}
	steady()

	l.quiet()
	calm := time.Now()
	l.speaking.Wait()
	turns, executions := l.accepted(t)
	w.ended(t, executions)
	orders := l.orders()
	w.everyTask(t, orders)
	conferences := w.keptOnly(t, l.load, calm)
	for _, c := range conferences {
		if c.finish == kept {
			require.Equal(t, "2", w.versionOf(w.frontend, workflows.ConferenceWorkflowID(c.e164)))
		}
	}
	t.Logf("%d turns, %d executions, %d tasks and %d conferences were accepted; %d calls were repeated", len(turns), len(executions), len(orders), len(conferences), l.retries.Load())
	stop()
	<-observed
	w.release(t, conferences)
	w.noneOpen(t)
	w.awaitReady()
	w.noSlotHeld()
	require.NoError(t, w.agree())
	require.Zero(t, w.fullPass(false).Found())
	var received []berth.SessionEvent
	for deadline := time.After(maxWait); checkEvents(turns, received) != nil; {
		select {
		case ev := <-l.received:
			received = append(received, ev.Event)
		case <-deadline:
			require.NoError(t, checkEvents(turns, received))
		}
	}
	l.cancel()
	l.readers.Wait()
	for close(l.received); ; {
		ev, more := <-l.received
		if !more {
			break
		}
		received = append(received, ev.Event)
	}
	require.NoError(t, checkEvents(turns, received))
	require.Positive(t, w.everyConference(t, l.load, conferences), "some were recovered")
	w.replayVersions("2")
}
